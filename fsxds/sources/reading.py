"""Read one file whole, and only in one state."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

from fsxds.sources.walk import Signature, remedy_of, signature_of

# A file that changed while it was read is read again; who writes faster than that has not finished anyway.
_TRIES = 5

# Two writes within one tick of the filesystem's clock leave one timestamp. Ticks are 1 to 10 ms on local filesystems,
# 1 s on some remote ones and 2 s on FAT, so a younger file is compared by its content once more.
_RACY_NS = 2_000_000_000

_CHUNK_BYTES = 64 * 1024

# What the kernel makes up in /proc has size 0, and may not end.
_MOST_UNSIZED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Content:
    """What a file held; `is_racy` says that it was so young that its signature does not prove it unchanged."""

    content: bytes
    signature: Signature
    is_racy: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file was not read: the rule, the fact and the remedy."""

    rule: str
    message: str
    remedy: str


def read_file(path: str, max_size_bytes: int) -> Content | Refusal | None:
    """Return what a file holds; None when it is gone, or something else took its place just now."""
    try:
        # Should a pipe have taken the file's place, O_NONBLOCK keeps the open from waiting for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    try:
        return _read_steadily(descriptor, max_size_bytes)
    except OSError as error:
        return _unreadable(error)
    finally:
        os.close(descriptor)


def _read_steadily(descriptor: int, max_size_bytes: int) -> Content | Refusal | None:
    for _ in range(_TRIES):
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return None
        if before.st_size > max_size_bytes:
            return _too_large(before.st_size, max_size_bytes)
        started_ns = time.time_ns()
        limit_bytes = max_size_bytes if before.st_size else min(max_size_bytes, _MOST_UNSIZED_BYTES)
        content = _read_from_start(descriptor, before.st_size, limit_bytes)
        if len(content) > limit_bytes and signature_of(os.fstat(descriptor)) == signature_of(before):
            return _too_large(None, limit_bytes)
        if signature_of(os.fstat(descriptor)) == signature_of(before):
            age_ns = started_ns - max(before.st_mtime_ns, before.st_ctime_ns)
            return Content(content, signature_of(before), abs(age_ns) < _RACY_NS)
    message = "the file changes faster than it can be read"
    return Refusal("unreadable-file", message, "move a finished file into its place instead")


def _read_from_start(descriptor: int, size_bytes: int, max_size_bytes: int) -> bytes:
    """Read all, and a little more than the limit at most.

    Raises:
        BlockingIOError: there is nothing to read yet, which no regular file says.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = bytearray()
    while len(content) <= max_size_bytes:
        chunk = os.read(descriptor, max(size_bytes + 1 - len(content), _CHUNK_BYTES))
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _too_large(size_bytes: int | None, max_size_bytes: int) -> Refusal:
    size = "more bytes than" if size_bytes is None else f"{size_bytes} bytes, more than"
    message = f"the file has {size} the {max_size_bytes} that are read"
    return Refusal("file-too-large", message, "split it, or raise --max-file-size")


def _unreadable(error: OSError) -> Refusal:
    return Refusal("unreadable-file", f"the file cannot be read: {error.strerror}", remedy_of(error))
