from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.sources.activity import Activity
from fsxds.sources.notifications import Happening, Notice
from tests.sources.watching import is_read

LONG_AGO = 0.0


def activity_around(*directories: str, points: frozenset[str] = frozenset()) -> Activity:
    activity = Activity(is_read)
    activity.attend_to(directories, points)
    return activity


async def test_the_first_and_the_last_notice_count() -> None:
    """A burst begins with its first notice and is quiet since its last; a look forgets it."""
    activity = activity_around("/tree")
    for at_s in (1.0, 2.0, 5.0):
        activity.receive(Notice(at_s, Happening.DELETED, ("/tree/a.yaml",)))
    burst = activity.first_s, activity.last_s
    activity.clear()

    assert (burst, activity.first_s, activity.last_s) == ((1.0, 5.0), None, None)


@pytest.mark.parametrize(
    ("happening", "paths", "matters"),
    [
        (Happening.MODIFIED, ("/tree/a.yaml",), True),
        (Happening.MODIFIED, ("/tree/deep/a.json",), True),
        (Happening.MODIFIED, ("/tree/access.log",), False),
        (Happening.CLOSED, ("/tree/access.log",), False),
        (Happening.CREATED, ("/tree/edge",), True),
        (Happening.MOVED, ("/tree/..data_tmp", "/tree/..data"), True),
        (Happening.OTHER, ("/tree/directory",), True),
        (Happening.MODIFIED, ("/treetop/a.yaml",), False),
        (Happening.OTHER, ("/", "/other"), False),
        (Happening.MODIFIED, ("/elsewhere/content",), True),
        (Happening.MODIFIED, ("/elsewhere/b.yaml",), False),
        (Happening.MOVED, ("/elsewhere/next", "/elsewhere/content"), True),
    ],
)
async def test_what_matters(happening: Happening, paths: tuple[str, ...], *, matters: bool) -> None:
    """All that happens in the tree matters but the growing of files that are not read; elsewhere only the points do."""
    activity = activity_around("/tree", points=frozenset({"/elsewhere/content"}))
    activity.receive(Notice(1.0, happening, paths))

    assert (activity.first_s is not None) == matters


async def test_who_modifies_is_writing_until_closing() -> None:
    """A writer is waited for until it closes the file, or patience since its last modification runs out."""
    activity = activity_around("/tree")
    activity.receive(Notice(1.0, Happening.MODIFIED, ("/tree/a.yaml",)))
    activity.receive(Notice(1.5, Happening.MODIFIED, ("/tree/a.yaml",)))
    modified_s = activity.written_until_s(2.0, 1.6)
    activity.clear()
    after_a_look_s = activity.written_until_s(2.0, 1.6)
    activity.receive(Notice(1.7, Happening.CLOSED, ("/tree/a.yaml",)))
    closed_s = activity.written_until_s(2.0, 1.8)

    assert (modified_s, after_a_look_s, closed_s) == (3.5, 3.5, LONG_AGO)


async def test_a_writer_keeps_writing_under_another_name() -> None:
    """A file that is moved while it is written is still being written, unless its new name is not read."""
    activity = activity_around("/tree")
    activity.receive(Notice(1.0, Happening.MODIFIED, ("/tree/a.yaml",)))
    activity.receive(Notice(1.1, Happening.MOVED, ("/tree/a.yaml", "/tree/b.yaml")))
    renamed_s = activity.written_until_s(2.0, 1.2)
    activity.receive(Notice(1.2, Happening.MOVED, ("/tree/b.yaml", "/tree/b.yaml~")))
    put_aside_s = activity.written_until_s(2.0, 1.2)
    activity.receive(Notice(1.3, Happening.MODIFIED, ("/tree/c.yaml",)))
    activity.receive(Notice(1.4, Happening.DELETED, ("/tree/c.yaml",)))
    deleted_s = activity.written_until_s(2.0, 1.5)

    assert (renamed_s, put_aside_s, deleted_s) == (3.0, LONG_AGO, LONG_AGO)


async def test_who_created_an_empty_file_is_about_to_write(tmp_path: Path) -> None:
    """A new file that is still empty is waited for; one that has content, or is a link, was put there whole."""
    activity = activity_around(str(tmp_path))
    empty, full, link = (tmp_path / name for name in ("empty.yaml", "full.yaml", "link.yaml"))
    full.write_text("1")
    link.symlink_to("nowhere")
    for path in (full, link):
        activity.receive(Notice(1.0, Happening.CREATED, (str(path),)))
    whole_s = activity.written_until_s(2.0, 1.1)
    empty.touch()
    activity.receive(Notice(1.2, Happening.CREATED, (str(empty),)))
    empty_s = activity.written_until_s(2.0, 1.3)
    activity.receive(Notice(1.4, Happening.CLOSED, (str(empty),)))
    closed_s = activity.written_until_s(2.0, 1.5)

    assert (whole_s, empty_s, closed_s) == (LONG_AGO, 3.2, LONG_AGO)
