"""One channel for all nodes, to which a test publishes what it likes."""

from __future__ import annotations

from fsxds.channels import Channel, ChannelKey
from fsxds.protocol.messages import Node
from fsxds.protocol.on_demand import NoUpstreams, OnDemand


class OneChannel:
    """Serves all nodes the same."""

    def __init__(self, channel: Channel | None = None, on_demand: OnDemand | None = None) -> None:
        self.on_demand: OnDemand = on_demand or NoUpstreams()
        self.channel = channel or Channel(ChannelKey())
        self.store = self.channel.store

    async def channel_of(self, _: Node, *, holds: bool | None = None) -> Channel:
        """Return the channel."""
        return self.channel
