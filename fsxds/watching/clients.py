"""Clients by what they are to be: which wire, which types, which node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fsxds.protocol.messages import Node
from fsxds.resource_types import ResourceType
from fsxds.values import TypeUrl
from fsxds.watching.channels import ads_method, method_of, open_channel
from fsxds.watching.delta import DeltaDialogue
from fsxds.watching.sotw import SotwDialogue
from fsxds.watching.streams import StreamClient
from fsxds.watching.updates import Update


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
