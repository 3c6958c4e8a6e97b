"""Whether a server is alone, or one of a fleet (a capability, see `fleet/`): who decides what it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.publishing.node_channels import NodeChannels, ViewLoading
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.runtime.channels import Channels
from fsxds.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from fsxds.transports.admin.operator_control import AdminControl, OperatorControl


class Targets(Protocol):
    """What takes trees that were loaded."""

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Take what the tree asks for, by layers; `detected_s` is the monotonic clock at the first sign of the change."""


class Alone:
    """A server that is in no fleet: it serves what it loads itself."""

    def __init__(self) -> None:
        self._publisher: Publisher | None = None

    @property
    def asks_names(self) -> bool:
        """Whether other servers of the fleet ask upstreams for the names that clients of this server ask for."""
        return False

    def rules(self, rules: PublishRules) -> PublishRules:
        """Return how this server publishes to its own clients, given what the settings say now."""
        return rules

    def targets(self, publisher: Publisher) -> Targets:
        """Return what takes the trees that this server loads, given what publishes to its clients."""
        self._publisher = publisher
        return publisher

    def views(self, loading: ViewLoading) -> ViewLoading:
        """Return what loads the views of its clients, given what loads those of its tree."""
        return loading

    def channels(self, channels: NodeChannels) -> Channels:
        """Return what says which channel a node follows, given what would if the server were alone."""
        return channels

    def control(self, make: Callable[[Publisher], OperatorControl]) -> AdminControl:
        """Return what operators decide by, given what makes that of a publisher."""
        if self._publisher is None:
            raise RuntimeError("what publishes is not known yet")
        return make(self._publisher)

    def waits_for(self) -> str:
        """Return what the first snapshot waits for; empty if it waits for the tree of this server alone."""
        return ""

    async def run(self, supervisor: Supervisor) -> None:
        """Run what keeps the server in its fleet, until cancelled."""
