"""What happens in a rollout, as values for the log and the admin page."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.resources import Key
from fsxds.rollout.guard import Removal
from fsxds.rollout.step import Client, Rejection, Step


@dataclass(frozen=True, slots=True)
class RolloutEvent:
    """Something happened on the way to a target, whose id it has."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class StepStarted(RolloutEvent):
    """A step is served from now on."""

    step: Step


@dataclass(frozen=True, slots=True)
class StepTimedOut(RolloutEvent):
    """Clients did not take a step in time; the rollout goes on without them."""

    step: Step
    clients: frozenset[Client]


@dataclass(frozen=True, slots=True)
class Completed(RolloutEvent):
    """The target is served, and all clients that are waited for have it."""


@dataclass(frozen=True, slots=True)
class Superseded(RolloutEvent):
    """Another target takes the place of this one before it was reached."""


@dataclass(frozen=True, slots=True)
class RolledBack(RolloutEvent):
    """What was good before is served again; this target is not served again until the tree asks for another one.

    Attributes:
        good_id: the id of what was good.
        rejections: who rejected what; none where somebody aborted the rollout.
    """

    good_id: str
    rejections: tuple[tuple[Client, Rejection], ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped(RolloutEvent):
    """Clients rejected a step, and it stays as it is until somebody approves or aborts, or the tree changes."""

    rejections: tuple[tuple[Client, Rejection], ...]


@dataclass(frozen=True, slots=True)
class Held(RolloutEvent):
    """A target removes so much that somebody has to approve it."""

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class LingeringStarted(RolloutEvent):
    """Resources that this target does not have stay, because connections of draining listeners use them."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class LingeringEnded(RolloutEvent):
    """Resources do not linger any more: their time is over, or the target has them again."""

    keys: frozenset[Key]
