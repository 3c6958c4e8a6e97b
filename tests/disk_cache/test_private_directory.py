"""A file of a private directory is removed only if it is no private file."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from fsxds.disk_cache.private_directory import PrivateDirectory


def test_a_file_that_cannot_be_opened_for_now_stays(tmp_path: Path) -> None:
    """Too many open files, as an example, are no reason to remove what is kept there."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with PrivateDirectory.opened(tmp_path) as directory:
        directory.replace("kept", [b"content"])
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                directory.open("kept")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))

    assert (tmp_path / "kept").read_bytes() == b"content"


def test_other_entries_are_removed(tmp_path: Path) -> None:
    """Neither a link nor a file that others can read counts as there."""
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "shared").touch(0o644)
    with PrivateDirectory.opened(tmp_path) as directory:
        assert [directory.open(name) for name in ("link", "shared", "missing")] == [None] * 3

    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a broken link, too
