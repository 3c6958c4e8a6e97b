"""The content of a fleet in its engine: objects of snapshots under their digests, and the pointers to what is served.

| key | value |
| --- | --- |
| `o/` and a digest | an object; if it is large, in how many parts it is, each under the same key with `/` and its number |
| `p/` and a view | the pointer to what is served of it |
| `p/` | what was published last, whatever view it is of |
| `publisher` | who publishes, as long as its lease lasts |
| `s/` and the id of a server | what it reports, as long as its lease lasts |

Objects come first, pointers last, and each write is fenced: it comes about only if the writer is still the publisher.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsxds.fleet.key_values import (
    MOST_BYTES,
    MOST_CHANGES,
    Delete,
    Guard,
    KeyValues,
    Put,
    end_of,
)
from fsxds.fleet.object_uses import count_of_parts, decoded_object, encoded_object
from fsxds.fleet.pointers import Head, Pointer, ViewKey
from fsxds.model.resources import Snapshot
from fsxds.snapshots.parsed_bytes import DamagedBytesError
from fsxds.snapshots.snapshot_objects import (
    DIGEST_BYTES,
    Content,
    Digest,
    KeptObject,
    digests_in,
    object_of,
    snapshot_near,
)

# So many keys are read at once: of the largest parts, 42 MB.
MOST_READ = 60


@dataclass(frozen=True, slots=True)
class Keys:
    """Under which keys of an engine a fleet keeps what it has.

    Attributes:
        prefix: that of all keys; others may be beside them.
    """

    prefix: bytes

    @property
    def objects(self) -> bytes:
        """The prefix of objects."""
        return self.prefix + b"o/"

    @property
    def pointers(self) -> bytes:
        """The prefix of pointers; the key of what was published last."""
        return self.prefix + b"p/"

    @property
    def publisher(self) -> bytes:
        """The key of the publisher."""
        return self.prefix + b"publisher"

    @property
    def servers(self) -> bytes:
        """The prefix of reports."""
        return self.prefix + b"s/"

    def pointer(self, key: ViewKey) -> bytes:
        """Return the key of the pointer of a view."""
        return self.pointers + key.text.encode()


@dataclass(frozen=True, slots=True)
class Published:
    """What is published, or what changed of it.

    Attributes:
        revision: the revision as of which it is.
        head: what was published last; None if that did not change, or nothing was published ever.
        pointers: by view; None where a pointer was removed.
    """

    revision: int
    head: Head | None
    pointers: Mapping[ViewKey, Pointer | None]


class FleetContent:
    """Reads and writes what a fleet serves. Each method may raise UnreachableError or RejectedRequestError."""

    def __init__(self, engine: KeyValues, keys: Keys) -> None:
        self.engine = engine
        self.keys = keys

    async def published(self) -> Published:
        """Return what is published now, as whoever publishes wrote it last before this call."""
        found = await self.engine.read_range(self.keys.pointers, end_of(self.keys.pointers))
        values = {key: one.value for key, one in found.values.items()}
        return self._read(found.revision, values)

    async def changes(self, since: int) -> AsyncGenerator[Published]:
        """Yield what is published from a revision on. CompactedError if that is not known any more."""
        async for changed in self.engine.watch(self.keys.pointers, end_of(self.keys.pointers), since):
            values = {key: None if one is None else one.value for key, one in changed.values.items()}
            yield self._read(changed.revision, values)

    def _read(self, revision: int, values: Mapping[bytes, bytes | None]) -> Published:
        head = values.get(self.keys.pointers)
        pointers = {
            ViewKey.of(key[len(self.keys.pointers) :].decode(errors="replace")): value and Pointer.decoded(value)
            for key, value in values.items()
            if key != self.keys.pointers
        }
        return Published(
            revision,
            None if head is None else Head.decoded(head),
            {key: one or None for key, one in pointers.items()},
        )

    async def write_objects(self, objects: Iterable[KeptObject], fences: Collection[Guard]) -> bool:
        """Write objects; return False if a fence does not hold."""
        puts = (
            Put(self._part(kept.digest, number), part)
            for kept in objects
            for number, part in enumerate(encoded_object(kept))
        )
        for each in _batches(puts):
            if await self.engine.write(each, fences) is None:
                return False
        return True

    async def remove_objects(self, objects: Mapping[Digest, int], fences: Collection[Guard]) -> bool:
        """Remove objects, of which it is known in how many parts each is; return False if a fence does not hold."""
        keys = (self._part(digest, number) for digest, count in objects.items() for number in range(count))
        for each in _batches(map(Delete, keys)):
            if await self.engine.write(each, fences) is None:
                return False
        return True

    async def objects(self) -> dict[Digest, int]:
        """Return which objects are there, and in how many parts each is."""
        found = await self.engine.read_range(self.keys.objects, end_of(self.keys.objects), is_keys_only=True)
        start = len(self.keys.objects)
        return dict(Counter(key[start : start + DIGEST_BYTES] for key in found.values))

    def _part(self, digest: Digest, number: int) -> bytes:
        key = self.keys.objects + digest
        return key + b"/%d" % number if number else key

    async def snapshot(self, pointer: Pointer, near: Snapshot | None) -> Snapshot:
        """Return the snapshot of a pointer, and read of it what one that is at hand does not have.

        Raises:
            DamagedBytesError: an object is missing, as it was removed meanwhile, or is not what was written.
        """
        difference = pointer.difference
        if difference is not None and near is not None and _root_of(near) == difference.before:
            found = difference.applied_to(near)
            if _root_of(found) == pointer.root:
                return found
        # A hundred thousand resources take seconds: others need not wait for that.
        at_hand = frozenset[Digest]() if near is None else await asyncio.to_thread(digests_in, near)
        objects: dict[Digest, Content] = {}
        level: Sequence[Digest] = [pointer.root]
        while level:
            objects |= await self._objects(level)
            named = (child for digest in level for child in objects[digest].children)
            level = [*dict.fromkeys(child for child in named if child not in at_hand and child not in objects)]
        return await asyncio.to_thread(_snapshot_of, pointer.root, objects, near)

    async def _objects(self, digests: Sequence[Digest]) -> dict[Digest, Content]:
        values = await self._values([self._part(digest, 0) for digest in digests])
        parts = {
            digest: [self._part(digest, number + 1) for number in range(count)]
            for digest in digests
            if (count := count_of_parts(values.get(self._part(digest, 0), b"")))
        }
        values |= await self._values([key for keys in parts.values() for key in keys])
        return {
            digest: decoded_object(b"".join(values.get(key, b"") for key in parts.get(digest, [self._part(digest, 0)])))
            for digest in digests
        }

    async def _values(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {}
        for at in range(0, len(keys), MOST_READ):
            found = await self.engine.read(keys[at : at + MOST_READ])
            values |= {key: one.value for key, one in found.values.items()}
        return values


def _root_of(snapshot: Snapshot) -> Digest:
    return object_of(snapshot, is_packed=True).digest


def _snapshot_of(root: Digest, objects: Mapping[Digest, Content], near: Snapshot | None) -> Snapshot:
    def read(digest: Digest) -> Content:
        try:
            return objects[digest]
        except KeyError:
            raise DamagedBytesError(f"an object is missing: {digest.hex()}") from None

    found = snapshot_near(root, read, near)
    if _root_of(found) != root:
        raise DamagedBytesError("a snapshot is not what was written")
    return found


def _batches(changes: Iterable[Put | Delete]) -> Iterator[list[Put | Delete]]:
    """Yield changes in lists that each fit into one write."""
    batch: list[Put | Delete] = []
    size = 0
    for one in changes:
        added = len(one.key) + (len(one.value) if isinstance(one, Put) else 0) + 32
        if batch and (len(batch) >= MOST_CHANGES or size + added > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += added
    if batch:
        yield batch
