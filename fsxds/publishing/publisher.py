"""Publishes loaded trees, canaries first, and holds back rejected versions.

One component drives all rollouts; after an internal error, they continue from the served snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Never, Protocol

from fsxds.events.event import Observer
from fsxds.events.file_events import SnapshotPublished
from fsxds.events.process_events import SnapshotSetAside
from fsxds.events.rollout_events import HoldsChanged, RolloutChanged
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import Layers, Problem
from fsxds.publishing.channel_rollout import ChannelRollout, Generations, Holding, PlaceKeeper, RemovedMembers, names_in
from fsxds.publishing.held_resources import (
    ExplainedHold,
    held_resources,
    hold_problems,
    rejected_resources,
    rejection_problems,
    with_served_changes,
)
from fsxds.publishing.verdicts import Verdicts
from fsxds.rollout import Held
from fsxds.rollout.holding import Composed, HoldingRules
from fsxds.rollout.machine import Rollout, RolloutOptions, RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack, NodeKey
from fsxds.rollout.step import PinsChanged, RolloutEvent, StepStarted
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey, Latest, SnapshotStore
from fsxds.runtime.supervisor import Attempts
from fsxds.settings.options import Settings
from fsxds.settings.rollout_forms import Canary, NackLimit
from fsxds.snapshots.load import same_content

if TYPE_CHECKING:
    from fsxds.publishing.canaries import CanaryGate

# An Envoy takes a listener before it drains the previous one, and reads files a while after they were written.
# Lingering for just the drain time ends too early by this (ENVOY.md E69).
DRAINS_BEGIN_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class PublishRules:
    """The rules of publishing; `canary` is None without canaries.

    `nack_limit` decides which rejected versions are held back from all; None for never. For the other values see
    `canaries.BakeRules`.
    """

    rollout: RolloutOptions
    holding: HoldingRules = field(default_factory=HoldingRules)
    nack_limit: NackLimit | None = field(default_factory=NackLimit)
    canary: Canary | None = None
    bake_s: float = 0.0
    canary_quorum: float = 1.0
    canary_patience_s: float = inf

    @classmethod
    def of(cls, settings: Settings, is_static: Callable[[Key], bool]) -> PublishRules:
        """Read rules, given the bootstrap's names."""
        options = RolloutOptions(
            is_on=settings.rollout,
            linger_s=settings.linger_s and settings.linger_s + DRAINS_BEGIN_WITHIN_S,
            step_timeout_s=settings.step_timeout_s,
        )
        holding = HoldingRules(
            keeps_references=settings.references == "hold",
            max_removal=settings.max_removal if isfinite(settings.max_removal) else None,
            approved=frozenset(settings.approved or ()),
            is_static=is_static,
            knows_static=(settings.static_clusters, settings.bootstrap) != (None, None),
        )
        canary = settings.canary, settings.bake_s, settings.canary_quorum, settings.canary_patience_s
        return cls(options, holding, settings.nack_limit, *canary)


class StreamRewriting(Protocol):
    """Rewrites served snapshots for streams."""

    def follow(self, channel: Channel) -> None:
        """Rewrite each snapshot of `store` into `streams`."""


class Placing(Protocol):
    """Moves nodes to other channels."""

    def __call__(self, nodes: Collection[NodeKey], *, is_apart: bool = False) -> object:
        """Move nodes to their rejections' channels; with `is_apart`, only to separate ones."""


