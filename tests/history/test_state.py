from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateIgnored
from fsxds.history.entries import HistoryChange, SomeNames
from fsxds.history.state import MOST_SNAPSHOTS, State
from fsxds.history.state_directory import DAMAGED, DATABASE
from fsxds.model.errors import StateError
from tests.history.made import assert_same, check_database, cluster, clusters, objects_in, reopened, snapshot_of


@pytest.fixture
def state(tmp_path: Path, events: list[Event]) -> Iterator[State]:
    """Return a state directory that is held."""
    state = State.open(tmp_path / "a" / "state", events.append)
    yield state
    state.close()


def numbers(state: State, *layers: str) -> list[int]:
    """Return the numbers in the history of layers."""
    return [row.number for row in state.entries(layers)]


def test_snapshots_are_numbered_and_kept(state: State) -> None:
    """Each change has the next number, whichever view it is of, with its time, commit, id and what changed; so after a restart."""
    first = snapshot_of([cluster("a"), cluster("b")])
    second = snapshot_of([cluster("a", b"2"), cluster("c")], first)

    assert state.record((), first, None, 1.5) == 1
    assert state.record(("common", "edge"), first, "c0ffee", 2.5) == 2
    assert state.record((), second, None, 3.5) == 3

    state = reopened(state)
    newest, oldest = state.entries(())
    assert (newest.number, newest.time_s, newest.commit) == (3, 3.5, None)
    assert newest.changes == {
        "cds": HistoryChange(SomeNames(1, ("c",)), SomeNames(1, ("a",)), SomeNames(1, ("b",))),
    }
    assert oldest.changes == {"cds": HistoryChange(SomeNames(2, ("a", "b")))}
    assert newest.version != oldest.version
    assert [(row.number, row.layers, row.commit) for row in state.entries(("common", "edge"))] == [
        (2, ("common", "edge"), "c0ffee")
    ]
    assert [3, 2, 1] == [row.number for row in state.entries()]
    assert_same(first, state.snapshot((), 1))
    assert_same(second, state.snapshot((), 3, near=first))
    assert state.snapshot((), 2) is None
    assert state.snapshot((), 4) is None
    state.close()


def test_newest_is_not_recorded_again(state: State) -> None:
    """The same content has one entry, before and after a restart; what comes back later has another one."""
    first, second = snapshot_of([cluster("a")]), snapshot_of([cluster("b")])

    assert state.record((), first, None, 1.0) == 1
    assert state.record((), snapshot_of([cluster("a")]), None, 2.0) == 1
    state = reopened(state)
    assert state.record((), first, None, 3.0) == 1
    assert state.record((), second, None, 4.0) == 2
    assert state.record((), first, None, 5.0) == 3
    state.close()


def test_oldest_go_with_what_they_alone_had(state: State) -> None:
    """Of each view the last 50 are kept; what only dropped ones had is not on the disk any more, and no number comes back."""
    secret = os.urandom(20_000)
    snapshot = snapshot_of([*clusters(300), cluster("secret", secret)])
    state.record((), snapshot, None, 0.0)
    state.record(("other",), snapshot_of([cluster("other")]), None, 0.0)
    for number in range(MOST_SNAPSHOTS):
        snapshot = snapshot_of(clusters(300, {number: b"edited"}), snapshot)
        state.record((), snapshot, None, float(number))

    assert numbers(state) == [*range(MOST_SNAPSHOTS + 2, 2, -1)]
    assert numbers(state, "other") == [2]
    # By its content it can be found in any case: it cannot be compressed.
    state.close()
    assert secret[100:200] not in b"".join(path.read_bytes() for path in state.path.iterdir())
    check_database(state.path)
    state = State.open(state.path, print)
    assert state.record((), snapshot_of([cluster("new")]), None, 0.0) == MOST_SNAPSHOTS + 3
    for number in numbers(state):
        assert state.snapshot((), number) is not None
    state.close()
    check_database(state.path)


def test_bodies_are_shared(state: State) -> None:
    """Views with the same resources, and snapshots before and after an edit, share all but what differs."""
    before = snapshot_of(clusters(10_000))
    state.record((), before, None, 0.0)
    kept = objects_in(state.path)
    size_bytes = (state.path / DATABASE).stat().st_size

    state.record(("common",), before, None, 0.0)
    assert objects_in(state.path) == kept
    state.record((), snapshot_of(clusters(10_000, {17: b"edited"}), before), None, 0.0)
    state.record(("common",), snapshot_of([*clusters(10_000), cluster("own")], before), None, 0.0)

    assert len(objects_in(state.path)) == len(kept) + 6
    assert (state.path / DATABASE).stat().st_size < size_bytes * 1.2


def test_directory_is_private(state: State) -> None:
    """The directory that fsxds makes and all files in it are for its user alone."""
    state.record((), snapshot_of([cluster("a")]), None, 0.0)

    assert state.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in state.path.iterdir()} == {0o600}


