"""What operators see of a fleet's rollouts, and what they decide: the same at any server.

Each server shows how its own clients are led, and what the publisher says of the fleet: what is held, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsxds.events.event import Observer
from fsxds.events.rollout_events import RolloutCommanded
from fsxds.fleet.fleet_commands import FleetCommands, Request
from fsxds.history.entries import HistoryEntry
from fsxds.model.errors import ProtocolError, UsageError
from fsxds.model.values import Layers
from fsxds.transports.admin.report_json import report_of
from fsxds.transports.admin.rollout_control import Action, ChannelReport, KeptSnapshot, OperatorDecision, RolloutControl

# So long a status waits for what the publisher says, and shows it again.
STATUS_WITHIN_S = 2.0
SAME_FOR_S = 1.0

# So many channels the publisher tells others of.
MOST_CHANNELS = 200


class FleetControl:
    """The rollouts of this server, and those of its fleet.

    Args:
        own: those of this server.
        fleet: returns those of the fleet; None while another server publishes.
        commands: asks that server.
        observer: receives what other servers decide.
    """

    def __init__(
        self,
        own: RolloutControl,
        fleet: Callable[[], RolloutControl | None],
        commands: FleetCommands,
        observer: Observer,
    ) -> None:
        self._own = own
        self._fleet = fleet
        self._commands = commands
        self._observer = observer
        self._last: tuple[float, Sequence[ChannelReport]] = 0.0, ()

    @property
    def state_directory(self) -> Path | None:
        """Where this server keeps its state; None without `--state`."""
        return self._own.state_directory

    async def channels(self) -> Sequence[ChannelReport]:
        """Return what becomes of each channel of the fleet, and of this server."""
        fleet = self._fleet()
        shared = await self._asked_channels() if fleet is None else await fleet.channels()
        return [*(replace(one, cohort=f"fleet, {one.cohort}") for one in shared), *await self._own.channels()]

    async def _asked_channels(self) -> Sequence[ChannelReport]:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last[0] > SAME_FOR_S:
            try:
                rows = await self._commands.ask({"ask": "channels"}, STATUS_WITHIN_S)
                self._last = now_s, report_of(tuple[ChannelReport, ...], rows)
            except (ProtocolError, UsageError):
                # What is known of this server is shown all the same.
                self._last = now_s, ()
        return self._last[1]

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return each name of a view with layers that it has."""
        return self._own.views()

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return the layers that a client of this server has; None if there is none with this node id."""
        return self._own.layers_of_node(node_id)

    async def decide(self, decision: OperatorDecision) -> int:
        """Do for the fleet what an operator decides."""
        fleet = self._fleet()
        if fleet is not None:
            return await fleet.decide(decision)
        layers = None if decision.layers is None else [[*one] for one in decision.layers]
        request = {
            "ask": "decide",
            "action": decision.action.value,
            "name": decision.name,
            "layers": layers,
            "number": decision.number,
            "time_s": decision.time_s,
        }
        return int(await self._commands.ask(request))

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return what the publisher served, the newest first."""
        fleet = self._fleet()
        if fleet is not None:
            return await fleet.history()
        return report_of(tuple[HistoryEntry, ...], await self._commands.ask({"ask": "history"}))

    async def answer(self, request: Request) -> object:
        """Carry out what another server asks of the publisher."""
        fleet = self._fleet()
        if fleet is None:
            raise ProtocolError("another server publishes by now; ask again", "UNAVAILABLE")
        match request.get("ask"):
            case "channels":
                return (await fleet.channels())[:MOST_CHANNELS]
            case "history":
                return await fleet.history()
        try:
            decision = _decision_of(request)
        except (ValueError, TypeError, LookupError) as error:
            raise ProtocolError(
                "the publisher is of another version, and does not know this", "UNIMPLEMENTED"
            ) from error
        words = {name: str(request[name]) for name in ("name", "layers", "number", "time_s") if request[name]}
        self._observer(RolloutCommanded(f"rollout/{decision.action}", words, str(request.get("server"))))
        return await fleet.decide(decision)


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
