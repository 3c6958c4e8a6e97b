"""Operators' view of the rollouts, and their decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar, cast

from fsxds.events.rollout_events import shares_of
from fsxds.model.errors import ProtocolError, StateError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot, snapshot_id
from fsxds.model.values import Layers
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.rollout import Client
from fsxds.rollout.holding import HoldingRules, HoldReason
from fsxds.rollout.served_outline import ServedOutline
from fsxds.runtime.channels import ChannelClient, ChannelKey
from fsxds.transports.admin.admin_reports import (
    Action,
    ApprovalReport,
    ChannelReport,
    FleetServerReport,
    HeldReport,
    KeptSnapshot,
    LingeringReport,
    OperatorDecision,
    StepReport,
    WaitingReport,
    no_snapshot,
)

Result = TypeVar("Result")

# The number of shown held resources of a channel, and of shown nodes that reject one.
MOST_HELD = 100
MOST_NODES = 20

NO_HISTORY = "there is no history; start fsxds with --state DIR"


class KeptHistory(Protocol):
    """The served snapshots. Blocks; StateError if unreadable."""

    @property
    def path(self) -> Path:
        """The directory of the history."""

    def entries(self) -> Sequence[KeptSnapshot]:
        """Return all entries, newest first."""

    def snapshot(self, layers: Layers, number: int, near: Snapshot | None = None) -> Snapshot | None:
        """Return a snapshot, sharing content with `near`, or None."""


class RolloutOperator:
    """Shows and changes all rollouts; `kept` is None without `--state`."""

    def __init__(
        self, publisher: Publisher, views: Callable[[], Sequence[tuple[str, Layers]]], kept: KeptHistory | None
    ) -> None:
        self._publisher = publisher
        self._views = views
        self._kept = kept

    @property
    def state_directory(self) -> Path | None:
        """The history's directory; None without `--state`."""
        return None if self._kept is None else self._kept.path

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return view names with layers."""
        return self._views()

    def status(self) -> Sequence[ChannelReport]:
        """Return a report on each channel."""
        names: dict[Layers, list[str]] = {}
        for name, layers in self._views():
            names.setdefault(layers, []).append(name)
        return [
            self._report(rollout, tuple(names.get(rollout.channel.key.layers, ())))
            for rollout in self._publisher.followed(names)
        ]

    async def channels(self) -> Sequence[ChannelReport]:
        """Return a report on each channel."""
        return self.status()

    async def decide(self, decision: OperatorDecision) -> int:
        """Carry out an operator's decision."""
        layers = None if decision.layers is None else frozenset(decision.layers)
        if decision.action is Action.ROLLBACK and decision.time_s is not None:
            return await self.rollback_all(decision.time_s)
        if decision.action is Action.ROLLBACK:
            return await self.rollback(decision.number or 0)
        acts: Mapping[Action, Callable[[], int]] = {
            Action.APPROVE: lambda: self.approve(decision.name or ""),
            Action.RETRY: lambda: self.retry(decision.name),
            Action.PROMOTE: self.promote,
            Action.ABORT: lambda: self.abort(layers),
            Action.RESUME: lambda: self.resume(layers),
        }
        return acts[decision.action]()

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return a connected node's layers, or None."""
        for key, rollout in self._publisher.rollouts.items():
            if any(client.node.id == node_id for client in rollout.channel.known):
                return key.layers
        return None

    def approve(self, approval_id: str) -> int:
        """Let a removal proceed; return the channels' number."""
        return self._decide(None, lambda rollout: rollout.target.approve(approval_id, rollout.base))

    def promote(self) -> int:
        """Let others follow canaries; return the channels' number."""
        return self._publisher.promote()

    def retry(self, name: str | None) -> int:
        """Offer rejected versions of a name, or all, again; return their number."""
        return self._publisher.retry(name)

    def abort(self, layers: frozenset[Layers] | None) -> int:
        """Take back rollouts in these layers, None for all; return the channels' number."""
        return self._decide(layers, self._abort)

    def resume(self, layers: frozenset[Layers] | None) -> int:
        """Follow the tree again in these layers, None for all; return the channels' number."""
        return self._decide(layers, lambda rollout: rollout.target.resume(rollout.base, self._publisher.holding_rules))

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return all entries, newest first."""
        return await self._read(lambda kept: kept.entries())

    async def servers(self) -> Sequence[FleetServerReport]:
        """Return none: the server is in no fleet."""
        return ()

    def served(self, layers: Layers) -> Snapshot | None:
        """Return the served snapshot, not canaries', or None."""
        rollout = self._publisher.rollouts.get(ChannelKey(layers))
        return None if rollout is None else rollout.channel.store.current

    def wanted(self, layers: Layers) -> Snapshot | None:
        """Return the tree's snapshot, served or not, or None."""
        rollout = self._publisher.rollouts.get(ChannelKey(layers))
        return None if rollout is None else rollout.wanted

    def outlines(self) -> tuple[HoldingRules, Sequence[ServedOutline]]:
        """Return views' outlines, and the rules of holding."""
        mains = {key: one for key, one in self._publisher.rollouts.items() if key == ChannelKey(key.layers)}
        return self._publisher.holding_rules, [
            ServedOutline.of(key.layers, base, one.target.holds, has_upstreams=bool(base.upstreams))
            for key, one in mains.items()
            if (base := one.base) is not None
        ]

    async def kept(self, number: int) -> tuple[Layers, Snapshot]:
        """Return a history's snapshot. ProtocolError: it is missing."""
        served = {key.layers: rollout.machine.served for key, rollout in self._publisher.rollouts.items()}
        return await self._read(partial(_kept, number, served))

    async def rollback(self, number: int) -> int:
        """Serve a history's snapshot; return the channels' number."""
        layers, snapshot = await self.kept(number)
        return self.roll_back({layers: snapshot})

    async def rollback_all(self, time_s: float) -> int:
        """Serve a time's snapshots, in seconds since 1970; return the channels' number."""
        views: dict[Layers, Snapshot | None] = {layers: None for _, layers in self._views()}
        views |= {key.layers: rollout.machine.served for key, rollout in self._publisher.rollouts.items()}
        snapshots = await self._read(partial(_kept_at, time_s, views))
        if not snapshots:
            raise ProtocolError(
                "the history has no snapshot of that time; fsxds history lists its snapshots", "NOT_FOUND"
            )
        return self.roll_back(snapshots)

    def roll_back(self, snapshots: Mapping[Layers, Snapshot]) -> int:
        """Serve snapshots, also to later nodes; return the channels' number."""
        for layers in snapshots.keys() & {layers for _, layers in self._views()}:
            # Even without followers, it remembers the rollback for canaries and other newcomers.
            self._publisher.rollout_of(ChannelKey(layers))
            self._publisher.on_kept(layers)
        return sum(self._decide(frozenset((layers,)), partial(_pin, one)) for layers, one in snapshots.items())

    def _decide(self, layers: frozenset[Layers] | None, act: Callable[[ChannelRollout], bool]) -> int:
        count = 0
        for key, rollout in self._publisher.rollouts.items():
            if not key.lane and (layers is None or key.layers in layers) and act(rollout):
                self._publisher.recompose(rollout)
                count += 1
        return count

    def _abort(self, rollout: ChannelRollout) -> bool:
        good, removals = rollout.machine.good, rollout.target.composed and rollout.target.composed.removals
        if good is None:
            return False
        if removals or not rollout.machine.is_complete:
            rollout.machine.end_step_now(asyncio.get_running_loop().time())
            return rollout.target.pin(good, time.time())
        key = rollout.channel.key
        if not key.is_canary or not self._publisher.has_followers:
            return False
        # The canary has reached the change that the others wait for: all of it is taken back.
        others = self._publisher.rollouts.get(ChannelKey(key.layers))
        before = rollout.before if others is None else others.target.tree or others.machine.target
        return before is not None and rollout.target.pin(before, time.time())

    async def _read(self, read: Callable[[KeptHistory], Result]) -> Result:
        """Read in a thread. ProtocolError: that is impossible."""
        if self._kept is None:
            raise ProtocolError(NO_HISTORY, "FAILED_PRECONDITION")
        try:
            return await asyncio.to_thread(read, self._kept)
        except StateError as error:
            raise ProtocolError(f"the history cannot be read: {error}", "UNAVAILABLE") from error

    def _report(self, rollout: ChannelRollout, views: tuple[str, ...]) -> ChannelReport:
        machine, target, gate, now_s = (
            rollout.machine,
            rollout.target,
            self._publisher.gate,
            asyncio.get_running_loop().time(),
        )
        times_s = [bake.opens_at_s for bake in gate.bakes_of(rollout)] if gate is not None else []
        baking_s = [max(at_s - now_s, 0.0) for at_s in times_s if at_s is not None]
        served = machine.target if machine.is_complete else machine.served
        composed = (rollout.goal or rollout).target.composed
        removals = () if composed is None else composed.removals
        return ChannelReport(
            views=views,
            layers=rollout.channel.key.layers,
            cohort=rollout.channel.key.cohort,
            clients=len(rollout.channel.clients),
            served=None if served is None else snapshot_id(served),
            target=None if machine.target is None else snapshot_id(machine.target),
            asked=None if rollout.wanted is None else snapshot_id(rollout.wanted),
            is_done=rollout.has_completed,
            step=_step(rollout, now_s),
            waits_for_canary=len(baking_s) < len(times_s),
            baking_s=max(baking_s, default=None),
            lingering=tuple(sorted(_lingering(rollout, now_s), key=lambda one: (one.type, one.name))),
            held=tuple(islice(self._held(rollout, now_s), MOST_HELD)),
            approval=ApprovalReport(composed.approval_id or "", shares_of(removals)) if composed and removals else None,
            pinned=len(target.pins),
            pinned_for_s=None if target.pinned_at_s is None else max(time.time() - target.pinned_at_s, 0.0),
        )

    def _held(self, rollout: ChannelRollout, now_s: float) -> Iterator[HeldReport]:
        pinned_at_s = rollout.target.pinned_at_s
        for one in self._publisher.held_in(rollout):
            since_s = None if one.since_s is None else max(now_s - one.since_s, 0.0)
            if one.reason is HoldReason.PINNED and pinned_at_s is not None:
                since_s = max(time.time() - pinned_at_s, 0.0)
            yield HeldReport(
                type=BY_TYPE_URL[one.key[0]].short_name,
                name=one.key[1],
                reason=one.reason.value,
                place=f"{one.problem.path}:{one.problem.line}",
                message=one.problem.message,
                remedy=one.problem.remedy,
                nodes=one.nodes[:MOST_NODES],
                since_s=since_s,
            )


