"""What the others get of a change, and when: each version that canaries have lived with, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from fsxds.events.file_events import SnapshotPublished
from fsxds.events.rollout_events import CanaryAwaited, RolloutChanged
from fsxds.protocol.messages import Node
from fsxds.publishing.held_resources import ExplainedHold
from fsxds.rollout.step import StepStarted
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.views import NodeRules, Views
from fsxds.settings.rollout_forms import Canary, NackLimit, is_in_share
from tests.support.publishing import CDS, RDS, RULES, VIEWS, Client, Publishing, publishing, virtually
from tests.support.rollouts import Tree, tree_snapshot

BAKING = replace(RULES, canary=Canary(share=0.5), bake_s=60.0)
SHARES = [one / 100 for one in range(101)]
# Those that are canaries with the smallest shares of all, and one that is none.
FIRST, OTHER_CANARY, *_, LAST = sorted(
    (f"n{number}" for number in range(9)), key=lambda name: [is_in_share(name, share) for share in SHARES], reverse=True
)
OLD: Tree = {"CDS": {"a": "1", "b": "1"}, "RDS": {"r": "1 CDS:a"}}


class Silent(Client):
    """A node that answers nothing so far."""

    is_silent = True

    def take(self) -> None:
        """Answer, if it does so now."""
        if not self.is_silent:
            super().take()


class Pair(NamedTuple):
    """A canary, and a node that follows it."""

    canary: Client
    other: Client

    def clusters(self) -> list[dict[str, str]]:
        """Return the clusters that each of them has."""
        return [one.clusters() for one in self]


async def pair(run: Publishing, tree: Tree = OLD) -> Pair:
    """Serve a tree to a canary and another node."""
    run.save(tree)
    await run.settled()
    return Pair(await run.join(FIRST, is_quick=True), await run.join(LAST, is_quick=True))


def with_clusters(**clusters: str) -> Tree:
    """Return the old tree with other clusters."""
    return {**OLD, "CDS": {**OLD["CDS"], **clusters}}


@virtually
async def test_canaries_come_first() -> None:
    """The others follow when the canaries have taken the change and have had it for a while."""
    async with publishing(replace(RULES, canary=Canary(share=0.5), bake_s=30.0)) as run:
        channels = {await run.channels.channel_of(Node(f"n{number}")) for number in range(20)}
        assert len(channels) == 2
        run.load(("a",))
        await run.settled()
        canary = next(channel for channel in channels if channel.key.is_canary)
        client = Client(canary, "n1")
        Client(run.publisher.whole, "n2", is_quick=True)
        run.load(("a", "b"))
        await run.passed(1000.0)
        assert canary.store.current is not None
        assert list(canary.store.current.resources(CDS)) == ["a", "b"]
        assert run.clusters() == ["a"]
        client.take()
        await run.passed(29.0)
        assert run.clusters() == ["a"]
        await run.passed(1.1)
        assert run.clusters() == ["a", "b"]

        started = [event.cohort for event in run.recorder.of(RolloutChanged) if isinstance(event.happened, StepStarted)]
        assert started[-2:] == ["canary", "main"]


@virtually
async def test_the_silence_of_canaries_is_no_consent() -> None:
    """None connected, or one that left while the change baked: the others wait, which is reported, until one is back."""
    async with publishing(replace(RULES, canary=Canary(share=0.5), bake_s=30.0)) as run:
        run.load(("a",))
        found = [await run.channels.channel_of(Node(f"n{number}")) for number in range(20)]
        channel = next(one for one in found if one.key.is_canary)
        await run.settled()
        run.load(("a", "b"))
        await run.passed(3600.0)
        assert run.clusters() == ["a"]
        assert run.recorder.of(CanaryAwaited)[-1] == CanaryAwaited(0, 0)

        client = Client(channel, "n0", is_quick=True)
        await run.passed(10.0)
        client.leave()
        await run.passed(3600.0)
        assert run.clusters() == ["a"]
        assert run.recorder.of(CanaryAwaited)[-1] == CanaryAwaited(1, 1)
        Client(channel, "n0", is_quick=True)
        await run.passed(31.0)
        assert run.clusters() == ["a", "b"]


@virtually
async def test_a_wait_for_canaries_is_reported_once() -> None:
    """However often one of those that are there does something."""
    rules = replace(RULES, canary=Canary(share=0.5), canary_quorum=1.0)
    async with publishing(rules) as run:
        run.load(("a",))
        found = [await run.channels.channel_of(Node(f"n{number}")) for number in range(20)]
        channel = next(one for one in found if one.key.is_canary)
        client = Client(channel, "n0", is_quick=True)
        Client(channel, "n1")
        await run.settled()
        run.load(("a", "b"))
        await run.passed(60.0)
        for _ in range(50):
            channel.progressed(client)
            await run.passed(1.0)

        assert len(run.recorder.of(CanaryAwaited)) == 1


@virtually
async def test_patience_with_canaries_may_end() -> None:
    """With `canary_patience`, the others follow in the end."""
    rules = replace(RULES, canary=Canary(view="none"), bake_s=30.0, canary_patience_s=600.0)
    async with publishing(rules) as run:
        run.load(("a",))
        await run.settled()
        run.load(("a", "b"))
        await run.passed(590.0)
        assert run.clusters() == ["a"]
        await run.passed(11.0)

        assert run.clusters() == ["a", "b"]


@virtually
async def test_what_canaries_reject_comes_to_nobody_else() -> None:
    """Not while they reject it; the next change of the tree is tried again."""
    async with publishing(replace(RULES, canary=Canary(share=1.0), bake_s=5.0)) as run:
        canary = await run.channels.channel_of(Node("n0"))
        run.publisher.whole.readers += 1
        run.load(("a",))
        await run.settled()
        client = Client(canary, "n0", is_quick=True)
        client.rejects.add("bad")
        run.save({"CDS": {"a": "1", "new": "bad"}})
        await run.passed(3600.0)
        assert (run.clusters(), client.clusters()) == (["a"], {"a": "1"})
        run.save({"CDS": {"a": "1", "new": "good"}})
        await run.passed(10.0)

        assert run.clusters() == ["a", "new"]


@virtually
async def test_a_canary_that_rejects_what_the_others_have_decides_nothing() -> None:
    """A version that it rejects keeps a change back, even with patience; once promoted, it is no part of the next one."""
    canaries = replace(RULES, canary=Canary(share=0.5), bake_s=5.0, canary_patience_s=600.0)
    async with publishing(replace(canaries, nack_limit=NackLimit(count=9))) as run:
        found = [await run.channels.channel_of(Node(f"n{number}")) for number in range(20)]
        run.load(("a",))
        await run.settled()
        client = Client(next(one for one in found if one.key.is_canary), "n1", is_quick=True)
        Client(run.publisher.whole, "n2", is_quick=True)
        client.rejects.add("bad")
        run.save({"CDS": {"a": "1", "new": "bad"}})
        await run.passed(3600.0)
        assert run.clusters() == ["a"]
        run.publisher.promote()
        await run.passed(10.0)
        assert run.clusters() == ["a", "new"]
        run.save({"CDS": {"a": "1", "b": "1", "new": "bad"}})
        await run.passed(100.0)

        assert (run.clusters(), client.clusters()) == (["a", "b", "new"], {"a": "1", "b": "1"})


async def pair_of_views(run: Publishing) -> Pair:
    """Let a canary see one layer, and another node that one and its own."""
    layers = ("common", f"nodes/{LAST}")
    run.load_views(*layers)
    asked = [asyncio.ensure_future(run.join(*one, is_quick=True)) for one in ((FIRST, "inner"), (LAST, "edge"))]
    await asyncio.sleep(0)
    run.load_views(*layers)
    nodes = Pair(*[await one for one in asked])
    await save(run, {"x": "1", "y": "1"}, {"own": "1"})
    run.publisher.promote()
    await run.settled()
    assert nodes.clusters() == [{"x": "1", "y": "1"}, {"x": "1", "y": "1", "own": "1"}]
    return nodes


async def save(run: Publishing, common: dict[str, str], own: dict[str, str]) -> None:
    """Load these clusters in the two views, and let canaries live with them."""
    trees = {("common",): common, ("common", f"nodes/{LAST}"): {**common, **own}}
    run.publisher.receive({key: tree_snapshot({"CDS": one}) for key, one in trees.items()}, 1.0)
    await run.passed(3600.0)


@virtually
async def test_canaries_of_another_view_answer_for_what_they_share() -> None:
    """A version that they took, the others of any view get; a change of a view that has none waits."""
    async with publishing(BAKING, views=VIEWS) as run:
        nodes = await pair_of_views(run)
        await save(run, {"x": "2", "y": "1"}, {"own": "1"})
        await save(run, {"x": "2", "y": "1"}, {"own": "2"})

        assert nodes.clusters() == [{"x": "2", "y": "1"}, {"x": "2", "y": "1", "own": "1"}]


@virtually
async def test_canaries_of_another_view_answer_for_what_both_removed() -> None:
    """That they lack a resource, as always, says nothing of its removal."""
    async with publishing(BAKING, views=VIEWS) as run:
        nodes = await pair_of_views(run)
        await save(run, {"x": "1"}, {})

        assert nodes.clusters() == [{"x": "1"}, {"x": "1", "own": "1"}]


@virtually
async def test_later_edits_of_other_resources_restart_no_bake() -> None:
    """An edit each 30 s does not hold back those before, though canaries have each for 60 s."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        for number in range(8):
            run.save(with_clusters(**{f"c{each}": "1" for each in range(number + 1)}))
            await run.passed(30.0)

        canary, other = (set(one) for one in nodes.clusters())
        assert canary - other == {"c7"}
        reports = [event.snapshot.changes[CDS].added for event in run.recorder.of(SnapshotPublished)]
        assert [one for one in reports if one] == [(f"c{number}",) for number in range(7)]


