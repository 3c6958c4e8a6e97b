"""A pack: many records in one file, which grows at its end and is written anew when half of it is out of date.

A record is `magic, length, place, name, payload`. The name is what it is found by. The place is what it is the newest record
of; older ones of a place are out of date. A write may end anywhere: what is not a whole record ends the pack, and is cut
off before the next one is written. Whether a payload is what was written is for its reader to find out.
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

# Smaller packs are not worth writing anew.
SMALLEST_BYTES = 4 * 1024 * 1024

# About two million clusters. Records of files that are no more count too, as nobody knows that they are.
MOST_BYTES = 256 * 1024 * 1024

# The names of packs, and of those that are being written; only such files are ever removed.
SUFFIX = ".pack"
_OURS = re.compile(rf"[0-9a-f]{{32}}{re.escape(SUFFIX)}|{re.escape(TEMPORARY)}[0-9a-f]{{16}}")

# All packs of a directory.
MOST_BYTES_OF_ALL = 1024 * 1024 * 1024


class Record(NamedTuple):
    """One record; `place` and `name` have 16 bytes each."""

    place: bytes
    name: bytes
    payload: bytes

    def to_bytes(self) -> bytes:
        """Return the record as it is in a pack."""
        return _HEADER.pack(_MAGIC, len(self.payload), self.place, self.name) + self.payload


class _Slice(NamedTuple):
    """Where a record is in a pack."""

    place: bytes
    name: bytes
    start: int
    end: int


def _slices(content: bytes) -> Iterator[_Slice]:
    """Yield the whole records, up to what is none."""
    start = 0
    while start + _HEADER.size <= len(content):
        magic, length, place, name = _HEADER.unpack_from(content, start)
        end = start + _HEADER.size + length
        if magic != _MAGIC or end > len(content):
            return
        yield _Slice(place, name, start, end)
        start = end


class Pack:
    """One pack, which any number of processes read and write. Blocking; every method may raise OSError."""

    def __init__(self, directory: Path, name: str, smallest_bytes: int = SMALLEST_BYTES) -> None:
        self._directory = directory
        self._file_name = name + SUFFIX
        self._smallest_bytes = smallest_bytes
        # The file that this object wrote last, with its size: it ends with a whole record.
        self._written: tuple[int, int] | None = None
        self._clean_above_bytes = 0

    def read(self) -> dict[bytes, bytes]:
        """Return the payloads by their names, none where there is no pack."""
        with PrivateDirectory.opened(self._directory) as directory:
            descriptor = directory.open(self._file_name)
            if descriptor is None:
                return {}
            try:
                content = _read(descriptor)
                # The time of its last use, by which packs are evicted.
                os.utime(descriptor)
            finally:
                os.close(descriptor)
        return {row.name: content[row.start + _HEADER.size : row.end] for row in _slices(content)}

    def append(self, records: Sequence[Record]) -> bool:
        """Add records, all or none; False where another process is writing just now."""
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
        """Return a descriptor of the pack for as long as nobody else writes to it."""
        descriptor = directory.open(self._file_name, create=True)
        if descriptor is None:
            return None
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have put a new pack in place of this one.
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
    """Return the newest record of each place, in their order; of more than so many bytes the newest."""
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
    """Return the content of a file; of one that is larger than any pack, nothing."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > 2 * MOST_BYTES:
        return b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read(size_bytes)


def _write_at(descriptor: int, added: bytes, end: int) -> None:
    """Write at the end of what is whole. What could not be written whole is taken back."""
    os.ftruncate(descriptor, end)
    try:
        written = 0
        while written < len(added):
            written += os.pwrite(descriptor, added[written:], end + written)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
