"""What is taken for the complete save of one file, by its events and its content."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.model.values import SourceFile
from fsxds.source.notifications import FileEvent, FileEventType
from fsxds.source.settle import Activity, Save
from tests.source.watching import is_read

CREATED, MODIFIED, CLOSED = FileEventType.CREATED, FileEventType.MODIFIED, FileEventType.CLOSED
DELETED, MOVED, OTHER = FileEventType.DELETED, FileEventType.MOVED, FileEventType.OTHER

A, B, HIDDEN, NEXT, LINKED = "/tree/a.yaml", "/tree/b.yaml", "/tree/.a.yaml", "/tree/sedXYZ", "/tree/linked.yaml"

WRITTEN = [(0.00, MODIFIED, A), (0.01, CLOSED, A)]
MOVED_OVER = [(0.00, CREATED, HIDDEN), (0.01, MODIFIED, HIDDEN), (0.02, CLOSED, HIDDEN), (0.03, MOVED, HIDDEN, A)]


def save_of(rows: list[tuple[float, FileEventType, *tuple[str, ...]]]) -> Save | None:
    activity = Activity(is_read, settle_s=0.05)
    activity.follow(("/tree",), frozenset({LINKED}))
    for at_s, event_type, *paths in rows:
        activity.receive(FileEvent(at_s, event_type, tuple(paths), is_directory=paths[-1].endswith("d")))
    return activity.lone_save()


@pytest.mark.parametrize(
    ("rows", "is_move"),
    [
        (WRITTEN, False),
        ([(0.00, MODIFIED, A), (0.01, MODIFIED, A), (9.0, CLOSED, A)], False),
        ([(0.00, CLOSED, A), (0.06, CLOSED, A)], False),
        ([(0.00, CLOSED, B), (0.06, CLOSED, A)], False),
        ([*WRITTEN, (0.02, OTHER, A)], False),
        (MOVED_OVER, True),
        ([(0.00, MOVED, A)], True),
        ([(0.00, CREATED, NEXT), (0.01, CLOSED, NEXT), (0.02, MOVED, NEXT, A)], True),
        ([*MOVED_OVER, (0.04, OTHER, A)], True),
        ([(-0.06, CREATED, "/tree/.swp"), *MOVED_OVER], True),
    ],
)
def test_one_save_of_one_file(rows: list[tuple[float, FileEventType, *tuple[str, ...]]], *, is_move: bool) -> None:
    """A file that is written and closed, or moved over, with nothing else within the settle time before the last event."""
    assert save_of(rows) == Save(A, is_move)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(0.00, MODIFIED, A)],
        [(0.00, OTHER, A)],
        [*WRITTEN, (0.02, CLOSED, B)],
        [(0.00, CLOSED, B), *WRITTEN],
        [*WRITTEN, (0.04, MODIFIED, A), (0.05, CLOSED, A)],
        [*MOVED_OVER, (0.04, MOVED, HIDDEN, A)],
        [*MOVED_OVER, (0.04, CREATED, "/tree/.b.yaml.x")],
        [(0.00, CREATED, "/tree/.b.yaml.x"), *MOVED_OVER],
        [(0.00, DELETED, A), (0.01, MOVED, HIDDEN, A)],
        [(0.00, CREATED, A), (0.01, CLOSED, A)],
        [(0.00, DELETED, A), (0.01, CREATED, A), (0.02, CLOSED, A)],
        [(0.00, DELETED, A)],
        [(0.00, MOVED, A, "/tree/a.yaml~"), (0.01, MOVED, NEXT, A)],
        [(0.00, MOVED, B, A)],
        [(0.00, MOVED, A, NEXT)],
        [*WRITTEN, (0.02, CREATED, "/tree/d")],
        [(0.00, CLOSED, LINKED)],
        [(0.00, MOVED, "/tree/..tmp", LINKED)],
    ],
)
def test_what_may_be_half_of_a_change(rows: list[tuple[float, FileEventType, *tuple[str, ...]]]) -> None:
    """Several files or saves, what comes or goes, links, and a temporary file that was just begun."""
    assert save_of(rows) is None


def test_after_lost_events_nothing_is_known_to_be_all() -> None:
    """An overflow may have hidden anything, for the settle time."""
    activity = Activity(is_read, settle_s=0.05)
    activity.follow(("/tree",), frozenset())
    activity.receive_overflow(0.0)
    activity.receive(FileEvent(0.01, CLOSED, (A,)))
    saves = [activity.lone_save(), activity.touched]
    activity.clear()
    activity.receive(FileEvent(0.07, CLOSED, (A,)))

    assert [*saves, activity.lone_save(), activity.touched] == [None, None, Save(A, is_move=False), {A}]


def test_what_is_saved_all_the_time_is_not_taken_early() -> None:
    """A file that was replaced five times in a second is restless, however far apart that was."""
    activity = Activity(is_read, settle_s=0.05)
    activity.follow(("/tree",), frozenset())
    saves = []
    for number in range(6):
        activity.clear()
        activity.receive(FileEvent(number / 10, MOVED, (HIDDEN, A)))
        saves.append(activity.lone_save() is not None)

    assert saves == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("old", "new", "moved", "written"),
    [
        ("aaaa", "bbbb", True, True),
        ("aaaa", "aabaa", True, True),
        ("aaaa", "aab", True, False),
        ("aaaa", "aaaab", True, False),
        ("aaaa", "", False, False),
        ("", "b", True, False),
    ],
)
def test_what_a_save_brings(old: str, new: str, *, moved: bool, written: bool) -> None:
    """What is written in place and is shorter, or goes on where the old content ended, may be a step of several."""
    before, file = (SourceFile.of(PurePosixPath("a.yaml"), text.encode()) for text in (old, new))

    assert (Save(A, is_move=True).brings(file, before), Save(A, is_move=False).brings(file, before)) == (moved, written)
