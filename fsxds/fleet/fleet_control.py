"""A fleet's status, and operators' decisions, at any server.

Each server adds its own clients' rollouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fsxds.events.rollout_events import RolloutCommanded
from fsxds.fleet.fleet_commands import FleetCommands, Request
from fsxds.fleet.fleet_planner import FleetPlanner
from fsxds.fleet.key_values import EngineError
from fsxds.fleet.pointers import Order
from fsxds.fleet.records import HistoryRow, read_history
from fsxds.fleet.reports import read_report
from fsxds.model.errors import ProtocolError, UsageError
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.snapshots.encoding import DamagedBytesError
from fsxds.transports.admin.admin_api import report_of
from fsxds.transports.admin.admin_reports import (
    Action,
    ChannelReport,
    FleetServerReport,
    KeptSnapshot,
    OperatorDecision,
    no_snapshot,
)
from fsxds.transports.admin.page_paths import AdminControl, OperatorControl

# The longest wait for the publisher's status, and the time for which it is shown again.
STATUS_WITHIN_S = 2.0
SAME_FOR_S = 1.0

# The most channels that the publisher sends to another server.
MOST_CHANNELS = 200

Result = TypeVar("Result")


Publishing: TypeAlias = Callable[[], tuple[OperatorControl, FleetPlanner] | None]
"""Returns the rollouts of a fleet, and its planner; None while another server publishes."""


class FleetControl:
    """A server's `AdminControl`; `own` is that of its clients."""

    def __init__(
        self,
        own: AdminControl,
        publishing: Publishing,
        holding: Callable[[], HoldingRules],
        commands: FleetCommands,
    ) -> None:
        self._own = own
        self._publishing = publishing
        self._holding = holding
        self._commands = commands
        self._content = commands.content
        self._last: tuple[float, Sequence[ChannelReport]] = 0.0, ()

    @property
    def state_directory(self) -> Path | None:
        """None without `--state`."""
        return self._own.state_directory

    async def channels(self) -> Sequence[ChannelReport]:
        """Return the fleet's channels and this server's."""
        fleet = self._publishing()
        shared = await self._asked_channels() if fleet is None else await fleet[0].channels()
        return [*(replace(one, cohort=f"fleet, {one.cohort}") for one in shared), *await self._own.channels()]

    async def _asked_channels(self) -> Sequence[ChannelReport]:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last[0] > SAME_FOR_S:
            try:
                rows = await self._commands.ask({"ask": "channels"}, STATUS_WITHIN_S)
                self._last = now_s, report_of(tuple[ChannelReport, ...], rows)
            except (ProtocolError, UsageError):
                # The channels of this server are shown all the same.
                self._last = now_s, ()
        return self._last[1]

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return view names with their layers."""
        return self._own.views()

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return a client's layers; None for unknown ids."""
        return self._own.layers_of_node(node_id)

    def served(self, layers: Layers) -> Snapshot | None:
        """Return this server's snapshot."""
        return self._own.served(layers)

    def wanted(self, layers: Layers) -> Snapshot | None:
        """Return the tree's snapshot, if this server publishes; else the published one."""
        fleet = self._publishing()
        return (self._own if fleet is None else fleet[0]).wanted(layers)

    def outlines(self) -> tuple[HoldingRules, Sequence[ServedOutline]]:
        """Return outlines and rules of holding."""
        fleet = self._publishing()
        return (self._holding(), self._own.outlines()[1]) if fleet is None else fleet[0].outlines()

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return the history, the newest first."""
        return [row.entry for row in await _read(read_history(self._content))]

    async def servers(self) -> Sequence[FleetServerReport]:
        """Return all servers; none without an engine."""
        content = self._content
        keys = content.keys
        try:
            async with asyncio.timeout(STATUS_WITHIN_S):
                last = await content.last_order()
                publisher = (await content.engine.read([keys.publisher])).values.get(keys.publisher)
                found = await content.engine.read_prefix(keys.servers)
        except (EngineError, DamagedBytesError, TimeoutError):
            return ()
        return [
            self._server(key, one.value, last, is_publisher=publisher is not None and publisher.value == name)
            for key, one in sorted(found.values.items())
            if (name := key[len(keys.servers) :])
        ]

    def _server(self, key: bytes, reported: bytes, last: Order, *, is_publisher: bool) -> FleetServerReport:
        report = read_report(self._content, key, reported)
        name, order = key[len(self._content.keys.servers) :].decode(errors="replace"), report.order
        count = sum(one.count for one in report.clients.values())
        return FleetServerReport(name, is_publisher, f"{order.epoch}.{order.serial}", order < last, count)

    async def kept(self, number: int) -> tuple[Layers, Snapshot]:
        """Return snapshot and layers."""
        for row in await _read(read_history(self._content)):
            if row.entry.number == number:
                return row.entry.layers, await self._snapshot(row)
        raise no_snapshot(number)

    async def _snapshot(self, row: HistoryRow) -> Snapshot:
        return await _read(row.record.snapshot(self._content, self._own.served(row.entry.layers)))

    async def decide(self, decision: OperatorDecision) -> int:
        """Carry out an operator's decision."""
        fleet = self._publishing()
        if fleet is not None:
            return await self._decide(fleet, decision)
        return int(await self._commands.ask({"ask": "decide", **asdict(decision)}))

    async def answer(self, request: Request) -> object:
        """Carry out another server's request."""
        fleet = self._publishing()
        if fleet is None:
            raise ProtocolError("another server publishes by now; ask again", "UNAVAILABLE")
        if request.get("ask") == "channels":
            return (await fleet[0].channels())[:MOST_CHANNELS]
        try:
            decision = _decision_of(request)
        except (ValueError, TypeError, LookupError) as error:
            raise ProtocolError(
                "the publisher is of another version, and does not know this", "UNIMPLEMENTED"
            ) from error
        words = {name: str(request[name]) for name in ("name", "layers", "number", "time_s") if request[name]}
        fleet[1].report(RolloutCommanded(f"rollout/{decision.action}", words, str(request.get("server"))))
        return await self._decide(fleet, decision)

    async def _decide(self, fleet: tuple[OperatorControl, FleetPlanner], decision: OperatorDecision) -> int:
        control, planner = fleet
        if decision.action is not Action.ROLLBACK:
            changed = await control.decide(decision)
        elif decision.time_s is None:
            changed = control.roll_back(dict([await self.kept(decision.number or 0)]))
        else:
            changed = control.roll_back(await self._kept_at(decision.time_s))
        if changed:
            await planner.until_kept()
        return changed

    async def _kept_at(self, time_s: float) -> dict[Layers, Snapshot]:
        rows = {
            row.entry.layers: row
            for row in reversed(await _read(read_history(self._content)))
            if row.entry.time_s <= time_s
        }
        if not rows:
            fact = "the history has no snapshot of that time; fsxds history lists its snapshots"
            raise ProtocolError(fact, "NOT_FOUND")
        return {layers: await self._snapshot(row) for layers, row in rows.items()}


async def _read(reading: Awaitable[Result]) -> Result:
    try:
        return await reading
    except (EngineError, DamagedBytesError) as error:
        raise ProtocolError(f"the history of the fleet cannot be read: {error}", "UNAVAILABLE") from error


def _decision_of(request: Request) -> OperatorDecision:
    layers: Any = request["layers"]
    name, number, time_s = request["name"], request["number"], request["time_s"]
    return OperatorDecision(
        Action(request["action"]),
        None if name is None else str(name),
        None if layers is None else tuple(tuple(map(str, one)) for one in layers),
        None if number is None else int(number),
        None if time_s is None else float(time_s),
    )
