"""What operators see of rollouts that go on, and what becomes of what they decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.errors import ProtocolError
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.protocol.messages import Node
from fsxds.publishing.publisher import PublishRules
from fsxds.publishing.rollout_operator import NO_HISTORY, RolloutOperator
from fsxds.rollout import OnNack, Rejection, RolloutOptions, Standing
from fsxds.settings.rollout_forms import Canary
from fsxds.transports.admin.rollout_control import ChannelReport, HoldReport, WaitingReport
from fsxds.values import Version
from tests.publishing.test_node_channels import VIEWS, joined
from tests.support.polls import until
from tests.support.publishing import CDS, RULES, Client, Publishing, publishing

MANY = tuple("abcdefghij")


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

        assert (found.views, found.layers, found.cohort, found.clients) == (("",), (), "all", 0)
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
        assert during.step.waits_for == tuple(WaitingReport(name, "REST", age_s) for name in ("edge-1", "edge-2"))
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


async def test_a_removal_that_is_held() -> None:
    """It is approved by its id, once."""
    async with publishing() as run:
        run.load(MANY)
        await run.settled()
        run.load(("a", "b"))
        await run.settled()
        held = report(run)
        assert held.held == HoldReport(held.asked or "", "removes 8 of 10 clusters")
        assert (held.is_done, held.target == held.asked) == (False, False)
        assert operator_of(run).approve("0" * 12) == 0
        assert operator_of(run).approve(held.asked or "") == 1
        await run.settled()

        assert run.clusters() == ["a", "b"]
        assert (report(run).held, report(run).is_done) == (None, True)
        assert operator_of(run).approve(held.asked or "") == 0


async def test_what_clients_rejected() -> None:
    """The version is tainted, and the file, the client and its words are shown until the tree changes."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        client = Client(run.publisher.whole)
        client.answer = Rejection(CDS, Version("1"), frozenset({"new"}), "no such thing")
        run.load(("a", "new"))
        await run.settled()
        found = report(run)
        assert found.tainted == (found.asked,)
        assert found.rejections == ("edge.yaml:1: edge-1 rejected cds new: no such thing",)
        assert not found.is_done
        client.answer = Standing.TAKEN
        run.load(("a", "better"))
        await run.settled()

        assert (report(run).tainted, report(run).rejections, report(run).is_done) == ((), (), True)


async def test_what_stays_where_it_was_rejected() -> None:
    """With `--on-nack hold` it waits for approval."""
    rules = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0, on_nack=OnNack.HOLD))
    async with publishing(rules) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        client.answer = Rejection(CDS, Version("1"), frozenset({"b"}), "no")
        run.load(("b",), "b")
        await run.settled()
        found = report(run)
        assert found.held == HoldReport(found.target or "", "was rejected by clients")
        client.answer = Standing.TAKEN
        assert operator_of(run).approve(found.target or "") == 1
        await run.settled()

        assert run.clusters() == ["b"]


async def test_clients_that_are_late() -> None:
    """Those who let a step time out are named, while they are there."""
    async with publishing(PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))) as run:
        run.load(("a",))
        await run.settled()
        client = Client(run.publisher.whole, "dead-1")
        run.load(("b",))
        await until(lambda: report(run).late == ("dead-1",))
        run.publisher.whole.leave(client)
        await run.settled()

        assert report(run).late == ()


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
        client.take()
        await run.settled()

        assert run.clusters() == ["a"]
        assert report(run).tainted == (report(run).asked,)
        assert operator.abort(None) == 0


async def canary_that_has_it(run: Publishing) -> Client:
    """Publish a change that the canary has taken, and that bakes."""
    channels = {await run.channels.channel_of(Node(f"n{number}")) for number in range(20)}
    run.load(("a",))
    await run.settled()
    client = Client(next(channel for channel in channels if channel.key.is_canary))
    run.load(("a", "b"))
    await run.settled()
    assert report(run).waits_for_canary
    assert report(run).baking_s is None
    client.take()
    await run.settled()
    assert not report(run).waits_for_canary
    assert 0 < (report(run).baking_s or 0) <= 60
    assert (report(run).cohort, report(run).is_done) == ("others", False)
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


async def test_nodes_on_their_way_to_other_layers() -> None:
    """Their channel is listed beside that of the nodes that have these layers already, with the name of the view."""
    async with publishing() as run:
        run.see(VIEWS, "common", "nodes/a")
        run.load_views(*run.existing)
        moving = await joined(run, "a")
        await joined(run, "c", "inner")
        moving.answer = Standing.PENDING
        run.load_views("common")
        await run.settled()
        operator = RolloutOperator(run.publisher, lambda: run.channels.views, None)

        assert [
            (each.views, each.cohort, each.clients) for each in operator.status() if each.layers == ("common",)
        ] == [
            (("edge",), "all", 1),
            (("edge",), "moving", 1),
        ]


async def test_layers_of_a_node() -> None:
    """Of one that is connected; others have none."""
    async with publishing() as run:
        Client(run.publisher.whole, "edge-1")

        assert operator_of(run).layers_of_node("edge-1") == ()
        assert operator_of(run).layers_of_node("edge-2") is None


async def test_rollback_and_resume(state: State) -> None:
    """A snapshot of the history is served until the tree is followed again."""
    async with publishing() as run:
        first = run.load(("a",), "a")
        number = state.record((), first, "c0ffee", 7.0)
        await run.settled()
        run.load(("b",), "b")
        await run.settled()
        operator = operator_of(run, state)
        assert [(kept.number, kept.commit) for kept in await operator.history()] == [(number, "c0ffee")]
        assert await operator.rollback(number) == 1
        await run.settled()
        found = report(run)
        assert run.clusters() == ["a"]
        assert (found.pinned, found.served, found.is_done) == (found.target, found.target, False)
        assert operator.resume(None) == 1
        await run.settled()

        assert run.clusters() == ["b"]
        assert (report(run).pinned, report(run).is_done) == (None, True)
        assert operator.resume(None) == 0


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
