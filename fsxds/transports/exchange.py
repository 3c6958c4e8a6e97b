"""Handles the steps that requests share over all transports; has the registry of all clients.

| step | transports |
| --- | --- |
| Identify the sender, by connection and headers. | all |
| Check that the sender may ask as this node and for this type; again after each wait, which may be long. | all |
| Find the node's channel. | all |
| Ask upstreams for the names, while the request lasts. | all |
| Count a waiting request; wait for a newer snapshot, other access, or the server's end. | polls, GET, Fetch |

Streams are pushed to: an idle one needs no task. Mirrors have no sender.

Web pages are rejected. Another origin's page shows in `Origin` or `Sec-Fetch-Site`, DNS rebinding in `Host`; none can
send `content-type: application/json` without a preflight.

Source: Fetch, "Origin header" and "CORS protocol"; Fetch Metadata Request Headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol, Self
from urllib.parse import unquote, urlsplit

import grpc
from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import OfferedManifest, TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, OwnStatus
from fsxds.protocol.poll import Wait
from fsxds.protocol.subscription import OnDemand
from fsxds.runtime.access import AccessInUse, Peer, is_uri
from fsxds.runtime.channels import Channel, Channels, HoldsOf, Latest, SnapshotStore, end_wait, holds_nothing
from fsxds.settings.forms import ANY_HOST, ANY_ORIGIN, TcpAddress
from fsxds.transports.limits import Limiter
from fsxds.transports.rest.http_edge import Handler
from fsxds.transports.sockets import is_local, is_loopback

# For upstreams to answer whether they have a resource, unless the request has its own wait time.
ON_DEMAND_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Requester:
    """A request's sender and subject, compared by identity.

    `type_url` is None until known; `*` in `asked` means all.
    """

    peer: Peer
    node: Node
    type_url: TypeUrl | None = None
    asked: AbstractSet[str] = frozenset()


class Waiting(Protocol):
    """Waits for its channel's next snapshot; `limits`: timeouts."""

    channel: Channel
    limits: set[asyncio.Timeout]


class Reader:
    """Waits without a rollout's regard."""

    __slots__ = ("channel", "limits")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()


class _Asking(AbstractContextManager[None]):
    """Not a generator, which would take 0.5 kB per held request."""

    __slots__ = ("_on_demand", "_requester")

    def __init__(self, on_demand: OnDemand, requester: Requester) -> None:
        self._on_demand, self._requester = on_demand, requester

    def __enter__(self) -> None:
        if self._requester.type_url is not None:
            self._on_demand.ask(self._requester, self._requester.type_url, self._requester.asked)

    def __exit__(self, *_: object) -> None:
        # Also if the request fails or is cancelled.
        self._on_demand.forget(self._requester)


