"""Reports the state to systemd, or another parent with NOTIFY_SOCKET.

Source: sd_notify(3), sd_watchdog_enabled(3). A unit has `Type=notify-reload` and, to be restarted when the event loop
hangs, `WatchdogSec=`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Never

# Between looks at the state.
CHECK_INTERVAL_S = 0.5
# Within the watchdog's time.
WATCHDOG_REPORTS = 3

_SOCKET_TYPE = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


class ServiceManager:
    """Receives notifications. Sending never blocks nor fails.

    Args:
        path: of a datagram socket; `@`: in the abstract namespace.
        watchdog_s: of silence until fsxds counts as hanging, or None.
    """

    def __init__(self, path: str, watchdog_s: float | None = None) -> None:
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self._pause_s = CHECK_INTERVAL_S if watchdog_s is None else min(CHECK_INTERVAL_S, watchdog_s / WATCHDOG_REPORTS)
        self._has_watchdog = watchdog_s is not None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager | None:
        """Return the environment's manager, or None."""
        path = environment.get("NOTIFY_SOCKET", "")
        if not path.startswith(("/", "@")):
            return None
        time_us = environment.get("WATCHDOG_USEC", "")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        has_watchdog = is_for_us and time_us.isascii() and time_us.isdigit() and int(time_us) > 0
        return cls(path, int(time_us) / 1_000_000 if has_watchdog else None)

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY=1`."""
        # It is gone, or does not read; or this process has too many open files.
        with suppress(OSError), socket.socket(socket.AF_UNIX, _SOCKET_TYPE) as ours:
            ours.sendto("\n".join(lines).encode(), self._path)

    def stop(self) -> None:
        """Report that the process ends."""
        self.notify("STOPPING=1", "STATUS=ending")

    async def keep_notified(
        self, waits_for: Callable[[], str], status: Callable[[], str], reloads: Callable[[], int]
    ) -> Never:
        """Report changes, and that the event loop runs, until cancelled.

        `waits_for` returns what the start awaits, or "", `status` the status afterwards, `reloads` the count of settings read.
        """
        is_ready, last, reloaded = False, "", reloads()
        while True:
            waiting = "" if is_ready else waits_for()
            if not (is_ready or waiting):
                is_ready = True
                self.notify("READY=1")
            words = f"waiting for {waiting}" if waiting else status()
            if words != last:
                last = words
                self.notify(f"STATUS={' '.join(words.split())}")
            if reloads() != reloaded:
                reloaded = reloads()
                # systemd waits for both, in this order, later than its SIGHUP.
                self.notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
                self.notify("READY=1")
            if self._has_watchdog:
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self._pause_s)
