"""Which channel a node follows, and how it moves to another one."""

from __future__ import annotations

import asyncio

import pytest

from fsxds.events.file_events import SnapshotPublished
from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import Node
from fsxds.publishing import node_channels
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.runtime.channels import Channel
from fsxds.runtime.views import NodeRules, Views
from fsxds.settings.options import BY_NAME
from fsxds.settings.rollout_forms import Canary
from tests.support.polls import named, snapshot_of, until
from tests.support.publishing import CDS, RDS, VIEWS, Client, Publishing, content_of, publishing, virtually
from tests.support.rollouts import tree_snapshot

RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))


async def joined(run: Publishing, name: str, cluster: str = "edge") -> Client:
    """Let a node follow its channel, when that is loaded; it takes every step."""
    asking = asyncio.ensure_future(run.join(name, cluster, is_quick=True))
    await asyncio.sleep(0)
    run.load_views(*run.existing)
    return await asking


def served(channel: Channel) -> list[str]:
    """Return the clusters of a channel."""
    assert channel.store.current is not None
    return list(channel.store.current.resources(CDS))


@virtually
async def test_nodes_with_the_same_layers_follow_one_channel() -> None:
    """Views with other names share it too; a node that has a layer of its own follows another one."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/b")
        a, c, b = [await joined(run, *node) for node in (("a", "edge"), ("c", "inner"), ("b", "edge"))]

        assert a.channel is c.channel is not b.channel
        assert (served(a.channel), served(b.channel)) == (["common"], ["common", "nodes/b"])
        assert run.wanted == {("common",), ("common", "nodes/b")}


@virtually
async def test_a_node_that_no_rule_matches() -> None:
    """It is refused, with the reason."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common")
        with pytest.raises(ProtocolError, match="no rule of `views`") as raised:
            await run.channels.channel_of(Node("x", "other"))

        assert raised.value.code == "NOT_FOUND"


@virtually
async def test_the_first_node_with_its_layers_takes_what_it_is_served_along() -> None:
    """A folder appears: its node goes on in a channel of its own, which begins with what the node has."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common")
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        before = a.channel
        run.load_views("common", "nodes/a")
        assert a.channel is before
        run.load_views("common", "nodes/a")
        await until(lambda: a.channel is not before and served(a.channel) == ["common", "nodes/a"])

        assert c.channel is before
        assert served(before) == ["common"]
        assert [name for name, _ in a.offers][-1] == "nodes/a"
        assert await run.channels.channel_of(a.node) is a.channel


@virtually
async def test_a_node_moves_at_once_where_one_step_leads() -> None:
    """A folder goes that has a cluster which nothing names: its node follows the channel of those that have the rest."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        run.load_views("common")
        await run.settled()

        assert a.channel is c.channel
        assert set(a.held[CDS]) == {"common"}
        assert await run.channels.channel_of(a.node) is c.channel


@virtually
async def test_a_node_moves_by_steps_where_several_lead() -> None:
    """In a channel of its own until that serves the same as that of the others."""
    trees = {
        ("common", "nodes/a"): tree_snapshot({"CDS": {"a": "1"}, "RDS": {"r": "1 CDS:a"}}),
        ("common",): tree_snapshot({"CDS": {"b": "1"}, "RDS": {"r": "1 CDS:b"}}),
    }
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        run.publisher.receive(trees, 5.0)
        await run.settled()
        a.is_quick, run.existing = False, frozenset({"common"})
        run.publisher.receive({("common",): trees["common",]}, 6.0)
        await run.settled()
        moving = a.channel
        assert (moving.key.cohort, served(moving)) == ("catching up", ["a", "b"])
        assert await run.channels.channel_of(a.node) is moving
        for expected in (["a", "b"], ["a", "b"], ["b"]):
            assert served(moving) == expected
            a.take()
            await run.settled()

        assert a.channel is c.channel
        assert all(key.is_main for key in run.publisher.rollouts)


@virtually
async def test_who_was_away_while_its_view_changed_is_led_there() -> None:
    """From what it had; not one with its id that says something else of itself, and may not be allowed to have that."""
    trees = {
        ("common", "nodes/a"): tree_snapshot({"CDS": {"a": "1"}, "RDS": {"r": "1 CDS:a"}}),
        ("common",): tree_snapshot({"CDS": {"b": "1"}, "RDS": {"r": "1 CDS:b"}}),
    }
    for described, expected in (
        (Node("a", "edge"), ["a"]),
        (Node("a", "edge", attributes=(("metadata.x", "1"),)), ["b"]),
    ):
        async with publishing(RULES, views=VIEWS) as run:
            run.load_views("common", "nodes/a")
            a, _ = await joined(run, "a"), await joined(run, "c", "inner")
            run.publisher.receive(trees, 5.0)
            await run.settled()
            a.leave()
            run.existing = frozenset({"common"})
            run.publisher.receive({("common",): trees["common",]}, 6.0)
            await run.settled()

            assert served(await run.channels.channel_of(described, holds=True)) == expected


