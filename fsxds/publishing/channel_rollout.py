"""The rollout of one channel: what the machine decides is published, and the clients are asked where they are with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fsxds.channels import Channel, ChannelClient, ChannelKey
from fsxds.protocol.tombstones import Tombstones
from fsxds.publishing.removed_members import RemovedMembers
from fsxds.resources import Snapshot
from fsxds.rollout import Client, Rejection, Rollout, Standing, Step, StepKind, StepStarted


class Generations:
    """Numbers the snapshots of all channels, so that a client sees no number twice, whichever channels it follows.

    Attributes:
        last: the last number.
    """

    def __init__(self) -> None:
        self.last = 0

    def numbered(self, snapshot: Snapshot, tombstones: Tombstones) -> Snapshot:
        """Return a snapshot with a number above all others, and what was removed from its view."""
        self.last = max(self.last + 1, snapshot.generation)
        return replace(snapshot, generation=self.last, tombstones=tombstones)


class ChannelRollout:
    """Drives the rollout of one channel: `advance` does all that is due, everything else only notes something.

    A client is asked where it is with a step when that is published, and whenever it did something afterwards. What the
    machine remembers of clients is by their identity, so a client that comes back is another one.

    Attributes:
        channel: what is driven.
        machine: decides.
        wanted: what the tree asks for; None before the first.
        target: what of that the machine was given.
        before: the target before that which was reached, None before there was one.
        detected_s: the monotonic clock at the first sign of that change.
        published_s: when something was published last.
        on_rejected: receives each rejection of the step, as often as its client is asked.
    """

    def __init__(self, channel: Channel, machine: Rollout, generations: Generations, removed: RemovedMembers) -> None:
        self.channel = channel
        self.machine = machine
        self.wanted: Snapshot | None = None
        self.target: Snapshot | None = None
        self.before: Snapshot | None = None
        self.detected_s = 0.0
        self.published_s = 0.0
        self.on_rejected: Callable[[ChannelClient, Rejection, Step], object] = lambda *_: None
        self._unreported: Snapshot | None = None
        # The id of what was reported last.
        self._reported_id = ""
        self._generations = generations
        self._removed = removed
        self._published: Snapshot | None = None
        self._step: Step | None = None
        # What clients were asked about last.
        self._asked: Step | None = None
        # The steps that late clients did not take in time.
        self._missed: dict[Client, Step] = {}
        self._progressed: dict[ChannelClient, None] = {}

    @property
    def has_completed(self) -> bool:
        """Whether what the tree asks for is served, and all clients that are waited for have it."""
        return self.wanted is self.target and (self.target is None or self.has_reached)

    @property
    def has_reached(self) -> bool:
        """Whether the target is served, and all clients that are waited for have it."""
        return self.target is not None and self.machine.has_completed(self.target)

    @property
    def step_since_s(self) -> float | None:
        """When the step was published that clients are waited for; None while nobody is."""
        ends_at_s = self.machine.timer_at_s
        if self.machine.status.step is None or ends_at_s is None:
            return None
        return ends_at_s - self.machine.options.step_timeout_s

    def receive_progress(self, client: ChannelClient) -> None:
        """Note that a client may have taken the step, or left."""
        self._progressed[client] = None

    def advance(self, now_s: float, *, is_open: bool = True) -> None:
        """Take what the tree asks for, where the way `is_open`, and the answers of clients; publish what follows."""
        progressed, self._progressed = self._progressed, {}
        for client in progressed:
            self._ask(client, now_s)
        if is_open and self.wanted is not None and self.wanted is not self.target:
            if self.has_reached:
                self.before = self.target
            # What a view has when somebody comes who wants it is no change.
            is_change = self.machine.served is not None or self.channel.key == ChannelKey()
            self._unreported = self.wanted if is_change else None
            self.target = self.wanted
            self.machine.receive_target(self.target, now_s)
        at_s = self.machine.timer_at_s
        if at_s is not None and at_s <= now_s:
            self.machine.receive_timer(now_s)
        self.publish(now_s)

    def publish(self, now_s: float) -> None:
        """Publish what the machine has served, and ask the clients about its step, as long as steps follow at once."""
        while (served := self.machine.served) is not None:
            if served is not self._published:
                self._publish(served)
                self.published_s = now_s
            if self.machine.step is self._step:
                return
            self._begin(self.machine.step, served, now_s)

    def publish_restored(self) -> None:
        """Publish what the process before served; who connects is asked about the steps from there."""
        if (served := self.machine.served) is not None:
            self._publish(served)

    def _publish(self, served: Snapshot) -> None:
        tombstones = self._removed.receive_change(self.channel.key.layers, self._published, served)
        self._published = served
        self.channel.store.publish(self._generations.numbered(served, tombstones))

    def part(self) -> None:
        """Note what was served: nobody follows the channel any more."""
        self._removed.receive_parting(self.channel.key.layers, self._published)

    def begin_step(self, started: StepStarted) -> Snapshot | None:
        """Note which change is served from now on; return it when this is the first step to it, None at other steps."""
        channel, target_id = self.channel, started.snapshot_id
        if self._unreported is None or self.machine.status.asked_id != target_id:
            # Resources go when their time has come, and a rollback is nobody's edit.
            if started.step.step_kind is not StepKind.SWITCH or target_id != self._reported_id:
                channel.detected_s = None
            return None
        target, self._unreported = self._unreported, None
        channel.detected_s, self._reported_id = self.detected_s, target_id
        return target

    def restart(self, now_s: float) -> None:
        """Begin with what is served, after an error within."""
        self.machine = Rollout(self.machine.options)
        self.target = self._step = self.channel.step = None
        if self._published is not None:
            self.machine.receive_target(self._published, now_s)
            self.machine.receive_waiting(frozenset(), now_s)
            self.machine.take_events()

    def _begin(self, step: Step | None, served: Snapshot, now_s: float) -> None:
        """Ask all clients about a step that was just published."""
        self._step = self.channel.step = step
        if step is None:
            return
        self._forgive_late(now_s)
        # Clients know it by the number that it has in the store.
        self.channel.step = self._asked = asked = replace(step, snapshot=self.channel.store.current or served)
        standings = {client: client.standing(asked) for client in self.channel.clients}
        waiting = {client for client, standing in standings.items() if standing is not Standing.TAKEN}
        self.machine.receive_waiting(waiting, now_s)
        for client in waiting:
            self._take(client, standings[client], now_s)

    def _forgive_late(self, now_s: float) -> None:
        """Wait again for clients that took after its time what they had not taken in it: nobody asked them since."""
        late, before = self.machine.late, self._asked
        if not late or before is None:
            self._missed = {}
            return
        self._missed = {client: self._missed.get(client, before) for client in late}
        for client in self.channel.clients:
            missed = self._missed.get(client)
            if missed is not None and client.standing(_as_served_in(before, missed)) is Standing.TAKEN:
                del self._missed[client]
                self.machine.receive_taken(client, now_s)

    def _ask(self, client: ChannelClient, now_s: float) -> None:
        step = self.channel.step
        if step is None:
            return
        if client in self.channel.clients:
            self._take(client, client.standing(step), now_s)
        elif self.machine.step is self._step:
            self.machine.receive_gone(client, now_s)

    def _take(self, client: ChannelClient, standing: Standing | Rejection, now_s: float) -> None:
        if self.machine.step is not self._step:
            # The answer of another client has ended it.
            return
        if isinstance(standing, Rejection):
            if self.channel.step is not None:
                self.on_rejected(client, standing, self.channel.step)
            self.machine.receive_rejected(client, standing, now_s)
        elif standing is Standing.TAKEN and client not in self._missed:
            # That of a late client may only mean that it follows nothing of the step.
            self.machine.receive_taken(client, now_s)


def _as_served_in(latest: Step, missed: Step) -> Step:
    """Return a step that changes what an earlier one changed, to what the latest one serves of it."""
    if missed is latest:
        return missed
    return replace(
        missed, snapshot=replace(latest.snapshot, generation=missed.snapshot.generation), endpoints=frozenset()
    )
