"""The history of a fleet: numbers and snapshots are the same whoever publishes."""

from __future__ import annotations

from pathlib import Path

from fsxds.fleet import records
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import KeyValues, Put
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.records import FleetHistory, Records, read_history
from fsxds.history.entries import HistoryEntry
from tests.fleet.made import KEYS, elected
from tests.history.made import assert_same, clusters, snapshot_of

OLD = snapshot_of(clusters(300))
NEW = snapshot_of(clusters(301, {7: b"edited"}), OLD)
EDGE = ("base", "edge")


async def begun(engine: KeyValues, tree: Path | None = None) -> FleetHistory:
    """Return the history as the next publisher has it."""
    records = Records(await elected(engine))
    await records.begin()
    return FleetHistory(records, tree)


async def entries_in(engine: KeyValues) -> list[HistoryEntry]:
    """Return the entries as each server reads them."""
    return [row.entry for row in await read_history(FleetContent(engine, KEYS))]


async def test_entries_say_what_changed() -> None:
    """In turn, by view; what is reached again at once is no entry."""
    engine = MemoryKeyValues()
    history = await begun(engine)
    await history.add((), OLD)
    await history.add(EDGE, OLD)
    await history.add((), NEW)
    await history.add((), NEW)
    await history.add(EDGE, OLD)
    entries = await entries_in(engine)
    assert [(one.number, one.layers) for one in entries] == [(3, ()), (2, EDGE), (1, ())]
    change = entries[0].changes["cds"]
    assert (change.added.names, change.changed.names) == (("cluster-00300",), ("cluster-00007",))


async def test_the_next_publisher_goes_on() -> None:
    """Equal content is no entry after an election either; a snapshot is read, sharing what is at hand."""
    engine = MemoryKeyValues()
    first = await begun(engine)
    await first.add((), OLD)
    await first.add((), NEW)

    second = await begun(engine)
    await second.add((), NEW)
    await second.add((), OLD)
    content = FleetContent(engine, KEYS)
    rows = await read_history(content)
    assert [row.entry.number for row in rows] == [3, 2, 1]
    assert_same(NEW, await rows[1].record.snapshot(content, OLD))


async def test_only_so_many_are_kept(monkeypatch) -> None:
    """Of each view; the number of one that is gone is never given again."""
    monkeypatch.setattr(records, "MOST_SNAPSHOTS", 2)
    engine = MemoryKeyValues()
    history = await begun(engine)
    await history.add(EDGE, OLD)
    for snapshot in (OLD, NEW, OLD, NEW):
        await history.add((), snapshot)
    assert [one.number for one in await entries_in(engine)] == [5, 4, 1]
    await (await begun(engine)).add((), OLD)
    assert [one.number for one in await entries_in(engine)] == [6, 5, 1]


async def test_damaged_entries_are_left_out() -> None:
    """The others are there, for readers and for the next publisher."""
    engine = MemoryKeyValues()
    await (await begun(engine)).add((), OLD)
    await engine.write([Put(KEYS.records + b"history/000000002", b'{"text": "{}", "roots": []}')])
    assert [one.number for one in await entries_in(engine)] == [1]
    await (await begun(engine)).add((), NEW)
    assert [one.number for one in await entries_in(engine)] == [2, 1]


async def test_the_commit_of_the_tree_is_noted(tmp_path) -> None:
    """Of the directory that the publisher serves."""
    (tmp_path / ".git").mkdir()
    commit = "c0ffee0" * 5 + "c0ffe"
    (tmp_path / ".git/HEAD").write_text(f"{commit}\n")
    engine = MemoryKeyValues()
    await (await begun(engine, tmp_path)).add((), OLD)
    assert (await entries_in(engine))[0].commit == commit
