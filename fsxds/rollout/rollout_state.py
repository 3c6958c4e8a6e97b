"""How a rollout is run, where it is for those who look at it, and what survives a restart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsxds.resources import Snapshot
from fsxds.rollout.guard import Removal
from fsxds.rollout.lingering import Draining, LingeringByKey
from fsxds.rollout.step import Client, Step


class OnNack(Enum):
    """What becomes of a target that clients reject: it is taken back, stays where it is, or goes on."""

    ROLLBACK = "rollback"
    HOLD = "hold"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """How a rollout is run.

    Attributes:
        is_on: False serves every target at once, and nothing lingers.
        linger_s: how long draining listeners may have connections.
        step_timeout_s: how long clients are waited for.
        nack_limit: so many clients have to reject a target before `on_nack` counts.
        on_nack: what becomes of it then.
        max_removal: the largest share of a type that a target may remove unasked, from 0 to 1; None for no limit.
    """

    is_on: bool = True
    linger_s: float = 600.0
    step_timeout_s: float = 5.0
    nack_limit: int = 1
    on_nack: OnNack = OnNack.ROLLBACK
    max_removal: float | None = 0.5


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """A target that waits until somebody approves what it removes."""

    snapshot_id: str
    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """Where a rollout is.

    Attributes:
        served_id: the id of what is served, which may be that of a step; None before the first.
        target_id: the id of what is to be reached.
        good_id: the id of the target that was reached last.
        asked_id: the id of what the tree asked for last.
        step: the step that is waited for.
        waiting: the clients that it waits for.
        late: the clients that let a step time out.
        is_back: it takes a target back.
        is_stopped: clients rejected a step, and it stays there.
        is_pinned: the target is an earlier snapshot that somebody asked for.
        held: a target that waits for approval.
        tainted: the ids of targets that are not served again until the tree changes.
        lingering: what stays although the target does not have it.
    """

    served_id: str | None
    target_id: str | None
    good_id: str | None
    asked_id: str | None
    step: Step | None
    waiting: frozenset[Client]
    late: frozenset[Client]
    is_back: bool
    is_stopped: bool
    is_pinned: bool
    held: HeldTarget | None
    tainted: frozenset[str]
    lingering: LingeringByKey


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What has to survive a restart so that the rollout goes on where it was.

    Attributes:
        served: what is served.
        target: what is to be reached.
        good: the target that was reached last, None for none.
        asked_id: the id of what the tree asked for last.
        tainted: the ids of targets that are not served again until the tree changes.
        pinned: the earlier snapshot that somebody asked for, None for none.
        is_back: it takes a target back.
        draining: the old versions of listeners; their times are seconds left.
        is_stopped: clients rejected a step, and it stays there until somebody decides.
    """

    served: Snapshot
    target: Snapshot
    good: Snapshot | None = None
    asked_id: str | None = None
    tainted: frozenset[str] = frozenset()
    pinned: Snapshot | None = None
    is_back: bool = False
    draining: Draining = ()
    is_stopped: bool = False
