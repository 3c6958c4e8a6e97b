"""Versions of sets of resources, equal in every process and release."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from fsxds.model.name_table import Chunk, NameTable, begins_chunk
from fsxds.model.values import TypeUrl, Version

# The versions of larger sets are digests of digests. This number must never change.
MOST_IN_ONE_DIGEST = 1000


class Versioned(Protocol):
    """An object with a version."""

    @property
    def version(self) -> Version:
        """The digest of its content."""


Member = TypeVar("Member", bound=Versioned)


def version_of_set(type_url: TypeUrl, members: Iterable[tuple[str, str]]) -> Version:
    """Return a set's version: 32 hex digits of SHA-256 over its type, names and their versions.

    A member's line is its name, a zero byte, its version and a newline, in UTF-8. The digest is taken of

    - up to 1000 members: the type, a newline, and all lines;
    - more: a zero byte, the type, a newline, and the SHA-256, in 32 bytes each, of each chunk's lines. A chunk begins
      with the first member, and with each name with a CRC-32 (zlib's, in UTF-8) that 128 divides: a change costs one
      chunk's digest and the list's, and equal sets have equal versions however they came about.

    Neither may ever change: clients would fetch everything again after an upgrade. `members` are sorted; a missing name
    has an empty version.
    """
    members = tuple(members)
    if len(members) <= MOST_IN_ONE_DIGEST:
        return _version_of_lines(type_url, (_line(*member) for member in members))
    chunks: list[list[str]] = [[]]
    for name, version in members:
        if chunks[-1] and begins_chunk(name):
            chunks.append([])
        chunks[-1].append(_line(name, version))
    return _version_of_digests(type_url, map(_digest, chunks))


def version_of_table(type_url: TypeUrl, members: NameTable[Member]) -> Version:
    """Chunks shared with another set are not read again."""
    if len(members) <= MOST_IN_ONE_DIGEST:
        return _version_of_lines(type_url, (chunk.once(_lines_of) for chunk in members.chunks))
    return _version_of_digests(type_url, (chunk.once(_digest_of) for chunk in members.chunks))


def _lines_of(chunk: Chunk[Member]) -> str:
    return "".join(_line(*member) for member in _members_of(chunk))


def _digest_of(chunk: Chunk[Member]) -> bytes:
    return _digest(_line(*member) for member in _members_of(chunk))


def _members_of(chunk: Chunk[Member]) -> Iterator[tuple[str, str]]:
    return ((name, member.version) for name, member in zip(chunk.names, chunk.values, strict=True))


def _line(name: str, version: str) -> str:
    return f"{name}\0{version}\n"


def _digest(lines: Iterable[str]) -> bytes:
    return hashlib.sha256("".join(lines).encode()).digest()


def _version_of_lines(type_url: TypeUrl, lines: Iterable[str]) -> Version:
    return Version(_digest((type_url, "\n", *lines)).hex()[:32])


def _version_of_digests(type_url: TypeUrl, digests: Iterable[bytes]) -> Version:
    return Version(hashlib.sha256(b"".join((b"\0", type_url.encode(), b"\n", *digests))).hexdigest()[:32])