@virtually
async def test_what_nobody_follows_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, and its layers are not loaded any more; what somebody follows stays."""
    monkeypatch.setattr(node_channels, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(node_channels, "DROPPED_AFTER_S", 0.05)
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        a, c = await joined(run, "a"), await joined(run, "c", "inner")
        a.leave()
        await until(lambda: run.wanted == {("common",)})

        assert a.channel.key not in run.publisher.rollouts
        assert await run.channels.channel_of(c.node) is c.channel


@virtually
async def test_what_is_waited_for_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits is no client, and its channel stays; it is woken when its node may follow another one."""
    monkeypatch.setattr(node_channels, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(node_channels, "DROPPED_AFTER_S", 0.05)
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/a", "nodes/b")
        a, b = await joined(run, "a"), await joined(run, "b")
        a.channel.readers += 1
        for client in (a, b):
            client.leave()
        woken: list[bool] = []
        run.channels.on_moved["test"] = lambda: woken.append(True)
        await until(lambda: b.channel.key not in run.publisher.rollouts)
        assert not woken, "nobody waited for what was dropped"
        assert a.channel.key in run.publisher.rollouts
        a.channel.readers -= 1
        await until(lambda: a.channel.key not in run.publisher.rollouts)
        run.load_views("common")

        assert woken


@virtually
async def test_a_change_of_many_views_is_reported_once() -> None:
    """One line for each change of the tree; what a view has when its first node comes is none."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common", "nodes/a", "nodes/b")
        nodes = [await joined(run, *node) for node in (("a", "edge"), ("b", "edge"), ("c", "inner"))]
        assert run.recorder.of(SnapshotPublished) == []
        run.load_views("nodes/a", "nodes/b")
        await until(lambda: ["nodes/a"] == served(nodes[0].channel) and ["nodes/b"] == served(nodes[1].channel))

        assert len(run.recorder.of(SnapshotPublished)) == 1


@virtually
async def test_layers_that_appear_while_a_node_waits() -> None:
    """A node that comes before its view is loaded follows the channel of the layers that there are then."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common")
        asking = asyncio.ensure_future(run.channels.channel_of(Node("a", "edge")))
        await asyncio.sleep(0)
        run.load_views("common", "nodes/a")
        await until(lambda: ("common", "nodes/a") in run.wanted)
        run.load_views("common", "nodes/a")

        assert served(await asking) == ["common", "nodes/a"]


@virtually
async def test_canaries_that_change_go_on_with_what_they_are_served() -> None:
    """Other settings make another share of the nodes canaries: those that change follow another channel, on each transport."""
    async with publishing(RULES) as run:
        run.load(("a",))
        await run.settled()
        client = await run.join("n1", is_quick=True)
        before = client.channel
        run.channels.change_rules(NodeRules(Views(None), Canary(share=1.0)))
        assert client.channel is not before
        assert client.channel.key.is_canary
        assert served(client.channel) == ["a"]
        assert await run.channels.channel_of(client.node) is client.channel


OTHER_VIEWS = Views(BY_NAME["views"].form.read([{"name": "inner", "match": {"cluster": "edge"}, "layers": ["moved"]}]))


