from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.source.listing import Exclusion
from fsxds.source.notifications import FileEvent, FileEventType
from fsxds.source.settle import Activity
from tests.source.watching import is_read

LONG_AGO = 0.0


def activity_around(*directories: str, points: frozenset[str] = frozenset()) -> Activity:
    activity = Activity(is_read)
    activity.follow(directories, points)
    return activity


async def test_the_first_and_the_last_notice_count() -> None:
    """A burst begins with its first event and is quiet since its last; a look forgets it."""
    activity = activity_around("/tree")
    for at_s in (1.0, 2.0, 5.0):
        activity.receive(FileEvent(at_s, FileEventType.DELETED, ("/tree/a.yaml",)))
    burst = activity.first_s, activity.calm_s, activity.touched
    activity.clear()

    assert burst == (1.0, 5.0, {"/tree/a.yaml"})
    assert (activity.first_s, activity.calm_s, activity.touched) == (None, None, set())


@pytest.mark.parametrize(
    ("happening", "paths", "matters"),
    [
        (FileEventType.MODIFIED, ("/tree/a.yaml",), True),
        (FileEventType.MODIFIED, ("/tree/deep/a.json",), True),
        (FileEventType.MODIFIED, ("/tree/access.log",), False),
        (FileEventType.CLOSED, ("/tree/access.log",), False),
        (FileEventType.CREATED, ("/tree/access.log",), False),
        (FileEventType.DELETED, ("/tree/access.log",), False),
        (FileEventType.MODIFIED, ("/tree/.hidden.yaml",), False),
        (FileEventType.CREATED, ("/tree/.git/index.lock",), False),
        (FileEventType.DELETED, ("/tree/.git/a.yaml",), False),
        (FileEventType.MOVED, ("/tree/.a.yaml.tmp", "/tree/a.yaml"), True),
        (FileEventType.MOVED, ("/tree/a.yaml", "/tree/a.bak"), True),
        (FileEventType.MOVED, ("/tree/..data_tmp", "/tree/..data"), True),
        (FileEventType.MOVED, ("/tree/..other_tmp", "/tree/..other"), False),
        (FileEventType.MODIFIED, ("/tree/..2026/deep/b.yaml",), True),
        (FileEventType.MODIFIED, ("/treetop/a.yaml",), False),
        (FileEventType.MODIFIED, ("/elsewhere/content",), True),
        (FileEventType.MODIFIED, ("/elsewhere/b.yaml",), False),
        (FileEventType.MOVED, ("/elsewhere/next", "/elsewhere/content"), True),
    ],
)
async def test_what_matters(happening: FileEventType, paths: tuple[str, ...], *, matters: bool) -> None:
    """In the tree matters what is read; elsewhere, and among the hidden, only what links lead to or through."""
    activity = activity_around("/tree", "/tree/..2026/deep", points=frozenset({"/elsewhere/content", "/tree/..data"}))
    activity.receive(FileEvent(1.0, happening, paths))

    assert (activity.first_s is not None) == matters


async def test_what_is_excluded_does_not_matter() -> None:
    """Neither an excluded file nor what happens below an excluded directory wakes anybody."""
    activity = Activity(is_read, Exclusion(["busy*"]))
    activity.follow(("/tree",), frozenset())
    for path in ("/tree/busy.yaml", "/tree/busy/deep/a.yaml"):
        activity.receive(FileEvent(1.0, FileEventType.MODIFIED, (path,)))
    received = activity.first_s
    activity.receive(FileEvent(1.0, FileEventType.MODIFIED, ("/tree/deep/a.yaml",)))

    assert (received, activity.first_s) == (None, 1.0)


async def test_directories_and_links_matter(tmp_path: Path) -> None:
    """A directory or a link that comes may lead to files that are read, whatever its name; a file may not."""
    (tmp_path / "link.d").symlink_to("elsewhere")
    (tmp_path / "file.d").touch()
    received = []
    for name, is_directory in (("link.d", False), ("file.d", False), ("gone.d", True)):
        activity = activity_around(str(tmp_path))
        activity.receive(FileEvent(1.0, FileEventType.CREATED, (str(tmp_path / name),), is_directory))
        received.append(activity.first_s is not None)

    assert received == [True, False, True]


