"""An `fsxds` that counts what it holds when SIGUSR2 asks: `python -m tests.soak.counted FILE serve …` writes it to a file."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import threading
from collections import Counter
from pathlib import Path


def resident_bytes() -> int:
    """Return how much memory this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counts() -> dict[str, int | dict[str, int]]:
    """Return what there is now: memory also after what nobody uses was given back, which is what can be compared."""
    as_it_is = resident_bytes()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    trimmed = resident_bytes()
    types = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return {
        "resident": as_it_is,
        "trimmed": trimmed,
        "objects": types.total(),
        "types": types,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        # The loop runs in the main thread, as signal handlers do.
        "tasks": len(asyncio.all_tasks()),
    }


def main() -> None:
    """Run `fsxds` with the other arguments."""
    path = Path(sys.argv[1])

    def answer(*_: object) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(counts()))
        temporary.replace(path)

    signal.signal(signal.SIGUSR2, answer)
    sys.argv = ["fsxds", *sys.argv[2:]]
    runpy.run_module("fsxds", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
