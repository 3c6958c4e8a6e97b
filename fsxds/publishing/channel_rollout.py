"""One channel's rollout: publishes steps, and asks clients for progress.

Keeping its place across restarts is a capability (`history/`).

Rules: which change a response brings, and when that was detected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, cast

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones, after_change, after_parting
from fsxds.rollout import Client, Step
from fsxds.rollout.holding import NO_HOLDS, Composed, HoldingRules, Holds
from fsxds.rollout.machine import Rollout, RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.planning import ENDPOINTS, changes_between
from fsxds.rollout.rejections import Rejections
from fsxds.rollout.step import RolloutEvent, Standing, StepKind, StepStarted, StepTimedOut
from fsxds.rollout.target import Target
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey
from fsxds.snapshots.load import type_change

# How often a lane waits again if all its clients are late: an Envoy that polls every 10 s comes in time.
LANE_PATIENCE = 5


class Generations:
    """Numbers snapshots uniquely."""

    def __init__(self) -> None:
        self.last = 0

    def numbered(self, snapshot: Snapshot, tombstones: Tombstones) -> Snapshot:
        """Number a snapshot above all others; add its removals."""
        self.last = max(self.last + 1, snapshot.generation)
        return replace(snapshot, generation=self.last, tombstones=tombstones)


@dataclass(slots=True)
class Holding:
    """All channels' holds; no node is served `rejected` versions."""

    rules: HoldingRules = field(default_factory=HoldingRules)
    rejected: Collection[ResourceVersion] = frozenset()


