"""The rollout of one channel: what is published, whom it waits for, and when it goes on without them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from fsxds.model.resources import Snapshot, key_of
from fsxds.protocol.absence import NO_TOMBSTONES
from fsxds.publishing.channel_rollout import LANE_PATIENCE, ChannelRollout, Generations, Holding, RemovedMembers
from fsxds.rollout import (
    Completed,
    Composed,
    Hold,
    HoldReason,
    Rollout,
    RolloutOptions,
    StepKind,
    StepStarted,
    StepTimedOut,
)
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey
from tests.support.publishing import CDS, Client, virtually
from tests.support.rollouts import Tree, tree_of, tree_snapshot

OPTIONS = RolloutOptions(linger_s=0, step_timeout_s=5.0)
OLD: Tree = {"CDS": {"old": "1"}, "RDS": {"r": "1 CDS:old"}}
NEW: Tree = {"CDS": {"new": "1"}, "RDS": {"r": "2 CDS:new"}}


class Driven:
    """A rollout that advances when a test says so.

    Attributes:
        left: the names of those that were left behind, in turn.
    """

    def __init__(self, key: ChannelKey | None = None) -> None:
        self.rollout = ChannelRollout(Channel(key or ChannelKey()), Rollout(OPTIONS), Generations(), RemovedMembers({}))
        self.left: list[str] = []
        self.channel = self.rollout.channel
        self.channel.on_progress = self.rollout.receive_progress
        self.rollout.on_left_behind = self._leave
        self.now_s = 0.0

    def _leave(self, clients: Collection[ChannelClient]) -> None:
        self.left += [client.name for client in clients]
        for client in clients:
            self.channel.leave(client)

    def want(self, tree: Tree) -> Snapshot:
        """Have the tree ask for something."""
        self.rollout.wanted = made = tree_snapshot(tree, self.rollout.wanted)
        return made

    async def advance(self, after_s: float = 0.0) -> Tree:
        """Let it do what is due so much later, and clients see that; return what is served."""
        self.now_s += after_s
        self.rollout.advance(self.now_s, Holding(), Composed(self.rollout.wanted) if self.rollout.wanted else None)
        await asyncio.sleep(0.001)
        current = self.channel.store.current
        assert current is not None
        return tree_of(current)

    async def begun(self, tree: Tree = OLD) -> Driven:
        """Serve a tree."""
        self.want(tree)
        await self.advance()
        self.rollout.machine.take_events()
        return self


def test_generations_are_of_all_channels() -> None:
    """A client that changes channels sees no number twice, and none that goes back."""
    generations = Generations()
    numbers = [
        generations.numbered(tree_snapshot(OLD), NO_TOMBSTONES).generation,
        generations.numbered(tree_snapshot(NEW), NO_TOMBSTONES).generation,
    ]

    assert numbers == [1, 2]
    assert generations.last == 2


@virtually
async def test_it_goes_on_when_its_clients_took_a_step() -> None:
    """Clients are asked when it is published, and when they did something."""
    driven = await Driven().begun()
    client = Client(driven.channel)
    driven.want(NEW)
    served = []
    for _ in range(3):
        served.append((await driven.advance())["CDS"])
        assert driven.rollout.step_since_s == 0.0
        client.take()

    assert served == [{"new": "1", "old": "1"}, {"new": "1", "old": "1"}, {"new": "1"}]
    assert NEW == await driven.advance()
    assert driven.rollout.has_completed
    assert driven.rollout.step_since_s is None
    assert driven.channel.step is None


@virtually
async def test_those_who_are_late_are_left_behind() -> None:
    """The others go on when the time of the step is over."""
    driven = await Driven().begun()
    Client(driven.channel, "slow")
    Client(driven.channel, "quick", is_quick=True)
    driven.want(NEW)
    await driven.advance()
    assert (await driven.advance(4.9))["RDS"] == OLD["RDS"]
    await driven.advance(0.2)
    await driven.advance()

    assert NEW == await driven.advance()
    assert driven.left == ["slow"]
    assert [type(one) for one in driven.rollout.machine.take_events() if not isinstance(one, StepStarted)] == [
        StepTimedOut,
        Completed,
    ]


@virtually
async def test_newcomers_are_left_behind_at_once() -> None:
    """They have not shown that they stay."""
    driven = await Driven().begun()
    Client(driven.channel, "once").has_returned = False
    driven.want(NEW)

    assert NEW == await driven.advance()
    assert driven.left == ["once"]


@virtually
async def test_those_who_catch_up_together_go_on_at_last() -> None:
    """In a lane they wait for each other several times as long; newcomers hold nobody up there."""
    goal, lane = await Driven().begun(), await Driven(ChannelKey(lane=1)).begun()
    lane.rollout.goal = goal.rollout
    once = Client(lane.channel, "once")
    once.has_returned = False
    goal.want(NEW)
    assert NEW == await goal.advance()
    assert (await lane.advance())["RDS"] == OLD["RDS"]
    for _ in range(LANE_PATIENCE):
        assert (await lane.advance(5.0))["RDS"] == OLD["RDS"]

    assert (await lane.advance(5.0))["RDS"] == NEW["RDS"]
    assert lane.left == []


@virtually
async def test_a_change_is_reported_with_its_first_step_alone() -> None:
    """With the time at which it was detected; a rollback is nobody's edit, and has none."""
    driven = await Driven().begun()
    old = driven.rollout.wanted
    assert old is not None
    Client(driven.channel, is_quick=True)
    tree = driven.want(NEW)
    driven.rollout.detected_s = 7.0

    async def reported() -> list[tuple[StepKind, bool, float | None]]:
        found: list[tuple[StepKind, bool, float | None]] = []
        while not driven.rollout.machine.is_complete or not found:
            await driven.advance()
            for event in driven.rollout.machine.take_events():
                if isinstance(event, StepStarted):
                    is_first = driven.rollout.begin_step(event) is tree
                    found.append((event.step.step_kind, is_first, driven.channel.detected_s))
        driven.rollout.end_report()
        return found

    assert await reported() == [
        (StepKind.GROW, True, 7.0),
        (StepKind.SWITCH, False, 7.0),
        (StepKind.SHRINK, False, None),
    ]
    driven.rollout.target.pin(old, 1.0)
    driven.rollout.is_stale = True
    await driven.advance()
    assert {(is_first, detected_s) for _, is_first, detected_s in await reported()} == {(False, None)}


