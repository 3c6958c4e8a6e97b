"""(h): what the slowest of the hostile files of 1 MiB costs, format by format, against plain clusters read in the usual way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from fsxds.api.catalogue import Catalogue
from tests.bench.data import clusters
from tests.bench.figures import Figure, cpu_of
from tests.bench.loading import usual_way

SIZE = 1 << 20


def measure(catalogue: Catalogue) -> Iterator[Figure]:
    """Parse all hostile files of each format in a process of its own."""
    plain = clusters(0, SIZE // len(clusters(0, 1))).encode()
    usual_way(plain, catalogue)
    baseline_s, _ = cpu_of(lambda: usual_way(plain, catalogue))
    for suffix in (".yaml", ".json", ".textproto", ".pb"):
        argv = [sys.executable, "-m", "tests.support.parse_hostile", suffix, str(SIZE)]
        cost = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        slowest, slowest_s = max(cost["seconds"].items(), key=lambda row: row[1])
        more = sum(seconds > baseline_s for seconds in cost["seconds"].values())
        detail = (
            f'"{slowest}": {slowest_s:.1f} s against {baseline_s:.1f} s CPU; {more} of {len(cost["seconds"])} take longer than plain '
            f"clusters; {cost['mib']:.0f} MiB over the start of the process at the peak"
        )
        yield Figure(f"(h) slowest hostile {suffix} / CSafeLoader + ParseDict", slowest_s / baseline_s, 4, "", detail)
