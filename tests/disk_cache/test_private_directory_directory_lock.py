from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fsxds.disk_cache.private_directory import DirectoryLock
from fsxds.model.errors import UsageError
from tests.faults.disks import cannot_mount, mounted


@pytest.mark.skipif(bool(cannot_mount()), reason=f"needs to mount: {cannot_mount()}")
def test_disk_that_turned_read_only_can_be_locked(tmp_path: Path) -> None:
    """Who has had the directory locks it, and nobody else meanwhile; where nobody had it, that it is read-only is the error."""
    with mounted(tmp_path):
        used, unused = (tmp_path / name for name in ("used", "unused"))
        used.touch()
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        lock, other = DirectoryLock(used, "has it"), DirectoryLock(used, "has it")

        assert lock.hold(tmp_path)
        with pytest.raises(UsageError, match="another fsxds"):
            other.hold(tmp_path)
        with pytest.raises(OSError, match="Read-only"):
            DirectoryLock(unused, "has it").hold(tmp_path)
        lock.release()
