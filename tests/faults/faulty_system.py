"""A system whose files fail and whose clock jumps, for one process: a library in C in front of the C library.

Only the calls of that process fail, with the error that the kernel would return; what a kernel does beside that, such as a
file system that turns read-only, is not there. Of the clock only the time of day jumps, and not the time stamps of files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

SOURCE = Path(__file__).with_name("faulty_system.c")
_LENGTH = 512


class _Page(ctypes.Structure):
    _fields_ = (
        ("offset_ns", ctypes.c_int64),
        ("read_error", ctypes.c_int64),
        ("write_error", ctypes.c_int64),
        ("die_at", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("place", ctypes.c_char * _LENGTH),
        ("last", ctypes.c_char * _LENGTH),
    )


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="faulty-system-"))


@cache
def faulty_library() -> str:
    """Compile the library, and return its path; it is one for each process of tests."""
    path = _folder() / "faulty_system.so"
    command = [shutil.which("cc") or "cc", "-shared", "-fPIC", "-O1", "-w", "-o", str(path), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return str(path)


class FaultySystem:
    """What the library does in the processes that are started with it (`preloaded=system.libraries`).

    There is one for each process of tests, so that there is one process that forks.
    """

    def __init__(self) -> None:
        path = _folder() / "page"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._page = _Page.from_buffer(self._memory)
        os.environ["FAULTY_SYSTEM"] = str(path)

    @classmethod
    @cache
    def here(cls) -> Self:
        """Return that of this process."""
        return cls()

    @property
    def libraries(self) -> tuple[str, ...]:
        """What is to be in front of all other libraries."""
        return (faulty_library(),)

    def reset(self) -> None:
        """Let nothing fail."""
        ctypes.memset(ctypes.addressof(self._page), 0, ctypes.sizeof(self._page))

    def fail(self, place: Path, *, read: int = 0, write: int = 0) -> None:
        """Let what reads or what changes files below a place fail with an errno; 0 for none."""
        self._page.place = str(place).encode()
        self._page.read_error, self._page.write_error = read, write

    def count(self, place: Path, die_at: int = 0) -> None:
        """Count from now on what changes files below a place; SIGKILL ends the process before the operation with a number."""
        self._page.count = 0
        self._page.last = b""
        self._page.die_at = die_at
        self._page.place = str(place).encode()

    @property
    def operations(self) -> int:
        """How many operations changed files since `count`."""
        return int(self._page.count)

    @property
    def last(self) -> str:
        """The path that the last of them was about; empty for none."""
        return bytes(self._page.last).decode()

    def jump(self, offset_s: float) -> None:
        """Let the time of day be so many seconds ahead of the real one, or behind it."""
        self._page.offset_ns = round(offset_s * 1e9)
