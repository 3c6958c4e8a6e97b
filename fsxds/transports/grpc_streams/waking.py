"""Wake streams that have something to look at, without keeping the event loop for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Never, Protocol

from fsxds.channels import Channel
from fsxds.protocol.on_demand import OnDemand

# How long waking streams may occupy the event loop at a time, so that requests are received in between.
WAKE_SLICE_S = 0.005


class Awaiting(Protocol):
    """A stream that waits to hear what does not exist."""

    def wake_for_answers(self) -> None:
        """Look again at what nobody knew."""


class Waking:
    """Wakes the clients of the channels that it follows.

    Attributes:
        awaiting: the streams that wait to hear what does not exist.
    """

    def __init__(self, on_demand: OnDemand) -> None:
        self.awaiting: dict[Awaiting, None] = {}
        # Those with something newer; None for those that wait for answers.
        self._due: asyncio.Queue[Channel | None] = asyncio.Queue()
        self._are_answers_due = False
        self._on_demand = on_demand

    def follow(self, channel: Channel) -> None:
        """Wake the clients of a channel for each newer snapshot for streams, as long as the channel exists."""
        if self not in channel.streams.listeners:
            channel.streams.listeners[self] = partial(self._due.put_nowait, channel)

    def _receive_answers(self) -> None:
        if self.awaiting and not self._are_answers_due:
            self._are_answers_due = True
            self._due.put_nowait(None)

    async def keep_waking(self) -> Never:
        """Wake clients, until cancelled; what a failure leaves over is done the next time."""
        self._on_demand.listeners[self] = self._receive_answers
        self._receive_answers()
        try:
            while True:
                await self._wake(await self._due.get())
        finally:
            del self._on_demand.listeners[self]

    async def _wake(self, channel: Channel | None) -> None:
        is_done = False
        try:
            if channel is None:
                self._are_answers_due = False
                await _each_in_turn(stream.wake_for_answers for stream in tuple(self.awaiting))
            else:
                await _each_in_turn(client.wake for client in tuple(channel.clients))
            is_done = True
        finally:
            if not is_done:
                self._due.put_nowait(channel)


async def _each_in_turn(wakes: Iterable[Callable[[], object]]) -> None:
    slice_end_s = time.monotonic() + WAKE_SLICE_S
    for wake in wakes:
        wake()
        if time.monotonic() >= slice_end_s:
            await asyncio.sleep(0)
            slice_end_s = time.monotonic() + WAKE_SLICE_S
