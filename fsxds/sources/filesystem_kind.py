"""Whether the kernel is told of every change to a filesystem, or other machines change it unheard."""

from __future__ import annotations

import re
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")

# Other machines, or the host of a virtual machine, write to these without this kernel's inotify hearing of it.
_REMOTE_TYPES = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wslfs",
    }
)  # fmt: skip


def remote_type(path: Path, mount_table: str) -> str | None:
    """Return the type (`nfs4`) of the filesystem that holds a path, None when all its changes are made on this machine.

    Args:
        path: absolute, without links.
        mount_table: the text of `/proc/self/mountinfo`; an empty text means that nothing is known.
    """
    found: tuple[int, str] = (-1, "")
    for row in mount_table.splitlines():
        # Source: proc(5), "/proc/pid/mountinfo": the fifth field is the mount point, the type follows a lone hyphen.
        fields, _, behind = row.partition(" - ")
        mount_point = Path(_unescaped(fields.split(" ")[4]))
        # A later mount on the same point covers the earlier one.
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= found[0]:
            found = (len(mount_point.parts), behind.split(" ")[0])
    filesystem_type = found[1]
    is_remote = filesystem_type in _REMOTE_TYPES or filesystem_type.startswith("fuse.")
    return filesystem_type if is_remote else None


def read_mount_table(path: Path) -> str:
    """Return the text of the mount table, empty where this system has none."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _unescaped(field: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
