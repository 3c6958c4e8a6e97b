from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.errors import StateError
from tests.history.made import assert_same, check_database, cluster, clusters, snapshot_of

TOP = Path(__file__).parents[2]


def test_kill_between_any_two_system_calls(tmp_path: Path) -> None:
    """A process that is killed before any of its system calls leaves what was there before, or what it wrote, and no number twice."""
    command = [sys.executable, "-m", "tests.history.crashing", str(tmp_path), "19"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_full_disk(tmp_path: Path) -> None:
    """On a full disk, nothing is recorded and what was there stays, whenever it was full; with room, recording goes on."""
    snapshot = snapshot_of(clusters(500))
    state = State.open(tmp_path, print)
    state.record((), snapshot, None, 0.0)
    size_bytes = (tmp_path / DATABASE).stat().st_size
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Files can be changed up to this size, and not grow above it.
    for share in (0.0, 0.3, 0.8, 1.0):
        grown = snapshot_of([*clusters(500), *(cluster(f"new-{n}", b"%d" % n * 5000) for n in range(20))], snapshot)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size_bytes * share), most))
        try:
            with pytest.raises(StateError):
                state.record((), grown, None, 0.0)
            with pytest.raises(StateError):
                state.record(("other",), grown, None, 0.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        assert [row.number for row in state.entries()] == [1]
        assert_same(snapshot, state.snapshot((), 1))
    assert state.record((), grown, None, 0.0) == 2
    state.close()
    check_database(tmp_path)
