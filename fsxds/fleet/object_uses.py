"""Counts the uses of snapshots' objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fsxds.snapshots.encoding import DIGEST_BYTES, Content, DamagedBytesError, Digest, KeptObject, joined, parted

# The most bytes under one key of etcd; a larger object is split over several keys.
MOST_PART_BYTES = 700_000

_COUNT_BYTES = 4
_IN_PARTS = b"\xff" * _COUNT_BYTES


class ObjectUses:
    """Counts references by objects and served snapshots."""

    def __init__(self) -> None:
        self._uses = Counter[Digest]()
        self._children: dict[Digest, tuple[Digest, ...]] = {}

    def __contains__(self, digest: object) -> bool:
        """Whether an object is in use."""
        return digest in self._children

    def add(self, kept: KeptObject) -> Iterator[KeptObject]:
        """Count a use, and yield newly used objects; must be exhausted."""
        self._uses[kept.digest] += 1
        if kept.digest in self._children:
            return
        children = kept.children()
        self._children[kept.digest] = tuple(child.digest for child in children)
        yield kept
        for child in children:
            yield from self.add(child)

    def add_named(self, digest: Digest, children: Mapping[Digest, tuple[Digest, ...]]) -> Iterator[Digest]:
        """Count a stored object, given all children below it; yields digests."""
        self._uses[digest] += 1
        if digest in self._children:
            return
        self._children[digest] = children[digest]
        yield digest
        for child in children[digest]:
            yield from self.add_named(child, children)

    def remove(self, digest: Digest) -> Iterator[Digest]:
        """Uncount a use, and yield unused objects; must be exhausted."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return
        del self._uses[digest]
        yield digest
        for child in self._children.pop(digest):
            yield from self.remove(child)


def encoded_object(kept: KeptObject) -> list[bytes]:
    """Encode an object, in parts: mostly one."""
    children = joined(child.digest for child in kept.children())
    whole = (len(children) // DIGEST_BYTES).to_bytes(_COUNT_BYTES) + children + kept.content()
    if len(whole) <= MOST_PART_BYTES:
        return [whole]
    parts = [whole[at : at + MOST_PART_BYTES] for at in range(0, len(whole), MOST_PART_BYTES)]
    return [_IN_PARTS + len(parts).to_bytes(_COUNT_BYTES), *parts]


def count_of_parts(first: bytes) -> int:
    """Return the number of further parts; 0 for a whole object."""
    return int.from_bytes(first[_COUNT_BYTES:]) if first[:_COUNT_BYTES] == _IN_PARTS else 0


def decoded_object(whole: bytes) -> Content:
    """Decode an object. DamagedBytesError: there is none."""
    end = _COUNT_BYTES + int.from_bytes(whole[:_COUNT_BYTES]) * DIGEST_BYTES
    if len(whole) < end or len(whole) < _COUNT_BYTES:
        raise DamagedBytesError("an object is damaged")
    return Content(whole[end:], parted(whole[_COUNT_BYTES:end]))
