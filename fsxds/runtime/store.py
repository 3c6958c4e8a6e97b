"""What is current, and who waits for something newer. Touched from the event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Never, TypeVar

from fsxds.model.resources import Snapshot

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """A value that is replaced now and then. Readers pull: nothing is queued, so a slow reader skips what it missed.

    Attributes:
        current: the value; `replace` sets it.
    """

    def __init__(self, value: Value) -> None:
        self.current = value
        # One event for all who wait; replaced, never cleared, so that nobody can miss it.
        self._replaced = asyncio.Event()

    def replace(self, value: Value) -> None:
        """Make a value current, and wake all who wait."""
        self.current = value
        replaced, self._replaced = self._replaced, asyncio.Event()
        replaced.set()

    async def replaced(self) -> None:
        """Wait until `replace` is called. Safe to cancel, like all of these: nothing is consumed by waiting."""
        await self._replaced.wait()

    async def other_than(self, value: Value) -> Value:
        """Wait until the current value is another object than this one, and return it."""
        while self.current is value:
            await self._replaced.wait()
        return self.current

    async def run_with(self, work: Callable[[Value], Awaitable[object]]) -> Never:
        """Run `work` with the current value; cancel it, and run it with the next one, whenever that is replaced."""
        while True:
            value = self.current
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(_run(work, value))
                await self.other_than(value)
                running.cancel()


async def _run(work: Callable[[Value], Awaitable[object]], value: Value) -> None:
    await work(value)


def end_wait(limit: asyncio.Timeout | None, at_s: float | None) -> None:
    """Let a wait end at a time of the event loop, or never; one whose time is over ends in any case, and raises nothing."""
    if limit is not None and not limit.expired():
        limit.reschedule(at_s)


class SnapshotStore:
    """Holds the current snapshot, None before the first.

    Attributes:
        listeners: by whom they belong to: what is called whenever a snapshot was published.
    """

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}
        self._latest: Latest[Snapshot | None] = Latest(None)

    @property
    def current(self) -> Snapshot | None:
        """What is served."""
        return self._latest.current

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` current and wake all waiters. Its generation must be above the current one's."""
        self._latest.replace(snapshot)
        for listener in self.listeners.values():
            listener()

    async def newer_than(self, generation: int) -> Snapshot:
        """Wait for a snapshot above `generation` (0 for the first) and return the newest. Safe to cancel."""
        while (snapshot := self._latest.current) is None or snapshot.generation <= generation:
            await self._latest.replaced()
        return snapshot