@virtually
async def test_nodes_move_to_a_view_when_it_is_loaded() -> None:
    """Other rules by SIGHUP: until a tree was loaded by them they are served what they were, new ones likewise."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common")
        a = await joined(run, "a")
        before = a.channel
        run.see(OTHER_VIEWS)
        await run.settled()
        assert a.channel is before
        assert await run.channels.channel_of(Node("b", "edge")) is before
        assert ("moved",) in run.wanted
        run.publisher.receive({("common",): snapshot_of(50, named("cds", "common"))}, 5.0)
        await run.settled()
        assert a.channel is before
        assert await run.channels.channel_of(Node("d", "inner")) is before
        run.load_views("common", "moved")
        await run.settled()

        assert a.channel.key.layers == ("moved",)
        assert set(a.held[CDS]) == {"moved"}


@virtually
async def test_nodes_that_no_rule_is_for_any_more_stay() -> None:
    """They are served what they are; new ones are refused."""
    async with publishing(RULES, views=VIEWS) as run:
        run.load_views("common")
        c = await joined(run, "c", "inner")
        before = c.channel
        run.see(OTHER_VIEWS)
        run.load_views("common", "moved")
        await run.settled()

        assert (c.channel, set(c.held[CDS])) == (before, {"common"})
        with pytest.raises(ProtocolError, match="no rule of `views`"):
            await run.channels.channel_of(Node("d", "inner"))


SHORT = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=5.0))


@virtually
async def test_who_is_late_catches_up_step_by_step() -> None:
    """At its own pace, in the order in which the others got it, however far they are by then."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        slow, quick = await run.join("slow"), await run.join("quick", is_quick=True)
        for name in "bcd":
            run.load((name,), name)
            await run.passed(6.0)
        assert (set(quick.clusters()), slow.channel.key.cohort) == ({"d"}, "catching up")
        for _ in range(6):
            slow.take()
            await run.settled()
            assert slow.held[RDS]["r"].body.decode().rpartition(":")[2] in slow.clusters()

        assert set(slow.clusters()) == {"d"}
        assert slow.channel is quick.channel
        assert len(run.publisher.rollouts) == 1


@virtually
async def test_those_who_are_late_with_the_same_step_share_a_lane() -> None:
    """A thousand clients of a broken data center are one channel more."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        slow = [await run.join(f"slow-{number}") for number in range(5)]
        await run.join("quick", is_quick=True)
        run.load(("b",), "b")
        await run.passed(6.0)

        assert {client.channel.key.cohort for client in slow} == {"catching up"}
        assert len(run.publisher.rollouts) == 2


@virtually
async def test_who_comes_back_goes_on_where_it_was() -> None:
    """A node that holds what it was served is not served at once what takes several steps."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        gone, stays = await run.join("gone", is_quick=True), await run.join("stays", is_quick=True)
        gone.leave()
        run.load(("b",), "b")
        await run.settled()

        back = await run.channels.channel_of(Node("gone"), holds=True)
        assert back.key.cohort == "catching up"
        assert set(back.store.current.resources(CDS) if back.store.current else ()) == {"a"}
        other = await run.channels.channel_of(Node("other"), holds=True)
        assert other is stays.channel


@virtually
async def test_who_leaves_within_a_step_comes_back_to_that_step() -> None:
    """Nobody knows whether it took the routes before it left: the cluster that these do not name any more waits."""
    async with publishing(SHORT) as run:
        run.load(("a", "b"), "a")
        await run.settled()
        gone = await run.join("gone", is_quick=True)
        gone.is_quick = False
        run.load(("b",), "b")
        await run.settled()
        gone.leave()
        await run.settled()
        assert set(served(run.publisher.whole)) == {"b"}

        back = await run.channels.channel_of(Node("gone"), holds=True)
        assert back.key.cohort == "catching up"
        assert set(served(back)) == {"a", "b"}


@virtually
async def test_those_who_leave_within_a_step_come_back_to_one_lane() -> None:
    """A thousand clients behind one proxy that restarts are one channel more."""
    async with publishing(SHORT) as run:
        run.load(("a", "b"), "a")
        await run.settled()
        gone = [await run.join(f"gone-{number}", is_quick=True) for number in range(5)]
        for client in gone:
            client.is_quick = False
        run.load(("b",), "b")
        await run.settled()
        for client in gone:
            client.leave()

        back = [await run.channels.channel_of(client.node, holds=True) for client in gone]
        assert {channel.key.cohort for channel in back} == {"catching up"}
        assert len(run.publisher.rollouts) == 2


@virtually
async def test_who_never_says_what_it_took_gets_all_at_once_in_the_end() -> None:
    """A client whose polls say nothing, and that has none open when it is waited for, stays nowhere for ever."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        await run.join("stays", is_quick=True)
        channel, cohorts = run.publisher.whole, list[str]()
        for number in range(10):
            client = Client(channel, "silent")
            client.is_away = True
            if not number:
                run.load(("b",), "b")
            await run.passed(100.0)
            channel = await run.channels.channel_of(Node("silent"), holds=True)
            cohorts.append(channel.key.cohort)

        assert (cohorts[0], cohorts[-1]) == ("catching up", "main")


@virtually
async def test_who_comes_back_with_nothing_gets_all_at_once() -> None:
    """An Envoy that was restarted holds nothing that could break."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        gone, stays = await run.join("gone", is_quick=True), await run.join("stays", is_quick=True)
        gone.leave()
        run.load(("b",), "b")
        await run.settled()

        assert await run.channels.channel_of(Node("gone"), holds=False) is stays.channel


