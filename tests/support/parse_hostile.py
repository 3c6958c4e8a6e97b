"""Parse the hostile inputs of one suffix and size and print what it cost, as JSON: seconds of each, and MiB at the peak."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path, PurePosixPath

from fsxds.loading import find_catalogue
from fsxds.settings import Settings
from fsxds.snapshots.document import FileParser
from fsxds.values import SourceFile
from tests.support.hostile_inputs import hostile

# What the loop takes on two shared cores of 2026, less what they vary by.
USUAL_LOOP_S = 0.3


def resident_mib() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def plain_loop_s() -> float:
    """Return the CPU seconds of a loop that does nothing."""
    start = time.process_time()
    for _ in range(10_000_000):
        pass
    return time.process_time() - start


def main(suffix: str, size: int) -> None:
    """Parse all of them in one process, and print."""
    parser = FileParser(find_catalogue(Settings()))
    parser.parse(SourceFile.of(PurePosixPath("clusters.yaml"), b"- {name: x}"))
    before = resident_mib()
    before_loop = plain_loop_s()
    seconds: dict[str, float] = {}
    for name, content in hostile(suffix, size).items():
        start = time.process_time()
        parser.parse(SourceFile.of(PurePosixPath(f"clusters{suffix}"), content))
        seconds[name] = time.process_time() - start
    slowness = max(before_loop, plain_loop_s()) / USUAL_LOOP_S
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "mib": peak - before, "slowness": max(1.0, slowness)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
