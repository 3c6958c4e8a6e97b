"""What servers ask of the publisher, and its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.fleet_commands import CommandedPublisher, FleetCommands, Request
from fsxds.fleet.key_values import Delete, Guard, Lease, Put
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.sealing import Sealing
from fsxds.model.errors import ProtocolError
from tests.fleet.made import KEYS
from tests.support.publishing import virtually


class Fleet:
    """A server that asks, and one that publishes."""

    def __init__(self, engine: MemoryKeyValues, lease: Lease) -> None:
        self.engine = engine
        self.lease = lease
        self.content = FleetContent(engine, KEYS, Sealing((b"k" * 32,)))
        self.commands = FleetCommands(self.content, lease, "other")
        self.asked: list[Request] = []

    async def answer(self, request: Request) -> object:
        """Note a request, and answer it."""
        self.asked.append(request)
        match request["ask"]:
            case "history":
                raise ProtocolError("there is no history", "FAILED_PRECONDITION")
            case "slow":
                await asyncio.sleep(60)
        return {"one": [request["ask"], None]}

    async def elect(self, name: str = "publisher") -> asyncio.Task[None]:
        """Have a server publish."""
        lease = await self.engine.grant(1000)
        await self.engine.write([Delete(KEYS.publisher)])
        created = await self.engine.write([Put(KEYS.publisher, name.encode(), lease)])
        fence = Guard(KEYS.publisher, created=created)
        publisher = CommandedPublisher(self.content, fence, lease, self.answer)
        return asyncio.create_task(publisher.keep_answered())


@asynccontextmanager
async def made() -> AsyncIterator[Fleet]:
    """Make them, on an engine in memory; the first has its lease."""
    engine = MemoryKeyValues()
    lease = Lease(engine)
    keeping = asyncio.create_task(lease.keep_alive())
    await asyncio.sleep(0)
    yield Fleet(engine, lease)
    keeping.cancel()


async def left_in(fleet: Fleet) -> list[bytes]:
    """Return the keys of requests and answers."""
    found = await fleet.engine.read_prefix(b"/")
    return [key for key in found.values if key.startswith((KEYS.commands, KEYS.answers))]


@virtually
async def test_the_publisher_answers() -> None:
    """Also two at once; neither requests nor answers are left."""
    async with made() as fleet:
        serving = await fleet.elect()
        answers = await asyncio.gather(*(fleet.commands.ask({"ask": name}) for name in "ab"))
        assert answers == [{"one": ["a", None]}, {"one": ["b", None]}]
        assert [one["server"] for one in fleet.asked] == ["other"] * 2
        assert await left_in(fleet) == []
        serving.cancel()


@virtually
async def test_what_cannot_be_done_is_said() -> None:
    """With the words and the code of the publisher; one that knows less says that."""
    async with made() as fleet:
        serving = await fleet.elect()
        with pytest.raises(ProtocolError, match="there is no history") as raised:
            await fleet.commands.ask({"ask": "history"})
        assert raised.value.code == "FAILED_PRECONDITION"
        with pytest.raises(ProtocolError, match="all servers need one version") as raised:
            await fleet.commands.ask({"other": 1})
        assert raised.value.code == "UNIMPLEMENTED"
        serving.cancel()


@virtually
async def test_nobody_answers() -> None:
    """The request is taken back: a publisher that is elected later does not carry it out."""
    async with made() as fleet:
        with pytest.raises(ProtocolError, match="no server answered within 10 s"):
            await fleet.commands.ask({"ask": "a"})
        serving = await fleet.elect()
        await asyncio.sleep(1)
        assert fleet.asked == []
        serving.cancel()


@virtually
async def test_a_request_waits_for_the_next_publisher() -> None:
    """It was written while nobody published."""
    async with made() as fleet:
        asking = asyncio.create_task(fleet.commands.ask({"ask": "a"}))
        await asyncio.sleep(4)
        serving = await fleet.elect()
        assert await asking == {"one": ["a", None]}
        serving.cancel()


@virtually
async def test_nothing_is_carried_out_twice() -> None:
    """A publisher that was followed by another one does nothing any more, and what it had begun is not done again."""
    async with made() as fleet:
        before = await fleet.elect("before")
        asking = asyncio.create_task(fleet.commands.ask({"ask": "slow"}))
        await asyncio.sleep(1)
        after = await fleet.elect("after")
        with pytest.raises(ProtocolError, match="may still be carried out"):
            await asking
        assert await fleet.commands.ask({"ask": "a"}) == {"one": ["a", None]}
        assert [one["ask"] for one in fleet.asked] == ["slow", "a"]
        before.cancel()
        after.cancel()


@virtually
async def test_without_a_lease_nothing_is_asked() -> None:
    """The fleet cannot be reached: that is said at once."""
    async with made() as fleet:
        fleet.lease.current.replace(0)
        fleet.lease.reason = "etcd does not answer"
        with pytest.raises(ProtocolError, match="etcd does not answer") as raised:
            await fleet.commands.ask({"ask": "a"})
        assert raised.value.code == "UNAVAILABLE"


@virtually
async def test_a_request_of_somebody_without_the_key() -> None:
    """It is not carried out: it is not sealed."""
    async with made() as fleet:
        serving = await fleet.elect()
        await fleet.engine.write([Put(KEYS.commands + b"x/1", b'{"ask": "a", "server": "x"}')])
        await asyncio.sleep(1)
        assert fleet.asked == []
        assert await fleet.commands.ask({"ask": "b"}) == {"one": ["b", None]}
        serving.cancel()
