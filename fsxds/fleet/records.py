"""What the publisher of a fleet keeps for the next one: texts about snapshots, whose objects are kept as long as the text is.

| rule | reason |
| --- | --- |
| A record is written only from the state that this publisher knows. | A write that got no answer may come about later. |
| The objects of both texts are kept until it is certain which of them is there. | The same. |
| Of a record that is sealed with another key, the objects are not kept. | It is written again with the first key. |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import Delete, Guard, Put, UnreachableError, end_of
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Pointer
from fsxds.fleet.publication import Publication
from fsxds.model.resources import Snapshot
from fsxds.snapshots.parsed_bytes import DamagedBytesError
from fsxds.snapshots.snapshot_objects import Digest


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A text about snapshots.

    Attributes:
        text: what is kept.
        roots: the digests of the snapshots.
        key_id: the key that it is sealed with.
    """

    text: str
    roots: tuple[Digest, ...]
    key_id: bytes = b""

    def encoded(self) -> bytes:
        """Return it as bytes."""
        return json.dumps({"text": self.text, "roots": [root.hex() for root in self.roots]}).encode()

    @classmethod
    def decoded(cls, encoded: bytes, key_id: bytes) -> KeptRecord:
        """Return the record that was encoded; DamagedBytesError if there is none."""
        try:
            row = json.loads(encoded)
            return cls(str(row["text"]), tuple(map(bytes.fromhex, row["roots"])), key_id)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedBytesError(f"a record is damaged: {type(error).__name__}") from error


async def snapshot_in(content: FleetContent, record: KeptRecord, root: Digest, near: Snapshot | None) -> Snapshot:
    """Return a snapshot of a record, sharing what it has in common with `near`. DamagedBytesError: it cannot be read."""
    return await content.snapshot(Pointer(NOTHING_PUBLISHED, root, key_id=record.key_id), near)


class Records:
    """The records of a fleet, by their names. Each method may raise NoPublisherError, UnreachableError or RejectedRequestError.

    Args:
        publication: what this server publishes; it has begun.

    Attributes:
        content: where they are.
        key_id: the key that records are sealed with now.
        found: those that were there when this server began to publish.
    """

    def __init__(self, publication: Publication) -> None:
        self.key_id = publication.content.sealing.key_id
        self.found: dict[str, KeptRecord] = {}
        self._publication = publication
        self.content = publication.content
        # When each was written; of those that may have been written since, that is not known.
        self._modified: dict[str, int] = {}
        # The snapshots whose objects are kept for each.
        self._roots: dict[str, list[Digest]] = {}

    async def begin(self) -> None:
        """Read what publishers before kept, and keep its objects; without those that cannot be read."""
        keys = self.content.keys
        found = await self.content.engine.read_range(keys.records, end_of(keys.records))
        for key, one in found.values.items():
            name = key[len(keys.records) :].decode(errors="replace")
            self._modified[name] = one.modified
            sealing = self.content.sealing
            with suppress(DamagedBytesError):
                record = KeptRecord.decoded(sealing.opened(key, one.value), sealing.key_of(one.value))
                if record.key_id == sealing.key_id:
                    for root in record.roots:
                        await self._publication.keep_stored(root)
                        self._roots.setdefault(name, []).append(root)
                self.found[name] = record

    async def keep(
        self, name: str, snapshots: Mapping[str, Snapshot], text_of: Callable[[Mapping[str, Digest]], str]
    ) -> KeptRecord:
        """Keep a text about snapshots, made of their digests by what they are in it."""
        before = [*self._roots.get(name, ())]
        made: dict[int, Digest] = {}
        for snapshot in snapshots.values():
            if id(snapshot) not in made:
                made[id(snapshot)] = await self._publication.keep(snapshot)
                # Also if this fails: the text may come about.
                self._roots.setdefault(name, []).append(made[id(snapshot)])
        text = text_of({label: made[id(snapshot)] for label, snapshot in snapshots.items()})
        record = KeptRecord(text, tuple(made.values()))
        await self._write(name, self.content.put(self.content.keys.records + name.encode(), record.encoded()))
        self._release(name, before)
        return record

    async def remove(self, name: str) -> None:
        """Keep a text no more, if there is one."""
        if self._modified.get(name, 0) or self._roots.get(name):
            await self._write(name, Delete(self.content.keys.records + name.encode()))
            self._modified[name] = 0
            self._release(name, [*self._roots.get(name, ())])

    def _release(self, name: str, roots: Collection[Digest]) -> None:
        for root in roots:
            self._roots[name].remove(root)
            self._publication.release(root)

    async def _write(self, name: str, change: Put | Delete) -> None:
        engine = self.content.engine
        modified = self._modified.pop(name, None)
        if modified is None:
            found = (await engine.read([change.key])).values.get(change.key)
            modified = 0 if found is None else found.modified
        guards = self._publication.fence, Guard(change.key, modified=modified)
        revision = await engine.write([change], guards)
        if revision is None:
            raise UnreachableError("an earlier write arrived late, or another server publishes")
        self._modified[name] = revision
