"""Publishing with a state directory: each process goes on where the one before ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fsxds.events.rollout_events import VersionsHeld
from fsxds.history.state import State
from fsxds.history.state_writer import StateWriter
from fsxds.model.resources import Snapshot
from fsxds.protocol.messages import Node
from fsxds.publishing import node_channels
from fsxds.publishing.publisher import PublishRules
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.views import Views
from fsxds.settings.options import BY_NAME
from fsxds.settings.rollout_forms import Canary, is_in_share
from tests.support.polls import until
from tests.support.publishing import CDS, VIEWS, WHOLE_TREE_ALONE, Client, Publishing, publishing
from tests.support.rollouts import tree_snapshot

# What was restored rests for as long as a step may take.
RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))
EDGE_A = ("common", "nodes/a")


@asynccontextmanager
async def process(
    directory: Path, rules: PublishRules = RULES, views: Views = WHOLE_TREE_ALONE
) -> AsyncIterator[Publishing]:
    """Run a publisher whose rollouts are kept in a directory, as one process would."""
    state = State.open(directory, print)
    try:
        async with publishing(rules, StateWriter(state, directory, print), views=views) as run:
            yield run
    finally:
        state.close()


def served(run: Publishing, key: ChannelKey) -> list[str]:
    """Return the clusters of a channel."""
    snapshot = run.publisher.rollouts[key].channel.store.current
    return [] if snapshot is None else list(snapshot.resources(CDS))


async def test_step_that_a_process_ended_at_is_served_by_the_next(tmp_path: Path) -> None:
    """It is served from the start, before any tree is there, and the rollout goes on when there is one."""
    async with process(tmp_path, PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        run.load(("b",), "b")
        await run.settled()
        assert run.clusters() == ["a", "b"]
        assert client.asked
    async with process(tmp_path) as run:
        assert run.clusters() == ["a", "b"]
        assert (await run.channels.channel_of(Node("x"))).store.current is not None
        Client(run.publisher.whole, is_quick=True)
        run.load(("b",), "b")
        await until(lambda: run.clusters() == ["b"])


async def test_who_has_another_view_after_a_restart_is_led_there(tmp_path: Path) -> None:
    """From what it says that it has, if that was served of its view before; one that has nothing gets all at once."""
    trees = {
        EDGE_A: tree_snapshot({"CDS": {"a": "1"}, "RDS": {"r": "1 CDS:a"}}),
        ("common",): tree_snapshot({"CDS": {"b": "1"}, "RDS": {"r": "1 CDS:b"}}),
    }
    async with process(tmp_path, views=VIEWS) as run:
        run.load_views(*EDGE_A)
        joining = [asyncio.ensure_future(run.join("a", each, is_quick=True)) for each in ("edge", "inner")]
        await asyncio.sleep(0)
        run.publisher.receive(trees, 5.0)
        await asyncio.gather(*joining)
        await run.settled()
    all_inner = BY_NAME["views"].form.read([{"name": "all", "layers": ["common"]}])
    async with process(tmp_path, views=Views(all_inner)) as run:
        for has, clusters in (("a", ["a"]), ("b", ["b"]), ("nothing of it", ["b"])):
            found = partial(_has, has)
            channel = await run.channels.channel_of(Node(f"has {has}", "edge"), holds=True, holds_of=found)
            assert served(run, channel.key) == clusters
        channel = await run.channels.channel_of(Node("new", "edge"), holds=False)
        assert served(run, channel.key) == ["b"]
    others = BY_NAME["views"].form.read([{"name": "all", "layers": ["other"]}])
    async with process(tmp_path, views=Views(others)) as run:
        # Nothing was served of that view.
        asking = asyncio.ensure_future(
            run.channels.channel_of(Node("late", "edge"), holds=True, holds_of=partial(_has, "a"))
        )
        await asyncio.sleep(0)
        run.existing = frozenset({"other"})
        run.publisher.receive({("other",): trees["common",]}, 5.0)
        channel = await asking
        assert channel.key.cohort == "catching up"
        assert channel.store.current is not None
        assert list(channel.store.current.resources(CDS)) == ["a"]


def _has(cluster: str, snapshot: Snapshot) -> bool:
    return cluster in snapshot.resources(CDS)


async def test_nodes_of_views_need_not_wait_for_the_tree(tmp_path: Path) -> None:
    """A node whose layers had a channel follows it at once, and its view is loaded; others wait for the first tree."""
    async with process(tmp_path, views=VIEWS) as run:
        run.load_views(*EDGE_A)
        asking = asyncio.ensure_future(run.channels.channel_of(Node("a", "edge")))
        await asyncio.sleep(0)
        run.load_views(*EDGE_A)
        await asking
        await run.settled()
    async with process(tmp_path, views=VIEWS) as run:
        channel = await run.channels.channel_of(Node("a", "edge"))
        waiting = asyncio.ensure_future(run.channels.channel_of(Node("c", "inner")))
        await asyncio.sleep(0)

        assert channel.key == ChannelKey(EDGE_A)
        assert served(run, channel.key) == [*EDGE_A]
        assert run.wanted == {EDGE_A}
        assert not waiting.done()
        run.wanted.add(("common",))
        run.load_views(*EDGE_A)
        assert (await waiting).key == ChannelKey(("common",))


async def test_a_canary_is_still_first_after_a_restart(tmp_path: Path) -> None:
    """What is restored is no first load: the others get a change only when the canary has it."""
    canary = Canary(share=0.5)
    rules = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05), canary=canary, bake_s=1000.0)
    first = next(f"n{number}" for number in range(100) if is_in_share(f"n{number}", 0.5))
    async with process(tmp_path, rules) as run:
        await run.channels.channel_of(Node(first))
        run.load(("a",))
        await run.settled()
    async with process(tmp_path, rules) as run:
        await run.channels.channel_of(Node(first))
        run.load(("a", "b"))
        await until(lambda: served(run, ChannelKey((), is_canary=True)) == ["a", "b"])
        await run.settled()

        assert served(run, ChannelKey()) == ["a"]


async def test_a_channel_that_is_split_holds_since_the_one_before_did() -> None:
    """Also as it is written to the state directory before it did anything of its own."""
    rules = replace(RULES, holding=HoldingRules(max_removal=0.5))
    async with publishing(rules) as run:
        run.load(("a", *"bcdefg"))
        await run.settled()
        run.load(("a",))
        await run.settled()
        rollout = run.publisher.rollouts[ChannelKey()]
        held_for_s = rollout.state.held_for_s if rollout.state else {}
        made = run.publisher.split(rollout, ChannelKey(held=frozenset()), [Client(rollout.channel)])

        assert held_for_s
        assert made.state is not None
        assert made.state.held_for_s == held_for_s


async def test_what_is_held_was_held_before_the_restart(tmp_path: Path) -> None:
    """A removal that waits for approval waits since before, also if the next process ends before it has a tree."""
    removed = (CDS, "b")
    rules = replace(RULES, holding=HoldingRules(max_removal=0.5))
    async with process(tmp_path, rules) as run:
        run.load(("a", *"bcdefg"))
        await run.settled()
        run.load(("a",))
        await run.settled()
        rollout = run.publisher.rollouts[ChannelKey()]
        rollout.held_since_s = {key: since_s - 1000.0 for key, since_s in rollout.held_since_s.items()}
        assert removed in rollout.held_since_s
        run.load(("a", "z"))
        await run.settled()
    async with process(tmp_path, rules) as run:
        run.publisher.keep(run.publisher.rollouts[ChannelKey()])
    async with process(tmp_path, rules) as run:
        run.load(("a", "z"))
        await run.settled()

        held_for_s = asyncio.get_running_loop().time() - run.publisher.rollouts[ChannelKey()].held_since_s[removed]
        assert held_for_s >= 1000.0
        run.load(("a", *"bcdefg"))
        await run.settled()
        run.load(("a",))
        await run.settled()
        assert asyncio.get_running_loop().time() - run.publisher.rollouts[ChannelKey()].held_since_s[removed] < 1000.0


async def test_channel_that_is_dropped_is_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody followed for long is dropped on the disk as well."""
    monkeypatch.setattr(node_channels, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(node_channels, "DROPPED_AFTER_S", 0.02)
    async with process(tmp_path, views=VIEWS) as run:
        run.load_views(*EDGE_A)
        asking = asyncio.ensure_future(run.channels.channel_of(Node("a", "edge")))
        await asyncio.sleep(0)
        run.load_views(*EDGE_A)
        await asking
        await until(lambda: ChannelKey(EDGE_A) not in run.publisher.rollouts)
    async with process(tmp_path, views=VIEWS) as run:
        assert set(run.publisher.rollouts) == {ChannelKey()}


async def test_what_was_rejected_is_still_held_after_a_restart(tmp_path: Path) -> None:
    """Also when clients come before the tree is loaded; it is reported again, and offered to nobody."""
    bad = {"CDS": {"a": "1", "new": "bad"}}
    async with process(tmp_path) as run:
        run.load(("a",))
        await run.settled()
        client = await run.join("edge-1", is_quick=True)
        client.rejects.add("bad")
        run.save(bad)
        await until(lambda: bool(run.recorder.of(VersionsHeld)))
        await run.settled()
        assert run.clusters() == ["a"]
    async with process(tmp_path) as run:
        client = await run.join("edge-1", is_quick=True)
        await run.settled()
        run.save(bad)
        await run.settled()
        await until(lambda: bool(run.recorder.of(VersionsHeld)))
        assert run.clusters() == ["a"]
        assert client.clusters() == {"a": "1"}
        [held] = run.recorder.of(VersionsHeld)
        assert [node.name for node in held.nodes] == ["edge-1"]
        assert [one.rule for one in run.problems()] == ["rejected-by-client"]


async def test_the_first_that_is_back_after_a_restart_does_not_decide_alone(tmp_path: Path) -> None:
    """What it rejects it is not offered at once, and the others keep it: they are about to come back."""
    bad = {"CDS": {"a": "1", "new": "bad"}}
    async with process(tmp_path) as run:
        run.load(("a",))
        await run.settled()
        clients = [await run.join(f"edge-{number}", is_quick=True) for number in range(5)]
        clients[0].rejects.add("bad")
        run.save(bad)
        await run.settled()
        assert [client.channel.key.cohort for client in clients] == ["rejecting", *["main"] * 4]
    async with process(tmp_path) as run:
        client = await run.join("edge-0", is_quick=True)
        client.rejects.add("bad")
        run.save(bad)
        await run.settled()
        assert client.offers == [("a", "1")]
        assert run.recorder.of(VersionsHeld) == []
        assert run.clusters() == ["a", "new"]


async def test_those_who_return_to_a_step_follow_the_channel(tmp_path: Path) -> None:
    """A process ended while a step was under way: the next one waits for them all together."""
    async with process(tmp_path, PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))) as run:
        run.load(("a",), "a")
        await run.settled()
        await run.join("edge-1")
        run.load(("b",), "b")
        await run.settled()
    async with process(tmp_path, PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))) as run:
        run.load(("b",), "b")
        await run.settled()
        channel = await run.channels.channel_of(Node("edge-1"), holds=True)
        assert channel is run.publisher.whole