@virtually
async def test_what_was_before_the_last_target_is_known() -> None:
    """That is what an operator goes back to who aborts what was reached."""
    driven = await Driven().begun()
    first = driven.rollout.wanted
    assert driven.rollout.before is None
    driven.want(NEW)
    await driven.advance()

    assert driven.rollout.before is first


@virtually
async def test_it_begins_again_with_what_is_served_after_an_error() -> None:
    """What was rolled back stays so."""
    driven = await Driven().begun()
    old = driven.rollout.wanted
    assert old is not None
    driven.want(NEW)
    await driven.advance()
    driven.rollout.target.pin(old, 7.0)
    driven.rollout.is_stale = True
    assert OLD == await driven.advance()
    driven.rollout.restart(driven.now_s)

    assert OLD == await driven.advance()
    state = driven.rollout.state
    assert state is not None
    assert (len(state.pins), state.pinned_at_s) == (3, 7.0)


@virtually
async def test_a_closed_way_lets_no_change_through() -> None:
    """While canaries have not lived with it, what is admitted is the tree before."""
    driven = await Driven().begun()
    before = driven.rollout.wanted
    assert before is not None
    (new,) = driven.want(NEW).resources(CDS).values()
    waits = {key_of(new): Hold(HoldReason.CANARY, None, new)}
    driven.rollout.advance(0.0, Holding(), Composed(before, waits))
    assert driven.rollout.waits == waits

    current = driven.channel.store.current
    assert current is not None
    assert list(current.resources(CDS)) == ["old"]
    assert not driven.rollout.follows_tree
