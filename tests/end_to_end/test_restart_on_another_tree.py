"""A real Envoy under load whose server restarts on another tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.end_to_end.traffic.kinds import KINDS
from tests.end_to_end.traffic.running import Above, Demand, running

OPTIONS = ("--linger", "600s", "--max-removal", "off")
# Saved in any order: nobody reads them meanwhile.
CHANGES = [name for name, kind in KINDS.items() if not kind.first]
# The route moves from a cluster that goes to a new one.
MOVES = ("static clusters, one file", "EDS clusters, one file", "inline routes")


def failures(folder: Path, transport: str, options: Iterable[str], changes: Iterable[str]) -> list[str]:
    """Restart the server on each of these changes, one after the other; return what failed."""
    with running(folder, transport, 600, (*OPTIONS, *options), Demand(rate=600.0), above=Above(servers=1)) as run:
        for number, name in enumerate(changes):
            run.change(name, number)
            # What lingers does not outlive the next restart without state.
            run.end_connections()
            run.rest(0.2)
        run.rest(0.5)
    assert run.load.record.requests.total() > 1000
    return run.failures()


def test_an_aggregated_delta_stream_loses_no_request(tmp_path: Path, size: Callable[[int, int], int]) -> None:
    """Without state: Envoy says what it has, and is led from there. What is used is added first, and removed last."""
    changes = [name for name in CHANGES for _ in range(size(1, 3))]

    assert failures(tmp_path, "delta", (), changes) == []


@pytest.mark.parametrize("transport", ["ads", "rest"])
def test_with_state_no_transport_loses_a_request(transport: str, tmp_path: Path) -> None:
    """Requests that name nothing say too little: the next server has to know what the one before served."""
    assert failures(tmp_path, transport, ("--state", str(tmp_path / "state")), MOVES) == []
