"""Which clients are connected, on any transport, and what each was sent, ACKed and NACKed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import starmap

from fsxds.protocol.messages import Acknowledgement, ClientStatus, Node, WatchStatus
from fsxds.protocol.poll import MOST_NODES, SUBSCRIPTIONS_EACH, PollRequest
from fsxds.protocol.subscription import Selection, Subscription, select, version_of
from fsxds.protocol.sync_states import SyncState
from fsxds.resources import Resource, Snapshot
from fsxds.values import Version

# In place of the method that the client of a stream called.
POLLING = "REST"

# A polling client has no connection that could end: it is removed when it did not poll for so long.
FORGOTTEN_AFTER_S = 600.0


class Clients:
    """Knows all clients: streams report when they open and close, polls go to `polls`. Touched from the event loop only.

    Args:
        forgotten_after_s: when a client that does not poll is removed; above the longest time that a poll is held.
    """

    def __init__(self, forgotten_after_s: float = FORGOTTEN_AFTER_S) -> None:
        self.polls = ReportedPolls(forgotten_after_s)
        self._streams: dict[object, Callable[[], ClientStatus]] = {}

    def opened(self, status: Callable[[], ClientStatus]) -> object:
        """Add a stream, and return the token for `closed`. `status` is called for each report, so it must be quick."""
        token = object()
        self._streams[token] = status
        return token

    def closed(self, token: object) -> None:
        """Remove a stream, unless it was removed before."""
        self._streams.pop(token, None)

    def statuses(self, now_s: float) -> Iterator[ClientStatus]:
        """Yield the status of every client: streams first, in the order in which they opened.

        A stream that ends while the iterator is used may be in it or not.

        Args:
            now_s: a reading of the clock of `ReportedPolls`.
        """
        for token in tuple(self._streams):
            status = self._streams.get(token)
            if status is not None:
                yield status()
        yield from self.polls.statuses(now_s)


@dataclass(slots=True)
class _PolledWatch:
    """What the polls of one client for one subscription have shown."""

    seen_at_s: float
    since_s: float | None = None
    sent: Version | None = None
    acked: Version | None = None
    nacked: Version | None = None
    reason: str | None = None
    resources: Collection[Resource] = ()
    missing: tuple[str, ...] = ()
    # What it was sent when it ACKed last.
    confirmed: Collection[Resource] = ()

    def accept(self, version: Version) -> None:
        """Note that the client holds a version."""
        self.acked, self.nacked, self.reason = version, None, None
        if version == self.sent:
            self.confirmed = self.resources

    @property
    def unconfirmed(self) -> frozenset[str]:
        """The names that the client was sent, and may not hold as they were sent."""
        if self.confirmed is self.resources:
            return frozenset()
        held = {resource.name: resource.version for resource in self.confirmed}
        return frozenset(each.name for each in self.resources if held.get(each.name) != each.version)

    @property
    def state(self) -> SyncState:
        """How the client stands with what it was sent."""
        if self.nacked is not None:
            return SyncState.NACK
        if self.sent is None:
            return SyncState.NOT_SENT
        return SyncState.SYNCED if self.acked == self.sent else SyncState.STALE


@dataclass(slots=True)
class _PollingClient:
    """A client that polls, and its subscriptions, the last polled one last."""

    node: Node
    since_s: float
    watches: OrderedDict[Subscription, _PolledWatch] = field(default_factory=OrderedDict)

    def status(self, watches: Iterable[tuple[Subscription, _PolledWatch]]) -> ClientStatus:
        """Return the status with some of its subscriptions."""
        return ClientStatus(self.node, POLLING, starmap(_status, watches), self.since_s)

    @property
    def newest(self) -> _PolledWatch:
        """The subscription that it polled for last."""
        return next(reversed(self.watches.values()))

    @property
    def oldest(self) -> _PolledWatch:
        """The subscription that it has not polled for the longest."""
        return next(iter(self.watches.values()))


_Key = tuple[str, str, str]


class ReportedPolls:
    """Remembers polls for client status; no response depends on it.

    `now_s` is a reading of one monotonic clock, in seconds.
    """

    def __init__(self, forgotten_after_s: float = FORGOTTEN_AFTER_S, most_clients: int = MOST_NODES) -> None:
        # The client that polled last is the last.
        self._clients: OrderedDict[_Key, _PollingClient] = OrderedDict()
        # The weight of all subscriptions.
        self._weight = 0
        self.forgotten_after_s = forgotten_after_s
        self.most_clients = most_clients

    def poll_received(self, poll: PollRequest, snapshot: Snapshot | None, now_s: float) -> None:
        """A poll came. What the client holds, perhaps from a previous process, is recognized by its version."""
        watch = self._watch_of(poll, now_s)
        before = watch.state
        if watch.sent is None and snapshot is not None and poll.subscription.type_url not in snapshot.withheld:
            is_incomplete = poll.subscription.type_url in snapshot.incomplete
            _initialize(watch, select(snapshot, poll.subscription), poll.version_info, is_incomplete=is_incomplete)
        if poll.version_info is not None and poll.version_info == watch.sent and poll.error_detail is None:
            watch.accept(watch.sent)
        _note_state(watch, before, now_s)

    def response_sent(self, poll: PollRequest, selection: Selection, now_s: float) -> None:
        """A client was sent a response."""
        watch = self._watch_of(poll, now_s)
        before = watch.state
        _note_sent(watch, selection)
        _note_state(watch, before, now_s)

    def poll_ended(self, poll: PollRequest, now_s: float) -> None:
        """A poll that was held ended without an update: its client is still there."""
        self._watch_of(poll, now_s)

    def ack_received(self, poll: PollRequest, acknowledgement: Acknowledgement, now_s: float) -> None:
        """A poll ACKed or NACKed a version."""
        watch, version = self._watch_of(poll, now_s), acknowledgement.version
        before = watch.state
        if acknowledgement.accepted:
            watch.accept(version)
        else:
            watch.nacked, watch.reason = version, acknowledgement.reason
        _note_state(watch, before, now_s)

    def status_of(self, node: Node) -> ClientStatus | None:
        """Return the status of a client; None where nothing is known of it."""
        client = self._clients.get(_key(node))
        return None if client is None else client.status(client.watches.items())

    def sync_states(self, node: Node, snapshot: Snapshot) -> Iterator[SyncState]:
        """Yield how a client stands with each of its subscriptions, where this snapshot is served."""
        client = self._clients.get(_key(node))
        for subscription, watch in client.watches.items() if client is not None else ():
            state = watch.state
            is_old = state is SyncState.SYNCED and watch.sent != version_of(snapshot, subscription)
            yield SyncState.STALE if is_old else state

    def statuses(self, now_s: float) -> Iterator[ClientStatus]:
        """Yield the status of the clients that polled lately, the longest silent first."""
        self._forget(now_s)
        for client in tuple(self._clients.values()):
            watches = [each for each in client.watches.items() if not self._is_old(each[1], now_s)]
            # There are none if the client was removed while the others were reported.
            if watches:
                yield client.status(watches)

    def _watch_of(self, poll: PollRequest, now_s: float) -> _PolledWatch:
        key = _key(poll.node)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = _PollingClient(poll.node, now_s)
        client.node = poll.node
        watch = client.watches.get(poll.subscription)
        if watch is None:
            watch = client.watches[poll.subscription] = _PolledWatch(now_s)
            self._weight += poll.subscription.weight
        watch.seen_at_s = now_s
        client.watches.move_to_end(poll.subscription)
        self._clients.move_to_end(key)
        while self._is_old(client.oldest, now_s):
            # The client still polls, but not for this.
            self._forget_oldest(client)
        self._forget(now_s)
        return watch

    def _forget(self, now_s: float) -> None:
        """Remove clients that are silent for long, and of the longest silent as many subscriptions as are too many."""
        while self._clients:
            client = next(iter(self._clients.values()))
            most_weight = SUBSCRIPTIONS_EACH * self.most_clients
            is_too_many = len(self._clients) > self.most_clients or self._weight > most_weight
            if not is_too_many and not self._is_old(client.newest, now_s):
                return
            self._forget_oldest(client)

    def _is_old(self, watch: _PolledWatch, now_s: float) -> bool:
        return watch.seen_at_s < now_s - self.forgotten_after_s

    def _forget_oldest(self, client: _PollingClient) -> None:
        subscription, _ = client.watches.popitem(last=False)
        self._weight -= subscription.weight
        if not client.watches:
            del self._clients[_key(client.node)]


def _key(node: Node) -> _Key:
    return node.id, node.cluster, node.peer


def _initialize(watch: _PolledWatch, selection: Selection, version: Version | None, *, is_incomplete: bool) -> None:
    """Note what is known of a client that nothing was sent to: it may hold what it should, or ask for what is not there.

    With `is_incomplete`, what is not there may be in a file that was never good.
    """
    if version == selection.version:
        _note_sent(watch, selection)
    else:
        watch.missing = () if is_incomplete else selection.missing


def _note_state(watch: _PolledWatch, before: SyncState, now_s: float) -> None:
    if watch.state is not before:
        watch.since_s = now_s


def _note_sent(watch: _PolledWatch, selection: Selection) -> None:
    watch.sent, watch.resources, watch.missing = selection.version, selection.resources, selection.missing


def _status(subscription: Subscription, watch: _PolledWatch) -> WatchStatus:
    # It is not known which resources of a NACKed response the client accepted: all of them count as rejected.
    is_rejected = watch.nacked is not None and watch.nacked == watch.sent
    return WatchStatus(
        subscription.type_url,
        None if subscription.wildcard else subscription.names,
        sent=watch.sent,
        acked=watch.acked,
        nacked=watch.nacked,
        reason=watch.reason,
        resources=watch.resources,
        missing=watch.missing,
        rejected=frozenset(resource.name for resource in watch.resources) if is_rejected else frozenset(),
        state=watch.state,
        since_s=watch.since_s,
        unconfirmed=watch.unconfirmed,
    )
