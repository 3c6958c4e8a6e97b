"""What operators see of rollouts, and what they decide about them: the rollouts behind the admin address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from fsxds.channels import ChannelClient, ChannelKey
from fsxds.errors import ProtocolError
from fsxds.history.entries import HistoryEntry
from fsxds.history.state import State
from fsxds.history.state_directory import StateError
from fsxds.observe.rollout_lines import shares_of
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot
from fsxds.rollout import Client, RolloutStatus, snapshot_id
from fsxds.transports.admin.rollout_control import (
    ChannelReport,
    HoldReport,
    LingeringReport,
    StepReport,
    WaitingReport,
    no_snapshot,
)
from fsxds.values import Layers

Result = TypeVar("Result")

NO_HISTORY = "there is no history; start fsxds with --state DIR"


class RolloutOperator:
    """Looks at all rollouts, and decides about them: a `RolloutControl`.

    Args:
        publisher: has the rollouts.
        views: returns each name of a view with layers that it has.
        state: keeps the history; None without `--state`.
    """

    def __init__(
        self, publisher: Publisher, views: Callable[[], Sequence[tuple[str, Layers]]], state: State | None
    ) -> None:
        self._publisher = publisher
        self._views = views
        self._state = state

    @property
    def state_directory(self) -> Path | None:
        """Where the history is; None without `--state`."""
        return None if self._state is None else self._state.path

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return each name of a view with layers that it has."""
        return self._views()

    def status(self) -> Sequence[ChannelReport]:
        """Return what becomes of each channel."""
        names: dict[Layers, list[str]] = {}
        for name, layers in self._views():
            names.setdefault(layers, []).append(name)
        return [
            self._report(rollout, tuple(names.get(rollout.channel.key.layers, ())), cohort)
            for cohort, rollout in self._publisher.cohorts(names)
        ]

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return the layers that a connected client with this node id has; None where there is none."""
        for key, rollout in self._publisher.rollouts.items():
            if any(client.node.id == node_id for client in rollout.channel.clients):
                return key.layers
        return None

    def approve(self, version: str) -> int:
        """Release what is held under an id; return in how many channels."""
        return self._decide(None, lambda rollout, now_s: rollout.machine.approve(version, now_s))

    def promote(self) -> int:
        """Let the others follow the canary now; return in how many channels."""
        return self._publisher.promote()

    def abort(self, layers: frozenset[Layers] | None) -> int:
        """Take back the rollouts that go on; None means in all. Return in how many channels."""
        return self._decide(layers, self._abort)

    def resume(self, layers: frozenset[Layers] | None) -> int:
        """Follow the tree again after `rollback`; None means in all. Return in how many channels."""
        return self._decide(layers, lambda rollout, now_s: rollout.machine.resume(now_s))

    async def history(self) -> Sequence[HistoryEntry]:
        """Return the snapshots of all layers, the newest first."""
        return await self._read(lambda state: state.entries())

    def served(self, layers: Layers) -> Snapshot | None:
        """Return what the nodes with these layers are served, those that are no canaries; None where there is nothing."""
        rollout = self._publisher.rollouts.get(ChannelKey(layers))
        return None if rollout is None else rollout.channel.store.current

    async def kept(self, number: int) -> tuple[Layers, Snapshot]:
        """Return a snapshot of the history, and of which nodes it is. Raises ProtocolError where there is none."""
        served = {key.layers: rollout.machine.served for key, rollout in self._publisher.rollouts.items()}
        return await self._read(partial(_kept, number, served))

    async def rollback(self, number: int) -> int:
        """Serve a snapshot of the history until the tree changes, or `resume`; return in how many channels."""
        layers, snapshot = await self.kept(number)

        def pin(rollout: ChannelRollout, now_s: float) -> bool:
            rollout.machine.pin(snapshot, now_s)
            return True

        return self._decide(frozenset((layers,)), pin)

    def _decide(self, layers: frozenset[Layers] | None, act: Callable[[ChannelRollout, float], bool]) -> int:
        """Do something to the rollouts of some layers, or of all; return to how many it was done."""
        now_s, count = _now_s(), 0
        for key, rollout in self._publisher.rollouts.items():
            if (layers is None or key.layers in layers) and act(rollout, now_s):
                self._publisher.note(rollout)
                count += 1
        return count

    def _abort(self, rollout: ChannelRollout, now_s: float) -> bool:
        if rollout.machine.abort(now_s):
            return True
        if not (rollout.channel.key.is_canary and self._publisher.has_followers and rollout.before is not None):
            return False
        # The canary has reached what the others wait for.
        rollout.machine.pin(rollout.before, now_s)
        return True

    async def _read(self, read: Callable[[State], Result]) -> Result:
        """Read from the state directory, in a thread. Raises ProtocolError where there is none, or it cannot be read."""
        if self._state is None:
            raise ProtocolError(NO_HISTORY, "FAILED_PRECONDITION")
        try:
            return await asyncio.to_thread(read, self._state)
        except StateError as error:
            raise ProtocolError(f"the history cannot be read: {error}", "UNAVAILABLE") from error

    def _report(self, rollout: ChannelRollout, views: tuple[str, ...], cohort: str) -> ChannelReport:
        status, now_s, wanted = rollout.machine.status, _now_s(), rollout.wanted
        follows = wanted is not rollout.target and not self._publisher.may_follow(rollout, now_s)
        opens_at_s = self._publisher.opens_at_s
        has_reached = status.step is None and status.good_id == status.target_id
        return ChannelReport(
            views=views,
            layers=rollout.channel.key.layers,
            cohort=cohort,
            clients=len(rollout.channel.clients),
            served=status.target_id if has_reached else status.served_id,
            target=status.target_id,
            asked=snapshot_id(wanted) if wanted is not None and wanted is not rollout.target else status.asked_id,
            is_done=rollout.has_completed,
            step=_step(rollout, status, now_s),
            late=tuple(sorted(_client(one).name for one in status.late if one in rollout.channel.clients)),
            waits_for_canary=follows and opens_at_s is None,
            baking_s=opens_at_s - now_s if follows and opens_at_s is not None else None,
            lingering=tuple(sorted(_lingering(status, now_s), key=lambda one: (one.type, one.name))),
            tainted=tuple(sorted(status.tainted)),
            rejections=tuple(
                f"{problem.path}:{problem.line}: {problem.message}"
                for problem in self._publisher.rejections_of(rollout)
            ),
            held=_hold(status),
            pinned=status.target_id if status.is_pinned else None,
        )


def _kept(number: int, served: Mapping[Layers, Snapshot | None], state: State) -> tuple[Layers, Snapshot]:
    """Return a snapshot of the history, and of which nodes it is: what it shares with what is served is not read. Blocking."""
    for kept in state.entries():
        if (
            kept.number == number
            and (snapshot := state.snapshot(kept.layers, number, served.get(kept.layers))) is not None
        ):
            return kept.layers, snapshot
    raise no_snapshot(number)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _client(client: Client) -> ChannelClient:
    # Those that the machines know are clients of channels.
    return cast("ChannelClient", client)


def _step(rollout: ChannelRollout, status: RolloutStatus, now_s: float) -> StepReport | None:
    since_s, ends_at_s = rollout.step_since_s, rollout.machine.timer_at_s
    if status.step is None or since_s is None or ends_at_s is None:
        return None
    age_s = max(0.0, now_s - since_s)
    clients = sorted((_client(one).name, _client(one).transport) for one in status.waiting)
    waits_for = tuple(WaitingReport(name, transport, age_s) for name, transport in clients)
    return StepReport(status.step.step_kind.value, age_s, max(0.0, ends_at_s - now_s), waits_for)


def _lingering(status: RolloutStatus, now_s: float) -> Iterator[LingeringReport]:
    for (type_url, name), lingering in status.lingering.items():
        left_s = None if lingering.ends_at_s is None else max(0.0, lingering.ends_at_s - now_s)
        yield LingeringReport(BY_TYPE_URL[type_url].short_name, name, tuple(sorted(lingering.listeners)), left_s)


def _hold(status: RolloutStatus) -> HoldReport | None:
    if status.held is not None:
        return HoldReport(status.held.snapshot_id, f"removes {shares_of(status.held.removals)}")
    if status.is_stopped and status.target_id is not None:
        return HoldReport(status.target_id, "was rejected by clients")
    return None
