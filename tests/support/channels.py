"""One channel for all nodes, to which a test publishes what it likes, and an upstream that says what it has not."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import NoUpstreams, OnDemand
from fsxds.rollout import RolloutOptions
from fsxds.runtime.channels import Channel, ChannelKey, HoldsOf, holds_nothing


class Denier:
    """An upstream that is known not to have these names."""

    def __init__(self, *names: str, is_away: bool = False) -> None:
        self.names = frozenset(names)
        self.is_away = is_away

    def absent_names(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return the names that it does not have, of any type."""
        assert type_url
        return self.names & names


class OneChannel:
    """Serves all nodes the same."""

    rollout = RolloutOptions(is_on=False)

    def __init__(self, channel: Channel | None = None, on_demand: OnDemand | None = None) -> None:
        self.on_demand: OnDemand = on_demand or NoUpstreams()
        self.on_moved: dict[object, Callable[[], object]] = {}
        self.channel = channel or Channel(ChannelKey())
        self.store = self.channel.store

    async def channel_of(
        self, _: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return the channel."""
        return self.channel
