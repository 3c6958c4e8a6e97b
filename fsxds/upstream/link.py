"""The connection to the servers of one upstream: one is asked at a time, and another one when it is lost."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable
from typing import Never

from fsxds.client.client_tls import ClientTls
from fsxds.client.connection import Streaming, Wire, streaming
from fsxds.client.streams import StreamClient
from fsxds.client.updates import ConnectionLostError, WrongResponseError
from fsxds.events import Observer
from fsxds.protocol.messages import Node
from fsxds.settings.options import Settings
from fsxds.upstream.subscriptions import Names
from fsxds.upstream.upstream import Upstream
from fsxds.upstream.verdicts import Verdicts

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class Link:
    """Keeps one upstream connected."""

    def __init__(
        self, upstream: Upstream, verdicts: Verdicts, settings: Callable[[], Settings], observer: Observer
    ) -> None:
        self._upstream = upstream
        self._verdicts = verdicts
        self._settings = settings
        self._observer = observer

    async def keep_connected(self) -> Never:
        """Ask one server after the other, until cancelled."""
        failures = 0
        while True:
            for server in self._upstream.rule.servers:
                try:
                    failures = await self._follow(server, failures)
                except ConnectionLostError as error:
                    self._upstream.lost(error, time.time())
                failures += 1
            await asyncio.sleep(random.uniform(0, min(FIRST_PAUSE_S * 2**failures, LONGEST_PAUSE_S)))  # noqa: S311

    async def _follow(self, server: str, failures: int) -> int:
        rule = self._upstream.rule
        tls = ClientTls.of(rule.ca, rule.cert, rule.key)
        node = self._settings().upstream_node
        announced = Node((node and node.id) or socket.gethostname(), (node and node.cluster) or "", agent="fsxds")
        async with streaming(server, Streaming(Wire.DELTA), announced, tls) as client:
            client.on_connected = lambda: self._upstream.connected(server, "Delta ADS", time.time())
            asked: Names = {}
            while True:
                for type_url, names in self._upstream.wanted().items():
                    if more := names - asked.get(type_url, frozenset()):
                        client.subscribe(type_url, *sorted(more))
                asked = self._upstream.wanted()
                await self._receive(client, server)

    async def _receive(self, client: StreamClient, server: str) -> None:
        try:
            update = await client.next()
        except WrongResponseError:
            # It was NACKed.
            return
        received = self._upstream.receive(update, server, time.time())
        words = await self._verdicts.of(self._upstream.rule.name, received)
        if words is None:
            client.ack()
        else:
            client.nack(words)
