"""Settings that change while fsxds runs: SIGHUP has them read again, and what can change is applied at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from fsxds.settings.options import OPTIONS, Settings


class SettingsReader:
    """Reads the settings of a command at its start and at each SIGHUP, which no longer ends the process.

    Args:
        command: the command whose options count.
        read: reads the settings; flags and environment are those of the start.
    """

    def __init__(self, command: str, read: Callable[[], Settings]) -> None:
        self.command = command
        self.read = read
        self._is_wanted = False
        self._wake: Callable[[], object] = lambda: None
        # Not the handler of an event loop, which is there after the start and before the end alone.
        signal.signal(signal.SIGHUP, self._receive)

    async def wanted(self) -> None:
        """Wait for a SIGHUP; all of those since the last call count as one."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop is closed: the process ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        while not self._is_wanted:
            woken.clear()
            await woken.wait()
        self._is_wanted = False

    def _receive(self, *_: object) -> None:
        self._is_wanted = True
        self._wake()


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What new settings mean for a running process.

    Attributes:
        settings: those to run with from now on.
        changed: the names of the options that changed.
        needs_restart: the names of those that changed in vain: they need a restart.
    """

    settings: Settings
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]

    @classmethod
    def between(cls, before: Settings, after: Settings, command: str) -> SettingsChange:
        """Return what becomes of the settings of a command."""
        different = [
            row
            for row in OPTIONS
            if command in row.commands and getattr(before, row.field) != getattr(after, row.field)
        ]
        applied = {row.field: getattr(after, row.field) for row in different if row.is_reloadable}
        return cls(
            replace(before, **applied),
            tuple(row.name for row in different if row.is_reloadable),
            tuple(row.name for row in different if not row.is_reloadable),
        )