@virtually
async def test_nodes_without_an_id_are_one_each() -> None:
    """One that rejects something has a channel of its own, and the others keep theirs."""
    async with publishing(SHORT) as run:
        run.load(("a",), "a")
        await run.settled()
        odd, *others = [Client(run.publisher.whole, "", is_quick=True) for _ in range(5)]
        for number, client in enumerate((odd, *others)):
            client.identity = client.name = f"10.0.0.{number}"
        odd.rejects.add("bad")
        run.save({"CDS": {"a": "1", "new": "bad"}})
        await run.settled()

        assert (set(odd.clusters()), odd.channel.key.cohort) == ({"a"}, "rejecting")
        assert all(set(client.clusters()) == {"a", "new"} for client in others)


@virtually
async def test_above_so_many_sets_of_rejections_nodes_share_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that rejects something is not served that, and gets what nobody rejects; the others get everything."""
    monkeypatch.setattr(node_channels, "MOST_HELD", 2)
    async with publishing(SHORT) as run:
        run.load(("a",))
        await run.settled()
        clients = [await run.join(f"n{number}", is_quick=True) for number in range(20)]
        odd, others = clients[:6], clients[6:]
        for number, client in enumerate(odd):
            client.rejects.add(f"bad-{number}")
        bad = {f"c{number}": f"bad-{number}" for number in range(6)}
        run.save({"CDS": {"a": "1", "moves": "1", **bad}, "RDS": {"r": "1 CDS:moves"}})
        await run.passed(0.5)
        assert sorted(key.is_shared for key in run.publisher.rollouts if key.held is not None) == [False, False, True]
        for client in odd:
            client.offers.clear()
        run.save({"CDS": {"a": "2", "new": "1", **bad}, "RDS": {"r": "2 CDS:new"}})
        await run.passed(0.3)

        assert all(set(client.clusters()) == {"a", "new", *bad} for client in others)
        for number, client in enumerate(odd):
            assert {"a", "new"} <= set(client.clusters()) <= {"a", "new", *bad} - {f"c{number}"}
            assert f"c{number}" not in dict(client.offers)


@virtually
async def test_who_shares_a_channel_is_offered_all_that_it_rejects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the back-off, though others there reject it still: in the end everybody has what it does not reject."""
    monkeypatch.setattr(node_channels, "MOST_HELD", 0)
    async with publishing(SHORT) as run:
        run.load(("a",))
        await run.settled()
        odd = [await run.join(f"n{number}", is_quick=True) for number in range(12)][:4]
        for number, client in enumerate(odd):
            client.rejects |= {f"bad-{number}", f"odd-{number}"}
        content = {f"{word}{number}": f"{word}-{number}" for word in ("bad", "odd") for number in range(4)}
        run.save({"CDS": {"a": "1", **content}})
        await run.passed(30.0)
        shared = next(one for key, one in run.publisher.rollouts.items() if key.is_shared and not key.lane)
        assert shared.channel.clients
        for client in odd:
            client.rejects.clear()
        await run.passed(130.0)

        assert all(set(client.clusters()) == {"a", *content} for client in odd)
        assert [key for key in run.publisher.rollouts if not key.is_main] == []


@virtually
async def test_who_shares_a_channel_moves_there_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that names what another node rejects goes back before the cluster goes."""
    monkeypatch.setattr(node_channels, "MOST_HELD", 0)
    async with publishing(SHORT) as run:
        run.save({"CDS": {"a": "1"}, "RDS": {"r": "1 CDS:a"}})
        await run.settled()
        late, shares, _ = [await run.join(f"n{number}", is_quick=True) for number in range(3)]
        late.rejects.add("bad")
        shares.rejects.add("odd")
        run.save({"CDS": {"a": "1", "x": "odd"}, "RDS": {"r": "1 CDS:a"}})
        await run.passed(0.1)
        late.is_quick = False
        run.save({"CDS": {"a": "1", "x": "odd", "c": "bad"}, "RDS": {"r": "2 CDS:c"}})
        await run.passed(0.1)
        assert (set(shares.clusters()), content_of(shares.held[RDS]["r"])) == ({"a", "c"}, "2")
        shares.is_quick = False
        late.quicken()
        await run.settled()
        seen = list[tuple[set[str], str]]()
        for _ in range(3):
            shares.take()
            seen.append((set(shares.clusters()), content_of(shares.held[RDS]["r"])))
            await run.settled()

        assert shares.channel is late.channel
        assert late.channel.key.is_shared
        assert seen[:2] == [({"a", "c"}, "1"), ({"a"}, "1")]
