"""Publishing: what a channel serves when, in steps that its clients take, and what is held back of the tree."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from fsxds.events.file_events import SnapshotPublished
from fsxds.events.process_events import SnapshotSetAside
from fsxds.events.rollout_events import RolloutChanged
from fsxds.model.resources import Key
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout import Held
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.step import Completed, StepTimedOut
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings
from fsxds.settings.rollout_forms import NackLimit
from fsxds.snapshots.load import type_change
from tests.support.publishing import CDS, RDS, RULES, Client, publishing, virtually
from tests.support.rollouts import Tree, tree_snapshot

OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}}


def kinds(client: Client) -> list[str]:
    """Return the steps that a client was asked about, each once."""
    return [step.step_kind.value for step in {step.snapshot.generation: step for step in client.asked}.values()]


@virtually
async def test_without_clients_a_change_is_served_at_once() -> None:
    """Nobody is waited for, and the change is reported once."""
    async with publishing() as run:
        loaded = [run.load(("a",), "a")]
        await run.settled()
        loaded.append(run.load(("b",), "b"))
        await run.settled()

        assert run.clusters() == ["b"]
        assert [event.snapshot for event in run.recorder.of(SnapshotPublished)] == loaded


@virtually
async def test_what_is_the_same_is_not_published_again() -> None:
    """Equal content has no other generation, and wakes nobody."""
    async with publishing() as run:
        loaded = run.load(("a",))
        await run.settled()
        generation = run.store.current.generation if run.store.current else 0
        run.publisher.receive({(): replace(loaded, generation=loaded.generation + 1)}, 2.0)
        await run.settled()

        assert run.store.current is not None
        assert run.store.current.generation == generation
        assert len(run.recorder.of(SnapshotPublished)) == 1


@virtually
async def test_a_change_is_reported_as_far_as_it_is_served() -> None:
    """A removal that waits for approval removed nothing, and a route that waits for its cluster has not changed."""
    base: Tree = {"CDS": dict.fromkeys("abcdef", "1"), "RDS": {"r": "1 CDS:a", "q": "1 CDS:a"}}
    tree: Tree = {"CDS": {"a": "2", "new": "1"}, "RDS": {"r": "2 CDS:none", "q": "2 CDS:new"}}
    async with publishing() as run:
        before = run.save(base)
        await run.settled()
        made = tree_snapshot(tree, before)
        number = made.generation + 1
        changes = {url: type_change(before.resources(url), rows, number) for url, rows in made.by_type.items()}
        run.publisher.receive({(): replace(made, generation=number, changes=changes)}, 1.0)
        await run.settled()

        reported = run.recorder.of(SnapshotPublished)[-1].snapshot.changes
        assert changes[CDS].removed == ("b", "c", "d", "e", "f")
        assert (reported[CDS].added, reported[CDS].changed, reported[CDS].removed) == (("new",), ("a",), ())
        assert (reported[RDS].added, reported[RDS].changed, reported[RDS].removed) == ((), ("q",), ())
        (held,) = [one.happened for one in run.recorder.of(RolloutChanged) if isinstance(one.happened, Held)]
        assert [(one.removed, len(one.keys)) for one in held.removals] == [(5, 5)]


@virtually
async def test_each_step_waits_for_the_clients() -> None:
    """Clusters come before the route that changes to them, and go after it, each when all clients have the step before."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        clients = [Client(run.publisher.whole, name) for name in ("edge-1", "edge-2")]
        run.load(("b",), "b")
        served = []
        for _ in range(3):
            await run.settled()
            served.append(run.clusters())
            clients[0].take()
            await run.settled()
            assert run.clusters() == served[-1]
            clients[1].take()
        await run.settled()

        assert served == [["a", "b"], ["a", "b"], ["b"]]
        assert kinds(clients[0]) == ["grow", "switch", "shrink"]
        generations = [step.snapshot.generation for step in clients[0].asked]
        assert sorted(generations) == generations