@virtually
async def test_a_rejection_at_the_limit_lets_nothing_through_that_no_canary_took() -> None:
    """Not when its vote is gone either: the rest follows the canary, and the version waits for one that takes it."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        nodes.canary.rejects.add("bad")
        run.save(with_clusters(a="bad", b="2"))
        await run.passed(3600.0)
        assert nodes.other.clusters() == {"a": "1", "b": "2"}
        nodes.canary.leave()
        await run.passed(3600.0)
        assert nodes.other.clusters() == {"a": "1", "b": "2"}
        await run.join(FIRST, is_quick=True)
        await run.passed(61.0)

        assert nodes.other.clusters() == {"a": "bad", "b": "2"}


@virtually
async def test_what_depends_on_a_waiting_resource_waits() -> None:
    """A route keeps its cluster while the canary rejects the new one, and so does what the tree removed."""
    async with publishing(replace(BAKING, nack_limit=NackLimit(count=9))) as run:
        nodes = await pair(run)
        nodes.canary.rejects.add("bad")
        run.save({"CDS": {"b": "2", "new": "bad"}, "RDS": {"r": "1 CDS:new", "q": "1 CDS:b"}})
        await run.passed(100.0)
        assert nodes.other.clusters() == {"a": "1", "b": "2"}
        assert {name: one.body.decode().split(":")[-1] for name, one in nodes.other.held[RDS].items()} == {
            "r": "a",
            "q": "b",
        }
        run.publisher.promote()
        await run.passed(10.0)

        assert nodes.other.clusters() == {"b": "2", "new": "bad"}


@virtually
async def test_the_status_says_what_waits_and_for_whom() -> None:
    """And what bakes; the removal of a type's resources is told from their change."""
    async with publishing(BAKING) as run:
        nodes, others = await pair(run), run.publisher.whole.key
        nodes.canary.is_quick = False
        run.save({**OLD, "CDS": {"a": "2"}})
        await run.passed(100.0)
        waiting = [[(one.reason.value, one.problem.message) for one in held(run, others)]]
        nodes.canary.take()
        await run.passed(1.0)
        waiting.append([(one.reason.value, one.problem.message) for one in held(run, others)])
        await run.passed(60.0)

        reason, removed = "waits for canaries", "cluster b was removed, and stays until canaries took that"
        assert waiting == [
            [(reason, f"cluster a waits for canaries: {whom}"), (reason, f"{removed}: {whom}")]
            for whom in (FIRST, "connected canaries use it until the time is over")
        ]
        assert not held(run, others)


