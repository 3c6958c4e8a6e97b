"""Parse the hostile inputs of one suffix and size and print what it cost, as JSON: seconds of each, and MiB at the peak."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path, PurePosixPath

from fsxds.model.values import SourceFile
from fsxds.server.loading_rules import find_catalogue
from fsxds.settings.options import Settings
from fsxds.snapshots.parse import FileParser
from tests.support.hostile_inputs import hostile

# What the loop takes on two shared cores of 2026, less what they vary by.
USUAL_LOOP_S = 0.03


def memory_mib(name: str) -> float:
    """Return a figure of /proc/self/status: `VmRSS` is the memory that this process has now, `VmHWM` the most it had.

    Not `ru_maxrss`: a process starts with that of the one that started it.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def plain_loop_s() -> float:
    """Return the CPU seconds of a loop that does nothing."""
    start = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - start


def main(suffix: str, size: int) -> None:
    """Parse all of them in one process, and print."""
    parser = FileParser(find_catalogue(Settings()))
    parser.parse(SourceFile.of(PurePosixPath("clusters.yaml"), b"- {name: x}"))
    before = memory_mib("VmRSS")
    before_loop = plain_loop_s()
    seconds: dict[str, float] = {}
    for name, content in hostile(suffix, size).items():
        start = time.process_time()
        parser.parse(SourceFile.of(PurePosixPath(f"clusters{suffix}"), content))
        seconds[name] = time.process_time() - start
    slowness = max(before_loop, plain_loop_s()) / USUAL_LOOP_S
    peak = memory_mib("VmHWM")
    sys.stdout.write(json.dumps({"seconds": seconds, "mib": peak - before, "slowness": max(1.0, slowness)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
