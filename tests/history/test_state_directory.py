from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsxds.history.state_directory import StateDirectory
from fsxds.model.errors import UsageError


def hold(path: Path) -> StateDirectory:
    """Hold a directory."""
    directory = StateDirectory(path, print)
    directory.hold()
    return directory


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """A directory that is held is for nobody else, who learns by whom; then it is for the next."""
    first = hold(tmp_path)
    first.hold()
    with pytest.raises(UsageError, match=rf"another fsxds \(process {os.getpid()}\) keeps its state in this directory"):
        hold(tmp_path)
    first.release()

    hold(tmp_path).release()


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777, 0o2775])
def test_directory_that_others_can_write_is_rejected(tmp_path: Path, mode: int) -> None:
    """What others can put there would be served: the message says what to give instead."""
    tmp_path.chmod(mode)
    with pytest.raises(
        UsageError, match=rf"others can write to it \(mode {mode:o}\).*give a directory that is not there yet"
    ):
        hold(tmp_path)
    hold(tmp_path / "fsxds").release()

    assert (tmp_path / "fsxds").stat().st_mode & 0o777 == 0o700


def test_directory_that_others_can_read_stays(tmp_path: Path) -> None:
    """The permissions of a directory that is there are its owner's business; its files are private in any case."""
    tmp_path.chmod(0o755)
    hold(tmp_path).release()

    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_of_another_user_is_rejected(tmp_path: Path) -> None:
    """Its owner could change what is served."""
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UsageError, match="belongs to user 12345"):
        hold(tmp_path)


def test_what_is_no_directory_is_rejected(tmp_path: Path) -> None:
    """A file, a broken link, a directory that cannot be made, and a lock that is a link, are mistakes of the user."""
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "lock").symlink_to(tmp_path / "victim")
    for name in ("file", "broken", "file/below", "linked"):
        with pytest.raises(UsageError, match=str(tmp_path / name)):
            hold(tmp_path / name)
    assert not (tmp_path / "victim").exists()


def test_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    """Whoever made the link chose the directory; it is judged as itself."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    hold(tmp_path / "link").release()

    (tmp_path / "real").chmod(0o777)
    with pytest.raises(UsageError, match="others can write"):
        hold(tmp_path / "link")
