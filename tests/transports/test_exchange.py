from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import NoUpstreams
from fsxds.runtime.access import Access, AccessInUse, Peer
from fsxds.runtime.channels import Channel, ChannelKey, HoldsOf, holds_nothing
from fsxds.settings.access_rules import AccessRule
from fsxds.transports.exchange import Exchange, Reader, Requester
from tests.support.channels import OneChannel
from tests.support.patience import PATIENCE_S
from tests.support.polls import until
from tests.support.snapshots import snapshot

CDS = BY_SHORT_NAME["cds"].type_url
PEER = Peer("10.0.0.9", is_private=False)
ASKER = Requester(PEER, Node("edge-1"), CDS, frozenset({"a"}))
FOR_OTHERS = Access(rules=(AccessRule(token="batch", nodes=("batch-*",)),))


class SlowChannels(OneChannel):
    """Takes until `loaded` to load a view; what happens meanwhile is done by `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return the channel."""
        await asyncio.sleep(0)
        self._meanwhile()
        return await super().channel_of(node, holds=holds, holds_of=holds_of)


async def test_access_is_asked_again_when_a_view_was_loaded() -> None:
    """It may have been taken away meanwhile."""
    access = AccessInUse(Access())
    exchange = Exchange(SlowChannels(lambda: access.replace(FOR_OTHERS)), access=access)

    with pytest.raises(ProtocolError):
        await exchange.channel_of(ASKER)


def test_a_type_is_judged_as_soon_as_it_is_known() -> None:
    """Until then, it is asked whether one may ask as this node."""
    secrets = BY_SHORT_NAME["sds"].type_url
    exchange = Exchange(OneChannel())
    exchange.check(Requester(PEER, Node("edge-1")))

    with pytest.raises(ProtocolError, match="secret"):
        exchange.check(Requester(PEER, Node("edge-1"), secrets))


class Upstreams(NoUpstreams):
    """Remembers what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[object, object] = {}

    def ask(self, client: object, type_url: object, names: object) -> None:
        """Remember what is asked."""
        self.asked[client] = type_url, names

    def forget(self, client: object) -> None:
        """Forget it."""
        self.asked.pop(client, None)


async def test_upstreams_are_asked_as_long_as_a_request_lasts() -> None:
    """Also when it fails; two equal requests are two."""
    upstreams = Upstreams()
    exchange, other = Exchange(OneChannel(on_demand=upstreams)), Requester(PEER, Node("edge-1"), CDS, frozenset({"a"}))

    def fail() -> None:
        with exchange.asking(other), exchange.asking(ASKER):
            assert list(upstreams.asked.values()) == [(CDS, {"a"})] * 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not upstreams.asked


@asynccontextmanager
async def reading(exchange: Exchange, *, awaits_answers: bool = False) -> AsyncIterator[asyncio.Task[float]]:
    """Have a reader wait for an hour."""
    reader = Reader(exchange.channels.channel)  # type: ignore[attr-defined]
    until_s = asyncio.get_running_loop().time() + 3600
    async with asyncio.timeout(PATIENCE_S):
        with exchange.woken():
            waiting = exchange.wait_reading(ASKER, reader, until_s, awaits_answers=awaits_answers)
            task = asyncio.create_task(waiting)
            await until(lambda: len(exchange) == 1)
            yield task


async def test_a_reader_follows_its_node() -> None:
    """It is no client of the channel, which is kept for it, and looks again when its node moves."""
    channels = OneChannel()
    first, second = channels.channel, Channel(ChannelKey(is_canary=True))
    exchange = Exchange(channels)
    async with reading(exchange) as task:
        assert (first.readers, set(first.clients)) == (1, set())
        channels.channel = second
        for moved in channels.on_moved.values():
            moved()
        await task
    assert (first.readers, channels.on_moved) == (0, {})


async def test_a_reader_that_may_ask_no_longer_is_rejected() -> None:
    """Where access changes while it waits."""
    access = AccessInUse(Access())
    exchange = Exchange(OneChannel(), access=access)
    async with reading(exchange) as task:
        access.replace(FOR_OTHERS)
        with pytest.raises(ProtocolError):
            await task


async def test_answers_of_upstreams_wake_those_who_wait_for_them() -> None:
    """Nobody else."""
    channels = OneChannel()
    exchange = Exchange(channels)
    async with reading(exchange) as patient, reading(exchange.of_streams(channels), awaits_answers=True) as waiting:
        for answer in (*channels.on_demand.listeners.values(),):
            answer()
        await waiting
        assert not patient.done()
        exchange.drain()
        await patient
    assert exchange.is_draining


async def test_streams_may_be_served_something_else() -> None:
    """A request that is answered as they are waits for that."""
    channels = OneChannel()
    exchange = Exchange.of_streams(channels)
    channels.channel.streams = type(channels.store)()
    async with reading(exchange) as task:
        channels.store.publish(snapshot({"CDS": {"a": "1"}}))
        await asyncio.sleep(0)
        assert not task.done()
        channels.channel.streams.publish(snapshot({"CDS": {"a": "2"}}))
        await task
    assert exchange.snapshot_of(channels.channel) is channels.channel.streams.current
