"""A real Envoy under load whose server restarts on another tree, without a state directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.traffic.kinds import KINDS
from tests.end_to_end.traffic.running import Above, Demand, running

OPTIONS = ("--linger", "600s", "--max-removal", "off")
# Saved in any order: nobody reads them meanwhile.
CHANGES = [name for name, kind in KINDS.items() if not kind.first]


def test_an_aggregated_delta_stream_loses_no_request(tmp_path: Path, size: Callable[[int, int], int]) -> None:
    """Envoy says what it has, and is led from there: what is used is added first, and removed last."""
    with running(tmp_path, "delta", 600, OPTIONS, Demand(rate=600.0), above=Above(servers=1)) as run:
        for number, name in enumerate(name for name in CHANGES for _ in range(size(1, 3))):
            run.change(name, number)
            # What lingers does not outlive the next restart.
            run.end_connections()
            run.rest(0.2)
        run.rest(0.5)

    assert run.failures() == []
    assert run.load.record.requests.total() > 1000
