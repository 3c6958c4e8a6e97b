"""Records for the next publisher: the history, and places of rollouts, with objects of their snapshots.

| rule | reason |
| --- | --- |
| A record is written only from the revision that this publisher knows. | A write without an answer may come about later. |
| Objects of both texts are kept until it is certain which is there. | The same. |
| Objects of a record sealed with another key are not kept. | It is written again with the first key. |
| A rollout that serves its target and holds nothing has no record. | It begins with the published snapshot. |
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import Delete, Guard, Put, UnreachableError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Pointer, ViewKey
from fsxds.fleet.publication import Publication
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.history.entries import HistoryEntry, changes_between, entry_of, facts_of
from fsxds.history.rollout_rows import (
    OtherFormError,
    decode_state,
    encode_state,
    is_same_place,
    snapshots_of,
)
from fsxds.history.state_writer import commit_of
from fsxds.model.resources import Snapshot, snapshot_id
from fsxds.model.values import Layers
from fsxds.protocol.absence import Tombstones
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Rejections
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import DamagedBytesError, Digest, decoding
from fsxds.snapshots.load import same_content


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A text about snapshots, with their digests."""

    text: str
    roots: tuple[Digest, ...]
    key_id: bytes = b""

    def encoded(self) -> bytes:
        """Return bytes."""
        return json.dumps({"text": self.text, "roots": [root.hex() for root in self.roots]}).encode()

    @classmethod
    def read(cls, sealing: Sealing | Cleartext, key: bytes, sealed: bytes) -> KeptRecord:
        """Open and decode a record. Raises DamagedBytesError."""
        opened = sealing.opened(key, sealed)
        with decoding("a record"):
            row = json.loads(opened)
            return cls(str(row["text"]), tuple(map(bytes.fromhex, row["roots"])), sealing.key_of(sealed))

    async def snapshot(self, content: FleetContent, near: Snapshot | None, root: Digest | None = None) -> Snapshot:
        """Return a snapshot, by default the first, sharing parts with `near`. Raises DamagedBytesError."""
        pointer = Pointer(NOTHING_PUBLISHED, self.roots[0] if root is None else root, key_id=self.key_id)
        return await content.snapshot(pointer, near)


class Records:
    """Records by name. Each method may raise NoPublisherError or EngineError.

    Attributes:
        found: those when this server began to publish.
    """

    def __init__(self, publication: Publication) -> None:
        self.key_id = publication.content.sealing.key_id
        self.found: dict[str, KeptRecord] = {}
        self.publication = publication
        self.content = publication.content
        # The revision of each record; missing while unknown, after a write that may have come about.
        self._modified: dict[str, int] = {}
        # The snapshots whose objects are kept, by record.
        self._roots: dict[str, list[Digest]] = {}

    async def begin(self) -> None:
        """Read records; keep their objects."""
        keys = self.content.keys
        found = await self.content.engine.read_prefix(keys.records)
        for key, one in found.values.items():
            name = key[len(keys.records) :].decode(errors="replace")
            self._modified[name] = one.modified
            sealing = self.content.sealing
            with suppress(DamagedBytesError):
                record = KeptRecord.read(sealing, key, one.value)
                if record.key_id == sealing.key_id:
                    for root in record.roots:
                        await self.publication.keep_stored(root)
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
                made[id(snapshot)] = await self.publication.keep(snapshot)
                # Kept also if this fails: the text may come about.
                self._roots.setdefault(name, []).append(made[id(snapshot)])
        text = text_of({label: made[id(snapshot)] for label, snapshot in snapshots.items()})
        record = KeptRecord(text, tuple(made.values()))
        await self._write(name, self.content.put(self.content.keys.records + name.encode(), record.encoded()))
        self._release(name, before)
        return record

    async def remove(self, name: str) -> None:
        """Remove a record, if any."""
        if self._modified.get(name, 0) or self._roots.get(name):
            await self._write(name, Delete(self.content.keys.records + name.encode()))
            self._modified[name] = 0
            self._release(name, [*self._roots.get(name, ())])

    def _release(self, name: str, roots: Collection[Digest]) -> None:
        for root in roots:
            self._roots[name].remove(root)
            self.publication.release(root)

    async def _write(self, name: str, change: Put | Delete) -> None:
        engine = self.content.engine
        modified = self._modified.pop(name, None)
        if modified is None:
            found = (await engine.read([change.key])).values.get(change.key)
            modified = 0 if found is None else found.modified
        guards = self.publication.fence, Guard(change.key, modified=modified)
        revision = await engine.write([change], guards)
        if revision is None:
            raise UnreachableError("an earlier write arrived late, or another server publishes")
        self._modified[name] = revision


_HISTORY = "history/"

# Limit per view.
MOST_SNAPSHOTS = 50


class HistoryRow(NamedTuple):
    """An entry and its record."""

    entry: HistoryEntry
    record: KeptRecord

    @classmethod
    def of(cls, number: str, record: KeptRecord) -> HistoryRow:
        """Read a record's entry. Raises DamagedBytesError."""
        with decoding("an entry"):
            row = json.loads(record.text)
            return cls(entry_of(int(number), json.dumps(row["layers"]), row["facts"]), record)


async def read_history(content: FleetContent) -> list[HistoryRow]:
    """Return readable entries, the newest first."""
    prefix, rows = content.keys.records + _HISTORY.encode(), list[HistoryRow]()
    for key, one in (await content.engine.read_prefix(prefix)).values.items():
        try:
            record = KeptRecord.read(content.sealing, key, one.value)
            rows.append(HistoryRow.of(key[len(prefix) :].decode(errors="replace"), record))
        except DamagedBytesError:
            continue
    return sorted(rows, key=lambda row: row.entry.number, reverse=True)


