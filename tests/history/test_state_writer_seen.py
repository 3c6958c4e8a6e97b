from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsxds.events.process_events import StateIgnored
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.history.state_writer import SeenInState
from fsxds.model.tree_trust import SeenManifest
from tests.support.errors import Recorder

ONE, TWO = SeenManifest(1, "a" * 64), SeenManifest(2, "b" * 64)


@pytest.fixture
def recorder() -> Recorder:
    """Return what receives events."""
    return Recorder()


@pytest.fixture
def state(tmp_path: Path, recorder: Recorder) -> Iterator[State]:
    """Return a state directory that is held."""
    state = State.open(tmp_path / "state", recorder)
    yield state
    state.close()


def test_the_newest_manifest_survives_a_restart(tmp_path: Path, state: State, recorder: Recorder) -> None:
    """What was seen is known to the next process, for each subject by itself."""
    seen = SeenInState(state, recorder)
    assert seen.newest("") is None
    for manifest in (ONE, TWO):
        seen.keep("", manifest)
        assert seen.newest("") == manifest
    seen.keep("upstream", ONE)
    state.close()
    state = State.open(tmp_path / "state", recorder)
    again = SeenInState(state, recorder)

    assert (again.newest(""), again.newest("upstream"), again.newest("other")) == (TWO, ONE, None)
    assert recorder.events == []
    state.close()


def test_what_cannot_be_written_counts_in_this_process(tmp_path: Path, state: State, recorder: Recorder) -> None:
    """It is reported, and written as soon as that can be done."""
    seen = SeenInState(state, recorder)
    seen.keep("", ONE)
    (tmp_path / "state").rename(tmp_path / "away")
    (tmp_path / "state").write_text("in its place")
    seen.keep("", TWO)

    assert seen.newest("") == TWO
    assert [event.reason.partition(":")[0] for event in recorder.of(StateIgnored)] == [
        "which manifest was seen cannot be written",
        "which manifest was seen cannot be written",
    ]
    (tmp_path / "state").unlink()
    (tmp_path / "away").rename(tmp_path / "state")
    assert seen.newest("") == TWO
    assert SeenInState(state, recorder).newest("") == TWO


def test_a_damaged_database_remembers_nothing(tmp_path: Path, state: State, recorder: Recorder) -> None:
    """It is set aside and reported, and what is seen from then on is remembered."""
    SeenInState(state, recorder).keep("", TWO)
    state.close()
    (tmp_path / "state" / DATABASE).write_bytes(b"nonsense" * 1000)
    state = State.open(tmp_path / "state", recorder)
    seen = SeenInState(state, recorder)

    assert seen.newest("") is None
    seen.keep("", ONE)
    assert SeenInState(state, recorder).newest("") == ONE
    assert recorder.of(StateIgnored)
    state.close()
