"""Limits on clients: connections, calls, held polls, names, and requests per second.

One `Limiter` counts for all listeners, on the event loop only. Beyond an option it raises LimitError, which the
request's edge reports; clients keep present connections and names.

Rules: how much clients may take (the edges report it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from time import monotonic

from fsxds.events.client_events import LimitReached, RequestRejected
from fsxds.events.event import Observer
from fsxds.model.errors import LimitError, ProtocolError
from fsxds.model.memo import Lru
from fsxds.settings.options import Settings

# In seconds: a starting Envoy asks for all of its clusters at once.
BURST_S = 10

# Peers with a remembered request rate.
MOST_PEERS = 10_000

# A client has unlimited IPv6 addresses, but few networks of this size.
_IPV6_NETWORK_BITS = 64


DEFAULTS = Settings()


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class _Holding(AbstractContextManager[None]):
    """Not a generator, which would take 0.5 kB per held request."""

    __slots__ = ("_limiter", "_names")

    def __init__(self, limiter: Limiter, names: int) -> None:
        self._limiter, self._names = limiter, names

    def __enter__(self) -> None:
        limiter = self._limiter
        if limiter.held >= limiter.settings.max_held_polls:
            raise LimitError("max-held-polls", f"{limiter.held} polls are held")
        limiter.hold_names(self._names)
        limiter.held += 1

    def __exit__(self, *_: object) -> None:
        self._limiter.held -= 1
        self._limiter.release_names(self._names)


class Limiter:
    """Counts clients' use of the server.

    `now_s` is monotonic; `streams` counts open long-lived calls, `names` those of streams and held polls, `held`
    waiting polls, GETs, and unary gRPC requests, `body_bytes` bytes of incomplete bodies.
    """

    def __init__(self, settings: Settings = DEFAULTS, now_s: Callable[[], float] = monotonic) -> None:
        self.settings = settings
        self.streams = 0
        self.names = 0
        self.held = 0
        self.body_bytes = 0
        self._now_s = now_s
        self._streams_by_peer: Counter[str] = Counter()
        self._buckets: Lru[str, _Bucket] = Lru(MOST_PEERS)

    def admit_request(self, peer: str) -> None:
        """Count a request; peers on unix sockets are empty. Raises LimitError."""
        rate = self.settings.max_requests_per_peer
        if rate is None or not peer:
            return
        now_s, network = self._now_s(), network_of(peer)
        bucket = self._buckets.find(network, lambda: _Bucket(BURST_S * rate, now_s))
        bucket.left = min(bucket.left + (now_s - bucket.at_s) * rate, BURST_S * rate)
        bucket.at_s = now_s
        if bucket.left < 1:
            raise LimitError("max-requests-per-peer", f"{network} sends more than {rate} requests a second")
        bucket.left -= 1

    @contextmanager
    def stream(self, peer: str) -> Iterator[None]:
        """Count a long-lived call meanwhile. Raises LimitError."""
        settings, network = self.settings, network_of(peer)
        if self.streams >= settings.max_streams:
            raise LimitError("max-streams", f"{self.streams} streams are open")
        most = settings.max_streams_per_peer
        if most is not None and peer and self._streams_by_peer[network] >= most:
            raise LimitError("max-streams-per-peer", f"{network} has {most} streams open")
        self.streams += 1
        self._streams_by_peer[network] += 1
        try:
            yield
        finally:
            self.streams -= 1
            self._streams_by_peer[network] -= 1
            if not self._streams_by_peer[network]:
                del self._streams_by_peer[network]

    def admit_view(self, count: int) -> None:
        """Raise LimitError without space beside `count` loaded views."""
        if count >= self.settings.max_views:
            raise LimitError("max-views", f"{count} views are loaded")

    def holding(self, names: int) -> AbstractContextManager[None]:
        """Count a held request and its names meanwhile. Raises LimitError."""
        return _Holding(self, names)

    @contextmanager
    def receiving(self) -> Iterator[Callable[[int], None]]:
        """Yield a counter of a body's bytes; it raises LimitError."""
        received = 0

        def count(size_bytes: int) -> None:
            nonlocal received
            if self.body_bytes + size_bytes > self.settings.max_all_bodies_bytes:
                raise LimitError("max-all-bodies", f"{self.body_bytes} bytes of bodies are being received")
            self.body_bytes += size_bytes
            received += size_bytes

        try:
            yield count
        finally:
            self.body_bytes -= received

    def hold_names(self, count: int, before: int = 0) -> None:
        """Count a client's `count` names instead of `before`. Raises LimitError."""
        settings = self.settings
        self.check_names(count)
        if count > before and self.names + count - before > settings.max_all_names:
            raise LimitError("max-all-names", f"all clients subscribe to {self.names} names")
        self.names += count - before

    def check_names(self, count: int) -> None:
        """Raise LimitError for a client's too many names."""
        if count > self.settings.max_names:
            raise LimitError("max-names", f"{count} names are subscribed to")

    def release_names(self, count: int) -> None:
        """Subtract a gone client's names."""
        self.names -= count


def report_rejection(observer: Observer, peer: str, status: int | str, error: ProtocolError) -> None:
    """Report a rejected request and exceeded limit."""
    observer(RequestRejected(peer, status, str(error), error.subject))
    if isinstance(error, LimitError):
        observer(LimitReached(error.limit, peer))


def network_of(peer: str) -> str:
    """Return the address to count by; IPv6: its /64 network."""
    if ":" not in peer:
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    host_bits = 128 - _IPV6_NETWORK_BITS
    return f"{IPv6Address(int(address) >> host_bits << host_bits)}/{_IPV6_NETWORK_BITS}"
