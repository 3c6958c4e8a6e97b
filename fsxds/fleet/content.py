"""The content of a fleet in its engine.

| key | value |
| --- | --- |
| `o/` and a digest | an object; if large, the number of its parts, each under the same key with `/` and its number |
| `p/` and a view | the pointer of the view |
| `p/` | the head: the last publication of any view |
| `publisher` | the id of the publisher, under its lease |
| `s/` and the id of a server | its report, under its lease |
| `k/` and a name | a record for the next publisher (`records.py`) |
| `c/`, `a/` | requests to the publisher, and its answers (`fleet_commands.py`) |
| `n/`, `u/` | names that clients ask for, and absent ones (`fleet_names.py`) |

Objects are written first, pointers last. Each write is fenced: it succeeds only for the publisher.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from fsxds.fleet.key_values import MOST_BYTES, MOST_CHANGES, Delete, Guard, KeyValue, KeyValues, Put, followed
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Head, Order, Pointer, ViewKey
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.model.resources import Snapshot
from fsxds.runtime.access import SECRET
from fsxds.snapshots.encoding import (
    DIGEST_BYTES,
    Content,
    DamagedBytesError,
    Digest,
    KeptObject,
    digests_in,
    joined,
    object_of,
    parted,
    snapshot_near,
)

# The number of keys per read: 42 MB of the largest parts.
MOST_READ = 60

# The most bytes under one key of etcd; a larger object is split over several keys.
MOST_PART_BYTES = 700_000

_COUNT_BYTES = 4
_IN_PARTS = b"\xff" * _COUNT_BYTES


class Keys:
    """A fleet's keys, as in the table."""

    def __init__(self, prefix: bytes) -> None:
        self.objects = prefix + b"o/"
        # Also the head's key.
        self.pointers = prefix + b"p/"
        self.publisher = prefix + b"publisher"
        self.servers = prefix + b"s/"
        self.records = prefix + b"k/"
        self.commands = prefix + b"c/"
        self.answers = prefix + b"a/"
        self.names = prefix + b"n/"
        self.absent = prefix + b"u/"

    def pointer(self, key: ViewKey) -> bytes:
        """Return the key of a view's pointer."""
        return self.pointers + key.text.encode()


@dataclass(frozen=True, slots=True)
class Published:
    """All pointers, or the changed ones.

    Attributes:
        head: None if unchanged, or nothing was ever published.
        pointers: None for a removed one.
    """

    head: Head | None
    pointers: Mapping[ViewKey, Pointer | None]


