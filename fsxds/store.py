"""The one place that changes: what is current, and who waits for it."""

from __future__ import annotations

import asyncio

from fsxds.resources import Snapshot


class SnapshotStore:
    """Holds the current snapshot and wakes those who wait for a newer one.

    Touched from the event loop only. Readers pull: nothing is queued for anybody, so a slow reader skips what it missed.
    """

    def __init__(self) -> None:
        self.current: Snapshot | None = None
        # One event for all waiters of a generation; replaced, never cleared, so that nobody can miss it.
        self._news = asyncio.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` current and wake all waiters. Its generation must be above the current one's."""
        self.current = snapshot
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def newer_than(self, generation: int) -> Snapshot:
        """Wait for a snapshot above `generation` (0 for the first) and return the newest.

        Safe to cancel: nothing is consumed by waiting.
        """
        while self.current is None or self.current.generation <= generation:
            await self._news.wait()
        return self.current
