"""The two sides of a comparison that are snapshots of the history of a running fsxds."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.history.entries import History, HistoryEntry
from fsxds.resources import Snapshot

NOW = "@now"
_NUMBER = re.compile("@([1-9][0-9]{0,8})", re.ASCII)


def is_kept(text: str) -> bool:
    """Return whether a text names a snapshot of the history, `@3` or `@now`, and not a directory."""
    return text == NOW or _NUMBER.fullmatch(text) is not None


def read_kept(directory: Path, names: Collection[str]) -> dict[str, Snapshot]:
    """Return snapshots of the history by their names, all of one moment. Blocking.

    `@now` is the newest one: of the same nodes as the other, where there is another.

    Args:
        directory: the `--state` of the running fsxds.
        names: each of them is `is_kept`.

    Raises:
        UsageError: there is no history, no such snapshot, or `@now` may mean several.
        StateError: it cannot be read.
    """
    with History.opened(directory) as history:
        entries = history.entries()
        found = {name: _entry_of(name, entries, directory) for name in names if name != NOW}
        if NOW in names:
            layers = {kept.layers for kept in found.values() or entries}
            found[NOW] = _newest([kept for kept in entries if kept.layers in layers], directory)
        return {name: _snapshot(history, kept) for name, kept in found.items()}


def _entry_of(name: str, entries: Collection[HistoryEntry], directory: Path) -> HistoryEntry:
    for kept in entries:
        if name == f"@{kept.number}":
            return kept
    raise UsageError(f"{name}: the history in {directory} has no such snapshot; fsxds history lists them")


def _newest(entries: Collection[HistoryEntry], directory: Path) -> HistoryEntry:
    by_layers = {kept.layers: kept for kept in sorted(entries, key=lambda kept: kept.number)}
    if len(by_layers) == 1:
        return next(iter(by_layers.values()))
    if not by_layers:
        raise UsageError(f"{NOW}: the history in {directory} has no snapshot yet")
    there = ", ".join(f"@{kept.number} of {'+'.join(layers)}" for layers, kept in sorted(by_layers.items()))
    raise UsageError(f"{NOW}: nodes have different layers; the newest snapshots are {there}")


def _snapshot(history: History, kept: HistoryEntry) -> Snapshot:
    snapshot = history.snapshot(kept.layers, kept.number)
    if snapshot is None:
        raise RuntimeError("what the entries list is there: both are of one moment")
    return snapshot
