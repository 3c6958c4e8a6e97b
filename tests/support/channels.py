"""One channel for all nodes, to which a test publishes what it likes."""

from __future__ import annotations

from fsxds.channels import Channel, ChannelKey
from fsxds.protocol.messages import Node


class OneChannel:
    """Serves all nodes the same."""

    def __init__(self, channel: Channel | None = None) -> None:
        self.channel = channel or Channel(ChannelKey())
        self.store = self.channel.store

    async def channel_of(self, _: Node) -> Channel:
        """Return the channel."""
        return self.channel