def held(run: Publishing, key: ChannelKey) -> list[ExplainedHold]:
    """Return what is held in a channel."""
    return list(run.publisher.held_in(run.publisher.rollouts[key]))


@virtually
async def test_the_status_says_since_when_each_resource_waits() -> None:
    """Also of one that came to others, while what is served stays as it is."""
    async with publishing(BAKING) as run:
        nodes, others = await pair(run), run.publisher.whole.key
        nodes.canary.is_quick = False
        run.save(with_clusters(a="2"))
        await run.passed(100.0)
        run.save(with_clusters(a="2", b="2"))
        await run.passed(10.0)
        now_s = asyncio.get_running_loop().time()
        waits_s = {one.key[1]: round(now_s - one.since_s) for one in held(run, others) if one.since_s is not None}

        assert waits_s == {"a": 110, "b": 10}


@virtually
async def test_a_removal_waits_as_well() -> None:
    """Until the canary lived without it."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        nodes.canary.is_quick = False
        run.save({**OLD, "CDS": {"a": "1"}})
        await run.passed(3600.0)
        assert nodes.other.clusters() == OLD["CDS"]
        nodes.canary.take()
        await run.passed(59.0)
        assert nodes.other.clusters() == OLD["CDS"]
        await run.passed(2.0)

        assert nodes.clusters() == [{"a": "1"}, {"a": "1"}]


@virtually
async def test_what_has_another_name_stays_until_that_goes_out() -> None:
    """Else nodes would lose a listener because canaries reject what is there in its place."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        nodes.canary.rejects.add("bad")
        run.save({**OLD, "CDS": {"a": "2", "c": "bad"}})
        await run.passed(100.0)
        assert nodes.clusters() == [{"a": "2"}, {"a": "2", "b": "1"}]
        run.save({**OLD, "CDS": {"a": "2", "c": "good"}})
        await run.passed(62.0)

        assert nodes.clusters() == [{"a": "2", "c": "good"}] * 2


