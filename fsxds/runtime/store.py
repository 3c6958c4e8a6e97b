"""Current values, and waiting for newer ones. Touched from the event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Never, TypeVar

from fsxds.model.resources import Snapshot

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """A replaceable value. Readers pull, so a slow reader skips values."""

    def __init__(self, value: Value) -> None:
        self.current = value
        # One event for all waiters; replaced, never cleared, so that no waiter can miss it.
        self._replaced = asyncio.Event()

    def replace(self, value: Value) -> None:
        """Set the value, and wake all waiters."""
        self.current = value
        replaced, self._replaced = self._replaced, asyncio.Event()
        replaced.set()

    async def replaced(self) -> None:
        """Wait until `replace` is called. Safe to cancel, like all methods here: waiting consumes nothing."""
        await self._replaced.wait()

    async def other_than(self, value: Value) -> Value:
        """Wait until the value is another object."""
        while self.current is value:
            await self._replaced.wait()
        return self.current

    async def run_with(self, work: Callable[[Value], Awaitable[object]]) -> Never:
        """Run `work` with the current value; at each replacement, cancel and restart it."""
        while True:
            value = self.current
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(_run(work, value))
                await self.other_than(value)
                running.cancel()


async def _run(work: Callable[[Value], Awaitable[object]], value: Value) -> None:
    await work(value)


def end_wait(limit: asyncio.Timeout | None, at_s: float | None) -> None:
    """Set the end in event loop time, or None; an expired wait is not prolonged."""
    if limit is not None and not limit.expired():
        limit.reschedule(at_s)


class SnapshotStore:
    """Holds the current snapshot, None before the first.

    `listeners`, by owner, are called after each publication.
    """

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}
        self._latest: Latest[Snapshot | None] = Latest(None)

    @property
    def current(self) -> Snapshot | None:
        """The served snapshot."""
        return self._latest.current

    def publish(self, snapshot: Snapshot) -> None:
        """Wake all waiters. The generation must increase."""
        self._latest.replace(snapshot)
        for listener in self.listeners.values():
            listener()

    async def newer_than(self, generation: int) -> Snapshot:
        """Wait for a generation above this (0 for the first); return the newest. Safe to cancel."""
        while (snapshot := self._latest.current) is None or snapshot.generation <= generation:
            await self._latest.replaced()
        return snapshot
