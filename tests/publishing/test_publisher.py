"""Publishing: what a channel serves when, in steps that its clients take, and what becomes of rejections."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest.mock import patch

from fsxds.events import RejectionsChanged, RolloutChanged, SnapshotPublished, SnapshotSetAside
from fsxds.protocol.messages import Node
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout import (
    Completed,
    Held,
    Rejection,
    RolloutOptions,
    Standing,
    Step,
    StepStarted,
    StepTimedOut,
)
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings
from fsxds.settings.rollout_forms import Canary
from fsxds.values import Version
from tests.support.polls import until
from tests.support.publishing import CDS, RULES, Client, Publishing, publishing


def kinds(client: Client) -> list[str]:
    """Return the steps that a client was asked about, each once."""
    return [step.step_kind.value for step in dict.fromkeys(client.asked)]


async def test_without_clients_a_change_is_served_at_once() -> None:
    """Nobody is waited for, and the change is reported once."""
    async with publishing() as run:
        loaded = [run.load(("a",), "a")]
        await run.settled()
        loaded.append(run.load(("b",), "b"))
        await run.settled()

        assert run.clusters() == ["b"]
        assert [event.snapshot for event in run.recorder.of(SnapshotPublished)] == loaded


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
        generations = [step.snapshot.generation for step in dict.fromkeys(clients[0].asked)]
        assert sorted(set(generations)) == generations


async def test_a_client_that_leaves_is_not_waited_for() -> None:
    """The step ends with the last of those that are there."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        client = Client(run.publisher.whole)
        run.load(("b",))
        await run.settled()
        assert run.is_waiting()
        run.publisher.whole.leave(client)
        await run.settled()

        assert not run.is_waiting()
        assert any(isinstance(happened, Completed) for happened in run.happened())


async def test_a_client_that_is_silent_is_waited_for_once() -> None:
    """A step times out without it, which is reported with its name, and later steps do not wait for it."""
    async with publishing(PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole, "dead-1")
        run.load(("b",), "b")
        await until(lambda: run.clusters() == ["b"])
        run.load(("c",), "c")
        await until(lambda: run.clusters() == ["c"])

        [late] = [event for event in run.recorder.of(RolloutChanged) if isinstance(event.happened, StepTimedOut)]
        assert list(late.names.values()) == ["dead-1"]
        assert client in run.publisher.whole.clients


async def test_a_client_that_took_a_step_too_late_is_waited_for_again() -> None:
    """Also when no step waits for anybody any more by then: without it, nobody would ever wait for it again."""
    rules = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))
    async with publishing(rules) as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        run.load(("b",), "b")
        await until(lambda: run.clusters() == ["b"] and not run.is_waiting())
        client.take()
        run.publisher.change_rules(RULES)
        await run.settled()
        run.load(("c",), "c")
        await run.settled()

        assert run.clusters() == ["b", "c"]
        assert run.is_waiting()


def take_until(run: Publishing, name: str, clients: tuple[Client, Client]) -> bool:
    """Whether nothing but a cluster is served, and nobody waited for; before that, the second client takes what there is."""
    dead, live = clients
    if run.is_waiting():
        # As a stream does that was sent nothing.
        run.publisher.whole.progressed(dead)
        live.take()
    return run.clusters() == [name] and not run.is_waiting()


async def test_a_silent_client_is_not_waited_for_again_because_of_what_it_does_not_follow() -> None:
    """A step that changes no type of its own says nothing about a client that missed another one."""

    class ClustersOnly(Client):
        """Follows clusters, and takes none of them."""

        def standing(self, step: Step) -> Standing | Rejection:
            """Return where it is."""
            self.asked.append(step)
            return Standing.PENDING if CDS in step.changed else Standing.TAKEN

    rules = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))
    async with publishing(rules) as run:
        run.load(("a",), "a")
        await run.settled()
        dead, live = ClustersOnly(run.publisher.whole, "dead-1"), Client(run.publisher.whole)
        for name in "bcdef":
            run.load((name,), name)
            await until(partial(take_until, run, name, (dead, live)))

        assert len([happened for happened in run.happened() if isinstance(happened, StepTimedOut)]) == 1


