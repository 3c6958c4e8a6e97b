"""Connects a client on any wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import grpc.aio

from fsxds.api.converter import Converter
from fsxds.client.client_tls import ClientTls
from fsxds.client.dialogues import DeltaDialogue, SotwDialogue
from fsxds.client.polls import PollingClient
from fsxds.client.streams import StreamClient
from fsxds.client.updates import ConnectionLostError, Update, WrongResponseError, targets_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import ResourceType
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node
from fsxds.settings.forms import TcpAddress, parse_address

_OPTIONS = (
    # Each client has a separate connection, as each Envoy has.
    ("grpc.use_local_subchannel_pool", 1),
    # Otherwise gRPC would use a proxy of the environment even for 127.0.0.1.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    # The maximum time to connect, TLS included, which takes three round trips.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """A channel's limits.

    Attributes:
        response_bytes: None for any size: ten thousand clusters, perhaps.
        keepalive_s: the silence before a ping, or None.
    """

    response_bytes: int | None = None
    keepalive_s: float | None = None

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """The channel's arguments."""
        largest = -1 if self.response_bytes is None else self.response_bytes
        size = ("grpc.max_receive_message_length", largest)
        if self.keepalive_s is None:
            return (size,)
        pinging = (
            ("grpc.keepalive_time_ms", round(self.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER_MS),
            # Pings are sent at this interval even if nothing else is.
            ("grpc.http2.max_pings_without_data", 0),
        )
        return (size, *pinging)


# Without an answer to a ping within this time, the server counts as gone.
KEEPALIVE_ANSWER_MS = 10_000
UNLIMITED = ChannelLimits()


def open_channel(target: str, tls: ClientTls | None = None, limits: ChannelLimits = UNLIMITED) -> grpc.aio.Channel:
    """Return a channel to `host:port` or `unix:/path`, which connects at the first call.

    Without `tls` it is plain text. Raises UsageError for unusable TLS files.
    """
    options = (*_OPTIONS, *limits.options)
    if tls is not None:
        return grpc.aio.secure_channel(target, tls.grpc_credentials(), options=options)
    return grpc.aio.insecure_channel(target, options=options)


class XdsClient(Protocol):
    """A client on any wire."""

    on_connected: Callable[[], None]

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Subscribe to names, or to everything."""

    async def next(self) -> Update:
        """Wait for the next update."""

    def ack(self) -> None:
        """ACK the last update: streams now, polls with the next one."""

    def nack(self, reason: str) -> None:
        """NACK the last update."""

    async def finish(self) -> None:
        """ACK the last update unless read by GET; send nothing more."""


class Wire(Enum):
    """A client's wire."""

    SOTW = "sotw"
    DELTA = "delta"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Streaming:
    """One type's stream, or ADS if `row` is None."""

    wire: Wire
    row: ResourceType | None = None

    @property
    def method(self) -> str:
        """The gRPC path; KeyError for a type of ADS alone."""
        if self.row is None:
            service, noun = "discovery.v3.AggregatedDiscoveryService", "AggregatedResources"
        elif self.row.grpc:
            service, noun = self.row.grpc.split()
        else:
            raise KeyError(self.row.short_name)
        return f"/envoy.service.{service}/{'Delta' if self.wire is Wire.DELTA else 'Stream'}{noun}"


@asynccontextmanager
async def streaming(
    target: str, wanted: Streaming, node: Node, tls: ClientTls | None = None
) -> AsyncIterator[StreamClient]:
    """Yield a separately connected client without subscription; `target` and `tls` as in `open_channel`."""
    dialogue = DeltaDialogue(node) if wanted.wire is Wire.DELTA else SotwDialogue(node)
    async with open_channel(target, tls) as channel, StreamClient(channel, wanted.method, dialogue) as client:
        yield client


URLS = ("http://", "https://")
_WORDS = {Wire.SOTW: "SotW", Wire.DELTA: "Delta", Wire.REST: "REST"}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """A client's subscriptions and wire.

    Attributes:
        address: `host:port`, `unix:/path`, or a URL, which means REST.
        rows: several on an ADS stream only.
        names: empty for everything.
        is_aggregated: by ADS.
        tls: None for plain text, or with https this machine's CAs.
        token: a bearer token, or empty.
    """

    address: str
    rows: tuple[ResourceType, ...]
    names: tuple[str, ...] = ()
    wire: Wire = Wire.SOTW
    is_aggregated: bool = False
    tls: ClientTls | None = None
    token: str = field(default="", repr=False)

    @property
    def title(self) -> str:
        """A description for users."""
        nouns = ", ".join(row.noun for row in self.rows)
        named = f" {', '.join(self.names)}" if self.names else ""
        return f"{nouns}{named} at {self.target} by {_WORDS[self.wire]}{' ADS' if self.is_aggregated else ''}"

    @property
    def target(self) -> str:
        """`host:port`, `unix:/path`, or a URL over REST. Raises UsageError."""
        if self.address.startswith(URLS):
            return self.address
        where = parse_address(self.address)
        if not isinstance(where, TcpAddress):
            return str(where)
        if where.port == 0:
            raise UsageError(f"{self.address}: port 0 cannot be connected to; give the port that the server listens on")
        where = TcpAddress(where.host or "127.0.0.1", where.port)
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{where}" if self.wire is Wire.REST else str(where)

    def check(self) -> None:
        """Raise UsageError if no server could answer."""
        if fault := next(self._faults(), None):
            raise UsageError(fault)
        _ = self.target

    def _faults(self) -> Iterator[str]:
        if self.wire is not Wire.REST and self.address.startswith(URLS):
            yield f"{self.address}: streams have no URL; write HOST:PORT, or leave --delta and --ads out"
        if (
            self.tls is not None
            and not self.address.startswith("https://")
            and self.address.startswith((*URLS, "unix:"))
        ):
            yield f"{self.address}: there is no TLS; write https://HOST:PORT, or leave --ca, --cert and --key out"
        if self.wire is Wire.REST and self.is_aggregated:
            yield "there is no --ads over REST; give HOST:PORT of streams, and leave --rest out"
        for row in self.rows:
            if self.wire is Wire.REST and row.rest_path is None:
                yield f"--type {row.short_name} has no REST form; put --delta in place of --rest"
            if self.wire is Wire.SOTW and not row.has_sotw:
                yield f"--type {row.short_name} exists in Delta alone; add --delta"
            elif not (row.grpc or row.rest_path or self.is_aggregated):
                yield f"--type {row.short_name} has no stream of its own; add --ads"
        if len(self.rows) > 1 and not self.is_aggregated:
            yield "several types take a stream for all types; add --ads, or watch one --type"
        if len(self.rows) > 1 and self.names:
            yield "--names are of one type; give one --type"


@asynccontextmanager
async def connecting(wanted: ClientOptions, node: Node, converter: Converter) -> AsyncIterator[XdsClient]:
    """Yield a subscribed client."""
    client: XdsClient
    if wanted.wire is Wire.REST:
        polling = PollingClient(wanted.target, wanted.rows[0], node, converter)
        polling.tls, polling.token = wanted.tls, wanted.token
        async with polling as client:
            client.subscribe(wanted.rows[0].type_url, *wanted.names)
            yield client
        return
    stream = Streaming(wanted.wire, None if wanted.is_aggregated else wanted.rows[0])
    async with streaming(wanted.target, stream, node, wanted.tls) as client:
        client.token = wanted.token
        for row in wanted.rows:
            client.subscribe(row.type_url, *wanted.names)
        yield client


# Pauses between attempts to connect.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """An interruption; `code` is ConnectionLostError's or `NACK`; final ones are last."""

    text: str
    code: str
    is_final: bool = False


async def follow(
    client: XdsClient, first_pause_s: float = FIRST_PAUSE_S, *, names: Collection[str] = ()
) -> AsyncGenerator[Update | Trouble, None]:
    """Yield ACKed updates and interruptions; reconnect after a loss.

    A client with `names` also subscribes to redirects' targets; any other receives all resources.
    """
    pause_s, asked = first_pause_s, set(names)
    while True:
        try:
            update = await client.next()
        except WrongResponseError as error:
            yield Trouble(f"NACKed a response: {error}", "NACK")
        except ConnectionLostError as error:
            yield Trouble(str(error), error.code, error.is_final)
            if error.is_final:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        else:
            client.ack()
            pause_s = first_pause_s
            targets = set(targets_of(update)) - asked if names else set[str]()
            if targets:
                client.subscribe(update.type_url, *sorted(targets))
                asked |= targets
            yield update