class Exchange:
    """Takes one listener's requests.

    Without `limiter` the default limits apply; without `access` everyone may ask. `store_of` returns a channel's store.
    While `is_draining`, requests must not wait.
    """

    def __init__(
        self,
        channels: Channels,
        limiter: Limiter | None = None,
        access: AccessInUse | None = None,
        store_of: Callable[[Channel], SnapshotStore] = attrgetter("store"),
    ) -> None:
        self.limiter = limiter or Limiter()
        self.channels = channels
        self.access = access or AccessInUse()
        self.is_draining = False
        self._store_of = store_of
        self._limits: set[asyncio.Timeout] = set()
        self._pauses: set[asyncio.Timeout] = set()
        # Of requests that wait for upstreams to answer which names do not exist.
        self._awaiting: set[asyncio.Timeout] = set()
        self._readers: set[Reader] = set()

    @classmethod
    def of_streams(cls, channels: Channels, limiter: Limiter | None = None, access: AccessInUse | None = None) -> Self:
        """Create one for streamed snapshots."""
        return cls(channels, limiter, access, attrgetter("streams"))

    def __len__(self) -> int:
        """Count waiting requests."""
        return len(self._limits)

    @contextmanager
    def woken(self) -> Iterator[None]:
        """Wake waiting requests when access, channels or upstreams' answers change."""
        channels = self.channels
        listeners: tuple[tuple[dict[object, Callable[[], object]], Callable[[], object]], ...] = (
            (self.access.listeners, self.wake),
            (channels.on_moved, self.wake_readers),
            (channels.on_demand.listeners, self.wake_for_answers),
        )
        for by_owner, listener in listeners:
            by_owner[self] = listener
        try:
            yield
        finally:
            for by_owner, _ in listeners:
                by_owner.pop(self, None)

    def check(self, requester: Requester) -> None:
        """Whether the sender may ask. Raises ProtocolError."""
        access = self.access.current
        if requester.type_url is None:
            access.check_node(requester.peer, requester.node)
        else:
            access.check_request(requester.peer, requester.node, requester.type_url)

    async def channel_of(
        self,
        requester: Requester,
        *,
        holds: bool | None = None,
        holds_of: HoldsOf = holds_nothing,
        is_here: bool = False,
    ) -> Channel:
        """As `Channels.channel_of`. Raises ProtocolError."""
        self.check(requester)
        channel = await self.channels.channel_of(requester.node, holds=holds, holds_of=holds_of, is_here=is_here)
        # Finding the channel can take long.
        self.check(requester)
        return channel

    def asking(self, requester: Requester) -> AbstractContextManager[None]:
        """Ask upstreams within the context."""
        return _Asking(self.channels.on_demand, requester)

    def snapshot_of(self, channel: Channel) -> Snapshot | None:
        """Return a channel's current snapshot."""
        return self._store_of(channel).current

    async def wait(self, requester: Requester, waiting: Waiting, snapshot: Snapshot | None, wait: Wait) -> float:
        """Wait for a newer snapshot, another channel, other access, a time, or the server's end; return the time.

        `snapshot` is the present one; `wait` may end with upstreams' answers too. Times are the event loop's. Raises
        ProtocolError if the sender may no longer ask.
        """
        until_s = inf if wait.until_s is None else wait.until_s
        # One coroutine: each further one would stay allocated for thousands of waiting requests.
        try:
            async with asyncio.timeout_at(until_s) as limit:
                found_by = (self._limits, waiting.limits, *((self._awaiting,) if wait.awaits_answers else ()))
                for limits in found_by:
                    limits.add(limit)
                try:
                    store = self._store_of(waiting.channel)
                    await store.newer_than(0 if snapshot is None else snapshot.generation)
                finally:
                    for limits in found_by:
                        limits.discard(limit)
        except TimeoutError:
            now_s = asyncio.get_running_loop().time()
            if limit.when() == until_s:
                # Timers may fire a little early; callers expect `until_s` to be reached then.
                now_s = max(until_s, now_s)
        else:
            now_s = asyncio.get_running_loop().time()
        self.check(requester)
        return now_s

    async def wait_reading(
        self, requester: Requester, reader: Reader, until_s: float, *, awaits_answers: bool
    ) -> float:
        """Wait like `wait`, and update the reader's channel."""
        channel = reader.channel
        channel.readers += 1
        self._readers.add(reader)
        try:
            now_s = await self.wait(requester, reader, self.snapshot_of(channel), Wait(until_s, awaits_answers))
        finally:
            channel.readers -= 1
            self._readers.discard(reader)
        reader.channel = await self.channel_of(requester)
        return now_s

    async def pause(self, pause_s: float) -> None:
        """Wait for `pause_s`, other access, or the server's end."""
        if self.is_draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s) as limit:
                self._pauses.add(limit)
                try:
                    await asyncio.Event().wait()
                finally:
                    self._pauses.discard(limit)

    def drain(self) -> None:
        """End all waits, and allow none."""
        self.is_draining = True
        self.wake()

    def wake(self) -> None:
        """Have waiting requests check again."""
        _end((*self._limits, *self._pauses))

    def wake_readers(self) -> None:
        """Have readers find their channels again."""
        _end([limit for reader in self._readers for limit in reader.limits])

    def wake_for_answers(self) -> None:
        """Wake requests that await upstreams' answers."""
        _end(tuple(self._awaiting))


def _end(limits: tuple[asyncio.Timeout, ...] | list[asyncio.Timeout]) -> None:
    now_s = asyncio.get_running_loop().time()
    for limit in limits:
        end_wait(limit, now_s)


_BEARER = "bearer"
_NAMES_OF_GRPC = ("peer_uri", "peer_dns")


def peer_of_request(request: web.Request) -> Peer:
    """Return an HTTP request's sender."""
    address = request.remote or ""
    is_tls = request.get_extra_info("ssl_object") is not None
    # A path for a unix socket; None if the client is gone.
    is_unix = isinstance(request.get_extra_info("sockname"), str | bytes)
    certificate = request.get_extra_info("peercert") or {}
    named = tuple(certificate.get("subjectAltName", ()))
    token = _token_in(request.headers.getall("Authorization", ()))
    names = _names([name for form, name in named if form == "URI"], [name for form, name in named if form == "DNS"])
    return Peer(address, is_tls or is_unix or is_loopback(address), names, token)


def peer_of(transport_peer: str) -> str:
    """Return the IP address in gRPC's `ipv4:192.0.2.1:4711` or `ipv6:%5B::1%5D:4711`, or ""."""
    scheme, _, rest = transport_peer.partition(":")
    if scheme not in {"ipv4", "ipv6"}:
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")


def peer_of_call(context: Any) -> Peer:
    """Return a gRPC call's sender."""
    address = peer_of(context.peer())
    properties = context.auth_context()
    is_tls = properties.get("transport_security_type") == [b"ssl"]
    # The key of all alternative names includes e-mail addresses, indistinguishable from URIs.
    uris, dns_names = ([name.decode(errors="replace") for name in properties.get(key, ())] for key in _NAMES_OF_GRPC)
    token = _token_in(value for key, value in context.invocation_metadata() or () if key == "authorization")
    return Peer(
        address, is_tls or context.peer().startswith("unix:") or is_loopback(address), _names(uris, dns_names), token
    )


