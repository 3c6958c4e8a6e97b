"""One step of a rollout, and what clients answer to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, RowsChange, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.guard import Removal

ID_DIGITS = 12


class StepKind(Enum):
    """What a step does.

    WHOLE: everything at once, because nothing needs an order. GROW: what is used is added and changed, and nothing of it
    removed. SWITCH: what uses it changes. SHRINK: what nothing uses any more goes.
    """

    WHOLE = "whole"
    GROW = "grow"
    SWITCH = "switch"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step on the way to a target; equal to itself alone.

    Attributes:
        step_kind: what it does.
        snapshot: what is served from now on; whoever publishes it sets the generation.
        changed: how it differs from what was served before: only types with differences for clients.
        endpoints: the names of endpoints, which are in the snapshot, that its new or changed clusters need. A client that
            polls clusters has taken the step only when it polled these too.
    """

    step_kind: StepKind
    snapshot: Snapshot
    changed: Mapping[TypeUrl, RowsChange]
    endpoints: frozenset[str] = frozenset()

    def needs_no_order_with(self, later: Step) -> bool:
        """Whether a client may get what this and a later step change in any order.

        So it is where both change users alone, or add and change what is used alone: no order counts within a step either.
        Clusters that wait for endpoints are waited for by themselves.
        """
        sorts = {BY_TYPE_URL[type_url].is_user for type_url in (*self.changed, *later.changed)}
        if self.endpoints or len(sorts) != 1:
            return False
        return sorts == {True} or not any(one.removed for one in (*self.changed.values(), *later.changed.values()))

    def joined_with(self, later: Step) -> Step:
        """Return a later step that has to be taken together with this one."""
        changed = {
            type_url: _joined(self.changed.get(type_url, RowsChange()), later.changed.get(type_url, RowsChange()))
            for type_url in {**self.changed, **later.changed}
        }
        return replace(later, changed=MappingProxyType(changed))


def _joined(earlier: RowsChange, later: RowsChange) -> RowsChange:
    """Return the names of two changes, one after the other; what changed back is among them."""
    return RowsChange(
        (earlier.fresh | later.fresh) - later.removed,
        (earlier.renewed | later.renewed) - later.removed,
        (earlier.removed | later.removed) - later.fresh,
    )


class Standing(Enum):
    """Where a client is with a step: it has all of it that it subscribes to, or not yet."""

    TAKEN = "taken"
    PENDING = "pending"


class Client(Protocol):
    """Somebody who is served: a stream, a node that polls, a mirror; equal to itself alone."""

    def __hash__(self) -> int:
        """Return a number that stays the same."""

    def standing(self, step: Step) -> Standing:
        """Return where it is with a step, and with those that it was asked about before.

        It has taken one of which it subscribes to nothing that changed. What it rejected, it has answered.
        """


def snapshot_id(snapshot: Snapshot) -> str:
    """Return 12 hex digits over the versions of all types: equal content has one id, in every process."""
    versions = snapshot.versions
    lines = "".join(f"{type_url}\0{versions[type_url]}\n" for type_url in sorted(versions))
    return hashlib.sha256(lines.encode()).hexdigest()[:ID_DIGITS]


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