async def test_what_is_replaced_all_the_time_is_restless() -> None:
    """A file that is replaced five times in a second keeps nobody waiting from then on, until it is left alone."""
    activity = activity_around("/tree")
    calm = []
    for number in range(7):
        activity.clear()
        activity.receive(FileEvent(number / 10, FileEventType.MOVED, ("/tree/.next", "/tree/a.yaml")))
        calm.append(activity.calm_s is not None)
    activity.receive(FileEvent(0.7, FileEventType.CLOSED, ("/tree/b.yaml",)))
    other_s = activity.calm_s
    activity.clear()
    activity.receive(FileEvent(5.0, FileEventType.MOVED, ("/tree/.next", "/tree/a.yaml")))

    assert (calm, other_s, activity.calm_s) == ([True] * 4 + [False] * 3, 0.7, 5.0)


async def test_who_writes_on_and_on_is_not_waited_for() -> None:
    """A file that is open and written for half a second keeps nobody waiting, and is known to be written."""
    activity = activity_around("/tree")
    waits = []
    for at_s in (10.0, 10.2, 10.6):
        activity.receive(FileEvent(at_s, FileEventType.MODIFIED, ("/tree/a.yaml",)))
        waits.append(activity.written_until_s(2.0, at_s))

    assert waits == [12.0, 12.2, LONG_AGO]
    assert activity.is_written_often("/tree/a.yaml", 10.6)
    assert [activity.written(2.0, now_s) for now_s in (10.6, 13.0)] == [{"/tree/a.yaml"}, frozenset()]


async def test_who_modifies_is_writing_until_closing() -> None:
    """A writer is waited for until it closes the file, or patience since its last modification runs out."""
    activity = activity_around("/tree")
    activity.receive(FileEvent(1.0, FileEventType.MODIFIED, ("/tree/a.yaml",)))
    activity.receive(FileEvent(1.4, FileEventType.MODIFIED, ("/tree/a.yaml",)))
    modified_s = activity.written_until_s(2.0, 1.6)
    activity.clear()
    after_a_look_s = activity.written_until_s(2.0, 1.6)
    activity.receive(FileEvent(1.7, FileEventType.CLOSED, ("/tree/a.yaml",)))
    closed_s = activity.written_until_s(2.0, 1.8)

    assert (modified_s, after_a_look_s, closed_s) == (3.4, 3.4, LONG_AGO)


async def test_a_writer_keeps_writing_under_another_name() -> None:
    """A file that is moved while it is written is still being written, unless its new name is not read."""
    activity = activity_around("/tree")
    activity.receive(FileEvent(1.0, FileEventType.MODIFIED, ("/tree/a.yaml",)))
    activity.receive(FileEvent(1.1, FileEventType.MOVED, ("/tree/a.yaml", "/tree/b.yaml")))
    renamed_s = activity.written_until_s(2.0, 1.2)
    activity.receive(FileEvent(1.2, FileEventType.MOVED, ("/tree/b.yaml", "/tree/b.yaml~")))
    put_aside_s = activity.written_until_s(2.0, 1.2)
    activity.receive(FileEvent(1.3, FileEventType.MODIFIED, ("/tree/c.yaml",)))
    activity.receive(FileEvent(1.4, FileEventType.DELETED, ("/tree/c.yaml",)))
    deleted_s = activity.written_until_s(2.0, 1.5)

    assert (renamed_s, put_aside_s, deleted_s) == (3.0, LONG_AGO, LONG_AGO)


async def test_who_created_an_empty_file_is_about_to_write(tmp_path: Path) -> None:
    """A new file that is still empty is waited for; one that has content, or is a link, was put there whole."""
    activity = activity_around(str(tmp_path))
    empty, full, link = (tmp_path / name for name in ("empty.yaml", "full.yaml", "link.yaml"))
    full.write_text("1")
    link.symlink_to("nowhere")
    for path in (full, link):
        activity.receive(FileEvent(1.0, FileEventType.CREATED, (str(path),)))
    whole_s = activity.written_until_s(2.0, 1.1)
    empty.touch()
    activity.receive(FileEvent(1.2, FileEventType.CREATED, (str(empty),)))
    empty_s = activity.written_until_s(2.0, 1.3)
    activity.receive(FileEvent(1.4, FileEventType.CLOSED, (str(empty),)))
    closed_s = activity.written_until_s(2.0, 1.5)

    assert (whole_s, empty_s, closed_s) == (LONG_AGO, 3.2, LONG_AGO)
