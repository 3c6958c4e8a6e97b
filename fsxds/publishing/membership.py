"""Membership in a fleet (a capability, see `fleet/`), or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.runtime.channels import Channels
from fsxds.runtime.supervisor import Supervisor
from fsxds.runtime.views import ViewLoading

if TYPE_CHECKING:
    from fsxds.transports.admin.page_paths import AdminControl, OperatorControl


class Targets(Protocol):
    """Takes loaded trees."""

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Take trees; `detected_s` is the monotonic clock at the change's first sign."""


class SingleServer:
    """A server outside of a fleet serves its own trees."""

    def __init__(self) -> None:
        self._publisher: Publisher | None = None

    @property
    def asks_names(self) -> bool:
        """Whether other servers request its clients' names."""
        return False

    def rules(self, rules: PublishRules) -> PublishRules:
        """Return the rules for this server's clients."""
        return rules

    def targets(self, publisher: Publisher) -> Targets:
        """Return the receiver of loaded trees."""
        self._publisher = publisher
        return publisher

    def views(self, loading: ViewLoading) -> ViewLoading:
        """Return the loader of the clients' views."""
        return loading

    def channels(self, channels: NodeChannels) -> Channels:
        """Return the assignment of nodes to channels."""
        return channels

    def control(self, make: Callable[[Publisher], OperatorControl]) -> AdminControl:
        """Return the control for operators."""
        if self._publisher is None:
            raise RuntimeError("the publisher is not known yet")
        return make(self._publisher)

    def waits_for(self) -> str:
        """Name further prerequisites of the first snapshot."""
        return ""

    async def run(self, supervisor: Supervisor) -> None:
        """Keep the server in its fleet."""
