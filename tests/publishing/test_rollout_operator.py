"""What operators see of rollouts that go on, and what becomes of what they decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.history.entries import HistoryEntry
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.messages import Node
from fsxds.publishing.publisher import PublishRules
from fsxds.publishing.rollout_operator import NO_HISTORY, RolloutOperator
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.step import PinsChanged
from fsxds.settings.rollout_forms import Canary, is_in_share
from fsxds.transports.admin.admin_reports import ChannelReport, WaitingReport
from tests.publishing.test_node_channels import joined
from tests.support.polls import until
from tests.support.publishing import CDS, RULES, VIEWS, Client, Publishing, publishing, virtually
from tests.support.rollouts import tree_snapshot

MANY = tuple("abcdefghij")
EDGE_A: Layers = ("common", "nodes/a")


def operator_of(run: Publishing, state: State | None = None) -> RolloutOperator:
    """Return the operator of a publisher."""
    return RolloutOperator(run.publisher, lambda: (("", ()),), state)


def report(run: Publishing) -> ChannelReport:
    """Return what becomes of the channel of the whole tree; of that of the others, where there is a canary."""
    return next(each for each in operator_of(run).status() if each.cohort != "canary")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A state directory."""
    state = State.open(tmp_path / "state", lambda _: None)
    yield state
    state.close()


async def test_before_the_first_tree() -> None:
    """Nothing is served, and nothing is asked for."""
    async with publishing() as run:
        found = report(run)

        assert (found.views, found.layers, found.cohort, found.clients) == (("",), (), "main", 0)
        assert (found.served, found.target, found.asked) == (None, None, None)


async def test_a_step_with_those_who_are_waited_for() -> None:
    """It has its name, its age, and the clients by name."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        before = report(run)
        clients = [Client(run.publisher.whole, name) for name in ("edge-2", "edge-1")]
        run.load(("b",), "b")
        await run.settled()
        during = report(run)
        assert during.step is not None
        assert during.step.name == "grow"
        assert 0 <= during.step.since_s < 60
        assert during.step.since_s + during.step.ends_within_s == pytest.approx(60)
        age_s = during.step.since_s
        assert during.step.waits_for == tuple(WaitingReport(name, "gRPC", age_s) for name in ("edge-1", "edge-2"))
        assert (during.clients, during.is_done) == (2, False)
        assert before.served != during.served
        assert during.target == during.asked
        for _ in range(3):
            for client in clients:
                client.take()
            await run.settled()

        after = report(run)
        assert (after.step, after.is_done) == (None, True)
        assert after.served == after.target == after.asked


async def test_a_removal_that_waits() -> None:
    """It is approved by its id, once; all else of the tree is served."""
    async with publishing() as run:
        run.load(MANY)
        await run.settled()
        run.load(("a", "b"))
        await run.settled()
        found = report(run)
        assert found.approval is not None
        assert found.approval.removal == "8 of 10 clusters"
        assert (found.is_done, run.clusters()) == (True, list(MANY))
        assert operator_of(run).approve("0" * 12) == 0
        assert operator_of(run).approve(found.approval.id) == 1
        await run.settled()

        assert run.clusters() == ["a", "b"]
        assert (report(run).approval, report(run).is_done) == (None, True)
        assert operator_of(run).approve(found.approval.id) == 0


async def test_what_is_held_is_shown_with_its_place() -> None:
    """What clients reject, with the client and its words; and what that holds back in turn. It may be offered again."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        client = await run.join("edge-1", is_quick=True)
        client.rejects.add("bad")
        run.save({"CDS": {"new": "bad"}, "RDS": {"r": "1 CDS:new"}})
        await run.settled()
        held = next(each for each in operator_of(run).status() if each.cohort == "main").held
        assert {one.place for one in held} == {"a.yaml:1"}
        assert sorted((one.reason, f"{one.type} {one.name}", one.message) for one in held) == [
            ("in use", "cds a", "cluster a was removed, and is still served: route r names it"),
            (
                "names a held resource",
                "rds r",
                "route r would name cluster new, which is held back; the last good version stays",
            ),
            ("rejected", "cds new", "edge-1 rejects cluster new: Error adding/updating cluster(s) new: no such thing"),
        ]
        assert [one.nodes for one in held if one.reason == "rejected"] == [("edge-1",)]
        client.rejects.clear()
        assert operator_of(run).retry("other") == 0
        assert operator_of(run).retry("new") == 1
        await run.settled()

        assert (client.clusters(), report(run).held) == ({"new": "bad"}, ())
        assert operator_of(run).retry(None) == 0


