"""The content of a fleet in its engine: objects of snapshots under their digests, and the pointers to what is served.

| key | value |
| --- | --- |
| `o/` and a digest | an object; if it is large, in how many parts it is, each under the same key with `/` and its number |
| `p/` and a view | the pointer to what is served of it |
| `p/` | what was published last, whatever view it is of |
| `publisher` | who publishes, as long as its lease lasts |
| `s/` and the id of a server | what it reports, as long as its lease lasts |
| `k/` and a name | what the publisher keeps for the next one (`records.py`) |
| `c/`, `a/` | what servers ask of the publisher, and its answers (`fleet_commands.py`) |
| `n/`, `u/` | names that clients ask for, and those of them that no upstream has (`fleet_names.py`) |

Objects come first, pointers last, and each write is fenced: it comes about only if the writer is still the publisher.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fsxds.fleet.key_values import (
    MOST_BYTES,
    MOST_CHANGES,
    Changed,
    Delete,
    Guard,
    KeyValues,
    Put,
    end_of,
)
from fsxds.fleet.object_uses import count_of_parts, decoded_object
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Head, Order, Pointer, ViewKey
from fsxds.fleet.sealing import InClear, Sealing
from fsxds.model.resources import Snapshot
from fsxds.runtime.access import SECRET
from fsxds.snapshots.parsed_bytes import DamagedBytesError
from fsxds.snapshots.snapshot_objects import (
    DIGEST_BYTES,
    Content,
    Digest,
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

    @property
    def records(self) -> bytes:
        """The prefix of what the publisher keeps for the next one."""
        return self.prefix + b"k/"

    @property
    def commands(self) -> bytes:
        """The prefix of what is asked of the publisher."""
        return self.prefix + b"c/"

    @property
    def answers(self) -> bytes:
        """The prefix of its answers."""
        return self.prefix + b"a/"

    @property
    def names(self) -> bytes:
        """The prefix of the names that clients ask for."""
        return self.prefix + b"n/"

    @property
    def absent(self) -> bytes:
        """The prefix of those names that no upstream has."""
        return self.prefix + b"u/"

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

    def __init__(self, engine: KeyValues, keys: Keys, sealing: Sealing | InClear | None = None) -> None:
        self.engine = engine
        self.keys = keys
        self.sealing = sealing or InClear()

    async def published(self) -> Published:
        """Return what is published now, as whoever publishes wrote it last before this call."""
        found = await self.engine.read_range(self.keys.pointers, end_of(self.keys.pointers))
        return self._read(Changed(found.revision, found.values))

    async def last_order(self) -> Order:
        """Return the order of what was published last, as whoever publishes wrote it before this call."""
        found = (await self.engine.read([self.keys.pointers])).values.get(self.keys.pointers)
        if found is None:
            return NOTHING_PUBLISHED
        return Head.decoded(self.sealing.opened(self.keys.pointers, found.value)).order

    async def changes(self, since: int) -> AsyncGenerator[Published]:
        """Yield what is published from a revision on. CompactedError if that is not known any more."""
        async for changed in self.engine.watch(self.keys.pointers, end_of(self.keys.pointers), since):
            yield self._read(changed)

    def _read(self, changed: Changed) -> Published:
        head, pointers = None, dict[ViewKey, Pointer | None]()
        for key, found in changed.values.items():
            opened = None if found is None else self.sealing.opened(key, found.value)
            if key != self.keys.pointers:
                view = ViewKey.of(key[len(self.keys.pointers) :].decode(errors="replace"))
                pointers[view] = None
                if found is not None and opened is not None:
                    pointers[view] = replace(Pointer.decoded(opened), key_id=self.sealing.key_of(found.value))
            elif opened is not None:
                head = Head.decoded(opened)
        return Published(changed.revision, head, pointers)

    def put(self, key: bytes, value: bytes) -> Put:
        """Return what puts a value under a key, sealed."""
        return Put(key, self.sealing.sealed(key, value))

    def may_keep(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot may be written: it has no secrets that the engine would keep in clear."""
        return self.sealing.may_have_secrets or not snapshot.resources(SECRET)

    def name_of(self, digest: Digest) -> bytes:
        """Return what an object with a digest is called that is written now."""
        return self.sealing.name_of(digest, self.sealing.key_id)

    async def write_objects(self, objects: Mapping[bytes, Sequence[bytes]], fences: Collection[Guard]) -> bool:
        """Write objects by their names, each in its parts; return False if a fence does not hold."""
        puts = (
            self.put(self._part(name, number), part)
            for name, parts in objects.items()
            for number, part in enumerate(parts)
        )
        for each in batches(puts):
            if await self.engine.write(each, fences) is None:
                return False
        return True

    async def remove_objects(self, objects: Mapping[bytes, int], fences: Collection[Guard]) -> bool:
        """Remove objects by their names, of which it is known in how many parts each is; return False if a fence does not hold."""
        keys = (self._part(name, number) for name, count in objects.items() for number in range(count))
        for each in batches(map(Delete, keys)):
            if await self.engine.write(each, fences) is None:
                return False
        return True

    async def objects(self) -> dict[bytes, int]:
        """Return the names of the objects that are there, and in how many parts each is."""
        found = await self.engine.read_range(self.keys.objects, end_of(self.keys.objects), is_keys_only=True)
        start = len(self.keys.objects)
        return dict(Counter(key[start : start + DIGEST_BYTES] for key in found.values))

    def _part(self, name: bytes, number: int) -> bytes:
        key = self.keys.objects + name
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
            objects |= await self.read_objects(level, pointer.key_id)
            named = (child for digest in level for child in objects[digest].children)
            level = [*dict.fromkeys(child for child in named if child not in at_hand and child not in objects)]
        return await asyncio.to_thread(_snapshot_of, pointer.root, objects, near)

    async def read_objects(self, digests: Sequence[Digest], key_id: bytes) -> dict[Digest, Content]:
        """Return objects that were written with a key. DamagedBytesError: one is missing, or is not what was written."""
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


def batches(changes: Iterable[Put | Delete]) -> Iterator[list[Put | Delete]]:
    """Yield changes in lists, each of which fits into one write."""
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
