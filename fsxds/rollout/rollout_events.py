"""What happens in a rollout, as values for the log and the admin page."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.resources import Key
from fsxds.rollout.guard import Removal
from fsxds.rollout.step import Client, Step


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
    """Clients did not take a step in time; they follow at their own pace, and the others go on."""

    step: Step
    clients: frozenset[Client]


@dataclass(frozen=True, slots=True)
class Completed(RolloutEvent):
    """The target is served, and all clients that are waited for have it."""


@dataclass(frozen=True, slots=True)
class Superseded(RolloutEvent):
    """Another target takes the place of this one before it was reached."""


@dataclass(frozen=True, slots=True)
class Held(RolloutEvent):
    """A tree removes so much that it has to be approved, by the id that is in the place of the target's."""

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class PinsChanged(RolloutEvent):
    """So many resources are rolled back now, and so many were before."""

    count: int
    before: int


@dataclass(frozen=True, slots=True)
class LingeringStarted(RolloutEvent):
    """Resources that this target does not have stay, because connections of draining listeners use them."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class LingeringEnded(RolloutEvent):
    """Resources do not linger any more: their time is over, or the target has them again."""

    keys: frozenset[Key]