class Publisher:
    """Publishes in all channels; `gate` is None without canaries.

    Args:
        keeper: keeps places, served from the start; None keeps nothing.
        rewriting: for streams; None if they get the same snapshots.

    Attributes:
        published: the last tree taken in by all channels, or None.
        on_rest: receives rollouts that wait for no client, and resting lanes.
        on_decided: receives nodes that may need another channel.
        on_left_behind: receives clients no longer waited for.
        on_gone: receives a client that left, and its rollout.
        on_kept: receives layers of views that stay loaded without followers.
    """

    def __init__(
        self,
        rules: PublishRules,
        observer: Observer,
        keeper: PlaceKeeper | None = None,
        rewriting: StreamRewriting | None = None,
    ) -> None:
        self.rollouts: dict[ChannelKey, ChannelRollout] = {}
        self.published: Latest[Mapping[Layers, Snapshot] | None] = Latest(None)
        self.verdicts = Verdicts(rules.nack_limit, self.rollouts, observer)
        self.verdicts.on_decided = self._receive_decision
        self.gate = _gate_of(rules)
        self.on_received: Callable[[], object] = lambda: None
        self.on_rest: Callable[[ChannelRollout], object] = lambda _: None
        self.on_progress: Callable[[], object] = lambda: None
        self.on_decided: Placing = lambda *_, **__: None
        self.on_left_behind: Callable[[ChannelRollout, Collection[ChannelClient]], object] = lambda *_: None
        self.on_gone: Callable[[ChannelRollout, ChannelClient], object] = lambda *_: None
        self.on_kept: Callable[[Layers], object] = lambda _: None
        self.rules = rules
        self._holding = Holding(rules.holding)
        self._observer = observer
        self._keeper = keeper
        self._rewriting = rewriting
        self._generations = Generations()
        self._removed = RemovedMembers(keeper.restored_members() if keeper else {})
        self._targets: Mapping[Layers, Snapshot] = {}
        self._canaries: Mapping[Layers, Snapshot] = {}
        self._detected_s = 0.0
        # The rollouts that are due, each once, in this order; and calls to make after those before them.
        self._inbox: asyncio.Queue[ChannelRollout | Callable[[], object]] = asyncio.Queue()
        self._is_look_due = False
        self._due: set[ChannelRollout] = set()
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._attempts = Attempts(lambda error: observer(SnapshotSetAside("publisher", error)))
        self._problems: dict[ChannelRollout, tuple[Problem, ...]] = {}
        self._reported_problems: tuple[Problem, ...] = ()
        # The changes that were reported last, each with the time at which it was detected.
        self._reported: dict[object, float] = {}
        restored = keeper.restored() if keeper else {}
        if keeper is not None:
            keeper.read_members = lambda: self._removed.by_layers
            # If these are damaged, everything is set aside.
            keeper.restore_rejections(self.verdicts.rejections)
            self._holding.rejected = frozenset(self.verdicts.rejections.held)
            self.verdicts.report_restored()
        self.restored_behind = {key: state for key, state in restored.items() if key.lane}
        for key, state in restored.items():
            if not key.lane:
                rollout = self._add(key, Rollout(self.rules.rollout, state))
                rollout.restore(state)
                self.keep(rollout)
                self.note(rollout)
        self.whole = self.rollout_of(ChannelKey()).channel

    def keep_behind(self, read: Callable[[], Mapping[ChannelKey, RolloutState]]) -> None:
        """Keep the places of nodes behind their channel."""
        if self._keeper is not None:
            self._keeper.read_behind = read

    async def until_received(self) -> None:
        """Wait until a tree was received."""
        await self.published.other_than(None)

    def is_loaded(self, layers: Layers) -> bool:
        """Whether the last tree has this view."""
        return layers in self._targets

    def rollout_of(self, key: ChannelKey) -> ChannelRollout:
        """Return a channel's rollout; make it if needed."""
        found = self.rollouts.get(key)
        if found is None:
            main = self.main_of(key) if key.held is not None else None
            found = self._add(key) if main is None else self.split(main, key)
        return found

    def main_of(self, key: ChannelKey) -> ChannelRollout | None:
        """Return most nodes' rollout, or None."""
        return self.rollouts.get(ChannelKey(key.layers, key.is_canary))

    def followed(self, views: Container[Layers]) -> Iterator[ChannelRollout]:
        """Yield rollouts with clients, rollbacks or these views."""
        for key, one in self.rollouts.items():
            if key.layers in views or one.channel.clients or one.target.is_rolled_back:
                yield one

    def held_for(self, node: NodeKey, key: ChannelKey) -> frozenset[ResourceVersion] | None:
        """Return a node's held versions; None if as for all."""
        main, rejections = self.main_of(key), self.verdicts.rejections
        if main is None or node not in rejections.nodes:
            return None
        held = main.replaced_for(rejections.held_for(node))
        return None if held == frozenset(main.target.held_of(rejections.held)) else held

    def split(
        self,
        rollout: ChannelRollout,
        key: ChannelKey,
        clients: Iterable[ChannelClient] = (),
        goal: ChannelRollout | None = None,
    ) -> ChannelRollout:
        """Make a channel that continues another's step; with a goal, a lane."""
        made, now_s = self._split(rollout.machine, key, goal), asyncio.get_running_loop().time()
        for client in clients:
            made.machine.end_rest(now_s)
            made.channel.join(client)
            rollout.channel.leave(client)
            client.follow(made.channel)
        if made.channel.clients:
            made.publish(now_s)
        else:
            # Without clients to wait for, the target must be known first. Newcomers get everything at once.
            self._advance(made)
        self.note(made)
        return made

    def resume_from(self, machine: Rollout, key: ChannelKey, goal: ChannelRollout) -> ChannelRollout:
        """Make a lane for a returning node."""
        made = self._split(machine, key, goal)
        made.machine.rest(asyncio.get_running_loop().time())
        made.publish_restored()
        self.note(made)
        return made

    def restored_rollout(self, state: RolloutState) -> Rollout:
        """Continue the previous process's rollout."""
        return Rollout(self.rules.rollout, state)

    def _split(self, machine: Rollout, key: ChannelKey, goal: ChannelRollout | None) -> ChannelRollout:
        made = self._add(key, machine.split(self.rules.rollout, asyncio.get_running_loop().time()))
        main = self.main_of(key)
        if goal is not None:
            made.goal = goal
            goal.lanes[made] = None
        elif main is not None and main is not made:
            made.begin_with(main)
        if key.held and main is not None:
            made.machine.replace_rejected(partial(main.target.without, rejected=key.held))
        made.origin = machine.served, made.machine.served
        return made

    def drop(self, rollout: ChannelRollout) -> None:
        """Forget a channel without followers."""
        del self.rollouts[rollout.channel.key]
        if rollout.goal is not None:
            rollout.goal.lanes.pop(rollout, None)
        rollout.part()
        if self._keeper is not None and not rollout.channel.key.lane:
            self._keeper.forget(rollout.channel.key)
        self._due.discard(rollout)
        self._set_timer(rollout, None, self._report_problems)
        if self._problems.pop(rollout, ()):
            self._report_problems()
        self._look_soon()

    def receive(
        self,
        targets: Mapping[Layers, Snapshot],
        detected_s: float,
        canaries: Mapping[Layers, Snapshot] = MappingProxyType({}),
    ) -> None:
        """Publish trees; `detected_s` is the monotonic clock at the change's first sign.

        `canaries`: their trees, if another server decided.
        """
        if self.gate is not None:
            self.gate.receive_trees(self._targets, targets)
        self._targets, self._canaries, self._detected_s = targets, canaries, detected_s
        self.verdicts.receive_trees(targets.values())
        self.on_received()
        for rollout in self.rollouts.values():
            self._want(rollout)
        # When this is reached, all rollouts have taken their trees in.
        self._inbox.put_nowait(partial(self.published.replace, targets))

    def change_rules(self, rules: PublishRules) -> None:
        """Publish by other rules from now on."""
        gate = _gate_of(rules)
        if self.gate is None or gate is None:
            self.gate = gate
        else:
            self.gate.rules = gate.rules
        self.rules, self._holding.rules, self.verdicts.rejections.limit = rules, rules.holding, rules.nack_limit
        for rollout in self.rollouts.values():
            rollout.machine.options = rules.rollout
            self.recompose(rollout)
        self.verdicts.decide_soon(())
        self._look_soon()

    async def keep_publishing(self) -> Never:
        """Advance due rollouts, until cancelled; after a failure, from the served snapshots."""
        for failed in self._due:
            self._inbox.put_nowait(failed)
        while True:
            rollout = await self._inbox.get()
            if not isinstance(rollout, ChannelRollout):
                rollout()
            elif self.rollouts.get(rollout.channel.key) is not rollout:
                # It was noted after it was dropped.
                self._due.discard(rollout)
            elif rollout in self._due:
                self._due.discard(rollout)
                is_done = False
                try:
                    with self._attempts.on((rollout, rollout.wanted)):
                        self._advance(rollout)
                    is_done = True
                finally:
                    if not is_done:
                        rollout.restart(asyncio.get_running_loop().time())
                        if self._attempts.are_over((rollout, rollout.wanted)):
                            rollout.wanted = None
                        self.note(rollout)
                # Other tasks may run between the rollouts of a thousand channels.
                await asyncio.sleep(0)

    @property
    def holding_rules(self) -> HoldingRules:
        """The rules of holding."""
        return self._holding.rules

    @property
    def generation(self) -> int:
        """The last snapshot's number."""
        return self._generations.last

    @property
    def has_followers(self) -> bool:
        """Whether a rollout waits for canaries."""
        return any(one.waits for one in self.rollouts.values())

    def promote(self) -> int:
        """Let other nodes follow; return how many rollouts waited."""
        for rollout in self.rollouts.values():
            # The tree may have come just now.
            if (admitted := self._admitted(rollout)) is not None:
                rollout.waits = admitted.holds
        waiting = sum(bool(one.waits) for one in self.rollouts.values())
        if self.gate is not None:
            self._look_at_canaries()
            self.gate.promote()
            self._look_at_canaries()
        return waiting

    def retry(self, name: str | None) -> int:
        """Offer rejected versions of a name, or all, again."""
        versions = {one for one in self.verdicts.rejections.versions if name in {None, one[0][1]}}
        self.verdicts.forget(versions)
        return len(versions)

    def held_in(self, rollout: ChannelRollout) -> Iterator[ExplainedHold]:
        """Yield resources held back in a channel or rejected."""
        yield from rejected_resources(self.verdicts.rejections, lambda: [rollout.target])
        yield from held_resources(rollout.target.holds, rollout.held_since_s)
        if self.gate is not None:
            yield from self.gate.held_in(rollout)

    def recompose(self, rollout: ChannelRollout) -> None:
        """Compose a channel's target anew, soon."""
        rollout.is_stale = True
        self.note(rollout)

    def note(self, rollout: ChannelRollout) -> None:
        """Let a rollout advance soon."""
        if rollout not in self._due:
            self._due.add(rollout)
            self._inbox.put_nowait(rollout)

    def _admitted(self, rollout: ChannelRollout) -> Composed | None:
        """Return the tree's part for a rollout; None without a tree, and in a lane."""
        if rollout.wanted is None or rollout.goal is not None:
            return None
        gate = None if rollout.channel.key.is_canary else self.gate
        return Composed(rollout.wanted) if gate is None else gate.admit(rollout, rollout.wanted)

    def _advance(self, rollout: ChannelRollout) -> None:
        # No step follows a rejected one.
        self.verdicts.decide()
        composed, tree = rollout.target.composed, rollout.target.tree
        waits = rollout.waits
        rollout.advance(asyncio.get_running_loop().time(), self._holding, self._admitted(rollout))
        events, is_composed = rollout.machine.take_events(), rollout.target.composed is not composed
        for happened in events:
            self._take_event(rollout, happened)
        rollout.end_report()
        if len(rollout.target.pins) != rollout.reported_pins:
            self._report(
                rollout, PinsChanged(rollout.machine.target_id, len(rollout.target.pins), rollout.reported_pins)
            )
            rollout.reported_pins = len(rollout.target.pins)
        if is_composed:
            self._receive_composed(rollout, composed)
        if events or is_composed or rollout.target.tree is not tree:
            self.keep(rollout)
        self._set_timer(rollout, rollout.machine.timer_at_s, partial(self.note, rollout))
        if rollout.machine.step is None:
            self.verdicts.receive_rest(rollout)
        if rollout.machine.step is None or (rollout.goal is not None and rollout.machine.is_resting):
            self.on_rest(rollout)
        if rollout.channel.key.is_canary or rollout.waits is not waits:
            self._look_soon()
        self.on_progress()

    def _receive_composed(self, rollout: ChannelRollout, before: Composed | None) -> None:
        for lane in rollout.lanes:
            self.note(lane)
        composed = rollout.target.composed
        if before is not None and composed is not None and composed.holds is before.holds:
            return
        if composed is not None and composed.approval_id not in {None, before and before.approval_id}:
            self._report(rollout, Held(composed.approval_id or "", composed.removals))
        problems = tuple(hold_problems(rollout.target.holds))
        if problems != self._problems.get(rollout, ()):
            self._problems[rollout] = problems
            self._report_problems()

    def _receive_decision(self, nodes: Collection[NodeKey], has_changed: bool) -> None:  # noqa: FBT001
        if has_changed:
            # Nodes that must not get the others' versions leave before, and nodes without separate channels join after.
            self.on_decided(nodes, is_apart=True)
            self._holding.rejected = frozenset(self.verdicts.rejections.held)
            for rollout in self.rollouts.values():
                if rollout.channel.key.held is None:
                    self.recompose(rollout)
            self._inbox.put_nowait(partial(self.on_decided, nodes))
        else:
            self.on_decided(nodes)
        self._report_problems()
        self._look_soon()
        if self._keeper is not None:
            self._keeper.note_rejections()

    def _receive_nack(self, rollout: ChannelRollout, client: ChannelClient, nack: Nack) -> None:
        self.verdicts.receive_nack(rollout, client, nack)
        # The snapshot that was good before must be known after a restart, too.
        self.keep(self.main_of(rollout.channel.key) or rollout)

    def _receive_progress(self, rollout: ChannelRollout, client: ChannelClient) -> None:
        self.verdicts.receive_progress(client)
        if client not in rollout.channel.clients and client not in rollout.channel.absent:
            self.on_gone(rollout, client)
        is_gated = rollout.channel.key.is_canary and self.gate is not None and bool(self.gate.bakes)
        if rollout.channel.step is not None or rollout.goal is not None or is_gated:
            rollout.receive_progress(client)
            self.note(rollout)

    def _look_soon(self) -> None:
        if self.gate is not None and not self._is_look_due:
            self._is_look_due = True
            self._inbox.put_nowait(self._look_at_canaries)

    def _look_at_canaries(self) -> None:
        self._is_look_due = False
        gate, now_s = self.gate, asyncio.get_running_loop().time()
        if gate is None:
            return
        if gate.look(self.rollouts, self.verdicts.rejections, now_s):
            for rollout in self.rollouts.values():
                if rollout.waits:
                    self.note(rollout)
        # Canaries that are on their way are not missed yet.
        patience_s = self.rules.rollout.step_timeout_s
        if (awaited := gate.take_missed(now_s - patience_s)) is not None:
            self._observer(awaited)
        at_s = min(gate.next_s(), gate.unmissed_since_s + patience_s)
        self._set_timer("canaries", at_s, self._look_soon)

    def _take_event(self, rollout: ChannelRollout, happened: RolloutEvent) -> None:
        if isinstance(happened, StepStarted) and (tree := rollout.begin_step(happened)) is not None:
            self._report_published(with_served_changes(tree, rollout.target.holds), rollout.detected_s)
        self._report(rollout, happened)

    def _report(self, rollout: ChannelRollout, happened: RolloutEvent) -> None:
        key = rollout.channel.key
        self._observer(RolloutChanged(key.layers, key.cohort, happened, names_in(happened)))

    def _report_published(self, tree: Snapshot, detected_s: float) -> None:
        changes = frozenset(
            (type_url, change.added, change.changed, change.removed)
            for type_url, change in tree.changes.items()
            if change.generation == tree.generation
        )
        if self._reported.get(changes) != detected_s:
            if detected_s not in self._reported.values():
                self._reported.clear()
            self._reported[changes] = detected_s
            self._observer(SnapshotPublished(tree, detected_s))

    def _report_problems(self) -> None:
        problems = {one for each in self._problems.values() for one in each}
        rejected = rejection_problems(self.verdicts.rejections, lambda: [one.target for one in self.rollouts.values()])
        found = tuple(sorted(problems.union(rejected)))
        if found != self._reported_problems:
            self._reported_problems = found
            self._observer(HoldsChanged(found))

    def _set_timer(self, owner: object, at_s: float | None, act: Callable[[], object]) -> None:
        if (timer := self._timers.pop(owner, None)) is not None:
            timer.cancel()
        if at_s is not None and isfinite(at_s):
            loop = asyncio.get_running_loop()
            self._timers[owner] = loop.call_at(max(at_s, loop.time()), act)

    def _want(self, rollout: ChannelRollout) -> None:
        layers, is_canary = rollout.channel.key.layers, rollout.channel.key.is_canary
        wanted = (self._canaries.get(layers) if is_canary else None) or self._targets.get(layers)
        if rollout.goal is not None or wanted is None or wanted is rollout.wanted:
            return
        if rollout.wanted is None or not same_content(wanted, rollout.wanted):
            rollout.wanted, rollout.detected_s = wanted, self._detected_s
            self.note(rollout)

    def _add(self, key: ChannelKey, machine: Rollout | None = None) -> ChannelRollout:
        channel = Channel(key, SnapshotStore() if self._rewriting is not None else None)
        if self._rewriting is not None:
            self._rewriting.follow(channel)
        rollout = self.rollouts[key] = ChannelRollout(
            channel, machine or Rollout(self.rules.rollout), self._generations, self._removed
        )
        channel.on_progress = partial(self._receive_progress, rollout)
        channel.on_nack = partial(self._receive_nack, rollout)
        rollout.on_left_behind = lambda clients: self.on_left_behind(rollout, clients)
        if not key.lane:
            for other in map(self.rollouts.get, (ChannelKey(key.layers), ChannelKey(key.layers, is_canary=True))):
                if other is not None and other.target.is_rolled_back and not rollout.target.is_rolled_back:
                    rollout.target.take_rollback(other.target)
            self._want(rollout)
        return rollout

    def keep(self, rollout: ChannelRollout) -> None:
        """Write a rollout's place, and of nodes behind it, soon."""
        kept = rollout.goal or rollout
        if self._keeper is not None:
            self._keeper.save(kept.channel.key, lambda: kept.state)


def _gate_of(rules: PublishRules) -> CanaryGate | None:
    if rules.canary is None:
        return None
    from fsxds.publishing.canaries import BakeRules, CanaryGate  # noqa: PLC0415 - a capability, loaded if it is used

    return CanaryGate(BakeRules(rules.bake_s, rules.canary_quorum, rules.canary_patience_s))
