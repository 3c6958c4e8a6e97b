"""Steps of rollouts, clients, and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, RowsChange, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.holding import Removal


class StepKind(Enum):
    """The sort of a step's changes.

    WHOLE: all. GROW: used resources are added and changed. SWITCH: their users change. SHRINK: resources without users
    are removed.
    """

    WHOLE = "whole"
    GROW = "grow"
    SWITCH = "switch"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step to a target; equal to itself alone.

    The publisher sets `snapshot`'s generation; `changed` has only types with differences for clients. `endpoints` are
    needed by new or changed clusters: a client that polls clusters takes the step only when it polled these too.
    """

    step_kind: StepKind
    snapshot: Snapshot
    changed: Mapping[TypeUrl, RowsChange]
    endpoints: frozenset[str] = frozenset()

    def needs_no_order_with(self, later: Step) -> bool:
        """Whether a client may receive this and a later step in any order.

        It may if both change only users, or only add and change used resources; endpoints have a wait of their own.
        """
        sorts = {BY_TYPE_URL[type_url].is_user for type_url in (*self.changed, *later.changed)}
        if self.endpoints or len(sorts) != 1:
            return False
        return sorts == {True} or not any(one.removed for one in (*self.changed.values(), *later.changed.values()))

    def joined_with(self, later: Step) -> Step:
        """Return a later step, to be taken together with this."""
        changed = {
            type_url: _joined(self.changed.get(type_url, RowsChange()), later.changed.get(type_url, RowsChange()))
            for type_url in {**self.changed, **later.changed}
        }
        return replace(later, changed=MappingProxyType(changed))


def _joined(earlier: RowsChange, later: RowsChange) -> RowsChange:
    return RowsChange(
        (earlier.fresh | later.fresh) - later.removed,
        (earlier.renewed | later.renewed) - later.removed,
        (earlier.removed | later.removed) - later.fresh,
    )


class Standing(Enum):
    """Whether a client has all of its subscriptions."""

    TAKEN = "taken"
    PENDING = "pending"


class Client(Protocol):
    """A stream, a polling node, a mirror; equal to itself alone."""

    def __hash__(self) -> int:
        """Return a number that stays the same."""

    def standing(self, step: Step) -> Standing:
        """Return the standing with all steps asked about so far.

        A step without changes for a client counts as taken. A rejection is an answer, too.
        """


@dataclass(frozen=True, slots=True)
class RolloutEvent:
    """An event on the way to a target."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class StepStarted(RolloutEvent):
    """A step is served from now on."""

    step: Step


@dataclass(frozen=True, slots=True)
class StepTimedOut(RolloutEvent):
    """Clients that did not take a step in time follow at their pace."""

    step: Step
    clients: frozenset[Client]


@dataclass(frozen=True, slots=True)
class Completed(RolloutEvent):
    """All clients have the target."""


@dataclass(frozen=True, slots=True)
class Superseded(RolloutEvent):
    """Another target came before this one was reached."""


@dataclass(frozen=True, slots=True)
class Held(RolloutEvent):
    """A large removal needs approval, by this id."""

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class PinsChanged(RolloutEvent):
    """The number of pinned resources changed."""

    count: int
    before: int


@dataclass(frozen=True, slots=True)
class LingeringStarted(RolloutEvent):
    """Resources that the target lacks stay for draining listeners."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class LingeringEnded(RolloutEvent):
    """Lingering ended: its time is over, or the target has the resources again."""

    keys: frozenset[Key]