async def test_a_rollback_of_a_view_that_nobody_follows_stays_over_a_restart(tmp_path: Path) -> None:
    """The next process loads the view without a node, so a resource that changes follows the tree at once."""
    old, bad, next_ = (tree_snapshot({"CDS": dict.fromkeys("xy", content)}) for content in ("1", "2", "3"))
    async with process(tmp_path, views=VIEWS) as run:
        run.load_views(*EDGE_A)
        RolloutOperator(run.publisher, lambda: run.channels.views, None).roll_back({EDGE_A: old})
        run.publisher.receive({EDGE_A: bad}, 1.0)
        await run.settled()
    async with process(tmp_path, views=VIEWS) as run:
        assert run.wanted == {EDGE_A}
        run.existing = frozenset(EDGE_A)
        rollout = run.publisher.rollouts[ChannelKey(EDGE_A)]
        assert list(run.publisher.followed(())) == [rollout]
        mended = bad.resources(CDS).with_changes(next_.resources(CDS).select({"y"}), ())
        run.publisher.receive({EDGE_A: replace(bad, by_type={**bad.by_type, CDS: mended})}, 2.0)
        await run.settled()
        client = await run.join("a", "edge", is_quick=True)
        await until(lambda: client.clusters() == {"x": "1", "y": "3"})


async def test_a_rollback_stays_over_a_restart(tmp_path: Path) -> None:
    """Until somebody ends it, or the content changes in the tree."""
    async with process(tmp_path) as run:
        old = run.save({"CDS": {"a": "1"}})
        await run.settled()
        run.save({"CDS": {"a": "2"}})
        await run.settled()
        (rollout,) = run.publisher.rollouts.values()
        rollout.target.pin(old, 7.0)
        run.publisher.recompose(rollout)
        await until(lambda: run.served() == {"CDS": {"a": "1"}})
    async with process(tmp_path) as run:
        run.save({"CDS": {"a": "2", "b": "1"}})
        await until(lambda: run.served() == {"CDS": {"a": "1", "b": "1"}})
        (rollout,) = run.publisher.rollouts.values()
        assert rollout.target.pinned_at_s == 7.0
        run.save({"CDS": {"a": "3", "b": "1"}})
        await until(lambda: run.served() == {"CDS": {"a": "3", "b": "1"}})