@virtually
async def test_a_client_that_leaves_is_not_waited_for() -> None:
    """The step ends with the last of those that are there."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        client = Client(run.publisher.whole)
        run.load(("b",))
        await run.settled()
        assert run.is_waiting()
        client.leave()
        await run.settled()

        assert not run.is_waiting()
        assert any(isinstance(happened, Completed) for happened in run.happened())


@virtually
async def test_a_client_that_is_silent_is_waited_for_once() -> None:
    """A step times out without it, which is reported with its name; later steps do not wait for it until it caught up."""
    async with publishing(PublishRules(RolloutOptions(linger_s=0, step_timeout_s=5.0))) as run:
        run.load(("a",), "a")
        await run.settled()
        silent, quick = Client(run.publisher.whole, "silent-1"), Client(run.publisher.whole, is_quick=True)
        run.load(("b",), "b")
        await run.passed(4.9)
        assert run.is_waiting()
        await run.passed(0.2)
        assert (run.clusters(), quick.clusters()) == (["b"], {"b": "1"})
        for name in "cd":
            run.load((name,), name)
            await run.settled()
            assert (run.clusters(), quick.clusters()) == ([name], {name: "1"})
        late = [event for event in run.recorder.of(RolloutChanged) if isinstance(event.happened, StepTimedOut)]
        assert [(event.cohort, list(event.names.values())) for event in late] == [("main", ["silent-1"])]

        silent.quicken()
        await run.settled()
        assert silent.clusters() == {"d": "1"}
        silent.is_quick = False
        run.load(("e",), "e")
        await run.settled()
        assert run.clusters() == ["d", "e"]


@virtually
async def test_a_client_that_has_not_shown_that_it_stays_costs_nobody_anything() -> None:
    """A step does not wait for it, and it gets all the same."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        once, quick = Client(run.publisher.whole, "once"), Client(run.publisher.whole, is_quick=True)
        once.has_returned = False
        run.load(("b",), "b")
        await run.settled()
        assert (run.clusters(), quick.clusters()) == (["b"], {"b": "1"})
        once.quicken()
        await run.settled()

        assert once.clusters() == {"b": "1"}


@virtually
async def test_a_client_of_one_type_is_waited_for_this_type_alone() -> None:
    """A dashboard that follows clusters holds up no edit of routes."""
    async with publishing() as run:
        run.save(OLD)
        await run.settled()
        dashboard, quick = Client(run.publisher.whole, "dashboard", types=[CDS]), Client(run.publisher.whole, "e")
        quick.quicken()
        run.save({**OLD, "RDS": {"r": "2 CDS:old"}})
        await run.settled()

        assert not run.is_waiting()
        assert quick.held[RDS]["r"].body == b"r=2 CDS:old"
        assert all(RDS in step.changed for step in dashboard.asked)


