"""What becomes of what clients reject: one of many decides for itself alone, many decide for all, and nothing is for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fsxds.events.rollout_events import VersionsHeld, VersionsReleased
from fsxds.protocol.messages import Node, SyncState
from fsxds.publishing.verdicts import has_version
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.rejections import VOTES_FOR_S, Nack
from fsxds.settings.rollout_forms import Canary, NackLimit
from tests.support.costs import cost_s
from tests.support.publishing import (
    CDS,
    RDS,
    RULES,
    VIEWS,
    Client,
    Publishing,
    content_of,
    publishing,
    version_of_content,
    virtually,
)
from tests.support.rollouts import Tree, tree_snapshot

OLD: Tree = {"CDS": {"old": "1", "other": "1"}, "RDS": {"r": "1 CDS:old"}}
# `bad` is what those reject that have their port taken, or are of an old version.
NEW: Tree = {"CDS": {"new": "bad", "other": "2"}, "RDS": {"r": "2 CDS:new"}}
QUICK = replace(RULES, rollout=RolloutOptions(linger_s=0, step_timeout_s=5.0))
# Of two clients, one decides for both.
ONE_OF_TWO = replace(QUICK, nack_limit=NackLimit(0.3))


async def fleet(run: Publishing, count: int, rejecting: int, tree: Tree = OLD) -> list[Client]:
    """Serve a tree to so many clients; return them, those first that reject `bad`."""
    run.save(tree)
    await run.settled()
    clients = [await run.join(f"edge-{number}", is_quick=True) for number in range(count)]
    for client in clients[:rejecting]:
        client.rejects.add("bad")
    return clients


def route_of(client: Client) -> str:
    """Return the cluster that the route of a client leads to."""
    return client.held[RDS]["r"].body.decode().partition("CDS:")[2]


def listed(run: Publishing) -> set[object]:
    """Return the clients that the status lists."""
    return {client for rollout in run.publisher.rollouts.values() for client in rollout.channel.known}


@virtually
async def test_one_of_many_decides_for_itself_alone() -> None:
    """The others get the change, and it gets all that does not need what it rejects, now and later."""
    async with publishing(QUICK) as run:
        odd, *others = await fleet(run, 5, 1)
        run.save(NEW)
        await run.settled()
        assert {frozenset(client.clusters().items()) for client in others} == {frozenset(NEW["CDS"].items())}
        assert {route_of(client) for client in others} == {"new"}
        assert (odd.clusters(), route_of(odd)) == ({"old": "1", "other": "2"}, "old")
        assert odd.channel.key.cohort == "rejecting"
        run.save({**NEW, "CDS": {**NEW["CDS"], "other": "3"}})
        await run.settled()

        assert {client.clusters()["other"] for client in (odd, *others)} == {"3"}
        assert run.recorder.of(VersionsHeld) == []
        [problem] = [one for one in run.problems() if one.rule == "rejected-by-client"]
        assert (str(problem.path), problem.line, problem.rule, problem.severity.value) == (
            *("a.yaml", 1, "rejected-by-client"),
            "warning",
        )
        assert "edge-0 rejects cluster new: Error adding/updating cluster(s) new: no such thing" in problem.message


@virtually
async def test_it_is_offered_that_again_with_back_off() -> None:
    """And nothing else because of it, nor to anybody else."""
    async with publishing(QUICK) as run:
        odd, *others = await fleet(run, 5, 1)
        run.save(NEW)
        await run.passed(0.5)
        for client in (odd, *others):
            client.offers.clear()
        await run.passed(130.0)

        # After 1, 2, 4, 8, 16, 32 and 60 s.
        assert odd.offers.count(("new", "bad")) == 7
        assert {name for name, _ in odd.offers} == {"new"}
        assert [client.offers for client in others] == [[]] * 4


@virtually
async def test_when_it_takes_it_after_all_it_goes_with_the_others() -> None:
    """It gets what waited for that, and nothing is reported any more."""
    async with publishing(QUICK) as run:
        odd, *others = await fleet(run, 5, 1)
        run.save(NEW)
        await run.passed(2.0)
        odd.rejects.clear()
        await run.passed(10.0)

        assert odd.channel is others[0].channel
        assert (odd.clusters(), route_of(odd)) == (NEW["CDS"], "new")
        assert run.problems() == ()
        assert len(run.publisher.rollouts) == 1
        assert run.publisher.verdicts.rejections.nodes == {}


@virtually
async def test_one_alone_that_takes_it_after_all_follows_the_channel_of_all() -> None:
    """What was held back from all because of it is so no more, and neither is it apart."""
    async with publishing(QUICK) as run:
        [client] = await fleet(run, 1, 1)
        run.save(NEW)
        await run.passed(2.0)
        client.rejects.clear()
        await run.passed(10.0)

        assert client.channel.key.cohort == "main"
        assert len(run.publisher.rollouts) == 1


@virtually
async def test_what_is_held_for_another_reason_is_not_waited_for() -> None:
    """A route that it may have been rejected with names nothing now: the culprit is offered again all the same."""
    async with publishing(QUICK) as run:
        odd, *_ = await fleet(run, 5, 1, {"CDS": {"a": "1", "b": "1"}, "RDS": {"q": "1 CDS:a", "r": "1 CDS:a"}})
        odd.is_named = False
        routes = {"q": "bad CDS:a", "r": "2 CDS:b"}
        run.save({"CDS": {"a": "1", "b": "1"}, "RDS": routes})
        await run.passed(0.5)
        run.save({"CDS": {"a": "1", "c": "1"}, "RDS": routes})
        await run.passed(5.0)
        odd.rejects.clear()
        await run.passed(70.0)

        assert {name: content_of(route) for name, route in odd.held[RDS].items()} == {"q": "bad", "r": "2"}


@virtually
async def test_clients_with_the_same_rejections_share_a_channel() -> None:
    """So many channels are there as sets of versions that are rejected."""
    async with publishing(QUICK) as run:
        one, other, *_ = await fleet(run, 9, 2)
        run.save(NEW)
        await run.settled()

        assert one.channel is other.channel
        assert len(run.publisher.rollouts) == 2


@pytest.mark.parametrize("is_named", [True, False])
def test_one_alone_gets_back_at_once_what_was_good(*, is_named: bool) -> None:
    """In local development, it is everybody; where its words name nothing, it is asked again until the culprit is alone."""

    @virtually
    async def run_it() -> None:
        async with publishing(QUICK) as run:
            [client] = await fleet(run, 1, 1)
            client.is_named = is_named
            run.save(NEW)
            await run.settled()
            assert (set(client.clusters()), route_of(client)) == ({"old", "other"}, "old")
            [held] = run.recorder.of(VersionsHeld)
            assert ((CDS, "new"), version_of_content("new", "bad")) in held.versions
            await run.passed(20.0)
            assert client.clusters() == {"old": "1", "other": "2"}
            run.save({**NEW, "CDS": {"new": "good", "other": "2"}})
            await run.settled()

            assert (client.clusters(), route_of(client)) == ({"new": "good", "other": "2"}, "new")
            assert run.problems() == ()
            assert run.recorder.of(VersionsReleased)

    run_it()


@virtually
async def test_what_most_of_the_fleet_rejects_is_taken_back_for_all() -> None:
    """All else of the change stays; it is an error of the file, which says how it ends."""
    async with publishing(QUICK) as run:
        clients = await fleet(run, 4, 3)
        run.save(NEW)
        await run.passed(0.5)

        assert {frozenset(client.clusters().items()) for client in clients} == {
            frozenset({("old", "1"), ("other", "2")})
        }
        assert {route_of(client) for client in clients} == {"old"}
        [held] = run.recorder.of(VersionsHeld)
        assert held.versions == {((CDS, "new"), version_of_content("new", "bad"))}
        assert {node.name for node in held.nodes} == {"edge-0", "edge-1", "edge-2"}
        rejected = next(one for one in run.problems() if one.rule == "rejected-by-client")
        assert rejected.severity.value == "error"
        assert "fsxds rollout retry new" in str(rejected.remedy)


@pytest.mark.parametrize(
    ("limit", "rejecting", "is_held"),
    [
        (NackLimit(0.5), 5, False),
        (NackLimit(0.5), 6, True),
        (NackLimit(count=2), 2, False),
        (NackLimit(count=2), 3, True),
        (None, 10, False),
    ],
)
def test_so_many_have_to_reject_as_the_limit_says(limit: NackLimit | None, rejecting: int, *, is_held: bool) -> None:
    """Of ten; with `off`, what all reject is still served."""

    @virtually
    async def run_it() -> None:
        async with publishing(replace(QUICK, nack_limit=limit)) as run:
            await fleet(run, 10, rejecting)
            run.save(NEW)
            await run.passed(0.5)

            assert ("new" not in run.clusters()) is is_held

    run_it()


@virtually
async def test_several_streams_of_one_node_are_one_vote() -> None:
    """So are nodes with the credentials of one team."""
    async with publishing(replace(QUICK, nack_limit=NackLimit(count=2))) as run:
        clients = await fleet(run, 3, 0)
        clients += [Client(run.publisher.whole, "edge-0", is_quick=True)]
        for client in (clients[0], clients[3]):
            client.rejects.add("bad")
        run.save(NEW)
        await run.passed(0.5)
        assert "new" in run.clusters()
        clients[0].identity = clients[1].identity = clients[3].identity = "team"
        clients[1].rejects.add("worse")
        for client in (clients[0], clients[3]):
            client.rejects.add("worse")
        run.save({**NEW, "CDS": {**NEW["CDS"], "new": "worse"}})
        await run.passed(0.5)

        assert run.served()["CDS"]["new"] == "worse"


@virtually
async def test_a_client_that_leaves_takes_its_vote_along() -> None:
    """What was taken back is offered to the others again, after a while in which it might come back."""
    async with publishing(ONE_OF_TWO) as run:
        odd, good = await fleet(run, 2, 1)
        run.save(NEW)
        await run.passed(0.5)
        assert good.clusters() == {"old": "1", "other": "2"}
        odd.leave()
        await run.passed(VOTES_FOR_S - 1)
        assert "new" not in good.clusters()
        await run.passed(2.0)

        assert (good.clusters(), route_of(good)) == (NEW["CDS"], "new")


@virtually
async def test_a_node_that_is_away_between_two_polls_keeps_its_vote() -> None:
    """It is waited for no more, but has not left: what it rejected stays away from the others, and it is still listed."""
    async with publishing(ONE_OF_TWO) as run:
        odd, good = await fleet(run, 2, 1)
        odd.is_quick = False
        run.save(NEW)
        await run.settled()
        odd.take()
        odd.is_away = True
        await run.passed(QUICK.rollout.step_timeout_s + VOTES_FOR_S + 5)
        assert odd not in odd.channel.clients
        assert (good.clusters(), listed(run)) == ({"old": "1", "other": "2"}, {good, odd})
        odd.leave()
        await run.passed(VOTES_FOR_S + 1)

        assert good.clusters() == NEW["CDS"]
        assert listed(run) == {good}


@virtually
async def test_a_client_that_comes_back_counts_once() -> None:
    """With a limit of two, one that rejects, leaves and comes back again and again never reaches it."""
    async with publishing(replace(QUICK, nack_limit=NackLimit(count=2))) as run:
        odd, good = await fleet(run, 2, 1)
        run.save(NEW)
        for _ in range(5):
            await run.passed(3.0)
            odd.leave()
            await run.passed(3.0)
            odd = await run.join("edge-0")
            odd.rejects.add("bad")
            odd.quicken()

        assert "new" in good.clusters()
        assert run.recorder.of(VersionsHeld) == []


@virtually
async def test_retry_offers_it_to_all_again() -> None:
    """By its name, or everything; who still rejects it says so again."""
    async with publishing(QUICK) as run:
        [client] = await fleet(run, 1, 1)
        run.save(NEW)
        await run.passed(0.5)
        offered = client.offers.count(("new", "bad"))
        assert run.publisher.retry("other") == 0
        assert run.publisher.retry("new") == 1
        await run.settled()
        assert client.offers.count(("new", "bad")) == offered + 1
        assert "new" not in client.clusters()
        client.rejects.clear()
        assert run.publisher.retry(None) == 1
        await run.settled()

        assert client.clusters() == NEW["CDS"]


@virtually
async def test_who_rejects_it_for_a_reason_that_is_gone_is_offered_it_at_once() -> None:
    """Such as a relay when the tree is signed; who has another reason waits for its back-off."""
    async with publishing(QUICK) as run:
        [client] = await fleet(run, 1, 1)
        client.rejects.add("unsigned")
        run.save(NEW)
        await run.passed(0.1)
        run.save({**NEW, "CDS": {**NEW["CDS"], "other": "unsigned"}})
        await run.passed(0.1)
        client.rejects.clear()
        assert client.clusters() == {"old": "1", "other": "2"}
        run.publisher.verdicts.forget_reason("other: no such thing")
        await run.passed(0.1)
        assert client.clusters() == {"old": "1", "other": "unsigned"}
        await run.passed(10)

        assert client.clusters() == {"new": "bad", "other": "unsigned"}


@virtually
async def test_a_change_of_what_it_names_offers_it_again() -> None:
    """A route that was rejected may be accepted with another cluster."""
    async with publishing(QUICK) as run:
        [client] = await fleet(run, 1, 1)
        bad: Tree = {**OLD, "RDS": {"r": "bad CDS:old"}}
        run.save(bad)
        await run.passed(40.0)
        offered = client.offers.count(("r", "bad"))
        client.rejects.clear()
        run.save({**bad, "CDS": {"old": "1", "other": "2"}})
        await run.settled()
        assert client.offers.count(("r", "bad")) == offered
        run.save({**bad, "CDS": {"old": "2", "other": "2"}})
        await run.settled()

        assert client.offers.count(("r", "bad")) == offered + 1
        assert client.held[RDS]["r"].body == b"r=bad CDS:old"


@virtually
async def test_a_resource_that_nobody_rejects_is_never_taken_back() -> None:
    """Where the client names what it rejects, the rest of its response is served on."""
    async with publishing(QUICK) as run:
        [client] = await fleet(run, 1, 1)
        client.offers.clear()
        run.save(NEW)
        await run.passed(100.0)

        assert client.offers.count(("other", "2")) <= 2
        assert client.clusters()["other"] == "2"
        assert ("other", "1") not in client.offers


@virtually
async def test_who_is_silent_has_no_vote() -> None:
    """One that does not answer in time leaves the denominator."""
    async with publishing(ONE_OF_TWO) as run:
        _, *others = await fleet(run, 4, 1)
        for client in others[1:]:
            client.is_quick = False
        run.save(NEW)
        await run.passed(1.0)
        assert "new" in run.clusters()
        await run.passed(20.0)
        run.publisher.retry(None)
        await run.passed(1.0)

        assert "new" not in run.clusters()


@virtually
async def test_a_node_that_comes_back_is_not_offered_at_once_what_it_rejected() -> None:
    """Its back-off goes on."""
    async with publishing(QUICK) as run:
        odd, *_ = await fleet(run, 5, 1)
        run.save(NEW)
        await run.passed(16.0)
        odd.leave()
        channel = await run.channels.channel_of(Node("edge-0"), holds=True)

        assert channel.store.current is not None
        assert "new" not in channel.store.current.resources(CDS)


@virtually
async def test_what_is_rejected_while_canaries_are_waited_for_is_remembered() -> None:
    """The tree that waits for them has the same version, which names something else there."""
    async with publishing(replace(QUICK, canary=Canary(view="none"), bake_s=30.0)) as run:
        odd, *_ = await fleet(run, 3, 1)
        rejected = {**OLD, "CDS": {**OLD["CDS"], "new": "bad EDS:new"}, "EDS": {"new": "1"}}
        odd.rejects.add("bad EDS:new")
        run.save(rejected)
        await run.settled()
        run.publisher.promote()
        await run.settled()
        run.save({**rejected, "EDS": {"new": "2"}})
        await run.passed(5.0)

        assert [node.name for node in run.publisher.verdicts.rejections.nodes.values()] == ["edge-0"]
        assert odd.channel.key.cohort == "rejecting"


@virtually
async def test_a_version_that_names_something_else_in_another_view_is_remembered() -> None:
    """A node rejects it in its own view, where nothing changed."""
    async with publishing(replace(QUICK, nack_limit=None), views=VIEWS) as run:
        run.load_views("common", "nodes/a")
        asked = [asyncio.ensure_future(run.join(*node, is_quick=True)) for node in (("a", "edge"), ("b", "inner"))]
        await asyncio.sleep(0)
        run.load_views("common", "nodes/a")
        odd = [await one for one in asked]
        for number, client in enumerate(odd):
            client.rejects.add(f"bad-{number}")
        clusters = {"one": "bad-0 EDS:e", "two": "bad-1 EDS:e"}
        for tree in ({}, clusters):
            trees = [tree_snapshot({"CDS": tree, "EDS": {"e": f"{number}"}}) for number in range(2)]
            run.publisher.receive(dict(zip(sorted(run.wanted), trees, strict=True)), 1.0)
            await run.passed(0.1)

        assert [list(client.clusters()) for client in odd] == [["two"], ["one"]]
        assert len(run.publisher.verdicts.rejections.nodes) == len(odd)


def test_versions_are_content() -> None:
    """A snapshot has a version where it has a resource with that content."""
    snapshot = tree_snapshot({"CDS": {"a": "1"}})

    assert has_version(snapshot, ((CDS, "a"), version_of_content("a", "1")))
    assert not has_version(snapshot, ((CDS, "a"), version_of_content("a", "2")))
    assert not has_version(snapshot, ((CDS, "b"), version_of_content("b", "1")))


async def cost_of_a_decision(monkeypatch: pytest.MonkeyPatch, count: int) -> float:
    """Return what it costs to decide about a NACK that names none of 500 changed clusters, with so many clients."""
    async with publishing(QUICK) as run:
        names = [f"c{number}" for number in range(500)]
        rejecting, *_ = await fleet(run, count, 0, {"CDS": dict.fromkeys(names, "1")})
        run.save({"CDS": dict.fromkeys(names, "2")})
        await run.settled()
        verdicts, rollout = run.publisher.verdicts, run.publisher.rollout_of(rejecting.channel.key)
        rows = rejecting.channel.streams.current
        assert rows is not None
        versions = frozenset(((CDS, name), rows.resources(CDS)[name].version) for name in names)
        # It does not take what it rejects meanwhile.
        monkeypatch.setattr(rejecting, "sync_state", lambda: SyncState.NACK)
        verdicts.receive_nack(rollout, rejecting, Nack(versions, is_named=False, words="no"))

        def decide() -> None:
            verdicts.decide_soon({("edge-0", "")})
            verdicts.decide()

        cost = cost_s(decide)
        assert verdicts.rejections.versions == versions
        return cost


@virtually
async def test_many_clients_have_one_vote_about_many_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows all of a type votes for all of it at once: ten times the clients cost less than five times as much."""
    few, many = [await cost_of_a_decision(monkeypatch, count) for count in (20, 200)]

    assert many < 5 * few