class ChannelRollout:
    """Drives one rollout: `advance` does all due work; other methods only note it.

    A client is asked when a step is published, and after each action. `wanted` is the tree to serve, None before the
    first; `goal` a lane's, or None. `origin` are the snapshots served at the split, by the original channel and by
    this; `is_led`: its clients have returned with all that they ask for; `returns` is how often clients came back to
    it, and left before taking it. `detected_s` is the monotonic clock at the change's first sign. `on_left_behind`
    receives clients not waited for: late, or not shown to stay.
    """

    def __init__(self, channel: Channel, machine: Rollout, generations: Generations, removed: RemovedMembers) -> None:
        self.channel = channel
        self.machine = machine
        self.target = Target()
        self.wanted: Snapshot | None = None
        self.goal: ChannelRollout | None = None
        self.lanes: dict[ChannelRollout, None] = {}
        self.origin: tuple[Snapshot | None, Snapshot | None] = None, None
        self.is_led = False
        self.returns = 0
        self.before: Snapshot | None = None
        self.detected_s = 0.0
        self.published_s = 0.0
        self.is_stale = False
        self.waits: Holds = NO_HOLDS
        self.held_since_s: Mapping[Key, float] = {}
        self.reported_pins = 0
        self.asked: Step | None = None
        self.on_left_behind: Callable[[Collection[ChannelClient]], object] = lambda _: None
        self._unreported: Snapshot | None = None
        # The id of the last reported target.
        self._reported_id = ""
        self._generations = generations
        self._removed = removed
        self._published: Snapshot | None = None
        self._step: Step | None = None
        # How many more timeouts it waits if all clients are late.
        self._patience = LANE_PATIENCE
        self._progressed: dict[ChannelClient, None] = {}
        self._now_s = 0.0
        # The holds that were noted last.
        self._held: tuple[Holds, Holds] = NO_HOLDS, NO_HOLDS
        # The durations of holds in the previous process, until a tree shows which still hold.
        self._held_before_s: Mapping[Key, float] = {}

    @property
    def base(self) -> Snapshot | None:
        """The last or current step's snapshot."""
        return self.machine.taken

    @property
    def follows_tree(self) -> bool:
        """Whether the wanted tree was taken in."""
        return self.wanted is self.target.tree if self.goal is None else self.goal.follows_tree

    @property
    def has_completed(self) -> bool:
        """Whether all awaited clients have the wanted tree."""
        intended = self.intended
        return self.follows_tree and (intended is None or self.machine.has_reached(intended))

    @property
    def intended(self) -> Snapshot | None:
        """The snapshot that the rollout leads to, or None."""
        composed = (self.goal or self).target.composed
        return None if composed is None else composed.snapshot

    @property
    def step_since_s(self) -> float | None:
        """The current step's start, or None."""
        ends_at_s = self.machine.timer_at_s
        if self.machine.step is None or ends_at_s is None:
            return None
        return ends_at_s - self.machine.options.step_timeout_s

    @property
    def state(self) -> RolloutState | None:
        """The state for restarts, or None."""
        state, target = self.machine.state, self.target
        if state is None:
            return None
        before, pinned = dict(target.before), target.pinned
        held_for_s = {key: self._now_s - since_s for key, since_s in self.held_since_s.items()}
        return replace(
            state,
            pins=target.pins,
            pinned_at_s=target.pinned_at_s,
            before=before,
            pinned=pinned,
            held_for_s=held_for_s or self._held_before_s,
        )

    @property
    def returned(self) -> list[ChannelClient]:
        """Clients that can be sent each changed type: all endpoints they may hold, and any resources of other types."""
        served, intended = self.machine.served, self.intended
        if served is None or intended is None:
            return []
        awaited = {}
        for type_url, change in changes_between(served, intended).items():
            is_whole, names = BY_TYPE_URL[type_url].full_state_in_sotw, change.fresh | change.renewed | change.removed
            awaited[type_url] = names if is_whole else names & served.resources(type_url).keys()
        return [client for client in self.channel.clients if _is_reachable(client, awaited)]

    def begin_with(self, other: ChannelRollout) -> None:
        """Take over another channel's target and holds."""
        self.target, self.is_stale = other.target.split(), True
        self.held_since_s, self._now_s = other.held_since_s, other._now_s

    def begins_as(self, machine: Rollout, held: frozenset[ResourceVersion] | None) -> bool:
        """Whether a channel split off now, without `held` versions, would begin so."""
        other, own = self.origin
        is_unmoved = own is self.machine.served and self.machine.step is machine.step
        return is_unmoved and other is machine.served and self.channel.key.held == held

    def replaced_for(self, rejected: Collection[ResourceVersion]) -> frozenset[ResourceVersion]:
        """Return versions whose rejection needs a separate channel."""
        return self.target.replaced_for(rejected, self.machine.served)

    def receive_progress(self, client: ChannelClient) -> None:
        """Note that a client took the step or left."""
        self._progressed[client] = None

    def advance(self, now_s: float, holding: Holding, admitted: Composed | None) -> None:
        """Take the admitted tree, if any, and answers; publish."""
        self._now_s = now_s
        progressed, self._progressed = self._progressed, {}
        if self.goal is None and admitted is not None:
            self._admit(admitted)
        # First: no step of a target follows a rejected one.
        was_stale, base = self.is_stale, self.base
        self._compose(holding, now_s)
        for client in progressed:
            self._ask(client, now_s)
        if was_stale and self.base is not base:
            self.is_stale = True
            self._compose(holding, now_s)
        at_s = self.machine.timer_at_s
        if at_s is not None and at_s <= now_s:
            self._receive_timer(now_s)
        self.publish(now_s)

    def _compose(self, holding: Holding, now_s: float) -> None:
        if self.goal is None:
            if self.is_stale:
                self.is_stale = False
                held = self.channel.key.held
                rejected = holding.rejected if held is None else held
                self.target.compose(self.base, rejected, holding.rules, self.machine.begun)
                # The served snapshot may be of an earlier tree.
                self.target.forget_past(self.base, self.machine.served)
            self._note_held(now_s)
        if (intended := self.intended) is not None:
            self.machine.receive_target(intended, now_s)

    def _note_held(self, now_s: float) -> None:
        """The same object has the same, possibly thousands of keys."""
        held = self.target.holds, self.waits
        if held[0] is self._held[0] and held[1] is self._held[1]:
            return
        self._held = held
        held_keys = {**self.target.holds, **self.waits}.keys()
        if held_keys != self.held_since_s.keys():
            began_s = {key: now_s - held_for_s for key, held_for_s in self._held_before_s.items()}
            began_s |= self.held_since_s
            self.held_since_s = {key: began_s.get(key, now_s) for key in held_keys}
            self._held_before_s = {}

    def _admit(self, admitted: Composed) -> None:
        tree, before, waited = admitted.snapshot, self.target.tree or self.machine.target, self.waits
        if admitted.holds != waited:
            self.waits = admitted.holds
        if tree is self.target.tree or (admitted.holds and tree is before):
            return
        if (reached := self.intended) is not None and self.machine.has_reached(reached):
            self.before = self.machine.good
        # The content of a view that a newcomer wants is no change.
        is_change = self.machine.served is not None or (self.channel.key.is_main and not self.channel.key.layers)
        self._unreported = tree if is_change else None
        if is_change and before is not None and (waited or admitted.holds):
            # The rest of the change was or will be reported.
            changes = {
                type_url: type_change(before.resources(type_url), rows, tree.generation)
                for type_url, rows in tree.by_type.items()
                if rows is not before.resources(type_url)
            }
            self._unreported = replace(tree, changes=MappingProxyType(changes))
        self.target.receive_tree(tree)
        self.is_stale = True

    def _receive_timer(self, now_s: float) -> None:
        if not self.machine.is_resting:
            timed_out = self.machine.late(now_s)
            late = [client for client in self.channel.clients if client in timed_out]
            # In a lane, clients that are all late proceed together, at last.
            is_alone = self.goal is not None and len(late) == len(self.channel.clients)
            if leaving := [client for client in late if client.is_away or not is_alone]:
                self.on_left_behind(leaving)
            if is_alone and self._patience > 0 and len(leaving) < len(late):
                self._patience -= 1
                self.machine.prolong(now_s)
                return
        self.machine.receive_timer(now_s)

    def ask(self, client: ChannelClient, now_s: float) -> None:
        """Wait also for a new client."""
        step = self.channel.step
        if step is not None and client.standing(step) is not Standing.TAKEN:
            self.machine.receive_late(client, now_s)

    def publish(self, now_s: float) -> None:
        """Publish and ask clients, while steps follow at once."""
        while (served := self.machine.served) is not None:
            if served is not self._published:
                self._publish(served)
                self.published_s = now_s
            if self.machine.step is self._step:
                return
            self._begin(self.machine.step, served, now_s)

    def restore(self, state: RolloutState) -> None:
        """Continue from the previous process's state."""
        self.target = Target(state.pins, state.pinned_at_s, state.before, state.target)
        self.target.pinned = state.pinned
        self._held_before_s = state.held_for_s
        self.publish_restored()

    def publish_restored(self) -> None:
        """Publish the previous process's snapshot."""
        if (served := self.machine.served) is not None:
            self._publish(served)
        if (step := self.machine.step) is not None:
            self._step = step
            self.channel.step = self.asked = replace(step, snapshot=self.channel.store.current or step.snapshot)

    def _publish(self, served: Snapshot) -> None:
        tombstones = self._removed.receive_change(self.channel.key.layers, self._published, served)
        self._published = served
        self.channel.store.publish(self._generations.numbered(served, tombstones))

    def part(self) -> None:
        """Note the last snapshot."""
        self._removed.receive_parting(self.channel.key.layers, self._published)

    def begin_step(self, started: StepStarted) -> Snapshot | None:
        """Note the change; return it at its first step only."""
        channel, target_id = self.channel, started.snapshot_id
        if self._unreported is None or self.machine.target is not self.intended:
            # Resources leave when their time has come, and a rollback is not an edit.
            if started.step.step_kind is not StepKind.SWITCH or target_id != self._reported_id:
                channel.detected_s = None
            return None
        tree, self._unreported = self._unreported, None
        channel.detected_s, self._reported_id = self.detected_s, target_id
        return tree

    def end_report(self) -> None:
        """Drop an unreported tree: if all is held, it brings no step."""
        if self.has_completed:
            self._unreported = None

    def restart(self, now_s: float) -> None:
        """Begin again with the served snapshot."""
        target = self.target
        self.machine = Rollout(self.machine.options)
        self.target = Target(before=target.before, restored=self._published)
        self.target.take_rollback(target)
        self._step = self.channel.step = None
        if self._published is not None:
            self.machine.receive_target(self._published, now_s)
            self.machine.receive_waiting(frozenset(), now_s)
            self.machine.take_events()

    def _begin(self, step: Step | None, served: Snapshot, now_s: float) -> None:
        self._step = self.channel.step = step
        self._patience = LANE_PATIENCE
        if step is None:
            return
        # Clients know it by its number in the store.
        self.channel.step = self.asked = asked = replace(step, snapshot=self.channel.store.current or served)
        waiting = [client for client in self.channel.clients if client.standing(asked) is not Standing.TAKEN]
        newcomers = [client for client in waiting if not client.has_returned]
        # A lane of newcomers alone delays no other client.
        if newcomers and not (self.goal is not None and len(newcomers) == len(self.channel.clients)):
            self.on_left_behind(newcomers)
        self.machine.receive_waiting({client for client in waiting if client in self.channel.clients}, now_s)

    def _ask(self, client: ChannelClient, now_s: float) -> None:
        step = self.channel.step
        if step is None or self.machine.step is not self._step:
            return
        if client not in self.channel.clients or client.standing(step) is Standing.TAKEN:
            self.machine.receive_taken(client, now_s)
        elif self.machine.is_resting:
            self.machine.receive_late(client, now_s)