def _names(uris: Iterable[str], dns_names: Iterable[str]) -> tuple[str, ...]:
    """Neither DNS names that look like URIs, nor the common name, which may be anything."""
    return (*(name for name in uris if is_uri(name)), *(name for name in dns_names if not is_uri(name)))


def _token_in(values: Iterable[str | bytes]) -> str:
    """Empty without a header, or with several."""
    headers = [value.decode("latin-1") if isinstance(value, bytes) else value for value in values]
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    return token.strip() if scheme.lower() == _BEARER else ""


def origin_of(request: web.Request) -> str:
    """Return a listener's pages' origin."""
    return f"{request.scheme}://{request.headers.get('Host')}"


_OWN_SITES = frozenset({"none", "same-origin"})
_FOREIGN_PAGE = "a page of another origin may not ask here; ask from a program"
_MAY_BE_NAMED = ", or have the setting cors_origin name that origin"
_FOREIGN_HOST = (
    "a name that may have been made to lead here may not be asked for; ask by the IP address, or with the header "
    "`host: localhost`"
)
_MAY_BE_ALLOWED = ", or have the setting allowed_hosts name it"


def check_page(
    headers: Mapping[str, str],
    *,
    own_origin: str = "",
    origins: tuple[str, ...] | None = None,
    may_be_linked: bool = False,
) -> None:
    """Check that no other origin's page sends the request, as far as browsers reveal it. Raises ProtocolError.

    Empty `own_origin`: no pages are served. `origins` may ask, `*`: any; None: no such option. `may_be_linked`: users may
    follow another page's link.
    """
    origin = headers.get("origin")
    if origins and (ANY_ORIGIN in origins or origin in origins):
        return
    is_followed = may_be_linked and headers.get("sec-fetch-dest") == "document"
    is_of_own_site = is_followed or headers.get("sec-fetch-site", "none") in _OWN_SITES
    if not is_of_own_site or (origin is not None and origin != own_origin):
        raise ProtocolError(
            _FOREIGN_PAGE if origins is None else f"{_FOREIGN_PAGE}{_MAY_BE_NAMED}", "PERMISSION_DENIED"
        )


def check_host(
    headers: Mapping[str, str],
    address: TcpAddress,
    allowed: tuple[str, ...] | None = (),
    authorities: Iterable[str] = (),
) -> None:
    """Check that no attacker made the name in `Host` lead here. Raises ProtocolError.

    `allowed` adds names to `leads_here`, `*`: any; None: no such option. Served `authorities` are allowed too.
    """
    host = headers.get("host", "")
    names = {*(allowed or ()), *map(str.lower, authorities)}
    is_allowed = ANY_HOST in names or host.lower().partition(":")[0].removesuffix(".") in names
    if not is_allowed and not leads_here(host, address) and (allowed is not None or is_local(address)):
        raise ProtocolError(f"{_FOREIGN_HOST}{'' if allowed == () else _MAY_BE_ALLOWED}", "PERMISSION_DENIED")


def leads_here(written: str, address: TcpAddress) -> bool:
    """Whether a Host is `localhost`, the listener's, or an IP."""
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host in {"localhost", address.host.lower()}:
        return bool(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


class Clients:
    """Knows all clients' status, on the event loop."""

    def __init__(self) -> None:
        self._streams: dict[object, Callable[[], ClientStatus]] = {}
        self._others: list[Callable[[], Iterator[ClientStatus]]] = []

    def add(self, statuses: Callable[[], Iterator[ClientStatus]]) -> None:
        """Add clients without streams, by their statuses."""
        self._others.append(statuses)

    def opened(self, status: Callable[[], ClientStatus]) -> object:
        """Add a stream; return its token. `status` must be quick."""
        token = object()
        self._streams[token] = status
        return token

    def closed(self, token: object) -> None:
        """Remove a stream, if it is there."""
        self._streams.pop(token, None)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield clients' statuses: streams first, in order of opening.

        A client that leaves meanwhile may be missing.
        """
        for token in tuple(self._streams):
            status = self._streams.get(token)
            if status is not None:
                yield status()
        for others in self._others:
            yield from others()


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """A service's dependencies, for `services(context)`; `own`: this process as upstream client."""

    clients: Clients
    catalogue: Catalogue
    access: AccessInUse
    own: Callable[[], Iterable[OwnStatus]]
    offered: Latest[tuple[OfferedManifest, ...]]


@dataclass(frozen=True, slots=True)
class ExtraServices:
    """A service's handlers, for HTTP and gRPC."""

    posts: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    documents: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    calls: tuple[grpc.ServiceRpcHandler, ...] = ()