@virtually
async def test_a_canary_that_leaves_during_the_bake_begins_it_anew() -> None:
    """Of what bakes, and of nothing that the others have."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        second = await run.join(OTHER_CANARY, is_quick=True)
        run.save(with_clusters(a="2"))
        await run.passed(40.0)
        second.leave()
        await run.passed(3600.0)
        assert nodes.other.clusters() == {"a": "1", "b": "1"}
        await run.join(OTHER_CANARY, is_quick=True)
        await run.passed(59.0)
        assert nodes.other.clusters() == {"a": "1", "b": "1"}
        await run.passed(2.0)

        assert nodes.other.clusters() == {"a": "2", "b": "1"}


@virtually
async def test_a_node_that_is_a_canary_no_more_has_no_say() -> None:
    """Nor is it missed: the others wait for those that are canaries by the new settings."""
    async with publishing(BAKING) as run:
        nodes = await pair(run)
        second = await run.join(OTHER_CANARY)
        run.save(with_clusters(a="2"))
        await run.passed(100.0)
        assert nodes.other.clusters() == OLD["CDS"]
        share = next(one for one in SHARES if is_in_share(FIRST, one))
        run.channels.change_rules(NodeRules(Views(None), Canary(share=share)))
        await run.passed(100.0)

        assert not second.channel.key.is_canary
        assert nodes.other.clusters() == {"a": "2", "b": "1"}


@virtually
async def test_canaries_have_taken_what_they_answered() -> None:
    """One that connects while nobody is waited for counts when it has ACKed what it is sent."""
    async with publishing(BAKING) as run:
        run.save(OLD)
        await run.settled()
        other = await run.join(LAST, is_quick=True)
        run.save(with_clusters(a="2"))
        await run.passed(100.0)
        canary = Silent(await run.channels.channel_of(Node(FIRST)), FIRST)
        await run.passed(3600.0)
        assert other.clusters() == OLD["CDS"]
        canary.is_silent = False
        canary.take()
        await run.passed(61.0)

        assert other.clusters() == {"a": "2", "b": "1"}
