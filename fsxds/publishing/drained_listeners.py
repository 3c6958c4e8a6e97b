"""Asks Envoys' admin pages whether anything drains, to end lingering early.

| rule | source |
| --- | --- |
| Nothing drains in an Envoy that has the served listeners, none warming, and both draining gauges at 0. | ENVOY.md E66, E69 |
| Nor may the process before a hot restart have connections. | `server.parent_connections` |
| All a channel's clients must have known admin pages. For others, time decides, also a while after they left. | |
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Never

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Version
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.settings.forms import Address
from fsxds.transports.mirror.envoy_reader import EnvoyPage, Statistics

CHECK_INTERVAL_S = 1.0

_LISTENERS = BY_SHORT_NAME["lds"].type_url
_VERSION = "listener_manager.lds.version_text"
_GAUGES = (
    "listener_manager.total_listeners_draining",
    "listener_manager.total_filter_chains_draining",
    "listener_manager.total_listeners_warming",
    "server.parent_connections",
)
# One response, so that all values are of one moment.
_FILTER = f"^({'|'.join((_VERSION, *_GAUGES))})$".replace(".", r"\.")


class DrainWatch:
    """Polls mirrors' Envoys while resources linger, at `pages` by the directories that they read."""

    def __init__(self, publisher: Publisher, pages: Mapping[str, Address]) -> None:
        self._publisher = publisher
        self._pages = pages
        # Until when clients without a page may have draining connections.
        self._others_until_s: dict[ChannelRollout, float] = {}

    async def keep_watching(self) -> Never:
        """Look once a second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """End lingering in channels without drains."""
        now_s = asyncio.get_running_loop().time()
        self._others_until_s = {one: until_s for one, until_s in self._others_until_s.items() if until_s > now_s}
        for rollout in tuple(self._publisher.rollouts.values()):
            pages = [
                self._pages.get(client.name) if client.transport == "mirror" else None
                for client in rollout.channel.clients
            ]
            if None in pages:
                self._others_until_s[rollout] = now_s + rollout.machine.options.linger_s
            elif pages and rollout not in self._others_until_s:
                await self._look_at(rollout, [page for page in pages if page is not None])

    async def _look_at(self, rollout: ChannelRollout, pages: list[Address]) -> None:
        served, lingering = rollout.machine.served, rollout.machine.lingering.values()
        listeners = {name for one in lingering if one.ends_at_s is not None for name in one.listeners}
        if served is None or not listeners:
            return
        version = version_of(served, Subscription(_LISTENERS))
        for page in pages:
            if not has_drained(await EnvoyPage(page).statistics(_FILTER), version):
                return
        # A drain may have begun meanwhile.
        if rollout.machine.served is served:
            rollout.machine.receive_drained(listeners, asyncio.get_running_loop().time())
            self._publisher.note(rollout)


def has_drained(values: Statistics, version: Version) -> bool:
    """Whether an Envoy has exactly these listeners, and drains nothing."""
    return values.get(_VERSION) == f'"{version}"' and all(values.get(name) == "0" for name in _GAUGES)
