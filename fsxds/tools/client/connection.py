"""What is to be watched: refused where no server could answer it, else a client for it.

Connections for streams, and the paths of the methods that are called on them.

Clients by what they are to be: which wire, which types, which node.

Follow a server for as long as one likes: each update, and each trouble on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import grpc.aio

from fsxds.api.convert import Converter
from fsxds.errors import UsageError
from fsxds.protocol.messages import Node
from fsxds.resource_types import ResourceType
from fsxds.settings.forms import TcpAddress, parse_address
from fsxds.tools.client.dialogues import DeltaDialogue, SotwDialogue
from fsxds.tools.client.messages import LostError, Update, WrongAnswerError
from fsxds.tools.client.polls import PollingClient
from fsxds.tools.client.streams import StreamClient
from fsxds.values import TypeUrl

# As a server with ten thousand clusters answers: no limit is of use to who only looks.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # Each client has a connection of its own, as each Envoy has.
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC would ask the proxy of the environment for 127.0.0.1, too.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


def open_channel(target: str) -> grpc.aio.Channel:
    """Return a channel to `host:port` or `unix:/path`. Nothing is connected before something is called."""
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def method_of(row: ResourceType, *, is_delta: bool) -> str:
    """Return the path of the method that streams one type; KeyError for a type that only ADS has."""
    if not row.grpc:
        raise KeyError(row.short_name)
    service, noun = row.grpc.split()
    return f"/envoy.service.{service}/{'Delta' if is_delta else 'Stream'}{noun}"


def ads_method(*, is_delta: bool) -> str:
    """Return the path of the method that streams all types."""
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"
    return f"/{service}/{'Delta' if is_delta else 'Stream'}AggregatedResources"


class Client(Protocol):
    """What can be done with a client on any wire."""

    on_connected: Callable[[], None]

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Ask for names, or for everything."""

    async def next(self) -> Update:
        """Wait for the next update."""

    def ack(self) -> None:
        """Accept the last one now."""

    def nack(self, reason: str) -> None:
        """Refuse the last one."""

    async def finish(self) -> None:
        """Accept the last one, and say no more."""


class Wire(Enum):
    """How a client is told what is new."""

    SOTW = "sotw"
    DELTA = "delta"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Streaming:
    """A stream that is wanted, SotW or Delta: of one type's own service, or of ADS where `row` is None."""

    wire: Wire
    row: ResourceType | None = None

    @property
    def method(self) -> str:
        """The path of the method that is called."""
        is_delta = self.wire is Wire.DELTA
        return ads_method(is_delta=is_delta) if self.row is None else method_of(self.row, is_delta=is_delta)


@asynccontextmanager
async def streaming(target: str, wanted: Streaming, node: Node) -> AsyncIterator[StreamClient]:
    """Yield a client on a connection of its own; it asks for nothing before `subscribe` is called.

    Args:
        target: `host:port`, or `unix:/path`.
        wanted: which stream.
        node: who asks.
    """
    dialogue = DeltaDialogue(node) if wanted.wire is Wire.DELTA else SotwDialogue(node)
    async with open_channel(target) as channel, StreamClient(channel, wanted.method, dialogue) as client:
        yield client


URLS = ("http://", "https://")
_WORDS = {Wire.SOTW: "SotW", Wire.DELTA: "Delta", Wire.REST: "REST"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be watched, and how.

    Attributes:
        address: as the user wrote it: `host:port`, `unix:/path`, or a URL, which means REST.
        rows: the types, several of them on an ADS stream alone.
        names: what to ask for; none for everything.
        wire: how to be told.
        is_aggregated: by ADS, not by the service of the type.
    """

    address: str
    rows: tuple[ResourceType, ...]
    names: tuple[str, ...] = ()
    wire: Wire = Wire.SOTW
    is_aggregated: bool = False

    @property
    def title(self) -> str:
        """What is watched where, in words."""
        nouns = ", ".join(row.noun for row in self.rows)
        named = f" {', '.join(self.names)}" if self.names else ""
        return f"{nouns}{named} at {self.target} by {_WORDS[self.wire]}{' ADS' if self.is_aggregated else ''}"

    @property
    def target(self) -> str:
        """Where to connect to: `host:port`, `unix:/path`, and over REST a URL. Raises UsageError as `check` does."""
        if self.address.startswith(URLS):
            return self.address
        where = parse_address(self.address)
        if not isinstance(where, TcpAddress):
            return str(where)
        if where.port == 0:
            raise UsageError(f"{self.address}: port 0 is none to connect to; give the one that the server listens at")
        where = TcpAddress(where.host or "127.0.0.1", where.port)
        return f"http://{where}" if self.wire is Wire.REST else str(where)

    def check(self) -> None:
        """Raise UsageError where the address is none, or no server could answer."""
        if fault := next(self._faults(), None):
            raise UsageError(fault)
        _ = self.target

    def _faults(self) -> Iterator[str]:
        if self.wire is not Wire.REST and self.address.startswith(URLS):
            yield f"{self.address}: streams have no URL; write HOST:PORT, or leave --delta and --ads out"
        if self.wire is Wire.REST and self.is_aggregated:
            yield "there is no --ads over REST; give HOST:PORT of streams, and leave --rest out"
        for row in self.rows:
            if self.wire is Wire.REST and row.rest_path is None:
                yield f"--type {row.short_name} has no REST form; put --delta in place of --rest"
            if self.wire is Wire.SOTW and not row.has_sotw:
                yield f"--type {row.short_name} is told in Delta alone; add --delta"
        if len(self.rows) > 1 and not self.is_aggregated:
            yield "several types take a stream for all types; add --ads, or watch one --type"
        if len(self.rows) > 1 and self.names:
            yield "--names are of one type; give one --type"


@asynccontextmanager
async def connecting(wanted: Wanted, node: Node, converter: Converter) -> AsyncIterator[Client]:
    """Yield a client that has subscribed to what is wanted."""
    client: Client
    if wanted.wire is Wire.REST:
        async with PollingClient(wanted.target, wanted.rows[0], node, converter) as client:
            client.subscribe(wanted.rows[0].type_url, *wanted.names)
            yield client
        return
    stream = Streaming(wanted.wire, None if wanted.is_aggregated else wanted.rows[0])
    async with streaming(wanted.target, stream, node) as client:
        for row in wanted.rows:
            client.subscribe(row.type_url, *wanted.names)
        yield client


# Long enough that a server that refuses is left in peace, short enough for who looks on.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What came between, in words; `is_final`: nothing will come any more. `code` is that of LostError, or `NACK`."""

    text: str
    code: str
    is_final: bool = False


async def follow(client: Client, first_pause_s: float = FIRST_PAUSE_S) -> AsyncGenerator[Update | Trouble, None]:
    """Yield what a client is told, each update accepted; connect again when it is lost, with pauses that grow."""
    pause_s = first_pause_s
    while True:
        try:
            update = await client.next()
        except WrongAnswerError as error:
            yield Trouble(f"refused an answer: {error}", "NACK")
        except LostError as error:
            yield Trouble(str(error), error.code, error.is_final)
            if error.is_final:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        else:
            client.ack()
            pause_s = first_pause_s
            yield update