class FleetContent:
    """Reads and writes the content. Each method may raise EngineError."""

    def __init__(self, engine: KeyValues, keys: Keys, sealing: Sealing | Cleartext | None = None) -> None:
        self.engine = engine
        self.keys = keys
        self.sealing = sealing or Cleartext()

    async def published(self) -> Published:
        """Read all pointers, with every write before."""
        found = await self.engine.read_prefix(self.keys.pointers)
        return self._read(found.values)

    async def last_order(self) -> Order:
        """Read the last publication's order, with every write before."""
        found = (await self.engine.read([self.keys.pointers])).values.get(self.keys.pointers)
        if found is None:
            return NOTHING_PUBLISHED
        return Head.decoded(self.sealing.opened(self.keys.pointers, found.value)).order

    async def followed(self) -> AsyncGenerator[tuple[Published, bool]]:
        """Yield all pointers (True), then changed ones (False); see `followed` of engines."""
        async with aclosing(followed(self.engine, self.keys.pointers)) as following:
            async for values, is_all in following:
                yield self._read(values), is_all

    def _read(self, values: Mapping[bytes, KeyValue | None]) -> Published:
        head, pointers = None, dict[ViewKey, Pointer | None]()
        for key, found in values.items():
            opened = None if found is None else self.sealing.opened(key, found.value)
            if key != self.keys.pointers:
                view = ViewKey.of(key[len(self.keys.pointers) :].decode(errors="replace"))
                pointers[view] = None
                if found is not None and opened is not None:
                    pointers[view] = replace(Pointer.decoded(opened), key_id=self.sealing.key_of(found.value))
            elif opened is not None:
                head = Head.decoded(opened)
        return Published(head, pointers)

    def put(self, key: bytes, value: bytes, lease: int = 0) -> Put:
        """Seal a value for a key."""
        return Put(key, self.sealing.sealed(key, value), lease)

    async def write(self, changes: Iterable[Put | Delete], fences: Collection[Guard] = ()) -> bool:
        """Make changes in as many writes as they need, in order; return False if a fence fails."""
        for each in _batches(changes):
            if await self.engine.write(each, fences) is None:
                return False
        return True

    def may_keep(self, snapshot: Snapshot) -> bool:
        """Whether the engine may keep a snapshot: without secrets, or not in clear."""
        return self.sealing.may_have_secrets or not snapshot.resources(SECRET)

    def name_of(self, digest: Digest) -> bytes:
        """Name an object under the current key."""
        return self.sealing.name_of(digest, self.sealing.key_id)

    def object_puts(self, objects: Mapping[bytes, Sequence[bytes]]) -> Iterator[Put]:
        """Yield writes of objects, given their parts by name."""
        for name, parts in objects.items():
            for number, part in enumerate(parts):
                yield self.put(self._part(name, number), part)

    def object_removals(self, objects: Mapping[bytes, int]) -> Iterator[Delete]:
        """Yield removals of objects, given their numbers of parts."""
        for name, count in objects.items():
            yield from (Delete(self._part(name, number)) for number in range(count))

    async def objects(self) -> dict[bytes, int]:
        """Return stored objects with their part counts."""
        found = await self.engine.read_prefix(self.keys.objects, is_keys_only=True)
        start = len(self.keys.objects)
        return dict(Counter(key[start : start + DIGEST_BYTES] for key in found.values))

    def _part(self, name: bytes, number: int) -> bytes:
        key = self.keys.objects + name
        return key + b"/%d" % number if number else key

    async def snapshot(self, pointer: Pointer, near: Snapshot | None) -> Snapshot:
        """Read a snapshot, except objects in `near`.

        Raises:
            DamagedBytesError: an object is damaged, or was removed.
        """
        difference = pointer.difference
        if difference is not None and near is not None and _root_of(near) == difference.before:
            found = difference.applied_to(near)
            if _root_of(found) == pointer.root:
                return found
        # Takes seconds for a hundred thousand resources, so it must not block the event loop.
        at_hand = frozenset[Digest]() if near is None else await asyncio.to_thread(digests_in, near)
        objects: dict[Digest, Content] = {}
        level: Sequence[Digest] = [pointer.root]
        while level:
            objects |= await self.read_objects(level, pointer.key_id)
            named = (child for digest in level for child in objects[digest].children)
            level = [*dict.fromkeys(child for child in named if child not in at_hand and child not in objects)]
        return await asyncio.to_thread(_snapshot_of, pointer.root, objects, near)

    async def read_objects(self, digests: Sequence[Digest], key_id: bytes) -> dict[Digest, Content]:
        """Read objects written with a key. Raises DamagedBytesError."""
        names = {digest: self.sealing.name_of(digest, key_id) for digest in digests}
        keys = {digest: [self._part(name, 0)] for digest, name in names.items()}
        values = await self._values([key for (key,) in keys.values()])
        for digest, (key,) in keys.items():
            if count := count_of_parts(values.get(key, b"")):
                keys[digest] = [self._part(names[digest], number + 1) for number in range(count)]
        values |= await self._values([key for parts in keys.values() for key in parts if key not in values])
        return {digest: decoded_object(b"".join(values.get(key, b"") for key in keys[digest])) for digest in digests}

    async def _values(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {}
        for at in range(0, len(keys), MOST_READ):
            found = await self.engine.read(keys[at : at + MOST_READ])
            values |= {key: self.sealing.opened(key, one.value) for key, one in found.values.items()}
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
        raise DamagedBytesError("a snapshot differs from the written one")
    return found


def _batches(changes: Iterable[Put | Delete]) -> Iterator[list[Put | Delete]]:
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


def encoded_object(kept: KeptObject) -> list[bytes]:
    """Encode in parts: mostly one."""
    children = joined(child.digest for child in kept.children())
    whole = (len(children) // DIGEST_BYTES).to_bytes(_COUNT_BYTES) + children + kept.content()
    if len(whole) <= MOST_PART_BYTES:
        return [whole]
    parts = [whole[at : at + MOST_PART_BYTES] for at in range(0, len(whole), MOST_PART_BYTES)]
    return [_IN_PARTS + len(parts).to_bytes(_COUNT_BYTES), *parts]


def count_of_parts(first: bytes) -> int:
    """Count further parts; 0 for a whole."""
    return int.from_bytes(first[_COUNT_BYTES:]) if first[:_COUNT_BYTES] == _IN_PARTS else 0


def decoded_object(whole: bytes) -> Content:
    """Decode an object. Raises DamagedBytesError."""
    end = _COUNT_BYTES + int.from_bytes(whole[:_COUNT_BYTES]) * DIGEST_BYTES
    if len(whole) < end or len(whole) < _COUNT_BYTES:
        raise DamagedBytesError("an object is damaged")
    return Content(whole[end:], parted(whole[_COUNT_BYTES:end]))
