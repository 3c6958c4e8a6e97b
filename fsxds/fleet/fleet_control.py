"""What operators see of a fleet's rollouts, and what they decide: at the server that publishes.

Each server shows how its own clients are led; the publisher shows also what is held in the fleet, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fsxds.model.errors import ProtocolError
from fsxds.model.values import Layers
from fsxds.transports.admin.rollout_control import ChannelReport, KeptSnapshot, RolloutControl


class FleetControl:
    """The rollouts of this server, and those of its fleet.

    Args:
        own: those of this server.
        fleet: returns those of the fleet; None while another server publishes.
        publisher: returns the id of that server.
    """

    def __init__(
        self, own: RolloutControl, fleet: Callable[[], RolloutControl | None], publisher: Callable[[], str]
    ) -> None:
        self._own = own
        self._fleet = fleet
        self._publisher = publisher

    @property
    def state_directory(self) -> Path | None:
        """Where the history is; None without `--state`."""
        return self._own.state_directory

    def status(self) -> Sequence[ChannelReport]:
        """Return what becomes of each channel of this server, and of the fleet if this server publishes."""
        fleet = self._fleet()
        shared = [] if fleet is None else [replace(one, cohort=f"fleet, {one.cohort}") for one in fleet.status()]
        return [*shared, *self._own.status()]

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return each name of a view with layers that it has."""
        return self._own.views()

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return the layers that a client of this server has; None if there is none with this node id."""
        return self._own.layers_of_node(node_id)

    def approve(self, approval_id: str) -> int:
        """Let a removal go on that waits for approval."""
        return self._deciding.approve(approval_id)

    def retry(self, name: str | None) -> int:
        """Offer rejected versions again."""
        return self._deciding.retry(name)

    def promote(self) -> int:
        """Let the others follow the canary now."""
        return self._deciding.promote()

    def abort(self, layers: frozenset[Layers] | None) -> int:
        """Take back the rollouts that go on."""
        return self._deciding.abort(layers)

    def resume(self, layers: frozenset[Layers] | None) -> int:
        """Follow the tree again after `rollback`."""
        return self._deciding.resume(layers)

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return what this server served, the newest first."""
        return await self._own.history()

    async def rollback(self, number: int) -> int:
        """Have the fleet served a snapshot of the history of this server."""
        return await self._deciding.rollback(number)

    async def rollback_all(self, time_s: float) -> int:
        """Have the fleet served what was served at a time."""
        return await self._deciding.rollback_all(time_s)

    @property
    def _deciding(self) -> RolloutControl:
        fleet = self._fleet()
        if fleet is None:
            where = self._publisher() or "no server"
            raise ProtocolError(f"{where} publishes for this fleet, and decides; ask there", "FAILED_PRECONDITION")
        return fleet
