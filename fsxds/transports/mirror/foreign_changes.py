"""Detects when others remove or change mirrored files, and limits how often fsxds undoes it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from fsxds.model.values import BackOff
from fsxds.source.listing import identity_of
from fsxds.source.notifications import Notifications

# Undone at once; a process that makes more also writes the files.
AT_ONCE = 3
BACK_OFF = BackOff()
# Other files beside them may be written all the time.
LOOK_EVERY_S = 0.05


class ForeignChanges:
    """Decides when to look at mirrored files before the next rescan, by calling `request_look`.

    In the event loop. Without inotify, and for other machines' changes, it detects nothing.
    """

    def __init__(self, request_look: Callable[[], None]) -> None:
        self.request_look = request_look
        self._notifications: Notifications | None = None
        # A thread that arms outlives the task that waits for it.
        self._turn = threading.Lock()
        self._is_noted = False
        # Of the event loop; before the first notification no look is due.
        self._next_look_s = 0.0
        self._is_calm_at_s = 0.0
        self._restorations = 0

    def start(self) -> None:
        """Prepare to watch."""
        loop = asyncio.get_running_loop()

        def note(*_: object) -> None:
            # Runs in watchdog's thread, also for files that fsxds writes: one call until the next look is enough.
            if not self._is_noted:
                loop.call_soon_threadsafe(self._note)

        self._notifications = Notifications(note, note)

    async def stop(self) -> None:
        """Stop watching."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with self._turn:
            notifications, self._notifications = self._notifications, None
            if notifications is not None:
                notifications.stop()

    async def watch(self, find_folders: Callable[[], Collection[Path]]) -> None:
        """Watch these folders, and look if any is new; `find_folders` runs in a thread."""
        if await asyncio.to_thread(self._arm, find_folders):
            self._note()

    def _arm(self, find_folders: Callable[[], Collection[Path]]) -> bool:
        identities = {}
        for folder in find_folders():
            # A removed folder causes an event in its parent.
            with contextlib.suppress(OSError):
                identities[str(folder)] = identity_of(str(folder))
        with self._turn:
            return self._notifications is not None and self._notifications.arm(identities).is_new

    def due_s(self, latest_s: float) -> float:
        """Return when to look, at most `latest_s`; event loop times."""
        return min(latest_s, self._next_look_s) if self._is_noted else latest_s

    def begin_look(self) -> None:
        """Record a look at the files."""
        self._is_noted = False
        self._next_look_s = max(self._next_look_s, asyncio.get_running_loop().time() + LOOK_EVERY_S)

    def restored(self) -> float:
        """Record a restoration; return for how long further changes are left."""
        now_s = asyncio.get_running_loop().time()
        self._restorations = 1 if now_s >= self._is_calm_at_s else self._restorations + 1
        surplus = self._restorations - AT_ONCE
        pause_s = BACK_OFF.pause_s(surplus) if surplus > 0 else 0.0
        self._next_look_s = now_s + max(pause_s, LOOK_EVERY_S)
        self._is_calm_at_s = now_s + pause_s + BACK_OFF.well_after_s
        return pause_s

    def _note(self) -> None:
        self._is_noted = True
        self.request_look()