class FleetHistory:
    """Adds to the history, with the git commit of `tree`, if any."""

    def __init__(self, records: Records, tree: Path | None) -> None:
        self._records = records
        self._tree = tree
        self._rows: dict[int, HistoryRow] = {}
        self._last: dict[Layers, Snapshot] = {}
        for name, record in records.found.items():
            # A record that is sealed with another key than the first loses its objects.
            if name.startswith(_HISTORY) and record.key_id == records.key_id:
                try:
                    row = HistoryRow.of(name.removeprefix(_HISTORY), record)
                except DamagedBytesError:
                    continue
                self._rows[row.entry.number] = row

    async def add(self, layers: Layers, snapshot: Snapshot) -> None:
        """Add a reached snapshot, unless it equals the last one."""
        if self._last.get(layers) is snapshot:
            return
        numbers = [number for number, row in sorted(self._rows.items()) if row.entry.layers == layers]
        before = await self._newest(layers, numbers, snapshot)
        changes = changes_between(before, snapshot)
        if before is None or changes:
            number = max(self._rows, default=0) + 1
            commit = None if self._tree is None else await asyncio.to_thread(commit_of, self._tree)
            entry = HistoryEntry(number, layers, snapshot_id(snapshot), time.time(), commit, changes)
            text = json.dumps({"layers": layers, "facts": facts_of(entry)})
            record = await self._records.keep(f"{_HISTORY}{number:09}", {"served": snapshot}, lambda _: text)
            self._rows[number] = HistoryRow(entry, record)
            for old in numbers[: len(numbers) + 1 - MOST_SNAPSHOTS]:
                await self._records.remove(f"{_HISTORY}{old:09}")
                del self._rows[old]
        self._last[layers] = snapshot

    async def _newest(self, layers: Layers, numbers: list[int], near: Snapshot) -> Snapshot | None:
        if layers in self._last or not numbers:
            return self._last.get(layers)
        try:
            return await self._rows[numbers[-1]].record.snapshot(self._records.content, near)
        except DamagedBytesError:
            return None


_PLACES = "place/"


class FleetPlaces:
    """A fleet's `PlaceKeeper`. Reports restore rejections."""

    def __init__(self, records: Records, kept: Mapping[ViewKey, RolloutState], on_due: Callable[[], object]) -> None:
        """Call `on_due` when a place is to be written; `kept` are those of an earlier publisher."""
        self.read_members: Callable[[], Mapping[Layers, Tombstones]] = dict
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict
        self._records = records
        self._restored = kept
        self._on_due = on_due
        self._due: dict[ViewKey, Callable[[], RolloutState | None]] = {}
        # The last written states, with the time of writing.
        self._written: dict[ViewKey, tuple[RolloutState, float]] = {}

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the initial states of rollouts."""
        return {
            ChannelKey(*key): _at(served, self._restored.get(key))
            for key, served in self._records.publication.served.items()
        }

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return nothing: servers know them."""
        return {}

    def restore_rejections(self, rejections: Rejections) -> None:
        """Do nothing: reports restore rejections."""

    def note_rejections(self) -> None:
        """Do nothing: see `restore_rejections`."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Write a rollout's place soon, as it is then."""
        if key.is_main:
            self._due[ViewKey(key.layers, key.is_canary)] = read
            self._on_due()

    def forget(self, key: ChannelKey) -> None:
        """Remove a rollout's place soon."""
        self.save(key, lambda: None)

    async def write(self) -> None:
        """Write due places. Raises NoPublisherError, EngineError."""
        may_keep = self._records.content.may_keep
        for key, read in tuple(self._due.items()):
            state, now_s = read(), time.time()
            if state is None or _is_plain(state) or not all(map(may_keep, snapshots_of(state).values())):
                await self._records.remove(_PLACES + key.text)
                self._written.pop(key, None)
            elif key not in self._written or not is_same_place(*self._written[key], state, now_s):
                text_of = partial(encode_state, state, now_s=now_s)
                await self._records.keep(_PLACES + key.text, snapshots_of(state), text_of)
                self._written[key] = state, now_s
            if self._due.get(key) is read:
                del self._due[key]


async def read_places(records: Records) -> dict[ViewKey, RolloutState]:
    """Return an earlier publisher's readable places."""
    found: dict[ViewKey, RolloutState] = {}
    for name, record in records.found.items():
        if name.startswith(_PLACES):
            try:
                key = ViewKey.of(name.removeprefix(_PLACES))
                found[key] = await _read(record, records, records.publication.served.get(key))
            except (DamagedBytesError, OtherFormError):
                continue
    return found


async def _read(record: KeptRecord, records: Records, near: Snapshot | None) -> RolloutState:
    snapshots = {root: await record.snapshot(records.content, near, root) for root in record.roots}

    def restore(digest: Digest) -> Snapshot:
        try:
            return snapshots[digest]
        except KeyError:
            raise DamagedBytesError("a place names a snapshot that is not kept") from None

    return decode_state(record.text.encode(), restore, time.time())


def _at(served: Snapshot, kept: RolloutState | None) -> RolloutState:
    if kept is None:
        return RolloutState(served, served, served)
    target = served if same_content(kept.target, served) else kept.target
    good = served if kept.good is not None and same_content(kept.good, served) else kept.good
    return replace(kept, served=served, target=target, good=good)


def _is_plain(state: RolloutState) -> bool:
    is_decided = bool(state.pins) or state.pinned is not None or bool(state.before) or bool(state.held_for_s)
    return state.target is state.served and not is_decided and not state.draining
