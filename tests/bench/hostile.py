"""(h): what the slowest of the hostile files of 1 MiB costs, format by format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from tests.bench.figures import Figure


def measure() -> Iterator[Figure]:
    """Parse all hostile files of each format in a process of its own."""
    for suffix in (".yaml", ".json", ".textproto", ".pb"):
        argv = [sys.executable, "-m", "tests.support.parse_hostile", suffix]
        cost = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        by_cost = sorted(cost["seconds"], key=cost["seconds"].get, reverse=True)
        others = sum(seconds > 1 for seconds in cost["seconds"].values())
        detail = f'"{by_cost[0]}"; {others} of {len(by_cost)} take over a second; {cost["mib"]:.0f} MiB for all'
        yield Figure(f"(h) slowest hostile {suffix} of 1 MiB", cost["seconds"][by_cost[0]], 1, "s", detail)
