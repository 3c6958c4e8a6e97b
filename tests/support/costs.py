"""What work costs in CPU: for tests that compare the costs of two sizes, which no slow or busy machine changes much."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# Clocks and caches add so much to what costs nothing.
LEAST_S = 0.0005


def cost_s(work: Callable[[], object], times: int = 3) -> float:
    """Return the least CPU time of this thread, in seconds, of several runs of the work."""
    found, is_collecting = [], gc.isenabled()
    # A collection looks at all objects of the process, whatever the work is.
    gc.disable()
    try:
        for _ in range(times):
            began_s = time.thread_time()
            work()
            found.append(time.thread_time() - began_s)
    finally:
        if is_collecting:
            gc.enable()
    return max(LEAST_S, min(found))
