"""A server followed through its troubles."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc

from fsxds.client.connection import Streaming, Trouble, Wire, follow, streaming
from fsxds.client.updates import Update
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from tests.client.scripted import CDS, Script, cluster, scripted, sotw

CLUSTERS = Streaming(Wire.SOTW, BY_SHORT_NAME["cds"])


async def followed(script: Script, count: int) -> list[Update | Trouble]:
    """Return the first events of a client that follows."""
    events: list[Update | Trouble] = []
    async with streaming(script.target, CLUSTERS, Node("n1")) as client, aclosing(follow(client, 0.001)) as stream:
        client.subscribe(CDS)
        async for event in stream:
            events.append(event)
            if len(events) == count:
                await client.finish()
                break
    return events


async def test_updates_are_accepted() -> None:
    """Each update is told, after its ACK."""
    async with scripted(CLUSTERS.method) as script:
        script.say(sotw("1", cluster("a")), sotw("2", cluster("b")))
        events = await followed(script, 2)
        heard = [await script.requested() for _ in range(3)]

    assert [["a"], ["b"]] == [list(event.resources) for event in events if isinstance(event, Update)]
    assert ["", "n1", "n2"] == [request.response_nonce for request in heard]


async def test_an_update_is_accepted_before_it_is_looked_at() -> None:
    """Its ACK does not wait until the next one is asked for."""
    async with scripted(CLUSTERS.method) as script, streaming(script.target, CLUSTERS, Node("n1")) as client:
        client.subscribe(CDS)
        script.say(sotw("1"))
        async with aclosing(follow(client)) as stream:
            await anext(stream)
            heard = [await script.requested() for _ in range(2)]

    assert "n1" == heard[1].response_nonce


async def test_a_lost_stream_is_opened_again() -> None:
    """The end of a stream is told, and the next one goes on."""
    async with scripted(CLUSTERS.method) as script, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(followed(script, 4))
        # grpcio hides the status of a stream that ends while a request is being sent: so all are heard before it ends.
        for said in (sotw("1"), grpc.StatusCode.UNAVAILABLE, None, sotw("2")):
            await script.requested()
            script.say(said)
        first, lost, ended, second = await following

    assert isinstance(first, Update)
    assert isinstance(second, Update)
    assert ["UNAVAILABLE", "OK"] == [event.code for event in (lost, ended) if isinstance(event, Trouble)]


async def test_wrong_answers_are_told() -> None:
    """An answer that cannot be taken is refused, and the stream goes on."""
    async with scripted(CLUSTERS.method) as script:
        script.say(sotw("1", cluster("a"), cluster("a")), sotw("2"))
        trouble, update = await followed(script, 2)

    assert Trouble('NACKed a response: "a" is in it twice', "NACK") == trouble
    assert isinstance(update, Update)


async def test_what_will_not_heal_ends_it() -> None:
    """After a final refusal nothing comes any more."""
    async with scripted(CLUSTERS.method) as script:
        # Twice: a stream that ends before its first request was sent is opened again, for the status.
        script.say(grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.PERMISSION_DENIED)
        events = await followed(script, 2)

    assert [True] == [event.is_final for event in events if isinstance(event, Trouble)]
