"""The order of updates on a Delta stream.

A client that connects with content takes steps as in a rollout:

| step | sent | source |
| --- | --- | --- |
| GROW | added or changed used resources | xDS protocol, "Eventual consistency considerations" |
| SWITCH | brought users, after GROW was answered | ENVOY.md E70 |
| SHRINK | removals of used resources, after all users and the resources that these reference were ACKed | the same |
| | if listeners changed, after old ones' connections have drained: it is unknown which resources these use | ENVOY.md E66 |
| | for an Envoy, after a start without state, after earlier connections have drained: it is unknown which exist | the same |

A step waits for at most `step_timeout_s`. Users on other streams are unknown: only time counts for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import NO_RESOURCES, ResourceList
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.acks import NOTHING
from fsxds.protocol.lookup import NO_ALIASES, Changes
from fsxds.protocol.stream_core import Watch
from fsxds.protocol.ttl import earliest
from fsxds.rollout.machine import RolloutOptions

AT_ONCE = RolloutOptions(is_on=False)


@dataclass(frozen=True, slots=True)
class DeltaUpdate:
    """One type's update; `unrequested` names were not subscribed to."""

    type_url: TypeUrl
    version: Version
    changes: Changes
    resources: ResourceList = NO_RESOURCES
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_ALIASES)
    unrequested: frozenset[str] = NOTHING

    def divided(self) -> tuple[DeltaUpdate | None, DeltaUpdate]:
        """Split off the removal; None for an empty rest."""
        rest = replace(self.changes, removed=NOTHING)
        removal = DeltaUpdate(self.type_url, self.version, Changes(removed=self.changes.removed))
        return replace(self, changes=rest) if rest else None, removal


def removals_last(updates: list[DeltaUpdate]) -> Iterator[DeltaUpdate]:
    """Yield a batch's updates, removals of used resources last.

    A client that missed steps uses removed resources until it has the rest.
    """
    removals = []
    for update in updates:
        if len(updates) == 1 or not update.changes.removed or BY_TYPE_URL[update.type_url].is_user:
            yield update
            continue
        rest, removal = update.divided()
        removals.append(removal)
        if rest is not None:
            yield rest
    yield from reversed(removals)


class Arrival:
    """One client's place in these steps; times are of its stream's clock.

    `timer_at_s` is when to decide again without an answer, None for never; with `has_new_listeners`, replaced ones may
    have open connections.
    """

    __slots__ = ("_arrived_s", "_has_waited", "_rollout", "_unknown_until_s", "has_new_listeners", "timer_at_s")

    def __init__(self) -> None:
        self.timer_at_s: float | None = None
        self.has_new_listeners = False
        # When the client first brought content.
        self._arrived_s: float | None = None
        self._rollout = AT_ONCE
        # Until then, draining listeners of an Envoy may use resources that are not served; other clients have none.
        self._unknown_until_s = 0.0
        self._has_waited = False

    def begin(self, now_s: float, rollout: Callable[[], RolloutOptions], *, is_envoy: bool) -> None:
        """Called before a batch is sent to a client with new content; time counts from the first call."""
        if self._arrived_s is None:
            self._arrived_s, self._rollout = now_s, rollout()
            self._unknown_until_s = self._rollout.unknown_until_s if is_envoy else 0.0

    @property
    def is_ordered(self) -> bool:
        """Whether the client takes steps."""
        return self._rollout.is_on

    def holds_users(self, watches: Iterable[Watch[Any]], now_s: float, *, grows: bool) -> bool:
        """Whether users wait for answers to resources that they may use."""
        at_s = self._until_s(1)
        if at_s <= now_s or not (grows or any(watch.awaits_answer for watch in watches if not watch.is_user)):
            return False
        self._has_waited, self.timer_at_s = True, at_s
        return True

    def holds_removals(self, watches: Iterable[Watch[Any]], now_s: float, *, has_more: bool) -> bool:
        """Whether removals wait, because resources may be in use."""
        lingers_s = self._rollout.linger_s if self.has_new_listeners else 0.0
        at_s = max(self._until_s(1 + self._has_waited) + lingers_s, self._unknown_until_s)
        may_linger = lingers_s > 0 or self._unknown_until_s > now_s
        if at_s <= now_s or not (has_more or may_linger or not _have_moved_on(tuple(watches))):
            return False
        self.timer_at_s = earliest(self.timer_at_s, at_s)
        return True

    def _until_s(self, steps: int) -> float:
        return (self._arrived_s or 0.0) + steps * self._rollout.step_timeout_s


def _have_moved_on(watches: tuple[Watch[Any], ...]) -> bool:
    users = {watch.type_url: watch for watch in watches if watch.is_user}
    if not users or not all(watch.has_taken_all for watch in watches):
        return False
    # Requests for several types come one by one: the request for routes comes after the one for the listeners that
    # reference them.
    named = frozenset[TypeUrl]().union(*(watch.named_types for watch in users.values()))
    awaited = {url for url in named if url in BY_TYPE_URL and BY_TYPE_URL[url].is_user}
    return all(url in users and users[url].is_initialized for url in awaited | users.keys())
