"""How much clients may take of the server: connections, calls, held polls, names, and requests a second of each peer.

One `Limiter` has the counts of all listeners. Who wants more than an option allows gets a LimitError, which the edge of its
request reports; those who are there already keep what they have. Touched from the event loop only.
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

# An Envoy that starts asks for each of its clusters at once: so many seconds' requests may come together.
BURST_S = 10

# So many peers are known by how fast they ask; of others nothing is remembered but that.
MOST_PEERS = 10_000

# Whoever reaches a server has as many IPv6 addresses as it likes, but few networks of this size.
_IPV6_NETWORK_BITS = 64


DEFAULTS = Settings()


@dataclass(slots=True)
class _Bucket:
    """How many requests a peer has left, as of `at_s`."""

    left: float
    at_s: float


class _Holding(AbstractContextManager[None]):
    """Counts a held request while it lasts. Not made of a generator: each held request keeps one, which takes 0.5 kB."""

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
    """Counts what clients take.

    Args:
        settings: the options.
        now_s: reads a clock that only goes forward.

    Attributes:
        settings: the options that hold now.
        streams: calls that last, of all peers.
        names: names that streams subscribe to, and that held polls have.
        held: requests that are held: polls, GETs, and unary gRPC requests.
        body_bytes: what was received of bodies that are not whole yet.
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
        """Count a request of a peer, empty for a unix socket. Raises LimitError where it asks too fast."""
        rate = self.settings.max_requests_per_peer
        if rate is None or not peer:
            return
        now_s, network = self._now_s(), network_of(peer)
        bucket = self._buckets.get(network) or _Bucket(BURST_S * rate, now_s)
        bucket.left = min(bucket.left + (now_s - bucket.at_s) * rate, BURST_S * rate)
        bucket.at_s = now_s
        self._buckets.put(network, bucket)
        if bucket.left < 1:
            raise LimitError("max-requests-per-peer", f"{network} sends more than {rate} requests a second")
        bucket.left -= 1

    @contextmanager
    def stream(self, peer: str) -> Iterator[None]:
        """Count a call that lasts, while the context does. Raises LimitError where there are too many."""
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

    def most_connections(self) -> int:
        """Return how many connections an address may have."""
        return self.settings.max_connections

    def admit_view(self, count: int) -> None:
        """Reject a node that needs one more view where so many are loaded, by LimitError."""
        if count >= self.settings.max_views:
            raise LimitError("max-views", f"{count} views are loaded")

    def holding(self, names: int) -> AbstractContextManager[None]:
        """Count a request that is held, and its names, while the context lasts. Raises LimitError where there is too much of it."""
        return _Holding(self, names)

    @contextmanager
    def receiving(self) -> Iterator[Callable[[int], None]]:
        """Count what comes of a body, while the context lasts, by the function it yields: LimitError where it is too much of all."""
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
        """Note that a client holds `count` names from now on, and not `before`. Raises LimitError where that is too much."""
        settings = self.settings
        self.check_names(count)
        if count > before and self.names + count - before > settings.max_all_names:
            raise LimitError("max-all-names", f"all clients subscribe to {self.names} names")
        self.names += count - before

    def check_names(self, count: int) -> None:
        """Reject a client that names so many resources, by LimitError."""
        if count > self.settings.max_names:
            raise LimitError("max-names", f"{count} names are subscribed to")

    def release_names(self, count: int) -> None:
        """Note that a client is gone that held so many names."""
        self.names -= count


def report_rejection(observer: Observer, peer: str, status: int | str, error: ProtocolError) -> None:
    """Report a request that is answered with an error, and the limit that it reached, if that is why."""
    observer(RequestRejected(peer, status, str(error), error.subject))
    if isinstance(error, LimitError):
        observer(LimitReached(error.limit, peer))


def network_of(peer: str) -> str:
    """Return what an IP address is counted as: itself, or the /64 network of an IPv6 address."""
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
