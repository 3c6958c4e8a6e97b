"""The options of a rollout, and its state across restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsxds.model.resources import Key, Snapshot
from fsxds.rollout.lingering import Draining
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.target import Pin


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """The options of a rollout.

    Without `is_on`, every target is served at once, without lingering. Until `unknown_until_s`, by the clock of
    clients, draining listeners may use unserved resources: the previous process left no state.
    """

    is_on: bool = True
    linger_s: float = 600.0
    step_timeout_s: float = 5.0
    unknown_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state that survives a restart.

    Attributes:
        good: the last target reached.
        draining: its times are seconds left.
        pinned_at_s: since 1970; None without pins.
        before: for versions that nodes reject, the snapshot before them.
        nodes: if only some of their channel's, behind the rest.
        pinned: to roll back to, until the next tree shows the resources to pin.
        held_for_s: how long each resource has been held back.
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