async def test_clients_are_asked_when_they_do_something() -> None:
    """An answer of one client asks no other one: a thousand of them cost a thousand questions for a step."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        clients = [Client(run.publisher.whole, f"edge-{number}") for number in range(100)]
        run.load(("a", "b"))
        await run.settled()
        for client in clients:
            client.take()
        await run.settled()

        assert not run.is_waiting()
        assert {len(client.asked) for client in clients} == {2}


async def test_a_rejected_change_is_taken_back() -> None:
    """All get again what was good, and the rejection is a problem of the file until the tree changes."""
    async with publishing() as run:
        run.load(("good",))
        await run.settled()
        client = Client(run.publisher.whole)
        client.answer = Rejection(CDS, Version("1"), frozenset({"new"}), "cluster new: ring sizes")
        run.load(("good", "new"))
        await until(lambda: run.clusters() == ["good"] and bool(run.recorder.of(RejectionsChanged)))
        [rejected] = run.recorder.of(RejectionsChanged)
        [problem] = rejected.problems
        assert (str(problem.path), problem.line, problem.rule) == ("edge.yaml", 1, "rejected-by-client")
        assert "edge-1 rejected cds new: cluster new: ring sizes" in problem.message
        client.answer = Standing.TAKEN
        run.load(("good", "other"))
        await run.settled()

        assert run.clusters() == ["good", "other"]
        assert run.recorder.of(RejectionsChanged)[-1].problems == ()


async def test_a_large_removal_is_held_unless_it_is_approved() -> None:
    """The id in the settings releases it, also while it is held."""
    many = tuple(f"c{number}" for number in range(6))
    async with publishing() as run:
        run.load(many)
        await run.settled()
        run.load(many[:1])
        await run.settled()
        assert run.clusters() == list(many)
        [held] = [happened for happened in run.happened() if isinstance(happened, Held)]
        run.publisher.change_rules(replace(RULES, approved=frozenset({held.snapshot_id})))
        await run.settled()

        assert run.clusters() == list(many[:1])


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


async def test_canaries_come_first() -> None:
    """The others follow when all canaries have taken the change and have had it for a while."""
    async with publishing(replace(RULES, canary=Canary(share=0.5), bake_s=0.05)) as run:
        channels = {await run.channels.channel_of(Node(f"n{number}")) for number in range(20)}
        assert len(channels) == 2
        run.load(("a",))
        await run.settled()
        canary, others = sorted(channels, key=lambda channel: not channel.key.is_canary)
        client, other = Client(canary), Client(others)
        other.answer = Standing.TAKEN
        run.load(("a", "b"))
        await run.settled()
        assert canary.store.current is not None
        assert list(canary.store.current.resources(CDS)) == ["a", "b"]
        assert run.clusters() == ["a"]
        client.take()
        await until(lambda: run.clusters() == ["a", "b"])

        started = [
            event.is_canary for event in run.recorder.of(RolloutChanged) if isinstance(event.happened, StepStarted)
        ]
        assert started[-2:] == [True, False]


async def test_what_canaries_reject_comes_to_nobody_else() -> None:
    """It is taken back from them, and the next change of the tree is tried again."""
    async with publishing(replace(RULES, canary=Canary(share=0.5), bake_s=0.0)) as run:
        channels = {await run.channels.channel_of(Node(f"n{number}")) for number in range(20)}
        run.load(("a",))
        await run.settled()
        canary = next(channel for channel in channels if channel.key.is_canary)
        client = Client(canary)
        client.answer = Rejection(CDS, Version("1"), frozenset({"new"}), "no")
        run.load(("a", "new"))
        await until(lambda: bool(run.recorder.of(RejectionsChanged)))
        await run.settled()
        assert run.clusters() == ["a"]
        client.answer = Standing.TAKEN
        run.load(("a", "better"))
        await until(lambda: run.clusters() == ["a", "better"])


async def test_an_error_of_a_rollout_ends_nothing() -> None:
    """What is served stays; the change is tried again, and set aside after three failures; the next one is served."""
    async with publishing() as run:
        run.load(("a",))
        await run.settled()
        with patch("fsxds.rollout.machine.removals_to_approve", side_effect=RuntimeError("broken")):
            run.load(("b",))
            await until(lambda: bool(run.recorder.of(SnapshotSetAside)))
            await run.settled()
            assert len(run.recorder.errors) == 3
            assert run.clusters() == ["a"]
        run.load(("c",))
        await run.settled()

        assert run.clusters() == ["c"]


async def test_an_error_of_a_client_ends_nothing() -> None:
    """What was published stays, and the rollout goes on from there."""
    async with publishing() as run:
        run.load(("a",), "a")
        await run.settled()
        client = Client(run.publisher.whole)
        with patch.object(client, "standing", side_effect=(RuntimeError("broken"), *[Standing.TAKEN] * 9)):
            run.load(("b",), "b")
            await until(lambda: run.clusters() == ["b"])

        assert [where for where, _ in run.recorder.errors] == ["publisher"]


def test_rules_are_those_of_the_settings() -> None:
    """Nothing is held where no share is too large; what lingers does so for longer than a drain, where it does at all."""
    settings = read_settings({}, {"FSXDS_MAX_REMOVAL": "off", "FSXDS_LINGER": "60s"})
    rules = PublishRules.of(settings).rollout

    assert rules.max_removal is None
    assert rules.linger_s > 60
    assert PublishRules.of(replace(Settings(), linger_s=0.0)).rollout.linger_s == 0
    assert PublishRules.of(Settings()).rollout.max_removal == 0.5
