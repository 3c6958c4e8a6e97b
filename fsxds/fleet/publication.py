"""Publishes while this server is the publisher: writes objects and moves pointers.

| rule | reason |
| --- | --- |
| A publisher begins an epoch above each published or reported one. | A restored etcd lacks the last publication. |
| A pointer moves only from the revision that this publisher knows. | A write without an answer may come about later, and lead back. |
| After a write without an answer, the head is read. | It may have come about. |
| Objects are removed when every server has gone on to a later snapshot. | Late servers read them. |
| Removals and publications take turns. | A removal is fenced by the head, which a publication moves. |
| After a removal without an answer, the head is written again before objects are. | It comes about before that, or never; else it could remove objects needed again. |

Rules: what a publisher may write.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from fsxds.fleet.content import FleetContent, Published, encoded_object
from fsxds.fleet.key_values import MOST_CHANGES, Delete, EngineError, Guard, Put, UnreachableError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Head, Order, Pointer, RowsDifference, ViewKey
from fsxds.model.errors import FsxdsError
from fsxds.model.resources import Snapshot
from fsxds.snapshots.encoding import DamagedBytesError, Digest, KeptObject, object_of

# Between two reads after a write without an answer.
PAUSE_S = 0.2


class NoPublisherError(FsxdsError):
    """Another server publishes, or the lease is lost."""

    def __init__(self, fact: str = "another server publishes by now") -> None:
        super().__init__(fact)


class Publication:
    """This server's publications. Each method may raise NoPublisherError or EngineError; call one after the other.

    Args:
        fence: holds while this server is the publisher.
    """

    def __init__(self, content: FleetContent, fence: Guard, publisher: str) -> None:
        self.order = NOTHING_PUBLISHED
        self.served: dict[ViewKey, Snapshot] = {}
        self.orders: dict[ViewKey, Order] = {}
        self.existing: frozenset[str] = frozenset()
        self.content = content
        self.fence = fence
        self._publisher = publisher
        self._uses = ObjectUses()
        # Views whose order is below this one are to be published again.
        self._least = NOTHING_PUBLISHED
        # By name: stored objects with their numbers of parts; and objects that may be missing.
        self._stored: dict[bytes, int] = {}
        self._unsure: set[bytes] = set()
        # Objects that may be unused, and the digests of used ones.
        self._unused: list[bytes] = []
        self._digests: dict[bytes, Digest] = {}
        # Whether a removal may be under way.
        self._is_removing = False
        # The snapshots of each view that servers may still serve, the newest last.
        self._roots: dict[ViewKey, deque[Pointer]] = {}
        # The revision of the head.
        self._revision = 0
        # Once this order is reached, leftovers of earlier publishers may be removed; None afterwards.
        self._left_until: Order | None = None

    async def begin(self, published: Published, at_hand: Mapping[ViewKey, Snapshot]) -> None:
        """Continue from published snapshots; publish unreadable ones anew."""
        head = published.head or Head()
        self.order, self.existing = Order(head.order.epoch + 1, 0), head.existing
        found = await self.content.engine.read([self.content.keys.pointers])
        self._revision = max((one.modified for one in found.values.values()), default=0)
        self._stored, self._left_until = await self.content.objects(), self.order._replace(serial=1)
        for key, pointer in published.pointers.items():
            if pointer is None:
                continue
            with suppress(DamagedBytesError):
                self.served[key] = await self.content.snapshot(pointer, at_hand.get(key))
                self.orders[key] = pointer.order
                # A snapshot sealed with another key is published again, so that the key may be dropped.
                if pointer.key_id == self.content.sealing.key_id:
                    root = await asyncio.to_thread(object_of, self.served[key], is_packed=True)
                    await asyncio.to_thread(self._use, root)
                    self._roots[key] = deque([Pointer(pointer.order, root.digest)])

    def _use(self, root: KeptObject) -> list[KeptObject]:
        new = [*self._uses.add(root)]
        self._digests |= {self.content.name_of(one.digest): one.digest for one in new}
        return new

    def advance_past(self, reported: Order) -> bool:
        """Let publications come after a reported one; return whether that is later than now."""
        if reported <= self.order:
            return False
        self.order = self._least = Order(reported.epoch + 1, 0)
        return True

    async def publish(self, key: ViewKey, snapshot: Snapshot) -> Order:
        """Publish the snapshot of a view; return its order."""
        pointer = await self._pointer(key, snapshot)
        if pointer is not None:
            await self._move({key: pointer})
            self.orders[key] = pointer.order
            self._roots.setdefault(key, deque()).append(Pointer(pointer.order, pointer.root))
        self.served[key] = snapshot
        return self.orders[key]

    async def publish_head(self, existing: Collection[str]) -> None:
        """Publish the existing layers."""
        if self.existing != frozenset(existing):
            self.existing = frozenset(existing)
            await self._move({})

    async def remove(self, keys: Collection[ViewKey]) -> None:
        """Remove views without followers."""
        if keys := [key for key in keys if key in self.served]:
            await self._move(dict.fromkeys(keys))
            for key in keys:
                del self.served[key], self.orders[key]

    async def _pointer(self, key: ViewKey, snapshot: Snapshot) -> Pointer | None:
        """Write objects; None if it is published already."""
        root, roots = await self.keep(snapshot), self._roots.get(key)
        if roots and roots[-1].root == root and self.orders[key] >= self._least:
            self.release(root)
            return None
        order = self.order._replace(serial=self.order.serial + 1)
        before = self.served.get(key)
        difference = None if before is None else RowsDifference.between(before, snapshot)
        return Pointer(order, root, difference)

    async def keep(self, snapshot: Snapshot) -> Digest:
        """Store a snapshot's objects until it is released as often."""
        if self._is_removing:
            await self._move({})
            self._is_removing = False
        root = await asyncio.to_thread(object_of, snapshot, is_packed=True)
        new = {self.content.name_of(one.digest): one for one in await asyncio.to_thread(self._use, root)}
        missing = {name: one for name, one in new.items() if name not in self._stored or name in self._unsure}
        parts = await asyncio.to_thread(lambda: {name: encoded_object(one) for name, one in missing.items()})
        self._stored |= {name: len(each) for name, each in parts.items()}
        self._unsure |= parts.keys()
        try:
            await self.write(self.content.object_puts(parts))
        except EngineError:
            self.release(root.digest)
            raise
        self._unsure -= parts.keys()
        return root.digest

    async def keep_stored(self, root: Digest) -> None:
        """Keep a stored snapshot. DamagedBytesError: objects are missing."""
        children: dict[Digest, tuple[Digest, ...]] = {}
        level = [] if root in self._uses else [root]
        while level:
            objects = await self.content.read_objects(level, self.content.sealing.key_id)
            children |= {digest: objects[digest].children for digest in level}
            named = (child for digest in level for child in children[digest])
            level = [*dict.fromkeys(one for one in named if one not in children and one not in self._uses)]
        new = [*self._uses.add_named(root, children)]
        self._digests |= {self.content.name_of(digest): digest for digest in new}

    def release(self, root: Digest) -> None:
        """Its unshared objects may go."""
        self._unused += map(self.content.name_of, self._uses.remove(root))

    async def write(self, changes: Iterable[Put | Delete], *guards: Guard) -> None:
        """Write only while this server publishes."""
        if not await self.content.write(changes, (self.fence, *guards)):
            raise NoPublisherError

    async def _move(self, pointers: Mapping[ViewKey, Pointer | None]) -> None:
        order = self.order._replace(serial=self.order.serial + 1)
        keys = self.content.keys
        head = self.content.put(keys.pointers, Head(order, self._publisher, self.existing).encoded())
        changes: list[Put | Delete] = [head]
        for key, pointer in pointers.items():
            at = keys.pointer(key)
            changes.append(Delete(at) if pointer is None else self.content.put(at, pointer.encoded()))
        while True:
            guards = self.fence, Guard(keys.pointers, modified=self._revision)
            revision = None
            with suppress(UnreachableError):
                revision = await self.content.engine.write(changes, guards)
            while revision is None:
                try:
                    revision = await self._written(head)
                    break
                except UnreachableError:
                    await asyncio.sleep(PAUSE_S)
            if revision is not None:
                self.order, self._revision = order, revision
                return

    async def _written(self, head: Put) -> int | None:
        """Return the head's revision; None if not written yet."""
        found = await self.content.engine.read([head.key, self.fence.key])
        publisher, last = found.values.get(self.fence.key), found.values.get(head.key)
        if publisher is None or publisher.created != self.fence.created:
            raise NoPublisherError
        modified = 0 if last is None else last.modified
        if modified == self._revision:
            return None
        if last is None or last.value != head.value:
            raise NoPublisherError("another server wrote the publication")
        return modified

    async def collect(self, reached: Order) -> bool:
        """Remove some unneeded objects, if all servers have reached this order; return whether there are more."""
        for key, roots in tuple(self._roots.items()):
            is_gone = key not in self.served
            while roots and (is_gone or (len(roots) > 1 and roots[1].order <= reached)):
                self.release(roots.popleft().root)
            if not roots:
                del self._roots[key]
        if self._left_until is not None and reached >= self._left_until:
            self._unused, self._left_until = [*self._stored], None
        gone: dict[bytes, int] = {}
        while self._unused and len(gone) < MOST_CHANGES:
            name = self._unused.pop()
            if name in self._stored and self._digests.get(name) not in self._uses:
                gone[name] = self._stored[name]
        if gone:
            self._is_removing = True
            self._unsure |= gone.keys()
            last = Guard(self.content.keys.pointers, modified=self._revision)
            try:
                await self.write(self.content.object_removals(gone), last)
            except EngineError:
                self._unused += gone
                raise
            self._is_removing = False
            self._unsure -= gone.keys()
            for name in gone:
                del self._stored[name]
                self._digests.pop(name, None)
        return bool(self._unused)


class ObjectUses:
    """Counts objects' references."""

    def __init__(self) -> None:
        self._uses = Counter[Digest]()
        self._children: dict[Digest, tuple[Digest, ...]] = {}

    def __contains__(self, digest: object) -> bool:
        """Whether an object is in use."""
        return digest in self._children

    def add(self, kept: KeptObject) -> Iterator[KeptObject]:
        """Count a use; yield newly used objects; must be exhausted."""
        self._uses[kept.digest] += 1
        if kept.digest in self._children:
            return
        children = kept.children()
        self._children[kept.digest] = tuple(child.digest for child in children)
        yield kept
        for child in children:
            yield from self.add(child)

    def add_named(self, digest: Digest, children: Mapping[Digest, tuple[Digest, ...]]) -> Iterator[Digest]:
        """Count a stored object, given all children below; yields digests."""
        self._uses[digest] += 1
        if digest in self._children:
            return
        self._children[digest] = children[digest]
        yield digest
        for child in children[digest]:
            yield from self.add_named(child, children)

    def remove(self, digest: Digest) -> Iterator[Digest]:
        """Uncount a use; yield unused objects; must be exhausted."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return
        del self._uses[digest]
        yield digest
        for child in self._children.pop(digest):
            yield from self.remove(child)
