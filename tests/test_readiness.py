from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fsxds.errors import UsageError
from fsxds.readiness import ReadyFile


def test_a_ready_file_is_written_at_once_and_removed(tmp_path: Path) -> None:
    """It is one JSON object in a directory that is made, and nothing else is left beside it."""
    path = tmp_path / "run" / "ready.json"
    ready_file = ReadyFile(path)
    ready_file.write({"http": "127.0.0.1:1", "pid": os.getpid()})

    assert json.loads(path.read_text()) == {"http": "127.0.0.1:1", "pid": os.getpid()}
    assert list(path.parent.iterdir()) == [path]

    ready_file.remove()
    assert list(path.parent.iterdir()) == []


def test_the_ready_file_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    """Nobody shall take it for that of the new process, which is not ready."""
    path = tmp_path / "ready.json"
    path.write_text('{"pid": 1}')
    ReadyFile(path)

    assert not path.exists()


@pytest.mark.parametrize("content", ['{"pid": 1}', "[]", "{}", "no JSON"])
def test_the_ready_file_of_another_process_stays(tmp_path: Path, content: str) -> None:
    """A process that ends removes its own alone."""
    path = tmp_path / "ready.json"
    ready_file = ReadyFile(path)
    path.write_text(content)
    ready_file.remove()

    assert path.read_text() == content


def test_a_ready_file_that_is_missing_already_is_no_error(tmp_path: Path) -> None:
    """Somebody else removed it."""
    ReadyFile(tmp_path / "ready.json").remove()


def test_a_ready_file_that_cannot_be_written_or_removed_is_an_error_for_users(tmp_path: Path) -> None:
    """A directory is in its place, from the start or later."""
    with pytest.raises(UsageError, match="choose another --ready-file"):
        ReadyFile(tmp_path)

    ready_file = ReadyFile(tmp_path / "ready.json")
    (tmp_path / "ready.json").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        ready_file.write({})
