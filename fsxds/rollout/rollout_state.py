"""How a rollout is run, and what survives a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsxds.model.resources import Key, Snapshot
from fsxds.rollout.lingering import Draining
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.target import Pin


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """How a rollout is run.

    Attributes:
        is_on: False serves every target at once, and nothing lingers.
        linger_s: how long draining listeners may have connections.
        step_timeout_s: how long clients are waited for.
        unknown_until_s: until then, by the clock of clients, connections of draining listeners may use what is not served: a
            process before left no state.
    """

    is_on: bool = True
    linger_s: float = 600.0
    step_timeout_s: float = 5.0
    unknown_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutState:
    """What has to survive a restart so that the rollout goes on where it was.

    Attributes:
        served: what is served.
        target: what is to be reached.
        good: the target that was reached last, None for none.
        draining: the old versions of listeners; their times are seconds left.
        pins: what a rollback holds.
        pinned_at_s: when that was decided, in seconds since 1970; None without pins.
        before: for versions that nodes reject, what was good before them.
        pinned: what is rolled back to as a whole: the next tree shows which resources that pins. None for nothing.
        held_for_s: for how long each resource has been held back, in seconds.
        nodes: those that are there, where these are not all nodes of their channel but some that are behind the others.
    """

    served: Snapshot
    target: Snapshot
    good: Snapshot | None = None
    draining: Draining = ()
    pins: Mapping[Key, Pin] = field(default_factory=dict)
    pinned_at_s: float | None = None
    before: Mapping[ResourceVersion, Snapshot] = field(default_factory=dict)
    nodes: frozenset[tuple[str, str]] = frozenset()
    pinned: Snapshot | None = None
    held_for_s: Mapping[Key, float] = field(default_factory=dict)
