"""Seconds of the soak, or with `--nightly` a minute, with fewer clients; `python -m tests.soak` is the hour with all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.soaking import Load, Soak, Soaked

# One edit each 200 ms. With 500 polls and 200 streams this would take both cores of a small machine for the minute.
PARTS = 6
DAY, NIGHT = 4, 50
LOAD = Load(polls=8, streams=4)


async def test_nothing_is_missed_and_nothing_leaks(tmp_path: Path, size: Callable[[int, int], int]) -> None:
    """Clients of all transports end on the last version six times, and what the server holds stays."""
    edits = size(DAY, NIGHT)
    soak = await Soaked(tmp_path, LOAD, seed=1).run(PARTS, edits)

    assert soak.edits >= PARTS * edits
    assert soak.answers > soak.edits
    assert soak.leaks(warm_up=3, last=2) == [], soak.rests


@pytest.mark.parametrize(
    ("name", "first", "last", "leaks"),
    [
        ("trimmed", 100, 104, []),
        ("trimmed", 100, 106, ["trimmed"]),
        ("descriptors", 10, 11, ["descriptors"]),
        ("tasks", 10, 11, ["tasks"]),
        ("threads", 5, 6, []),
        ("threads", 5, 500, ["threads"]),
    ],
)
def test_what_is_a_leak(name: str, first: int, last: int, leaks: list[str]) -> None:
    """Memory may grow by 5 %, a pool of threads to its size, and everything else not at all."""
    rest = {"trimmed": 100, "descriptors": 10, "threads": 5, "tasks": 10}
    soak = Soak(rests=[{**rest, name: first}, {**rest, name: last}])

    assert soak.leaks(warm_up=1, last=1) == leaks
