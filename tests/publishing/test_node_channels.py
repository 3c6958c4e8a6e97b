"""Which channel a node follows, and how it moves to another one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fsxds.channels import Channel
from fsxds.errors import ProtocolError
from fsxds.events import SnapshotPublished
from fsxds.protocol.messages import Node
from fsxds.publishing import node_channels
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout import Held, RolloutOptions, Standing
from fsxds.settings.options import BY_NAME
from fsxds.settings.rollout_forms import Canary
from fsxds.views import Views
from tests.support.polls import named, snapshot_of, until
from tests.support.publishing import CDS, Client, Publishing, publishing

VIEWS = Views(
    BY_NAME["views"].form.read(
        [
            {"name": "edge", "match": {"cluster": "edge"}, "layers": ["common", "nodes/{node.id}"]},
            {"name": "inner", "match": {"cluster": "inner"}, "layers": ["common"]},
        ]
    )
)
RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))


async def joined(run: Publishing, name: str, cluster: str = "edge") -> Client:
    """Let a node follow its channel, when that is loaded; it takes every step."""
    asking = asyncio.ensure_future(run.channels.channel_of(Node(name, cluster)))
    await asyncio.sleep(0)
    run.load_views(*run.existing)
    client = Client(await asking, name, Standing.TAKEN)
    client.node = Node(name, cluster)
    return client


def served(channel: Channel) -> list[str]:
    """Return the clusters of a channel."""
    assert channel.store.current is not None
    return list(channel.store.current.resources(CDS))


async def test_nodes_with_the_same_layers_follow_one_channel() -> None:
    """Views with other names share it too; a node that has a layer of its own follows another one."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/b")
        run.load_views(*run.existing)
        a, c, b = [await joined(run, *node) for node in (("a", "edge"), ("c", "inner"), ("b", "edge"))]

        assert a.channel is c.channel is not b.channel
        assert (served(a.channel), served(b.channel)) == (["common"], ["common", "nodes/b"])
        assert run.wanted == {("common",), ("common", "nodes/b")}


async def test_a_node_that_no_rule_matches() -> None:
    """It is refused, with the reason."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common")
        run.load_views("common")
        with pytest.raises(ProtocolError, match="no rule of `views`") as raised:
            await run.channels.channel_of(Node("x", "other"))

        assert raised.value.code == "NOT_FOUND"


async def test_the_first_node_with_its_layers_takes_what_it_is_served_along() -> None:
    """A folder appears: its node goes on in a channel of its own, which begins with what the node has."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common")
        run.load_views(*run.existing)
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        before = a.channel
        run.load_views("common", "nodes/a")
        assert a.channel is before
        run.load_views("common", "nodes/a")
        await until(lambda: a.channel is not before and served(a.channel) == ["common", "nodes/a"])

        assert c.channel is before
        assert served(before) == ["common"]
        assert [list(step.snapshot.resources(CDS)) for step in a.asked][-1] == ["common", "nodes/a"]
        assert await run.channels.channel_of(a.node) is a.channel


