"""Wake the streams of a channel when something newer is published in it, without keeping the event loop for long."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Never

from fsxds.channels import Channel

# How long waking streams may occupy the event loop at a time, so that requests are received in between.
WAKE_SLICE_S = 0.005


class Waking:
    """Wakes the clients of the channels that it follows."""

    def __init__(self) -> None:
        # Those with something newer.
        self._published: asyncio.Queue[Channel] = asyncio.Queue()

    def follow(self, channel: Channel) -> None:
        """Wake the clients of a channel for each newer snapshot for streams, as long as the channel exists."""
        if self not in channel.streams.listeners:
            channel.streams.listeners[self] = partial(self._published.put_nowait, channel)

    async def keep_waking(self) -> Never:
        """Wake clients, until cancelled; what a failure leaves over is done the next time."""
        while True:
            await self._wake(await self._published.get())

    async def _wake(self, channel: Channel) -> None:
        is_done = False
        slice_end_s = time.monotonic() + WAKE_SLICE_S
        try:
            for client in tuple(channel.clients):
                client.wake()
                if time.monotonic() >= slice_end_s:
                    await asyncio.sleep(0)
                    slice_end_s = time.monotonic() + WAKE_SLICE_S
            is_done = True
        finally:
            if not is_done:
                self._published.put_nowait(channel)
