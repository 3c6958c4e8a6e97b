"""A node that polls: its subscriptions, which are one client together, and how it stands in a step of a rollout.

| rule | source |
| --- | --- |
| Each subscription is polled apart; a step is taken when all that it changes came back with their new versions. | ENVOY.md E5, E9 |
| Endpoints that new or changed clusters need are polled after these; until then the clusters have none. | ENVOY.md E11 |
| A poll that its client gave up is not waited for before it is there again: its cluster may have changed or gone. | ENVOY.md E11 |
| Names that do not exist any more are not waited for: what used them has gone, or keeps what it has. | ENVOY.md E15 |
| One NACK may be a lost response: two in a row reject a step, or one with an error. | ENVOY.md E9 |
| Who rejected a version before a step, and does not say why, may reject it for the same reason still: that is not the step's. | ENVOY.md E9, E12 |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fsxds.protocol.acks import NOTHING, PolledVersion, PollState
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import Subscription, selected_names, version_of
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import RowsChange, Snapshot
from fsxds.rollout import Rejection, Standing, Step
from fsxds.values import TypeUrl, Version

CLUSTERS = Subscription(BY_SHORT_NAME["cds"].type_url)
ENDPOINTS = BY_SHORT_NAME["eds"].type_url

# A subscription that was not polled again for so long, while others of the node were, is not waited for: an Envoy that drops
# a cluster between two polls of its endpoints does not say so. It pauses for once to twice `refresh_delay` (ENVOY.md E4).
LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class PolledWatch:
    """One subscription of a node.

    `sent` is None until it is known what the client holds. `open_polls` counts polls that were not answered yet.
    `is_given_up`: the client ended the last one without a response. `ended_at_s` is when there was an open poll last.
    """

    sent: PolledVersion | None = None
    open_polls: int = 0
    is_given_up: bool = False
    ended_at_s: float = 0.0

    def holds(self, version: Version | None) -> bool:
        """Whether the client is certain to hold a version."""
        return self.sent is not None and self.sent.state is PollState.ACKED and self.sent.version == version


class PollingNode:
    """All polls of one client.

    Attributes:
        node: as the client described itself last.
        watches: its subscriptions, the last polled one last.
    """

    __slots__ = (
        *("_changed", "_needed", "_present", "_rejections", "_seen_at_s", "_several", "_step", "_waiting"),
        *("_rejecting", "_rejecting_still", "node", "watches"),
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.watches: OrderedDict[Subscription, PolledWatch] = OrderedDict()
        # Those to more than one name, which no Envoy has.
        self._several: set[Subscription] = set()
        # So many of all were not given up.
        self._present = 0
        self._seen_at_s = 0.0
        # The generation of the step that the rest is about.
        self._step = 0
        self._changed: Mapping[TypeUrl, RowsChange] = {}
        # The versions that are to come back.
        self._waiting: dict[Subscription, Version] = {}
        # The same for endpoints that the client polls when it has taken its clusters.
        self._needed: dict[Subscription, Version] = {}
        self._rejections: dict[Subscription, Rejection] = {}
        # Those of which the client rejected what was served before the step; of some of them now the step as well.
        self._rejecting: frozenset[Subscription] = frozenset()
        self._rejecting_still: set[Subscription] = set()

    @property
    def is_polling(self) -> bool:
        """Whether the client has an open poll, or did not give up all that it had."""
        return self._present > 0

    def receive_poll(self, subscription: Subscription, now_s: float) -> PolledWatch:
        """Note that a poll came; return what is known of its subscription."""
        watch = self.watches.get(subscription)
        if watch is None:
            watch = self.watches[subscription] = PolledWatch()
            self._present += 1
            if len(subscription.names) > 1 or subscription.globs:
                self._several.add(subscription)
        elif watch.is_given_up:
            watch.is_given_up = False
            self._present += 1
        self.watches.move_to_end(subscription)
        watch.ended_at_s = self._seen_at_s = now_s
        watch.open_polls += 1
        return watch

    def receive_sent(self, subscription: Subscription, version: Version, generation: int) -> None:
        """Note that a response is sent, with the version that the snapshot of this generation has for a subscription."""
        change = self._changed.get(subscription.type_url)
        is_awaited = generation == self._step and subscription not in self._rejecting_still
        if is_awaited and change is not None and _may_come_back(subscription, change):
            self._waiting[subscription] = version

    def receive_ack(self, subscription: Subscription) -> None:
        """Note that a poll came that shows what the client holds."""
        watch = self.watches[subscription]
        for awaited in (self._waiting, self._needed):
            if watch.holds(awaited.get(subscription)):
                del awaited[subscription]
                self._rejections.pop(subscription, None)

    def receive_nack(self, subscription: Subscription, nacked: PolledVersion, reason: str | None) -> None:
        """Note that the client NACKed a version, and that this is no lost response."""
        awaited = self._waiting.get(subscription) or self._needed.get(subscription)
        if nacked.version != awaited:
            return
        if reason is None and subscription in self._rejecting:
            self._rejecting_still.add(subscription)
            self._waiting.pop(subscription, None)
        else:
            names = _names_in(self._changed.get(subscription.type_url, RowsChange()))
            if not subscription.wildcard:
                names = subscription.among(names) or subscription.names
            self._rejections[subscription] = Rejection(subscription.type_url, nacked.version, names, reason)

    def receive_end(self, subscription: Subscription, now_s: float, *, is_given_up: bool) -> None:
        """Note that a poll ended: it was answered, or its client gave it up."""
        watch = self.watches.get(subscription)
        if watch is None or not watch.open_polls:
            return
        watch.open_polls -= 1
        watch.ended_at_s = self._seen_at_s = now_s
        if is_given_up and not watch.open_polls:
            watch.is_given_up = True
            self._present -= 1
            self._waiting.pop(subscription, None)
            self._rejections.pop(subscription, None)

    def forget_oldest(self) -> Subscription:
        """Forget the subscription that was not polled for the longest, and return it."""
        subscription, watch = self.watches.popitem(last=False)
        self._present -= not watch.is_given_up
        self._several.discard(subscription)
        for known in (self._waiting, self._needed, self._rejections):
            known.pop(subscription, None)
        return subscription

    def standing(self, step: Step) -> Standing | Rejection:
        """Return whether the client has taken what a step changed of its subscriptions, or NACKed some of it.

        The first call for a step costs the names that it changed, all others nothing.
        """
        if self._step != step.snapshot.generation:
            self._begin(step)
        if self._rejections:
            return next(iter(self._rejections.values()))
        return Standing.PENDING if self._waiting or (self._needed and self._present) else Standing.TAKEN

    def _begin(self, step: Step) -> None:
        snapshot = step.snapshot
        self._step = snapshot.generation
        self._changed, self._rejections = step.changed, {}
        self._waiting = {
            subscription: version
            for type_url, change in step.changed.items()
            if type_url not in snapshot.withheld
            for subscription in self._selecting(type_url, change)
            if (version := self._awaited(subscription, snapshot)) is not None
        }
        self._rejecting, self._rejecting_still = frozenset(filter(self._is_rejected, self._waiting)), set()
        needed = step.endpoints if CLUSTERS in self._waiting else NOTHING
        polled = (_of_one_name(ENDPOINTS, name) for name in needed)
        self._needed = {subscription: version_of(snapshot, subscription) for subscription in polled}

    def _is_rejected(self, subscription: Subscription) -> bool:
        sent = self.watches[subscription].sent
        return sent is not None and sent.nacks > 1

    def _selecting(self, type_url: TypeUrl, change: RowsChange) -> Iterator[Subscription]:
        """Yield the subscriptions that select any of the changed resources, looking at the fewer of both."""
        names = _names_in(change)
        possible: Iterable[Subscription] = self.watches
        if len(names) < len(self.watches):
            single = (_of_one_name(type_url, name) for name in names)
            possible = (Subscription(type_url), *single, *self._several)
        for subscription in possible:
            if subscription.type_url == type_url and subscription in self.watches and subscription.selects_any(change):
                yield subscription

    def _awaited(self, subscription: Subscription, snapshot: Snapshot) -> Version | None:
        """Return the version that a subscription is waited for to come back with; None where it is not waited for."""
        watch, type_url = self.watches[subscription], subscription.type_url
        rows = snapshot.resources(type_url)
        if watch.is_given_up or not (subscription.wildcard or selected_names(rows, subscription) & rows.keys()):
            return None
        if not watch.open_polls and watch.ended_at_s < self._seen_at_s - LONGEST_PAUSE_S:
            return None
        may_lack = type_url in snapshot.incomplete or type_url in snapshot.undeclared
        if watch.sent is None and (may_lack or not watch.open_polls):
            # Nobody knows what the client holds, and nothing may be sent that takes it away.
            return None
        version = version_of(snapshot, subscription)
        return None if watch.holds(version) else version


def _of_one_name(type_url: TypeUrl, name: str) -> Subscription:
    return Subscription(type_url, frozenset((name,)), wildcard=False)


def _may_come_back(subscription: Subscription, change: RowsChange) -> bool:
    """Whether a change is more to a subscription than that what it names is gone: a cluster that goes polls no endpoints."""
    if subscription.wildcard:
        return subscription.selects_any(change)
    return subscription.selects_any(replace(change, removed=NOTHING))


def _names_in(change: RowsChange) -> frozenset[str]:
    return change.fresh | change.renewed | change.removed