async def test_those_who_are_late() -> None:
    """They are a cohort of their own, until they have what the others have."""
    async with publishing(PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))) as run:
        run.load(("a",))
        await run.settled()
        client, _ = await run.join("dead-1"), await run.join("edge-1", is_quick=True)
        run.load(("b",))
        await until(lambda: {each.cohort: each.clients for each in operator_of(run).status()} == BEHIND)
        client.leave()
        await run.settled()

        assert [each.cohort for each in operator_of(run).status()] == ["main"]


BEHIND = {"main": 1, "catching up": 1}


async def test_abort_takes_back_what_goes_on() -> None:
    """Clients get what they had; there is nothing to abort before and afterwards."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        operator = operator_of(run)
        assert operator.abort(None) == 0
        run.load(("b",), "b")
        await run.settled()
        assert operator.abort(frozenset({("edge",)})) == 0
        assert operator.abort(frozenset({()})) == 1
        await run.settled()
        client.quicken()
        await run.settled()

        assert run.clusters() == ["a"]
        assert report(run).pinned == 3
        assert operator.abort(None) == 0
        assert operator.resume(None) == 1


async def canary_that_has_it(run: Publishing) -> Client:
    """Publish a change that the canary has taken, and that bakes."""
    channels = {await run.channels.channel_of(Node(f"n{number}")) for number in range(20)}
    run.load(("a",))
    await run.settled()
    client = Client(next(channel for channel in channels if channel.key.is_canary), "n1")
    run.load(("a", "b"))
    await run.settled()
    assert report(run).waits_for_canary
    assert report(run).baking_s is None
    client.take()
    await run.settled()
    assert not report(run).waits_for_canary
    assert 0 < (report(run).baking_s or 0) <= 60
    assert (report(run).cohort, report(run).is_done) == ("main", False)
    return client


BAKING = replace(RULES, canary=Canary(share=0.5), bake_s=60.0)


async def test_promote_ends_the_baking() -> None:
    """The others follow at once."""
    async with publishing(BAKING) as run:
        await canary_that_has_it(run)
        assert operator_of(run).promote() == 1
        await run.settled()

        assert run.clusters() == ["a", "b"]
        assert (report(run).is_done, report(run).baking_s) == (True, None)
        assert operator_of(run).promote() == 0


async def test_abort_takes_it_back_from_the_canary() -> None:
    """Also when the canary has all of it: the others do not get it, until an operator resumes."""
    async with publishing(BAKING) as run:
        client = await canary_that_has_it(run)
        canary = client.channel.store
        assert operator_of(run).abort(None) == 1
        await run.settled()
        client.take()
        await run.settled()
        assert canary.current is not None
        assert list(canary.current.resources(CDS)) == ["a"]
        assert run.clusters() == ["a"]
        assert report(run).waits_for_canary

        assert operator_of(run).resume(None) == 1
        await run.settled()
        client.take()
        await run.settled()
        assert list(canary.current.resources(CDS)) == ["a", "b"]
        assert 0 < (report(run).baking_s or 0) <= 60


async def test_abort_takes_back_all_that_bakes() -> None:
    """Not the last of several edits alone."""
    async with publishing(BAKING) as run:
        client = await canary_that_has_it(run)
        client.quicken()
        for clusters in ("abc", "abcd"):
            run.load(clusters)
            await run.settled()
        assert list(client.clusters()) == ["a", "b", "c", "d"]
        assert operator_of(run).abort(None) == 1
        await run.settled()

        assert list(client.clusters()) == ["a"]


async def test_views_have_their_names() -> None:
    """One channel is for all nodes with the same layers, whatever their view is called."""
    async with publishing(views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        for name, cluster in (("a", "edge"), ("b", "edge"), ("c", "inner")):
            await joined(run, name, cluster)
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, None)

        assert {(each.views, each.layers, each.clients) for each in operator.status()} == {
            (("edge",), ("common", "nodes/a"), 1),
            (("edge",), ("common",), 2),
        }


async def test_layers_of_a_node() -> None:
    """Of one that is connected; others have none."""
    async with publishing() as run:
        Client(run.publisher.whole, "edge-1")

        assert operator_of(run).layers_of_node("edge-1") == ()
        assert operator_of(run).layers_of_node("edge-2") is None


async def test_rollback_and_resume(state: State) -> None:
    """What a snapshot of the history reverts is served as it was there; other files go on being served."""
    async with publishing() as run:
        first = run.save({"CDS": {"a": "1", "b": "1"}})
        number = state.record((), first, "c0ffee", 7.0)
        await run.settled()
        run.save({"CDS": {"a": "2", "b": "1"}})
        await run.settled()
        operator = operator_of(run, state)
        (kept,) = await operator.history()
        assert isinstance(kept, HistoryEntry)
        assert (kept.number, kept.time_s, kept.commit) == (number, 7.0, "c0ffee")
        assert await operator.rollback(number) == 1
        await run.settled()
        found = report(run)
        assert run.served() == {"CDS": {"a": "1", "b": "1"}}
        assert (found.pinned, found.is_done, found.served == found.asked) == (1, True, False)
        assert 0 <= (found.pinned_for_s or 0) < 60
        run.save({"CDS": {"a": "2", "b": "2"}})
        await run.settled()
        assert run.served() == {"CDS": {"a": "1", "b": "2"}}
        assert operator.resume(None) == 1
        await run.settled()

        assert run.served() == {"CDS": {"a": "2", "b": "2"}}
        assert (report(run).pinned, report(run).pinned_for_s, report(run).is_done) == (0, None, True)
        assert operator.resume(None) == 0
        assert [(one.count, one.before) for one in run.happened() if isinstance(one, PinsChanged)] == [(1, 0), (0, 1)]


async def test_rollback_of_all_views(state: State) -> None:
    """Each view is served what it was served at a time, by one command."""
    async with publishing(views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        nodes = [await joined(run, "a"), await joined(run, "c", "inner")]
        for time_s, content in ((100.0, "1"), (200.0, "2"), (300.0, "3")):
            trees = {layers: tree_snapshot({"CDS": {"x": content}}) for layers in run.wanted}
            for layers, snapshot in trees.items():
                state.record(layers, snapshot, None, time_s)
            run.publisher.receive(trees, time_s)
            await run.settled()
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, state)
        with pytest.raises(ProtocolError, match="no snapshot of that time") as raised:
            await operator.rollback_all(99.0)
        assert raised.value.code == "NOT_FOUND"
        assert await operator.rollback_all(250.0) == 2
        await run.settled()

        assert [client.clusters() for client in nodes] == [{"x": "2"}] * 2
        assert {each.pinned for each in operator.status()} == {1}
        assert operator.resume(frozenset({("common",)})) == 1
        await run.settled()
        assert [client.clusters() for client in nodes] == [{"x": "2"}, {"x": "3"}]


async def test_a_rollback_to_what_clients_reject_is_shown() -> None:
    """What was good before that is served, and is in the tree: nothing is held, and the reason is told all the same."""
    async with publishing() as run:
        run.save({"CDS": {"a": "1"}})
        client = await run.join("edge-1", is_quick=True)
        client.rejects.add("bad")
        bad = run.save({"CDS": {"a": "bad"}})
        await run.settled()
        run.save({"CDS": {"a": "2"}})
        await run.settled()
        assert not report(run).held
        operator_of(run).roll_back({(): bad})
        await run.settled()
        found = report(run)

        assert (run.served(), client.clusters(), found.pinned) == ({"CDS": {"a": "2"}}, {"a": "2"}, 1)
        assert [(one.reason, one.name, one.nodes) for one in found.held] == [("rejected", "a", ("edge-1",))]
        assert [one.rule for one in run.problems()] == ["rejected-by-client"]


def views_of(run: Publishing, content: str) -> dict[Layers, Snapshot]:
    """Return a tree of each view that is wanted: a cluster with this content."""
    return {layers: tree_snapshot({"CDS": {"x": content}}) for layers in run.wanted}


@virtually
async def test_a_rollback_stays_in_a_view_that_nobody_follows() -> None:
    """It is shown, and holds for who comes back; a resource that changes in the tree meanwhile follows it."""
    async with publishing(views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, None)
        node, old = await joined(run, "a"), {EDGE_A: tree_snapshot({"CDS": {"x": "1", "y": "1"}})}
        new = tree_snapshot({"CDS": {"x": "2", "y": "2"}})
        run.publisher.receive({EDGE_A: new}, 1.0)
        await run.settled()
        assert operator.roll_back(old) == 1
        await run.settled()
        node.leave()
        await run.passed(1200.0)
        assert [(each.layers, each.pinned) for each in operator.status() if each.pinned] == [(EDGE_A, 2)]
        run.publisher.receive({EDGE_A: tree_snapshot({"CDS": {"x": "2", "y": "3"}}, new)}, 2.0)
        await run.settled()
        again = await run.join("a", "edge", is_quick=True)
        assert again.clusters() == {"x": "1", "y": "3"}
        again.leave()
        assert operator.resume(None) == 1
        await run.passed(1200.0)

        assert EDGE_A not in run.wanted
        assert not any(each.pinned for each in operator.status())


async def test_a_node_that_comes_after_a_rollback_of_all_views_gets_it(state: State) -> None:
    """The first one of its view, which the history knows: meanwhile the rollback is shown for it."""
    async with publishing(views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        other = await joined(run, "c", "inner")
        for layers in (EDGE_A, ("common",), ("gone",)):
            state.record(layers, tree_snapshot({"CDS": {"x": "1"}}), None, 100.0)
        run.publisher.receive(views_of(run, "2"), 1.0)
        await run.settled()
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, state)
        assert await operator.rollback_all(200.0) == 2
        assert run.wanted == {EDGE_A, ("common",)}
        run.publisher.receive(views_of(run, "2"), 2.0)
        await run.settled()
        assert {each.layers: each.pinned for each in operator.status()} == {EDGE_A: 1, ("common",): 1}
        first = await run.join("a", "edge", is_quick=True)
        await run.settled()
        assert [first.clusters(), other.clusters()] == [{"x": "1"}] * 2
        assert operator.resume(None) == 2
        await run.settled()

        assert [first.clusters(), other.clusters()] == [{"x": "2"}] * 2


@pytest.mark.parametrize("is_canary", [True, False])
async def test_the_first_canary_after_a_rollback_gets_it(is_canary: bool) -> None:
    """Likewise the first of the others, where only canaries were there; what a canary is spared does not bake."""
    async with publishing(BAKING, views=VIEWS) as run:
        run.load_views("common")
        first, second = sorted(("n0", "n1"), key=lambda name: is_in_share(name, 0.5) is is_canary)
        assert is_in_share(first, 0.5) is not is_in_share(second, 0.5)
        nodes = [await joined(run, first, "inner")]
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, None)
        old = views_of(run, "1")
        run.publisher.receive(views_of(run, "2"), 1.0)
        await run.settled()
        operator.promote()
        operator.roll_back(old)
        await run.settled()
        nodes.append(await run.join(second, "inner", is_quick=True))
        await run.settled()
        assert [each.channel.key.is_canary for each in nodes] == [not is_canary, is_canary]
        assert [each.clusters() for each in nodes] == [{"x": "1"}] * 2
        assert operator.resume(None) == 2
        await run.settled()

        assert [each.clusters() for each in nodes] == [{"x": "2"}] * 2


async def test_histories_that_cannot_be_used(state: State) -> None:
    """Each is an error of the client with its code: no such snapshot, no history, one that cannot be read."""
    async with publishing() as run:
        operator = operator_of(run, state)
        assert operator.state_directory == state.path
        with pytest.raises(ProtocolError, match="@7: the history has no such snapshot") as missing:
            await operator.rollback(7)
        with pytest.raises(ProtocolError, match=NO_HISTORY) as none:
            await operator_of(run).history()
        await operator.history()
        (state.path / DATABASE).chmod(0o666)
        (state.path / DATABASE).write_bytes(b"nonsense" * 1000)
        with pytest.raises(ProtocolError, match="the history cannot be read") as damaged:
            await operator.history()

        codes = [each.value.code for each in (missing, none, damaged)]
        assert codes == ["NOT_FOUND", "FAILED_PRECONDITION", "UNAVAILABLE"]
        assert operator_of(run).state_directory is None