def _kept(number: int, served: Mapping[Layers, Snapshot | None], history: KeptHistory) -> tuple[Layers, Snapshot]:
    """Content shared with the served snapshot is not read. Blocking."""
    for kept in history.entries():
        if (
            kept.number == number
            and (snapshot := history.snapshot(kept.layers, number, served.get(kept.layers))) is not None
        ):
            return kept.layers, snapshot
    raise no_snapshot(number)


def _kept_at(time_s: float, served: Mapping[Layers, Snapshot | None], history: KeptHistory) -> dict[Layers, Snapshot]:
    newest: dict[Layers, KeptSnapshot] = {}
    for kept in history.entries():
        if kept.time_s <= time_s and kept.layers in served:
            newest.setdefault(kept.layers, kept)
    found = {layers: history.snapshot(layers, kept.number, served[layers]) for layers, kept in newest.items()}
    return {layers: snapshot for layers, snapshot in found.items() if snapshot is not None}


def _pin(snapshot: Snapshot, rollout: ChannelRollout) -> bool:
    return rollout.target.pin(snapshot, time.time(), rollout.wanted)


def _client(client: Client) -> ChannelClient:
    # All clients that the machines know are clients of channels.
    return cast("ChannelClient", client)


def _step(rollout: ChannelRollout, now_s: float) -> StepReport | None:
    machine, since_s, ends_at_s = rollout.machine, rollout.step_since_s, rollout.machine.timer_at_s
    if machine.step is None or since_s is None or ends_at_s is None:
        return None
    age_s = max(0.0, now_s - since_s)
    clients = sorted((_client(one).name, _client(one).transport) for one in machine.waiting or ())
    waits_for = tuple(WaitingReport(name, transport, age_s) for name, transport in clients)
    return StepReport(machine.step.step_kind.value, age_s, max(0.0, ends_at_s - now_s), waits_for)


def _lingering(rollout: ChannelRollout, now_s: float) -> Iterator[LingeringReport]:
    for (type_url, name), lingering in rollout.machine.lingering.items():
        left_s = None if lingering.ends_at_s is None else max(0.0, lingering.ends_at_s - now_s)
        yield LingeringReport(BY_TYPE_URL[type_url].short_name, name, tuple(sorted(lingering.listeners)), left_s)