def test_damaged_database_is_set_aside(state: State, events: list[Event]) -> None:
    """What is no database is renamed and reported, and an empty one takes its place; then nothing was ever kept."""
    for content in (b"nonsense", b"SQLite format 3\0" + bytes(1000), b"\0" * 8192):
        state.record((), snapshot_of([cluster("a")]), None, 0.0)
        state.close()
        (state.path / DATABASE).write_bytes(content)
        events.clear()
        state = reopened(state)

        assert state.entries(()) == ()
        assert state.record((), snapshot_of([cluster("a")]), None, 0.0) == 1
        (event,) = events
        assert isinstance(event, StateIgnored)
        assert event.subject == f"{state.path / DATABASE}{DAMAGED}"
        assert (state.path / f"{DATABASE}{DAMAGED}").read_bytes() == content
    state.close()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_torn_database_never_fails(state: State, events: list[Event], share: float) -> None:
    """A database that was cut off, or of which a part was overwritten, ends nothing: what can be read is what was kept."""
    snapshot = snapshot_of(clusters(2_000))
    state.record((), snapshot, None, 0.0)
    state.record((), snapshot_of(clusters(2_000, {17: b"edited"}), snapshot), None, 0.0)
    state.close()
    path = state.path / DATABASE
    whole = path.read_bytes()
    at = int(len(whole) * share)
    for content in (
        whole[:at],
        whole[:at] + os.urandom(6000) + whole[at + 6000 :],
        whole[:at] + bytes(len(whole) - at),
    ):
        path.write_bytes(content)
        state = reopened(state)
        for _ in range(3):
            try:
                found = state.snapshot((), 1)
            except StateError:
                continue
            if found is not None:
                assert_same(snapshot, found)
        number = state.record((), snapshot, None, 0.0)
        assert_same(snapshot, state.snapshot((), number))
        state.close()
        # Not even a damaged index has SQLite answer what was never kept.
        assert len(events) <= 4


def test_foreign_files_are_left(state: State, events: list[Event]) -> None:
    """Other files, folders and databases of other versions stay; those of other versions are reported."""
    state.close()
    (state.path / "history-9.sqlite").write_bytes(b"later")
    (state.path / "folder").mkdir()
    (state.path / "notes.txt").write_text("mine")
    events.clear()

    state = reopened(state)
    state.record((), snapshot_of([cluster("a")]), None, 0.0)
    state.close()

    assert events == [StateIgnored(str(state.path / "history-9.sqlite"), "another version of fsxds wrote it")]
    assert (state.path / "history-9.sqlite").read_bytes() == b"later"
    assert {path.name for path in state.path.iterdir()} >= {"folder", "notes.txt", DATABASE}


@pytest.mark.parametrize("made", ["link", "folder", "writable", "pipe", "foreign database"])
def test_what_is_in_the_way_is_set_aside(state: State, events: list[Event], made: str, tmp_path: Path) -> None:
    """In the place of the database, a link, a folder, a pipe, or a file that others may write, is renamed, and never used."""
    state.close()
    path, other = state.path / DATABASE, tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.commit()
    content = other.read_bytes()
    if made == "link":
        path.symlink_to(other)
    elif made == "folder":
        path.mkdir()
    elif made == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
        path.chmod(0o666 if made == "writable" else 0o600)
    events.clear()

    state = reopened(state)
    assert state.record((), snapshot_of([cluster("a")]), None, 0.0) == 1
    state.close()

    assert [type(event) for event in events] == [StateIgnored]
    assert path.is_file()
    assert not path.is_symlink()
    assert other.read_bytes() == content


def test_removed_directory_is_made_again(state: State) -> None:
    """When somebody removes the directory, what is recorded next is in a new one, under the same lock."""
    state.record((), snapshot_of([cluster("a")]), None, 0.0)
    for path in state.path.iterdir():
        path.unlink()
    state.path.rmdir()

    assert state.entries(()) == ()
    assert state.record((), snapshot_of([cluster("a")]), None, 0.0) == 1
    with pytest.raises(Exception, match="another fsxds"):
        State.open(state.path, print)
    state = reopened(state)
    assert numbers(state) == [1]
    state.close()


def test_failed_record_leaves_what_was(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle of a record, whatever it is, leaves nothing of it, and the next one works."""
    first = snapshot_of([cluster("a")])
    state.record((), first, None, 0.0)
    for error in (
        OSError(28, "No space left on device"),
        sqlite3.OperationalError("disk I/O error"),
        ZeroDivisionError(),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("fsxds.history.state.facts_of", lambda _, error=error: (_ for _ in ()).throw(error))
            with pytest.raises(ZeroDivisionError if isinstance(error, ZeroDivisionError) else StateError):
                state.record((), snapshot_of([cluster("b")]), None, 0.0)
        assert numbers(state) == [1]
    assert state.record((), snapshot_of([cluster("b")]), None, 0.0) == 2
    state.close()
    check_database(state.path)
