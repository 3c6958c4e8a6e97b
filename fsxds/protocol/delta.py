"""Delta streams: what to say next.

Every change goes out as one batch, in the order of `RESOURCE_TYPES`: what is used comes before what uses it. Three things
concern several types of an aggregated stream:

- An Envoy that gets a new or changed cluster waits for its endpoints although it has them, and does not ask for them. So
  they are sent again, after the cluster (ENVOY.md D3); likewise the virtual hosts of a route configuration after it.
- What moves to a new cluster in the same batch would find it without endpoints. So an Envoy, which takes them, is sent
  them before it asks for them.
- What is gone may still be used by what the same batch replaces. So it is told last, in the reverse order of types (make
  before break).

Source: xDS protocol, "Incremental xDS", "Eventual consistency considerations".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsxds.protocol.delta_names import NOTHING
from fsxds.protocol.delta_news import News
from fsxds.protocol.delta_watch import DeltaWatch
from fsxds.protocol.messages import ENVOY, DeltaRequest, DeltaResponse, Node, Reaction, WatchStatus
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode, ttl_use
from fsxds.protocol.virtual_hosts import ROUTES, VIRTUAL_HOSTS, wake_ups, wake_ups_of_hosts
from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType, in_push_order
from fsxds.resources import Resource, Snapshot
from fsxds.values import Nonce, TypeUrl

CLUSTERS = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url
LOCALITY_ENDPOINTS = BY_SHORT_NAME["leds"].type_url

# Who gets one of the first is told the second again that it refers to.
FOLLOWED_BY = {CLUSTERS: ENDPOINTS, ENDPOINTS: LOCALITY_ENDPOINTS, ROUTES: VIRTUAL_HOSTS}


class DeltaStream:
    """One stream, aggregated or not. `node` is what its client said of itself first.

    Times are readings of any clock that only goes forward, in seconds.
    """

    __slots__ = ("_is_aggregated", "_memory", "_nonces", "_snapshot", "_ttl", "_unwarmed", "_watches", "node")

    def __init__(self, memory: SharedMemory, ttl: TtlMode, *, is_aggregated: bool) -> None:
        self.node: Node | None = None
        self._memory, self._ttl, self._is_aggregated = memory, ttl, is_aggregated
        # In the order of `RESOURCE_TYPES`.
        self._watches: dict[TypeUrl, DeltaWatch] = {}
        # What is current; streams that could not be told anything of it yet remember it nevertheless.
        self._snapshot: Snapshot | None = None
        self._nonces = 0
        # By type: names that what was told refers to, until the client asks for the type for the first time.
        self._unwarmed: dict[TypeUrl, frozenset[str]] = {}

    @property
    def timer_at_s(self) -> float | None:
        """When `receive_timer` has something to do; None for never."""
        times = (watch.timer_at_s for watch in self._watches.values())
        return min((time_s for time_s in times if time_s is not None), default=None)

    def receive_request(
        self, request: DeltaRequest, snapshot: Snapshot | None, now_s: float
    ) -> Reaction[DeltaResponse]:
        """Take a request as it arrives; `snapshot` is what is current, None before anything was loaded.

        A request for a type that does not exist is ignored.
        """
        self.node = self.node or request.node
        row = BY_TYPE_URL.get(request.type_url)
        if row is None:
            return Reaction()
        watch = self._watches.get(row.type_url) or self._begin(row)
        verdict = watch.hear(request, now_s)
        self._snapshot = snapshot or self._snapshot
        return Reaction(self._batch(now_s), verdict)

    def receive_snapshot(self, snapshot: Snapshot, now_s: float) -> tuple[DeltaResponse, ...]:
        """Take what is current from now on; return what the client is told of it."""
        self._snapshot = snapshot
        return self._batch(now_s)

    def receive_timer(self, now_s: float) -> tuple[DeltaResponse, ...]:
        """Return what is due at this time: what was rejected before, and heartbeats."""
        return self._batch(now_s)

    def subscription_of(self, type_url: TypeUrl) -> Subscription:
        """Return what the client wants of a type."""
        watch = self._watches.get(type_url)
        return watch.subscription if watch else Subscription(type_url, wildcard=False)

    def statistics(self) -> tuple[WatchStatus, ...]:
        """Tell where each type stands, in the order of `RESOURCE_TYPES`."""
        return tuple(watch.status() for watch in self._watches.values())

    def _begin(self, row: ResourceType) -> DeltaWatch:
        features = self.node.features if self.node else frozenset()
        ttl = ttl_use(row.type_url, features, self._ttl, is_delta=True)
        hides_absence = row.absence_hangs_envoy and self._is_envoy
        watch = DeltaWatch(row, self._memory, ttl, hides_absence=hides_absence)
        self._watches = in_push_order({**self._watches, row.type_url: watch})
        return watch

    @property
    def _is_envoy(self) -> bool:
        return self.node is not None and self.node.agent == ENVOY

    def _batch(self, now_s: float) -> tuple[DeltaResponse, ...]:
        snapshot = self._snapshot
        if snapshot is None:
            return ()
        told: dict[TypeUrl, list[News]] = {}
        again: dict[TypeUrl, frozenset[str]] = {}
        has_new_clusters = False
        for watch in self._watches.values():
            was_greeted = watch.is_greeted
            wanted = again.get(watch.type_url, NOTHING)
            if not was_greeted:
                wanted |= self._unwarmed.get(watch.type_url, NOTHING)
            if watch.is_woken:
                wanted |= self._wake_ups(snapshot)
            is_pushed = has_new_clusters and watch.type_url == ENDPOINTS
            first = watch.news(snapshot, wanted, now_s, is_pushed=is_pushed)
            if watch.is_greeted:
                self._unwarmed.pop(watch.type_url, None)
            for news in (*((first,) if first else ()), *watch.retries(snapshot, now_s)):
                told.setdefault(watch.type_url, []).append(news)
                self._follow(watch.type_url, news, again)
                has_new_clusters |= watch.type_url == CLUSTERS and was_greeted and self._is_envoy
        return tuple(self._responses(told, now_s))

    def _wake_ups(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the names that end the wait for virtual hosts: of the client's route configurations, where it has any."""
        routes = self._watches.get(ROUTES)
        if routes is not None and routes.is_greeted:
            return frozenset(wake_ups(routes.resources()))
        hosts = snapshot.resources(VIRTUAL_HOSTS).values()
        return frozenset((*wake_ups(snapshot.resources(ROUTES).values()), *wake_ups_of_hosts(hosts)))

    def _follow(self, type_url: TypeUrl, news: News, again: dict[TypeUrl, frozenset[str]]) -> None:
        """Note what the client needs again with what it is told."""
        needed = FOLLOWED_BY.get(type_url)
        if needed is None or not self._is_aggregated or not news.resources:
            return
        users: Iterable[Resource] = news.resources
        watch = self._watches.get(needed)
        if watch is None or not watch.is_greeted:
            if needed != VIRTUAL_HOSTS and (names := _mentions(needed, users)):
                self._unwarmed[needed] = self._unwarmed.get(needed, NOTHING) | names
            return
        if type_url == ENDPOINTS:
            # An Envoy that gets other endpoints of the same cluster has kept those of its localities.
            users = (resource for resource in users if resource.name in again.get(ENDPOINTS, NOTHING))
        names = frozenset(wake_ups(users)) if needed == VIRTUAL_HOSTS else _mentions(needed, users)
        if names:
            again[needed] = again.get(needed, NOTHING) | names

    def _responses(self, told: dict[TypeUrl, list[News]], now_s: float) -> Iterator[DeltaResponse]:
        late: list[tuple[DeltaWatch, News]] = []
        is_several = sum(map(len, told.values())) > 1
        for watch in self._watches.values():
            for news in told.get(watch.type_url, ()):
                rest: News | None = news
                if is_several and not watch.is_on_demand and (gone := news.gone_alone()):
                    # A domain may move from one virtual host to another, and two may not have it: those stay together.
                    late.append((watch, gone))
                    rest = news.without_gone()
                if rest is not None:
                    yield watch.tell(rest, self._next_nonce(), now_s)
            if heartbeat := watch.heartbeat(self._next_nonce, now_s):
                yield heartbeat
        for watch, gone in reversed(late):
            yield watch.tell(gone, self._next_nonce(), now_s)

    def _next_nonce(self) -> Nonce:
        self._nonces += 1
        return Nonce(str(self._nonces))


def _mentions(type_url: TypeUrl, users: Iterable[Resource]) -> frozenset[str]:
    """Return the names of a type that resources refer to."""
    return frozenset(
        reference.name for user in users for reference in user.references if reference.type_url == type_url
    )
