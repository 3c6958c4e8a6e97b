"""End what is in hand with patience: as long as it goes on, and no longer."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn

# Who makes no progress for so long is not waited for. Counted in looks: an event loop that is busy looks less often.
STALLED_AFTER_S = 1.5
LOOK_EVERY_S = 0.02


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


async def drain(work: Coroutine[object, object, object], progress: Callable[[], object], limit_s: float) -> bool:
    """Run `work` to its end, unless it stalls; tell whether it came to its end.

    Args:
        work: ends what is in hand; it is cancelled when it is waited for no longer.
        progress: what is left to do, in a form that differs after each step.
        limit_s: the longest time for all.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work)
        ends_at_s = loop.time() + limit_s
        last, looks = progress(), 0
        while not working.done() and loop.time() < ends_at_s and looks * LOOK_EVERY_S < STALLED_AFTER_S:
            await asyncio.sleep(LOOK_EVERY_S)
            before, last = last, progress()
            looks = looks + 1 if before == last else 0
        is_done = working.done()
        working.cancel()
    return is_done