async def test_nodes_that_come_together_again_share_a_channel() -> None:
    """A folder goes: its node goes on in a channel of its own until that serves the same as that of the others."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/a")
        run.load_views(*run.existing)
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        run.load_views("common")
        moving = a.channel
        assert moving is not c.channel
        assert served(moving) == ["common", "nodes/a"]
        assert await run.channels.channel_of(a.node) is moving
        await until(lambda: a.channel is c.channel)

        assert served(moving) == ["common"]
        assert all(not key.transition for key in run.publisher.rollouts)
        assert await run.channels.channel_of(a.node) is c.channel


async def test_what_nobody_follows_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, and its layers are not loaded any more; what somebody follows stays."""
    monkeypatch.setattr(node_channels, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(node_channels, "DROPPED_AFTER_S", 0.05)
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/a")
        run.load_views(*run.existing)
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        a.channel.leave(a)
        await until(lambda: run.wanted == {("common",)})

        assert a.channel.key not in run.publisher.rollouts
        assert await run.channels.channel_of(c.node) is c.channel


async def test_what_is_waited_for_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits is no client, and its channel stays; it is woken when its node may follow another one."""
    monkeypatch.setattr(node_channels, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(node_channels, "DROPPED_AFTER_S", 0.05)
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/a", "nodes/b")
        run.load_views(*run.existing)
        a, b = await joined(run, "a"), await joined(run, "b")
        a.channel.readers += 1
        for client in (a, b):
            client.channel.leave(client)
        woken: list[bool] = []
        run.channels.on_moved = lambda: woken.append(True)
        await until(lambda: b.channel.key not in run.publisher.rollouts)
        assert not woken, "nobody waited for what was dropped"
        assert a.channel.key in run.publisher.rollouts
        a.channel.readers -= 1
        await until(lambda: a.channel.key not in run.publisher.rollouts)
        run.see(VIEWS, "common")

        assert woken


async def test_a_change_of_many_views_is_reported_once() -> None:
    """One line for each change of the tree; what a view has when its first node comes is none."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/a", "nodes/b")
        run.load_views(*run.existing)
        nodes = [await joined(run, *node) for node in (("a", "edge"), ("b", "edge"), ("c", "inner"))]
        assert run.recorder.of(SnapshotPublished) == []
        run.load_views("nodes/a", "nodes/b")
        await until(lambda: ["nodes/a"] == served(nodes[0].channel) and ["nodes/b"] == served(nodes[1].channel))

        assert len(run.recorder.of(SnapshotPublished)) == 1


async def test_a_folder_that_goes_with_most_of_a_view_is_asked_about() -> None:
    """What its nodes are served stays until somebody approves: a folder that is not mounted looks the same."""
    many = [named("cds", f"c{number}") for number in range(6)]
    async with publishing(RULES) as run:
        run.see(VIEWS, "common", "nodes/a")
        run.load_views(*run.existing)
        a = await joined(run, "a")
        run.publisher.receive({("common", "nodes/a"): snapshot_of(101, *many), ("common",): snapshot_of(101)}, 2.0)
        await until(lambda: len(served(a.channel)) == 6)
        before = a.channel
        run.want(("common",))
        run.existing = frozenset({"common"})
        run.publisher.receive({("common",): snapshot_of(102, many[0])}, 3.0)
        await until(lambda: any(isinstance(one, Held) for one in run.happened()))
        assert a.channel is not before
        [held] = [one for one in run.happened() if isinstance(one, Held)]
        assert len(served(a.channel)) == 6
        run.publisher.change_rules(replace(RULES, approved=frozenset({held.snapshot_id})))
        await until(lambda: served(a.channel) == ["c0"])


async def test_layers_that_appear_while_a_node_waits() -> None:
    """A node that comes before its view is loaded follows the channel of the layers that there are then."""
    async with publishing(RULES) as run:
        run.see(VIEWS, "common")
        run.load_views("common")
        asking = asyncio.ensure_future(run.channels.channel_of(Node("a", "edge")))
        await asyncio.sleep(0)
        run.load_views("common", "nodes/a")
        await until(lambda: ("common", "nodes/a") in run.wanted)
        run.load_views("common", "nodes/a")

        assert served(await asking) == ["common", "nodes/a"]


async def test_canaries_that_change_go_on_with_what_they_are_served() -> None:
    """Other settings make another share of the nodes canaries: those that change follow another channel, on each transport."""
    async with publishing(RULES) as run:
        run.load(("a",))
        await run.settled()
        client = Client(await run.channels.channel_of(Node("n1")), "n1", Standing.TAKEN)
        before = client.channel
        run.channels.change_rules(Views(None), Canary(share=1.0))
        assert client.channel is not before
        assert client.channel.key.is_canary
        assert served(client.channel) == ["a"]
        assert await run.channels.channel_of(client.node) is client.channel
