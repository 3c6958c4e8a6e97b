"""The history of a fleet, numbered across publishers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import end_of
from fsxds.fleet.records import KeptRecord, Records, snapshot_in
from fsxds.history.entries import HistoryEntry, changes_between, entry_of, facts_of
from fsxds.history.state_writer import commit_of
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.rollout.step import snapshot_id
from fsxds.snapshots.encoding import DamagedBytesError, Digest

PREFIX = "history/"

# Limit per view.
MOST_SNAPSHOTS = 50


class HistoryRow(NamedTuple):
    """An entry and its record."""

    entry: HistoryEntry
    record: KeptRecord

    @classmethod
    def of(cls, number: str, record: KeptRecord) -> HistoryRow:
        """Read the entry of a record. DamagedBytesError: it has none."""
        try:
            row = json.loads(record.text)
            return cls(entry_of(int(number), json.dumps(row["layers"]), row["facts"]), record)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise DamagedBytesError(f"an entry is damaged: {type(error).__name__}") from error


async def read_history(content: FleetContent) -> list[HistoryRow]:
    """Return readable entries, the newest first."""
    prefix, rows = content.keys.records + PREFIX.encode(), list[HistoryRow]()
    for key, one in (await content.engine.read_range(prefix, end_of(prefix))).values.items():
        try:
            record = KeptRecord.decoded(content.sealing.opened(key, one.value), content.sealing.key_of(one.value))
            rows.append(HistoryRow.of(key[len(prefix) :].decode(errors="replace"), record))
        except DamagedBytesError:
            continue
    return sorted(rows, key=lambda row: row.entry.number, reverse=True)


async def snapshot_of(content: FleetContent, row: HistoryRow, near: Snapshot | None) -> Snapshot:
    """Return an entry's snapshot, sharing resources with `near`. DamagedBytesError: it cannot be read."""
    return await snapshot_in(content, row.record, row.record.roots[0], near)


class FleetHistory:
    """Adds to the history, as the publisher, with the git commit of `tree`, if any."""

    def __init__(self, records: Records, tree: Path | None) -> None:
        self._records = records
        self._tree = tree
        self._rows: dict[int, HistoryRow] = {}
        self._last: dict[Layers, Snapshot] = {}
        for name, record in records.found.items():
            # A record that is sealed with another key than the first loses its objects.
            if name.startswith(PREFIX) and record.key_id == records.key_id:
                try:
                    row = HistoryRow.of(name.removeprefix(PREFIX), record)
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

            def text_of(_: Mapping[str, Digest]) -> str:
                return json.dumps({"layers": layers, "facts": facts_of(entry)})

            record = await self._records.keep(f"{PREFIX}{number:09}", {"served": snapshot}, text_of)
            self._rows[number] = HistoryRow(entry, record)
            for old in numbers[: len(numbers) + 1 - MOST_SNAPSHOTS]:
                await self._records.remove(f"{PREFIX}{old:09}")
                del self._rows[old]
        self._last[layers] = snapshot

    async def _newest(self, layers: Layers, numbers: list[int], near: Snapshot) -> Snapshot | None:
        if layers in self._last or not numbers:
            return self._last.get(layers)
        try:
            return await snapshot_of(self._records.content, self._rows[numbers[-1]], near)
        except DamagedBytesError:
            return None
