"""End a process, whatever its threads still do."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn


class AbandonedThreads(ThreadPoolExecutor):
    """Threads that nobody waits for in the end: what they do is of no use any more."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002, the signature
        """Begin nothing more."""
        super().shutdown(wait=False, cancel_futures=True)


def leave_at_once(status: int) -> NoReturn:
    """End the process without waiting for its threads; Python itself would."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
