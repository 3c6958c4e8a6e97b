"""A polling node: its subscriptions, and its place in a rollout.

| rule | source |
| --- | --- |
| Each subscription is polled separately; a step is taken when all that it changes polled with their new versions. | ENVOY.md E5, E9 |
| Endpoints of new or changed clusters are polled after these. They are awaited if the client is an Envoy, or polls endpoints. | ENVOY.md E11 |
| A poll for names that its client gave up is awaited only once the client polls again: its cluster may be gone. | ENVOY.md E11 |
| A wildcard poll given up within a step is awaited: its client lost its connection, and returns. | |
| Endpoints that no cluster needs any more, and routes that no listener needs, are not awaited. | ENVOY.md E11 |
| Nor are names that no longer exist: their user is gone, or keeps its version. | ENVOY.md E15 |
| Nor are names not polled during several polls of a rejected response: a rejected listener polls no routes. | ENVOY.md E12 |
| One NACK may be a lost response: a rejection takes two in a row, or an error, or a resource rejected before. | ENVOY.md E9 |
| A client is awaited once it polled again after an answer, of any process: clients that poll once delay no rollout. | |
| A version that a step awaited in vain is awaited in the next, too. | |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import ResourceList, RowsChange, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.acks import NOTHING, PolledVersion, PollState
from fsxds.protocol.messages import ENVOY, ClientStatus, Node, SyncState, WatchStatus
from fsxds.protocol.subscription import Subscription, has_any, missing_names, version_of
from fsxds.rollout import Step
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack, late_nack_of, nack_of
from fsxds.rollout.step import Standing

CLUSTERS = Subscription(BY_SHORT_NAME["cds"].type_url)
ENDPOINTS = BY_SHORT_NAME["eds"].type_url
LISTENERS = Subscription(BY_SHORT_NAME["lds"].type_url)
ROUTES = BY_SHORT_NAME["rds"].type_url
SCOPED_ROUTES = Subscription(BY_SHORT_NAME["srds"].type_url)

# A subscription that was not polled for this long, while other subscriptions of the node were, is not awaited: an Envoy
# that drops a cluster between two polls of its endpoints does not report it. It pauses for once to twice
# `refresh_delay` (ENVOY.md E4), which is known after its first pause.
LEAST_PAUSE_S, MOST_PAUSE_S = 10.0, 120.0

# From the first to the last of this many polls three pauses pass, and no pause of another subscription is longer than
# two (E4).
POLLS_UNTIL_GONE = 4

# The maximum number of rejected versions that are remembered.
MOST_REJECTED = 64

# Stands for the name of the gRPC method, which a polling client does not have.
POLLING = "REST"

# The names of each type that resources of a client reference; None for a type if the client is not known to have any of
# its users.
_Named = dict[TypeUrl, set[str] | None]


@dataclass(slots=True)
class PolledWatch:
    """One subscription of a node.

    Attributes:
        sent: None until the client's version is known.
        confirmed: the resources ACKed last, or None.
        since_s: when `state` last changed, or None.
        nacked: None after a later ACK.
        is_given_up: the client did not wait for the last response.
        ended_at_s: when a poll was last open.
        polled_s: of the last polls, the oldest first.
    """

    sent: PolledVersion | None = None
    confirmed: ResourceList | None = None
    state: SyncState = SyncState.NOT_SENT
    since_s: float | None = None
    acked: Version | None = None
    nacked: Version | None = None
    reason: str | None = None
    open_polls: int = 0
    is_given_up: bool = False
    ended_at_s: float = 0.0
    polled_s: tuple[float, ...] = ()

    def holds(self, version: Version | None) -> bool:
        """Whether the client certainly holds a version."""
        return self.sent is not None and self.sent.state is PollState.ACKED and self.sent.version == version

    def become(self, state: SyncState, now_s: float) -> None:
        """Set the client's state."""
        if self.state is not state:
            self.state, self.since_s = state, now_s

    def receive_sent(self, sent: PolledVersion, now_s: float) -> None:
        """Record a response."""
        self.sent = sent
        if self.state is not SyncState.NACK:
            self.become(SyncState.STALE, now_s)

    def receive_ack(self, sent: PolledVersion, now_s: float) -> None:
        """Record that the client holds a version."""
        self.sent, self.confirmed, self.acked, self.nacked, self.reason = sent, sent.resources, sent.version, None, None
        self.become(SyncState.SYNCED, now_s)

    def receive_nack(self, version: Version, reason: str | None, now_s: float) -> None:
        """Record that the client rejected a version."""
        self.nacked, self.reason = version, reason
        self.become(SyncState.NACK, now_s)

    def sync_state(self, version: Version) -> SyncState:
        """Return the client's state, given the served version."""
        is_old = self.state is SyncState.SYNCED and not self.holds(version)
        return SyncState.STALE if is_old else self.state

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Names that may not be held as sent."""
        resources = () if self.sent is None else self.sent.resources
        if self.confirmed is resources:
            return NOTHING
        held = {resource.name: resource.version for resource in self.confirmed or ()}
        return frozenset(each.name for each in resources if held.get(each.name) != each.version)


class PollingNode:
    """All polls of one client.

    Attributes:
        watches: ordered by the time of the last poll.
        has_returned: it polled again after an answer, or came with another process's version.
        nack: in its last poll; the reader sets None.
    """

    __slots__ = (
        *(
            "_back_at_s",
            "_changed",
            "_has_endpoints",
            "_has_lost",
            "_nacks",
            "_needed",
            "_open_polls",
            "_pause_s",
            "_present",
            "_rejected",
            "_seen_at_s",
            "_several",
            "_step",
            "_waiting",
        ),
        *("has_returned", "nack", "node", "since_s", "watches"),
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.since_s = 0.0
        self.watches: OrderedDict[Subscription, PolledWatch] = OrderedDict()
        # Subscriptions to more than one name, which no Envoy has.
        self._several: set[Subscription] = set()
        # The number of subscriptions that were not given up.
        self._present = 0
        self._open_polls = 0
        self._seen_at_s = 0.0
        # When it polled again after none of its subscriptions had polled for a while.
        self._back_at_s = 0.0
        # It gave up a wildcard poll, and has sent no poll since.
        self._has_lost = False
        # No subscription that still exists pauses for longer.
        self._pause_s = LEAST_PAUSE_S
        # The generation of the step that the following attributes belong to.
        self._step = 0
        self._changed: Mapping[TypeUrl, RowsChange] = {}
        # The version that each subscription is to come back with.
        self._waiting: dict[Subscription, Version] = {}
        # The same for endpoints that the client polls after it has taken its clusters.
        self._needed: dict[Subscription, Version] = {}
        self._has_endpoints = False
        # The resource versions that it rejected, the latest last.
        self._rejected: dict[ResourceVersion, None] = {}
        # How often in a row it rejected each version of a response, the latest last.
        self._nacks: dict[Version, int] = {}
        self.has_returned = False
        self.nack: Nack | None = None

    @property
    def is_polling(self) -> bool:
        """Whether the client did not give up all its polls.

        One without its poll for clusters or listeners, and without open polls, has ended: it did not report the end of
        subscriptions between polls.
        """
        return self._present > 0 and not (self._has_lost and not self._open_polls)

    @property
    def has_open_polls(self) -> bool:
        """Whether a response can be sent."""
        return self._open_polls > 0

    def receive_poll(self, subscription: Subscription, now_s: float) -> PolledWatch:
        """Record an incoming poll."""
        watch = self.watches.get(subscription)
        self.since_s = self.since_s if self.watches else now_s
        if watch is None:
            watch = self.watches[subscription] = PolledWatch()
            self._present += 1
            self._has_endpoints |= subscription.type_url == ENDPOINTS
            if len(subscription.names) > 1 or subscription.globs:
                self._several.add(subscription)
        elif watch.is_given_up:
            watch.is_given_up = False
            self._present += 1
        elif not watch.open_polls:
            self._pause_s = min(max(self._pause_s, 2 * (now_s - watch.ended_at_s)), MOST_PAUSE_S)
        if not self._open_polls and now_s - self._seen_at_s > LEAST_PAUSE_S:
            self._back_at_s = now_s
        self.has_returned |= watch.sent is not None and not watch.open_polls
        self.watches.move_to_end(subscription)
        watch.ended_at_s = self._seen_at_s = now_s
        watch.polled_s = (*watch.polled_s, now_s)[-POLLS_UNTIL_GONE:]
        watch.open_polls += 1
        self._open_polls += 1
        self._has_lost = False
        return watch

    def receive_sent(self, subscription: Subscription, version: Version, generation: int) -> None:
        """Record a response of `generation`'s snapshot."""
        change = self._changed.get(subscription.type_url) if generation == self._step else None
        if subscription in self._waiting or (change is not None and _may_come_back(subscription, change)):
            self._waiting[subscription] = version

    def receive_ack(self, subscription: Subscription) -> None:
        """Record a poll that shows the client's version."""
        watch = self.watches[subscription]
        if watch.sent is not None and watch.sent.state is PollState.ACKED:
            self._nacks.pop(watch.sent.version, None)
        for awaited in (self._waiting, self._needed):
            if watch.holds(awaited.get(subscription)):
                del awaited[subscription]
        if subscription in {CLUSTERS, LISTENERS}:
            self._drop_unneeded()

    def receive_nack(
        self, subscription: Subscription, nacked: PolledVersion, reason: str | None, *, is_certain: bool
    ) -> None:
        """Record a NACK.

        Unless `is_certain`, the response may have been lost, except with a version rejected before.
        """
        confirmed = self.watches[subscription].confirmed or ()
        held = {resource.name: resource.version for resource in confirmed}
        fresh = {resource.name for resource in nacked.resources if held.get(resource.name) != resource.version}
        if confirmed is nacked.resources and reason is not None:
            # A late NACK of resources that were ACKed before.
            nack = late_nack_of(nacked.resources, nacked.resources.names, reason)
        else:
            nack = nack_of(nacked.resources, fresh, reason)
        self._nacks |= {nacked.version: nacked.nacks}
        _keep_last(self._nacks)
        if not (is_certain or nack.versions & self._rejected.keys()):
            return
        self.nack = nack
        self._rejected |= dict.fromkeys(nack.versions)
        _keep_last(self._rejected)
        for awaited in (self._waiting, self._needed):
            awaited.pop(subscription, None)
        if subscription.type_url == CLUSTERS.type_url:
            # It is unknown which clusters it rejected; it polls no endpoints for those.
            self._needed = {one: version for one, version in self._needed.items() if one in self.watches}
        # The rejected resources may have been the only users of some names, which the client then does not poll again.
        polled_s = self.watches[subscription].polled_s
        if len(polled_s) == POLLS_UNTIL_GONE:
            self._waiting = {
                one: version
                for one, version in self._waiting.items()
                if one.wildcard or self.watches[one].open_polls or self.watches[one].ended_at_s >= polled_s[0]
            }

    def nacks_of(self, version: Version) -> int:
        """Return a version's NACKs in a row, ignoring other versions."""
        return self._nacks.get(version, 0)

    def receive_end(self, subscription: Subscription, now_s: float, *, is_given_up: bool) -> None:
        """Record a poll's end."""
        watch = self.watches.get(subscription)
        if watch is None or not watch.open_polls:
            return
        watch.open_polls -= 1
        self._open_polls -= 1
        watch.ended_at_s = self._seen_at_s = now_s
        if is_given_up and not watch.open_polls:
            watch.is_given_up = True
            self._present -= 1
            self._has_lost |= subscription.wildcard
            if not subscription.wildcard:
                self._waiting.pop(subscription, None)

    def forget_oldest(self) -> Subscription:
        """Forget the subscription polled longest ago."""
        subscription, watch = self.watches.popitem(last=False)
        self._present -= not watch.is_given_up
        self._open_polls -= watch.open_polls
        self._several.discard(subscription)
        for known in (self._waiting, self._needed):
            known.pop(subscription, None)
        return subscription

    def is_silent_since(self, time_s: float) -> bool:
        """Whether no poll was open since a time."""
        return self._seen_at_s < time_s and not self.has_open_polls

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subscribed subset of `names`."""
        return NOTHING.union(*(one.selected(names) for one in self.watches if one.type_url == type_url))

    def reachable(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subset of `names` with an open poll."""
        polled = (one for one, watch in self.watches.items() if one.type_url == type_url and watch.open_polls)
        return NOTHING.union(*(one.selected(names) for one in polled))

    def sync_states(self, snapshot: Snapshot) -> Iterator[SyncState]:
        """Yield the state of each current subscription."""
        named: _Named = {}
        for subscription, watch in self.watches.items():
            state = watch.sync_state(version_of(snapshot, subscription))
            if state is SyncState.SYNCED:
                yield state
            elif not self._has_ended(subscription, named):
                yield state if has_any(snapshot, subscription) else SyncState.NOT_SENT

    def status(self, snapshot: Snapshot | None) -> ClientStatus:
        """`snapshot` is None before the first."""
        named: _Named = {}
        there = [each for each in self.watches.items() if not self._has_ended(each[0], named)]
        return ClientStatus(self.node, POLLING, (_status(*each, snapshot) for each in there), self.since_s)

    def standing(self, step: Step) -> Standing:
        """Return whether the client has taken, or rejected, a step.

        A step's first call costs its changed names, later ones nothing.
        """
        if self._step != step.snapshot.generation:
            self._begin(step)
        return Standing.PENDING if self._waiting or (self._needed and self._present) else Standing.TAKEN

    def _begin(self, step: Step) -> None:
        snapshot = step.snapshot
        self._step, self._changed = snapshot.generation, step.changed
        changed = (
            subscription
            for type_url, change in step.changed.items()
            if type_url not in snapshot.withheld
            for subscription in self._selecting(type_url, change)
        )
        self._waiting = {
            subscription: version
            for subscription in (*self._waiting, *changed)
            if (version := self._awaited(subscription, snapshot)) is not None
        }
        is_follower = self._has_endpoints or self.node.agent == ENVOY
        needed = step.endpoints if is_follower and CLUSTERS in self._waiting else NOTHING
        polled = (*self._needed, *(_of_one_name(ENDPOINTS, name) for name in needed))
        rows = snapshot.resources(ENDPOINTS)
        self._needed = {one: version_of(snapshot, one) for one in polled if one.names <= rows.keys()}
        self._drop_unneeded()

    def _drop_unneeded(self) -> None:
        """Stop awaiting polls that no cluster or listener needs: their end is not reported."""
        # Clusters that it has yet to take may need endpoints that it does not poll yet.
        expected = () if CLUSTERS in self._waiting else tuple(self._needed)
        self._drop_unused(ENDPOINTS, CLUSTERS, expected)
        # Scoped routes reference routes as well.
        if LISTENERS not in self._waiting and SCOPED_ROUTES not in self.watches:
            self._drop_unused(ROUTES, LISTENERS)

    def _drop_unused(self, type_url: TypeUrl, users: Subscription, expected: Iterable[Subscription] = ()) -> None:
        """Open polls stay awaited."""
        polled = [one for one in self._waiting if one.type_url == type_url and not self.watches[one].open_polls]
        named = self._named_by(users, type_url) if polled or expected else None
        if named is None:
            return
        for awaited, subscriptions in ((self._waiting, polled), (self._needed, expected)):
            for subscription in subscriptions:
                if subscription.names.isdisjoint(named):
                    del awaited[subscription]

    def _named_by(self, users: Subscription, type_url: TypeUrl) -> set[str] | None:
        """Return None if no users were ACKed."""
        known = self.watches.get(users)
        if known is None or known.confirmed is None:
            return None
        return {one.name for user in known.confirmed for one in user.references if one.type_url == type_url}

    def _has_ended(self, subscription: Subscription, named: _Named) -> bool:
        """Guess: a client does not report the end of a subscription."""
        watch, type_url = self.watches[subscription], subscription.type_url
        if watch.open_polls or watch.is_given_up:
            return watch.is_given_up
        if not self._may_poll_again(watch, subscription):
            return True
        users = {ENDPOINTS: CLUSTERS, ROUTES: LISTENERS}.get(type_url)
        if users is None or (users is LISTENERS and SCOPED_ROUTES in self.watches):
            return False
        if type_url not in named:
            named[type_url] = self._named_by(users, type_url)
        known = named[type_url]
        return known is not None and subscription.names.isdisjoint(known)

    def _selecting(self, type_url: TypeUrl, change: RowsChange) -> Iterator[Subscription]:
        names = change.fresh | change.renewed | change.removed
        possible: Iterable[Subscription] = self.watches
        if len(names) < len(self.watches):
            single = (_of_one_name(type_url, name) for name in names)
            possible = (Subscription(type_url), *single, *self._several)
        for subscription in possible:
            if subscription.type_url == type_url and subscription in self.watches and subscription.selects_any(change):
                yield subscription

    def _awaited(self, subscription: Subscription, snapshot: Snapshot) -> Version | None:
        watch, type_url = self.watches[subscription], subscription.type_url
        if watch.is_given_up or not has_any(snapshot, subscription):
            return None
        if not (watch.open_polls or self._may_poll_again(watch, subscription)):
            return None
        may_lack = type_url in snapshot.incomplete or type_url in snapshot.undeclared
        if watch.sent is None and (may_lack or not watch.open_polls):
            # It is unknown which version the client holds, and no response may be sent that removes resources from it.
            return None
        version = version_of(snapshot, subscription)
        # Resources that it rejected before are offered again, and it has to answer them again.
        return None if watch.holds(version) else version

    def _may_poll_again(self, watch: PolledWatch, subscription: Subscription) -> bool:
        if not (watch.sent is None or watch.sent.resources or subscription.wildcard):
            # It has not polled again since it received that its names are gone.
            return False
        return max(watch.ended_at_s, self._back_at_s) >= self._seen_at_s - self._pause_s


