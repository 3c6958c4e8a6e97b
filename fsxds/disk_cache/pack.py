"""A file of records that grows, and is rewritten when half is obsolete.

A record is `magic, length, place, name, payload`. The name is the key for reading. A newer record of the same place
makes one obsolete. A write may end anywhere: an incomplete record ends the pack, and is cut off before the next write.
The reader has to verify payloads.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fsxds.disk_cache.private_directory import TEMPORARY, PrivateDirectory

NAME_BYTES = 16

_HEADER = struct.Struct(f">4sI{NAME_BYTES}s{NAME_BYTES}s")
_MAGIC = b"fsx\x01"

# Smaller packs are not worth rewriting.
SMALLEST_BYTES = 4 * 1024 * 1024

# About two million clusters. Records of removed files count, too, because the pack does not know about them.
MOST_BYTES = 256 * 1024 * 1024

# The names of packs, and of temporary files; only such files are ever removed.
SUFFIX = ".pack"
_OURS = re.compile(rf"[0-9a-f]{{32}}{re.escape(SUFFIX)}|{re.escape(TEMPORARY)}[0-9a-f]{{16}}")

# The limit for all packs of a directory.
MOST_BYTES_OF_ALL = 1024 * 1024 * 1024


class Record(NamedTuple):
    """One record; `place` and `name` have 16 bytes each."""

    place: bytes
    name: bytes
    payload: bytes

    def to_bytes(self) -> bytes:
        """Serialize the record."""
        return _HEADER.pack(_MAGIC, len(self.payload), self.place, self.name) + self.payload


class _Slice(NamedTuple):
    place: bytes
    name: bytes
    start: int
    end: int


def _slices(content: bytes) -> Iterator[_Slice]:
    start = 0
    while start + _HEADER.size <= len(content):
        magic, length, place, name = _HEADER.unpack_from(content, start)
        end = start + _HEADER.size + length
        if magic != _MAGIC or end > len(content):
            return
        yield _Slice(place, name, start, end)
        start = end


class Pack:
    """A pack, shared by any number of processes. Blocking; every method may raise OSError."""

    def __init__(self, directory: Path, name: str, smallest_bytes: int = SMALLEST_BYTES) -> None:
        self._directory = directory
        self._file_name = name + SUFFIX
        self._smallest_bytes = smallest_bytes
        # The inode and size of the file after the last write of this object: it ends with a complete record.
        self._written: tuple[int, int] | None = None
        self._clean_above_bytes = 0

    def read(self) -> dict[bytes, bytes]:
        """Return payloads by name, empty without a pack."""
        with PrivateDirectory.opened(self._directory) as directory:
            descriptor = directory.open(self._file_name)
            if descriptor is None:
                return {}
            try:
                content = _read(descriptor)
                # Records the time of use, by which packs are evicted.
                os.utime(descriptor)
            finally:
                os.close(descriptor)
        return {row.name: content[row.start + _HEADER.size : row.end] for row in _slices(content)}

    def append(self, records: Sequence[Record]) -> bool:
        """Add all records or none; return False if another process is writing."""
        added = b"".join(record.to_bytes() for record in records)
        with PrivateDirectory.opened(self._directory) as directory:
            is_first = self._written is None
            descriptor = self._locked(directory)
            if descriptor is None:
                return False
            try:
                self._add(descriptor, added, directory)
            finally:
                os.close(descriptor)
            if is_first:
                directory.evict(_OURS, self._file_name, MOST_BYTES_OF_ALL)
        return True

    def _locked(self, directory: PrivateDirectory) -> int | None:
        descriptor = directory.open(self._file_name, create=True)
        if descriptor is None:
            return None
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have replaced this pack.
            if os.fstat(descriptor).st_nlink:
                return descriptor
        os.close(descriptor)
        return None

    def _add(self, descriptor: int, added: bytes, directory: PrivateDirectory) -> None:
        status = os.fstat(descriptor)
        end = status.st_size
        if self._written != (status.st_ino, end) or end + len(added) > self._clean_above_bytes:
            content = _read(descriptor)
            kept = _newest(content, MOST_BYTES // 2 - len(added))
            size_bytes = sum(row.end - row.start for row in kept)
            self._clean_above_bytes = min(max(self._smallest_bytes, 2 * (size_bytes + len(added))), MOST_BYTES)
            if end + len(added) > self._clean_above_bytes:
                directory.replace(self._file_name, (*(content[row.start : row.end] for row in kept), added))
                self._written = None
                return
            end = max((row.end for row in _slices(content)), default=0)
        _write_at(descriptor, added, end)
        self._written = status.st_ino, end + len(added)


def _newest(content: bytes, most_bytes: int) -> list[_Slice]:
    """Return the newest record of each place, up to `most_bytes`."""
    kept: dict[bytes, _Slice] = {}
    size_bytes = 0
    for row in reversed(list(_slices(content))):
        if row.place not in kept:
            size_bytes += row.end - row.start
            if size_bytes > most_bytes:
                break
            kept[row.place] = row
    return list(reversed(kept.values()))


def _read(descriptor: int) -> bytes:
    """Larger files than any pack are read as empty."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > 2 * MOST_BYTES:
        return b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read(size_bytes)


def _write_at(descriptor: int, added: bytes, end: int) -> None:
    """A failed write is undone."""
    os.ftruncate(descriptor, end)
    try:
        written = 0
        while written < len(added):
            written += os.pwrite(descriptor, added[written:], end + written)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
