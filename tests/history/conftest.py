"""A state directory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsxds.events.event import Event
from fsxds.history.state import State


@pytest.fixture
def events() -> list[Event]:
    """Return what is reported."""
    return []


@pytest.fixture
def state(tmp_path: Path, events: list[Event]) -> Iterator[State]:
    """Return a state directory that is held."""
    state = State.open(tmp_path / "state", events.append)
    yield state
    state.close()
