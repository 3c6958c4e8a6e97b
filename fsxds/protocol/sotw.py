"""State-of-the-world streams: what to say next.

Every change goes out as one batch, in the order of `RESOURCE_TYPES`: what is used comes before what uses it. Two things
concern several types of an aggregated stream:

- An Envoy that gets a new or changed cluster waits for its endpoints although it has them. So they are sent again, after
  the cluster and without waiting for its ACK, which Envoy holds back until then (ENVOY.md D2).
- A cluster that is gone may still be used by what the same batch replaces. So it goes last (make before break).

Source: xDS protocol, "The xDS transport Protocol", "Eventual consistency considerations".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fsxds.protocol.messages import ENVOY, Node, Reaction, SotwRequest, SotwResponse, WatchStatus
from fsxds.protocol.sotw_verdicts import NOTHING
from fsxds.protocol.sotw_watch import News, SotwWatch
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode, ttl_use
from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType, in_push_order
from fsxds.resources import Snapshot
from fsxds.values import Nonce, TypeUrl

CLUSTERS = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url

# The `user_agent_name` of an Envoy.
# What may use clusters.
USERS_OF_CLUSTERS = frozenset(BY_SHORT_NAME[name].type_url for name in ("lds", "rds", "srds"))

# What an Envoy may take up again that it let go of.
COME_AND_GO = frozenset(BY_SHORT_NAME[name].type_url for name in ("sds", "ecds", "rds"))


class SotwStream:
    """One stream, aggregated or not. `node` is what its client said of itself first.

    Times are readings of any clock that only goes forward, in seconds.
    """

    __slots__ = ("_is_aggregated", "_memory", "_nonces", "_snapshot", "_ttl", "_watches", "node")

    def __init__(self, memory: SharedMemory, ttl: TtlMode, *, is_aggregated: bool) -> None:
        self.node: Node | None = None
        self._memory, self._ttl, self._is_aggregated = memory, ttl, is_aggregated
        # In the order of `RESOURCE_TYPES`.
        self._watches: dict[TypeUrl, SotwWatch] = {}
        # What is current; streams that could not be told anything of it yet remember it nevertheless.
        self._snapshot: Snapshot | None = None
        self._nonces = 0

    @property
    def timer_at_s(self) -> float | None:
        """When `receive_timer` has something to do; None for never."""
        times = (watch.timer_at_s for watch in self._watches.values())
        return min((time_s for time_s in times if time_s is not None), default=None)

    def receive_request(self, request: SotwRequest, snapshot: Snapshot | None, now_s: float) -> Reaction[SotwResponse]:
        """Take a request as it arrives; `snapshot` is what is current, None before anything was loaded.

        A request for a type that state-of-the-world streams do not have is ignored.
        """
        self.node = self.node or request.node
        row = BY_TYPE_URL.get(request.type_url)
        if row is None or not row.has_sotw:
            return Reaction()
        watch = self._watches.get(request.type_url) or self._begin(row)
        heard = watch.hear(request, now_s)
        if heard.is_stale:
            # The client says its names again when it answers what it has not seen yet.
            if heard.is_repeat and not self._is_aggregated:
                watch.keep_asked(request.names)
            return Reaction(self._after_overtaken(watch, heard.overtaken, now_s), heard.verdict)
        before = watch.subscription
        again = watch.subscribe(request.names)
        if not watch.is_greeted:
            again = self._awaited(watch)
        else:
            is_asked = heard.is_repeat and watch.subscription is before
            again |= watch.repeated(is_asked=is_asked or (bool(again) and self._may_have_forgotten(row)))
        self._snapshot = snapshot or self._snapshot
        return Reaction(self._batch(now_s, {request.type_url: again}), heard.verdict)

    def receive_snapshot(self, snapshot: Snapshot, now_s: float) -> tuple[SotwResponse, ...]:
        """Take what is current from now on; return what the client is told of it."""
        self._snapshot = snapshot
        return self._batch(now_s, {})

    def receive_timer(self, now_s: float) -> tuple[SotwResponse, ...]:
        """Return what is due at this time: what was rejected before, and heartbeats."""
        return self._batch(now_s, {})

    def statistics(self) -> tuple[WatchStatus, ...]:
        """Tell where each type stands, in the order of `RESOURCE_TYPES`."""
        return tuple(watch.status() for watch in self._watches.values())

    def subscription_of(self, type_url: TypeUrl) -> Subscription:
        """Return what the client wants of a type now; nothing of one that it never asked for."""
        watch = self._watches.get(type_url)
        return Subscription(type_url, wildcard=False) if watch is None else watch.subscription

    def _begin(self, row: ResourceType) -> SotwWatch:
        features = self.node.features if self.node else frozenset()
        watch = SotwWatch(row, self._memory, ttl_use(row.type_url, features, self._ttl, is_delta=False))
        self._watches = in_push_order({**self._watches, row.type_url: watch})
        return watch

    def _may_have_forgotten(self, row: ResourceType) -> bool:
        """Whether a client whose names have grown may want anew what it has under the others.

        An Envoy that lets go of a name and takes it up again within one flight tells neither: of a route configuration
        that another scope uses now, it says only what else it wants. Endpoints follow their clusters anyway, and runtime
        layers stay for its life.
        """
        return self._is_envoy and row.type_url in COME_AND_GO

    @property
    def _is_envoy(self) -> bool:
        return self.node is not None and self.node.agent == ENVOY

    def _awaited(self, watch: SotwWatch) -> frozenset[str]:
        """Return what a client may wait for although it says that it holds it: endpoints of clusters that it just got."""
        clusters = self._watches.get(CLUSTERS)
        return watch.everything if watch.type_url == ENDPOINTS and clusters and clusters.has_sent else NOTHING

    def _after_overtaken(self, watch: SotwWatch, names: frozenset[str], now_s: float) -> tuple[SotwResponse, ...]:
        """Send the endpoints of rejected clusters again: they came before the response that brings these clusters."""
        endpoints = self._watches.get(ENDPOINTS)
        if watch.type_url != CLUSTERS or not names or endpoints is None or self._snapshot is None:
            return ()
        again = endpoints.repeatable(_endpoints_of(names, self._snapshot))
        return self._batch(now_s, {ENDPOINTS: again}) if again else ()

    def _batch(self, now_s: float, again: dict[TypeUrl, frozenset[str]]) -> tuple[SotwResponse, ...]:
        snapshot = self._snapshot
        if snapshot is None:
            return ()
        told: dict[TypeUrl, News] = {}
        for watch in self._watches.values():
            is_greeting = not watch.is_greeted
            news = watch.news(snapshot, again.get(watch.type_url, NOTHING), now_s)
            if news is None:
                continue
            told[watch.type_url] = news
            if watch.type_url == CLUSTERS and self._is_aggregated:
                follow = self._endpoints_after(_endpoints_of(news.fresh, snapshot), is_greeting=is_greeting)
                again[ENDPOINTS] = again.get(ENDPOINTS, NOTHING) | follow
        return tuple(self._responses(told, now_s))

    def _endpoints_after(self, names: Iterable[str], *, is_greeting: bool) -> frozenset[str]:
        """Return which of the endpoints of new or changed clusters go out behind these."""
        watch = self._watches.get(ENDPOINTS)
        if watch is None:
            return NOTHING
        # An Envoy takes the endpoints of a new cluster before it asks for them. Until it has them, what moves to the new
        # cluster in the same batch fails.
        return watch.repeatable(names, unasked=self._is_envoy and watch.is_greeted and not is_greeting)

    def _responses(self, told: dict[TypeUrl, News], now_s: float) -> Iterable[SotwResponse]:
        removal = self._late_removal(told)
        for watch in self._watches.values():
            news = told.get(watch.type_url)
            if news is not None and news is removal:
                if news.fresh:
                    yield watch.tell(self._without_removal(news), self._next_nonce(), now_s)
                continue
            if news is not None:
                yield watch.tell(news, self._next_nonce(), now_s)
            if heartbeat := watch.heartbeat(self._next_nonce, now_s):
                yield heartbeat
        if removal is not None:
            yield self._watches[CLUSTERS].tell(removal, self._next_nonce(), now_s)

    def _late_removal(self, told: dict[TypeUrl, News]) -> News | None:
        """Return the news of clusters where some are gone that may be used until the rest of the batch is told."""
        news = told.get(CLUSTERS)
        if news is None or not news.removed or not told.keys() & USERS_OF_CLUSTERS:
            return None
        # What is gone may be what the client rejected: saying it once more would hold up the rest.
        return None if self._watches[CLUSTERS].owed else news

    def _without_removal(self, news: News) -> News:
        resources = news.resources.with_others(news.removed)
        return replace(news, version=resources.version, resources=resources)

    def _next_nonce(self) -> Nonce:
        self._nonces += 1
        return Nonce(str(self._nonces))


def _endpoints_of(clusters: Iterable[str], snapshot: Snapshot) -> Iterable[str]:
    """Name the endpoints of clusters."""
    rows = snapshot.resources(CLUSTERS)
    known = (rows[name] for name in clusters if name in rows)
    return (ref.name for cluster in known for ref in cluster.references if ref.type_url == ENDPOINTS)
