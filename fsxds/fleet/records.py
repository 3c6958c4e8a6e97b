"""Records for the next publisher: texts about snapshots, whose objects are kept as long as the text.

| rule | reason |
| --- | --- |
| A record is written only from the revision that this publisher knows. | A write without an answer may come about later. |
| Objects of the old and new text are kept until it is certain which is there. | The same. |
| Objects of a record sealed with another key are not kept. | It is written again with the first key. |
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
from fsxds.snapshots.encoding import DamagedBytesError, Digest


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A text about snapshots, with their digests."""

    text: str
    roots: tuple[Digest, ...]
    key_id: bytes = b""

    def encoded(self) -> bytes:
        """Return the record as bytes."""
        return json.dumps({"text": self.text, "roots": [root.hex() for root in self.roots]}).encode()

    @classmethod
    def decoded(cls, encoded: bytes, key_id: bytes) -> KeptRecord:
        """Decode a record. DamagedBytesError: there is none."""
        try:
            row = json.loads(encoded)
            return cls(str(row["text"]), tuple(map(bytes.fromhex, row["roots"])), key_id)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedBytesError(f"a record is damaged: {type(error).__name__}") from error


async def snapshot_in(content: FleetContent, record: KeptRecord, root: Digest, near: Snapshot | None) -> Snapshot:
    """Return a record's snapshot, sharing resources with `near`. DamagedBytesError: it cannot be read."""
    return await content.snapshot(Pointer(NOTHING_PUBLISHED, root, key_id=record.key_id), near)


class Records:
    """Records by name. Each method may raise NoPublisherError, UnreachableError or RejectedRequestError.

    Attributes:
        found: the records when this server began to publish.
    """

    def __init__(self, publication: Publication) -> None:
        self.key_id = publication.content.sealing.key_id
        self.found: dict[str, KeptRecord] = {}
        self._publication = publication
        self.content = publication.content
        # The revision of each record; missing while unknown, after a write that may have come about.
        self._modified: dict[str, int] = {}
        # The snapshots whose objects are kept, by record.
        self._roots: dict[str, list[Digest]] = {}

    async def begin(self) -> None:
        """Read readable records, and keep their objects."""
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
        """Keep a text, made by `text_of` from snapshots' digests."""
        before = [*self._roots.get(name, ())]
        made: dict[int, Digest] = {}
        for snapshot in snapshots.values():
            if id(snapshot) not in made:
                made[id(snapshot)] = await self._publication.keep(snapshot)
                # Kept also if this fails: the text may come about.
                self._roots.setdefault(name, []).append(made[id(snapshot)])
        text = text_of({label: made[id(snapshot)] for label, snapshot in snapshots.items()})
        record = KeptRecord(text, tuple(made.values()))
        await self._write(name, self.content.put(self.content.keys.records + name.encode(), record.encoded()))
        self._release(name, before)
        return record

    async def remove(self, name: str) -> None:
        """Remove a record, if it exists."""
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
