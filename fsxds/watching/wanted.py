"""What is to be watched: refused where no server could answer it, else a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fsxds.addresses import TcpAddress, parse_address
from fsxds.api.convert import Converter
from fsxds.errors import UsageError
from fsxds.protocol.messages import Node
from fsxds.resource_types import ResourceType
from fsxds.watching.clients import Client, Streaming, Wire, streaming
from fsxds.watching.polls import PollingClient

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
