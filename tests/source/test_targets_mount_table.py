from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.source.targets import MOUNT_TABLE, read_mount_table, remote_type

TABLE = r"""
22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt rw,relatime - nfs4 server:/export rw
31 30 0:41 / /mnt/local rw,relatime shared:7 master:2 - tmpfs tmpfs rw
32 22 0:42 / /home/with\040space rw - fuse.sshfs user@host: rw
33 22 0:43 / /covered rw - 9p share rw
34 22 0:44 / /covered rw - xfs /dev/vdb rw
35 22 0:45 / /host rw - virtiofs share rw
""".strip()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/envoy", None),
        ("/mnt", "nfs4"),
        ("/mnt/a/b", "nfs4"),
        ("/mntx/a", None),
        ("/mnt/local/a", None),
        ("/home/with space/tree", "fuse.sshfs"),
        ("/covered/a", None),
        ("/host/tree", "virtiofs"),
    ],
)
def test_the_innermost_and_latest_mount_decides(path: str, expected: str | None) -> None:
    """The type is that of the mount that is nearest to the path; local types are None."""
    assert remote_type(Path(path), TABLE) == expected


@pytest.mark.parametrize("letter", ["\x0b", "\x0c", "\r", "\u2028"])
def test_any_letter_may_be_in_a_mount_point(tmp_path: Path, letter: str) -> None:
    """The kernel escapes no line break but its own."""
    (tmp_path / "table").write_bytes(f"{TABLE}\n36 22 0:46 / /a{letter}b rw - nfs4 x rw\n".encode())

    assert remote_type(Path(f"/a{letter}b/tree"), read_mount_table(tmp_path / "table")) == "nfs4"


def test_this_machine_has_a_mount_table_or_nothing_is_known(tmp_path: Path) -> None:
    """The real table is readable as such, and a missing one says nothing."""
    assert remote_type(Path("/proc"), read_mount_table(MOUNT_TABLE)) is None
    assert remote_type(Path("/mnt"), read_mount_table(tmp_path / "missing")) is None