def names_in(happened: RolloutEvent) -> dict[Client, str]:
    """Return the names of an event's clients."""
    if not isinstance(happened, StepTimedOut):
        return {}
    # All clients that the machines know are clients of channels.
    return {client: cast("ChannelClient", client).name for client in happened.clients}


class PlaceKeeper(Protocol):
    """Keeps places, rejections, and removals; `read_behind` returns places behind their channel. Restoring blocks."""

    read_members: Callable[[], Mapping[Layers, Tombstones]]
    read_behind: Callable[[], Mapping[ChannelKey, RolloutState]]

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the last written places."""

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return the last written removals."""

    def restore_rejections(self, rejections: Rejections) -> None:
        """Restore rejections, and keep them."""

    def note_rejections(self) -> None:
        """Write the rejections soon, as they are then."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Write a rollout's place soon."""

    def forget(self, key: ChannelKey) -> None:
        """Remove a rollout's place soon."""


class RemovedMembers:
    """Notes members removed in any channel, by view."""

    def __init__(self, restored: Mapping[Layers, Tombstones]) -> None:
        self.by_layers = dict(restored)

    def receive_change(self, layers: Layers, before: Snapshot | None, after: Snapshot) -> Tombstones:
        """Take a snapshot; return its view's removals."""
        return self._note(layers, after_change(self.by_layers.get(layers, NO_TOMBSTONES), before, after))

    def receive_parting(self, layers: Layers, last: Snapshot | None) -> None:
        """Note the last snapshot: clients may come back."""
        self._note(layers, after_parting(self.by_layers.get(layers, NO_TOMBSTONES), last))

    def _note(self, layers: Layers, noted: Tombstones) -> Tombstones:
        if noted:
            self.by_layers[layers] = noted
        return noted


def _is_reachable(client: ChannelClient, awaited: Mapping[TypeUrl, frozenset[str]]) -> bool:
    for type_url, names in awaited.items():
        reachable = client.reachable(type_url, names)
        if names and (reachable != names if type_url == ENDPOINTS else not reachable):
            return False
    return True