def _status(subscription: Subscription, watch: PolledWatch, snapshot: Snapshot | None) -> WatchStatus:
    type_url, missing = subscription.type_url, tuple[str, ...]()
    if snapshot is not None and type_url not in snapshot.withheld | snapshot.incomplete:
        missing = missing_names(snapshot.resources(type_url), subscription)
    sent = None if watch.sent is None else watch.sent.version
    resources = () if watch.sent is None else watch.sent.resources
    # It is unknown which resources of a NACKed response the client accepted, so all of them count as rejected.
    is_rejected = watch.nacked is not None and watch.nacked == sent
    return WatchStatus(
        type_url,
        None if subscription.wildcard else subscription.names,
        sent=sent,
        acked=watch.acked,
        nacked=watch.nacked,
        reason=watch.reason,
        resources=resources,
        missing=missing,
        rejected=frozenset(resource.name for resource in resources) if is_rejected else NOTHING,
        state=watch.state,
        since_s=watch.since_s,
        unconfirmed=watch.unconfirmed,
    )


def _of_one_name(type_url: TypeUrl, name: str) -> Subscription:
    return Subscription(type_url, frozenset((name,)), wildcard=False)


def _may_come_back(subscription: Subscription, change: RowsChange) -> bool:
    """Whether a change does more than remove the names: a removed cluster polls no endpoints."""
    if subscription.wildcard:
        return subscription.selects_any(change)
    return subscription.selects_any(replace(change, removed=NOTHING))


def _keep_last(known: dict[Any, Any]) -> None:
    while len(known) > MOST_REJECTED:
        del known[next(iter(known))]
