from __future__ import annotations

from functools import partial

from fsxds.model.resources import Snapshot
from fsxds.protocol.messages import Node
from fsxds.publishing.node_channels import NodeChannels
from tests.support.publishing import CDS, Publishing, publishing, virtually

EDGE = Node("edge-1")


async def left_behind(run: Publishing) -> list[Snapshot]:
    """Let a node leave within the first step to another cluster; return what was served, the newest first."""
    run.load(["a"], "a")
    client = await run.join(EDGE.id)
    run.load(["b"], "b")
    await run.settled()
    client.leave()
    served: list[Snapshot] = []
    for name in ("b", "c", "d"):
        run.load([name], name)
        await run.passed(0.1)
        assert run.store.current is not None
        served.insert(0, run.store.current)
    return served


def has(name: str, snapshot: Snapshot) -> bool:
    """Whether a snapshot has a cluster alone."""
    return list(snapshot.resources(CDS)) == [name]


async def names_for(channels: NodeChannels, name: str) -> list[str]:
    """Return what the node is served when it comes with a cluster alone."""
    channel = await channels.channel_of(EDGE, holds=True, holds_of=partial(has, name))
    assert channel.store.current is not None
    return list(channel.store.current.resources(CDS))


@virtually
async def test_who_was_led_on_elsewhere_goes_on_from_there() -> None:
    """It is not led again from where it left: it would go back."""
    async with publishing() as run:
        served = await left_behind(run)
        run.channels.correct_place(EDGE, partial(has, "c"), served)

        assert await names_for(run.channels, "c") == ["c"]


@virtually
async def test_who_has_what_it_left_with_goes_on_from_there() -> None:
    """So does one of which nobody knows what it has."""
    for name in ("a", "x"):
        async with publishing() as run:
            served = await left_behind(run)
            run.channels.correct_place(EDGE, partial(has, name), served)

            assert await names_for(run.channels, name) == ["a", "b"]


@virtually
async def test_who_was_never_here_goes_on_from_what_another_server_led_it_to() -> None:
    """At once it would get routes before their clusters, or lose clusters before its routes."""
    async with publishing() as run:
        served = await left_behind(run)
        run.channels.correct_place(Node("edge-2"), partial(has, "c"), served)
        channel = await run.channels.channel_of(Node("edge-2"), holds=True, holds_of=partial(has, "c"))

        assert channel.store.current is not None
        assert ["c"] == list(channel.store.current.resources(CDS))


@virtually
async def test_who_was_never_here_and_has_nothing_known_has_no_place() -> None:
    """It is served what the others are, as is one that has almost that, and one without an id."""
    async with publishing() as run:
        served = await left_behind(run)
        for node, name in ((Node("edge-2"), "x"), (Node("edge-3"), "d"), (Node(""), "c")):
            run.channels.correct_place(node, partial(has, name), served)
            channel = await run.channels.channel_of(node, holds=True, holds_of=partial(has, name))

            assert channel is run.publisher.whole


@virtually
async def test_who_is_here_stays() -> None:
    """A new subscription of a client that follows the others is no sign of another place."""
    async with publishing() as run:
        served = await left_behind(run)
        await run.join("edge-2")
        run.channels.correct_place(Node("edge-2"), partial(has, "c"), served)
        channel = await run.channels.channel_of(Node("edge-2"), holds=True, holds_of=partial(has, "c"))

        assert channel is run.publisher.whole
