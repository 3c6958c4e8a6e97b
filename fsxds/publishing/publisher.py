"""Publish what was loaded: drive the rollout of each channel, and say which channel a node follows.

All rollouts are driven by one component, which an error within ends alone: what is served stays, and the rollout goes on
from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Never, Protocol, cast

from fsxds.channels import Channel, ChannelClient, ChannelKey
from fsxds.events import Observer, RejectionsChanged, RolloutChanged, SnapshotPublished, SnapshotSetAside
from fsxds.history.state_writer import StateWriter
from fsxds.publishing.canaries import CanaryGate
from fsxds.publishing.channel_rollout import ChannelRollout, Generations
from fsxds.publishing.rejected_resources import rejection_problems
from fsxds.publishing.removed_members import RemovedMembers
from fsxds.resources import Snapshot
from fsxds.rollout import (
    Client,
    Held,
    OnNack,
    Rejection,
    RolledBack,
    Rollout,
    RolloutEvent,
    RolloutOptions,
    RolloutState,
    Step,
    StepStarted,
    StepTimedOut,
    Stopped,
)
from fsxds.settings.options import Settings
from fsxds.settings.rollout_forms import Canary
from fsxds.snapshots.load import same_content
from fsxds.store import Latest, SnapshotStore
from fsxds.supervisor import Attempts
from fsxds.values import Layers, Problem

# An Envoy has taken a listener before it drains the one before, and reads files a while after they were written. What
# lingers for as long as the drain takes goes too early by this (ENVOY.md E69).
DRAINS_BEGIN_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class PublishRules:
    """How changes are published.

    Attributes:
        rollout: how steps follow each other.
        approved: the ids of targets that may remove much.
        canary: which nodes get a change first; None for none.
        bake_s: for how long these have it before the others get it.
    """

    rollout: RolloutOptions
    approved: frozenset[str] = frozenset()
    canary: Canary | None = None
    bake_s: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> PublishRules:
        """Return what the settings say."""
        options = RolloutOptions(
            is_on=settings.rollout,
            linger_s=settings.linger_s and settings.linger_s + DRAINS_BEGIN_WITHIN_S,
            step_timeout_s=settings.step_timeout_s,
            nack_limit=settings.nack_limit,
            on_nack=OnNack(settings.on_nack),
            max_removal=settings.max_removal if isfinite(settings.max_removal) else None,
        )
        return cls(options, frozenset(settings.approved or ()), settings.canary, settings.bake_s)


class StreamRewriting(Protocol):
    """What makes something else for streams of what channels serve."""

    def follow(self, channel: Channel) -> None:
        """Publish in `streams` what is made of each snapshot in `store`."""


class Publisher:
    """Publishes in all channels. `keep_publishing` is to be run.

    Args:
        rules: how changes are published.
        observer: receives what happens in rollouts.
        keeper: keeps the places of rollouts on disk; what it restores is served from the start. None keeps nothing.
        rewriting: makes what streams are served of what each channel serves; None where that is the same.

    Attributes:
        rollouts: those of all channels.
        whole: the channel of the whole tree.
        published: what was received last, once all channels have taken it in; None before the first.
        on_received: is called when a tree was received, before its channels get what it asks for.
        on_rest: is called with a rollout that waits for no client.
        on_progress: is called when a rollout did what was due.
        on_rejected: receives a client's rejection of a step, as often as it is asked where it is with that.
    """

    def __init__(
        self,
        rules: PublishRules,
        observer: Observer,
        keeper: StateWriter | None = None,
        rewriting: StreamRewriting | None = None,
    ) -> None:
        self.rollouts: dict[ChannelKey, ChannelRollout] = {}
        self.published: Latest[Mapping[Layers, Snapshot] | None] = Latest(None)
        self.on_received: Callable[[], object] = lambda: None
        self.on_rest: Callable[[ChannelRollout], object] = lambda _: None
        self.on_progress: Callable[[], object] = lambda: None
        self.on_rejected: Callable[[ChannelClient, Rejection, Step], object] = lambda *_: None
        self._rules = rules
        self._observer = observer
        self._keeper = keeper
        self._rewriting = rewriting
        self._generations = Generations()
        self._removed = RemovedMembers(keeper.restored_members() if keeper else {})
        self._targets: Mapping[Layers, Snapshot] = {}
        self._detected_s = 0.0
        # The rollouts with something to do, each once, in this order.
        self._inbox: asyncio.Queue[ChannelRollout | None] = asyncio.Queue()
        self._due: set[ChannelRollout] = set()
        self._timers: dict[ChannelRollout, asyncio.TimerHandle] = {}
        self._attempts = Attempts(lambda error: observer(SnapshotSetAside("publisher", error)))
        self._gate = CanaryGate(rules.bake_s)
        self._gate_timer: asyncio.TimerHandle | None = None
        self._rejected: dict[ChannelRollout, tuple[Problem, ...]] = {}
        # The changes that were reported last, each with the time at which it was detected.
        self._reported: dict[object, float] = {}
        if keeper is not None:
            keeper.read_members = lambda: self._removed.by_layers
        for key, state in keeper.restored().items() if keeper else ():
            self._restore(key, state)
        self.whole = self.rollout_of(ChannelKey()).channel

    async def until_received(self) -> None:
        """Wait until a tree was received."""
        await self.published.other_than(None)

    def is_loaded(self, layers: Layers) -> bool:
        """Whether the last tree was received with a view of these layers."""
        return layers in self._targets

    def rollout_of(self, key: ChannelKey) -> ChannelRollout:
        """Return the rollout of a channel, which is made where there is none."""
        return self.rollouts.get(key) or self._add(key)

    def cohorts(self, views: Container[Layers]) -> Iterator[tuple[str, ChannelRollout]]:
        """Yield the rollouts that nodes may follow, where views have these layers, each with the name of its cohort.

        That is `all`, or where there is a canary `canary` or `others`; `moving` for nodes that had other layers before.
        """
        others = "others" if any(key.is_canary for key in self.rollouts) else "all"
        for key, rollout in self.rollouts.items():
            # No node can follow one of other layers any more.
            if key.layers in views or rollout.channel.clients:
                yield "moving" if key.transition else "canary" if key.is_canary else others, rollout

    def split(self, rollout: ChannelRollout, key: ChannelKey) -> ChannelRollout:
        """Make a channel that begins with what another one serves, and rolls out what is for its own layers."""
        made = self._add(key, rollout.machine.split())
        made.publish(asyncio.get_running_loop().time())
        return made

    def drop(self, rollout: ChannelRollout) -> None:
        """Forget a channel, which nobody follows any more."""
        del self.rollouts[rollout.channel.key]
        rollout.part()
        if self._keeper is not None and not rollout.channel.key.transition:
            self._keeper.forget(rollout.channel.key)
        self._due.discard(rollout)
        if (timer := self._timers.pop(rollout, None)) is not None:
            timer.cancel()
        self._set_rejections(rollout, ())

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Publish what the tree asks for, by layers; `detected_s` is the monotonic clock at the first sign of the change."""
        self._targets, self._detected_s = targets, detected_s
        self._gate.close()
        self.on_received()
        for rollout in self.rollouts.values():
            self._want(rollout)
        self._look_at_canaries()
        # When it comes to this, all rollouts have taken theirs in.
        self._inbox.put_nowait(None)

    def change_rules(self, rules: PublishRules) -> None:
        """Publish by other rules from now on."""
        self._rules, self._gate.bake_s = rules, rules.bake_s
        for rollout in self.rollouts.values():
            rollout.machine.options = rules.rollout
            for held_id in rules.approved:
                rollout.machine.approve(held_id, asyncio.get_running_loop().time())
            self.note(rollout)

    async def keep_publishing(self) -> Never:
        """Do what is due in each rollout, until cancelled; after a failure, the same again from what is served."""
        for failed in self._due:
            self._inbox.put_nowait(failed)
        while True:
            rollout = await self._inbox.get()
            if rollout is None:
                self.published.replace(self._targets)
            elif rollout in self._due and self.rollouts.get(rollout.channel.key) is rollout:
                self._due.discard(rollout)
                self._attempt(rollout)
                # Others may do something between the rollouts of a thousand channels.
                await asyncio.sleep(0)

    @property
    def generation(self) -> int:
        """The number of the snapshot that was published last, in whatever channel."""
        return self._generations.last

    @property
    def opens_at_s(self) -> float | None:
        """When the others follow the canaries, where nothing else happens; None while canaries are waited for."""
        return self._gate.opens_at_s

    @property
    def has_followers(self) -> bool:
        """Whether some wait until the canaries have had a change for long enough."""
        return any(rollout.wanted is not rollout.target for rollout in self.rollouts.values())

    def promote(self) -> int:
        """Let the others follow the canaries now; return how many rollouts waited for that."""
        waiting = [rollout for rollout in self.rollouts.values() if rollout.wanted is not rollout.target]
        self._gate.promote()
        self._note_others()
        return len(waiting)

    def rejections_of(self, rollout: ChannelRollout) -> tuple[Problem, ...]:
        """Return what clients rejected of what the tree asks for last."""
        return self._rejected.get(rollout, ())

    def _attempt(self, rollout: ChannelRollout) -> None:
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

    def _advance(self, rollout: ChannelRollout) -> None:
        now_s = asyncio.get_running_loop().time()
        given = rollout.target
        rollout.advance(now_s, is_open=self.may_follow(rollout, now_s))
        if rollout.target is not given:
            self._set_rejections(rollout, ())
        events = rollout.machine.take_events()
        for happened in events:
            self._take_event(rollout, happened, now_s)
        if events or rollout.target is not given:
            self._keep(rollout)
        if rollout.channel.key.is_canary:
            self._look_at_canaries()
        self._set_timer(rollout, now_s)
        if rollout.machine.step is None:
            self.on_rest(rollout)
        self.on_progress()

    def may_follow(self, rollout: ChannelRollout, now_s: float) -> bool:
        """Whether a rollout may take what the tree asks for; the first is for all, and later ones for canaries first."""
        return rollout.channel.key.is_canary or rollout.channel.store.current is None or self._gate.is_open(now_s)

    def _look_at_canaries(self) -> None:
        """See whether the others may follow now, or when."""
        loop = asyncio.get_running_loop()
        was_open = self._gate.is_open(loop.time())
        self._gate.look((one for one in self.rollouts.values() if one.channel.key.is_canary), loop.time())
        at_s = self._gate.opens_at_s
        if at_s is not None and not was_open:
            self._gate_timer = loop.call_at(at_s, self._note_others)

    def _note_others(self) -> None:
        for rollout in self.rollouts.values():
            if rollout.wanted is not rollout.target:
                self.note(rollout)

    def _take_event(self, rollout: ChannelRollout, happened: RolloutEvent, now_s: float) -> None:
        """Report an event, and do what the settings say about it."""
        match happened:
            case Held(held_id) if held_id in self._rules.approved:
                rollout.machine.approve(held_id, now_s)
                self.note(rollout)
                return
            case StepStarted() if (target := rollout.begin_step(happened)) is not None:
                self._report_published(target, rollout.detected_s)
            case RolledBack(_, _, rejections) | Stopped(_, rejections):
                problems = rejection_problems(rejections, _names(happened), rollout.target)
                self._set_rejections(rollout, problems)
        key = rollout.channel.key
        self._observer(RolloutChanged(key.layers, key.is_canary, happened, _names(happened)))

    def _report_published(self, target: Snapshot, detected_s: float) -> None:
        """Report a change of the tree once, in however many views it shows."""
        changes = frozenset(
            (type_url, change.added, change.changed, change.removed)
            for type_url, change in target.changes.items()
            if change.generation == target.generation
        )
        if self._reported.get(changes) != detected_s:
            if detected_s not in self._reported.values():
                self._reported.clear()
            self._reported[changes] = detected_s
            self._observer(SnapshotPublished(target, detected_s))

    def _set_rejections(self, rollout: ChannelRollout, problems: tuple[Problem, ...]) -> None:
        if problems != self._rejected.pop(rollout, ()):
            if problems:
                self._rejected[rollout] = problems
            self._observer(RejectionsChanged(tuple(sorted({one for each in self._rejected.values() for one in each}))))

    def _set_timer(self, rollout: ChannelRollout, now_s: float) -> None:
        timer, at_s = self._timers.pop(rollout, None), rollout.machine.timer_at_s
        if timer is not None:
            timer.cancel()
        if at_s is not None:
            loop = asyncio.get_running_loop()
            self._timers[rollout] = loop.call_at(max(at_s, now_s), self.note, rollout)

    def _want(self, rollout: ChannelRollout) -> None:
        """Let a rollout have what the tree asks for, if that is something else than before."""
        wanted = self._targets.get(rollout.channel.key.layers)
        if wanted is None or wanted is rollout.wanted:
            return
        if rollout.wanted is None or not same_content(wanted, rollout.wanted):
            rollout.wanted, rollout.detected_s = wanted, self._detected_s
            self.note(rollout)

    def _add(self, key: ChannelKey, machine: Rollout | None = None) -> ChannelRollout:
        channel = Channel(key, SnapshotStore() if self._rewriting is not None else None)
        if self._rewriting is not None:
            self._rewriting.follow(channel)
        rollout = self.rollouts[key] = ChannelRollout(
            channel, machine or Rollout(self._rules.rollout), self._generations, self._removed
        )
        channel.on_progress = partial(self._receive_progress, rollout)
        rollout.on_rejected = self._receive_rejected
        self._want(rollout)
        return rollout

    def _restore(self, key: ChannelKey, state: RolloutState) -> None:
        """Serve what a process before served, and go on from there."""
        rollout = self._add(key, Rollout(self._rules.rollout, state))
        rollout.publish_restored()
        self._keep(rollout)
        self.note(rollout)

    def _keep(self, rollout: ChannelRollout) -> None:
        """Have the place of a rollout kept on disk, as it is when it comes to that.

        Who is on the way to another channel follows that after a restart, where nodes are as if they were new.
        """
        if self._keeper is not None and not rollout.channel.key.transition:
            self._keeper.save(rollout.channel.key, lambda: rollout.machine.state)

    def _receive_progress(self, rollout: ChannelRollout, client: ChannelClient) -> None:
        rollout.receive_progress(client)
        self.note(rollout)

    def _receive_rejected(self, client: ChannelClient, rejection: Rejection, step: Step) -> None:
        self.on_rejected(client, rejection, step)

    def note(self, rollout: ChannelRollout) -> None:
        """Have a rollout advance soon."""
        if rollout not in self._due:
            self._due.add(rollout)
            self._inbox.put_nowait(rollout)


def _names(happened: RolloutEvent) -> dict[Client, str]:
    """Return what the clients are called that an event is about."""
    match happened:
        case StepTimedOut(_, _, clients):
            return {client: _name(client) for client in clients}
        case RolledBack(_, _, rejections) | Stopped(_, rejections):
            return {client: _name(client) for client, _ in rejections}
    return {}


def _name(client: Client) -> str:
    # Those that the machines know are clients of channels.
    return cast("ChannelClient", client).name