@virtually
async def test_clients_are_asked_when_they_do_something() -> None:
    """An answer of one client asks no other one: a thousand of them cost a thousand questions for a step."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        clients = [Client(run.publisher.whole, f"edge-{number}") for number in range(100)]
        run.load(("a", "b"))
        await run.settled()
        counts = [len(client.asked) for client in clients]
        for client in clients[1:]:
            client.take()
        await run.settled()

        assert len(clients[0].asked) == counts[0]
        assert run.is_waiting()


@virtually
async def test_a_rename_in_two_saves() -> None:
    """In either order, any time apart, no client ever has a route to a cluster that it lacks."""
    for saves in (({**OLD, "CDS": NEW["CDS"]}, NEW), ({**OLD, "RDS": NEW["RDS"]}, NEW)):
        async with publishing() as run:
            run.save(OLD)
            await run.settled()
            client = Client(run.publisher.whole, is_quick=True)
            for tree in saves:
                run.save(tree)
                await run.passed(100.0)
                route = client.held[RDS]["r"].body.decode().partition("CDS:")[2]
                assert route in client.clusters()
                assert {route} == {"new" if tree is NEW else "old"}
                assert bool(run.problems()) is (tree is not NEW)

            assert client.clusters() == {"new": "1"}


@virtually
async def test_references_may_be_served_as_they_are() -> None:
    """With `--references warn`, a removed cluster goes whoever names it."""
    async with publishing(replace(RULES, holding=HoldingRules(keeps_references=False))) as run:
        run.save(OLD)
        await run.settled()
        run.save({**OLD, "CDS": NEW["CDS"]})
        await run.settled()

        assert run.clusters() == ["new"]
        assert run.problems() == ()


MANY = tuple(f"c{number}" for number in range(6))


@virtually
async def test_a_large_removal_is_held_unless_it_is_approved() -> None:
    """It alone: a hotfix beside it is served. The id in the settings releases it, also while it is held."""
    async with publishing() as run:
        run.load(MANY)
        await run.settled()
        run.save({"CDS": {"c0": "2"}, "RDS": {"hotfix": "1 CDS:c0"}})
        await run.settled()
        assert (run.clusters(), run.served()["RDS"]) == ([*MANY], {"hotfix": "1 CDS:c0"})
        [held] = [happened for happened in run.happened() if isinstance(happened, Held)]
        run.publisher.change_rules(replace(RULES, holding=HoldingRules(approved=frozenset({held.snapshot_id}))))
        await run.settled()

        assert run.clusters() == ["c0"]


@virtually
async def test_rollout_off_serves_at_once() -> None:
    """One step, whoever has not taken it."""
    async with publishing(PublishRules(RolloutOptions(is_on=False))) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        run.load(("b",), "b")
        await run.settled()

        assert run.clusters() == ["b"]
        assert client.asked == []


@virtually
async def test_an_error_of_a_rollout_ends_nothing() -> None:
    """What is served stays; the change is tried again, and set aside after three failures; the next one is served."""
    async with publishing(may_fail=True) as run:
        run.load(("a",))
        await run.settled()
        with patch("fsxds.rollout.target.compose", side_effect=RuntimeError("broken")):
            run.load(("b",))
            await run.passed(10.0)
            assert run.recorder.of(SnapshotSetAside)
            assert run.clusters() == ["a"]
        run.load(("c",))
        await run.passed(10.0)

        assert run.clusters() == ["c"]


@virtually
async def test_an_error_of_a_client_ends_nothing() -> None:
    """What was published stays, and the rollout goes on from there."""
    async with publishing(may_fail=True) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole, is_quick=True)
        with patch.object(client, "standing", side_effect=RuntimeError("broken")):
            run.load(("b",), "b")
            await run.passed(0.0)
        await run.passed(10.0)

        assert run.clusters() == ["b"]
        assert {where for where, _ in run.recorder.errors} == {"publisher"}


@pytest.mark.parametrize("name", ["references", "max-removal"])
def test_rules_are_those_of_the_settings(name: str) -> None:
    """What may be held has its rules there; what lingers does so for longer than a drain, where it does at all."""
    environment = {
        "FSXDS_MAX_REMOVAL": "off",
        "FSXDS_LINGER": "60s",
        "FSXDS_REFERENCES": "warn",
        "FSXDS_NACK_LIMIT": "3",
    }

    def is_static(key: Key) -> bool:
        return key[1] == name

    rules = PublishRules.of(read_settings({}, environment), is_static)
    assert (rules.holding.max_removal, rules.holding.keeps_references) == (None, False)
    assert rules.nack_limit == NackLimit(count=3)
    assert rules.rollout.linger_s > 60
    assert rules.holding.is_static((CDS, name))
    usual = PublishRules.of(replace(Settings(), linger_s=0.0), is_static)
    assert (usual.rollout.linger_s, usual.holding.max_removal, usual.holding.keeps_references) == (0, 0.5, True)
    assert usual.nack_limit == NackLimit(0.5)
