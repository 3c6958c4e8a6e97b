"""Server-sent events: pages then request the facts. Slow readers skip events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from aiohttp import web

from fsxds.events.client_events import RequestRejected
from fsxds.events.event import Event
from fsxds.model.errors import ProtocolError
from fsxds.runtime.store import Latest

# In seconds.
PAUSE_S: Final = 0.2
# Proxies end idle connections, mostly after a minute.
HEARTBEAT_S: Final = 15.0
# Each holds a connection.
MOST_READERS: Final = 64

_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ChangeFeed:
    """Counts events, and notifies readers."""

    def __init__(self, generation: Callable[[], int]) -> None:
        self._generation = generation
        self._count = Latest(0)
        self._readers = 0
        # Changes when the server stops, which ends the answers.
        self._round = 0

    def receive(self, happened: Event) -> None:
        """Record an event, except rejected requests, which pages do not show."""
        if not isinstance(happened, RequestRejected):
            self._count.replace(self._count.current + 1)

    async def close(self, _: web.Application) -> None:
        """End all answers: the server stops."""
        self._round += 1
        self._count.replace(self._count.current + 1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send events until the page disconnects.

        Raises:
            ProtocolError: `UNAVAILABLE`: there are too many readers.
        """
        if self._readers >= MOST_READERS:
            raise ProtocolError(f"{MOST_READERS} pages listen to events already; close some", "UNAVAILABLE")
        response = web.StreamResponse(headers=_HEADERS)
        self._readers += 1
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                await self._send(response)
        finally:
            self._readers -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        known, our_round = -1, self._round
        while our_round == self._round:
            if known != self._count.current:
                known = self._count.current
                await response.write(
                    f"event: changed\ndata: {json.dumps({'generation': self._generation()})}\n\n".encode()
                )
            await asyncio.sleep(PAUSE_S)
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._count.other_than(known)
            except TimeoutError:
                await response.write(b": nothing new\n\n")
