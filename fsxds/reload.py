"""Keep the store in step with a source: the story of one change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Protocol

from fsxds.parsing import Parsing
from fsxds.snapshots.load import Acceptance, Loaded, changed_files, load
from fsxds.snapshots.merge import same_content
from fsxds.snapshots.parsed import ParsedFile
from fsxds.store import SnapshotStore
from fsxds.values import SourceTree


class SettledTree(Protocol):
    """A tree that nobody writes to any more; `noticed_s` is the monotonic clock at the first sign of its change."""

    @property
    def tree(self) -> SourceTree:
        """The files."""

    @property
    def noticed_s(self) -> float:
        """Seconds of the monotonic clock."""


class ReloadObserver(Protocol):
    """Who wants to hear of reloads."""

    def problems_found(self, loaded: Loaded) -> None:
        """A tree was loaded; its problems may have changed even where nothing is published."""

    def snapshot_published(self, loaded: Loaded, noticed_s: float) -> None:
        """A snapshot is served from now on."""


async def keep_current(
    trees: AsyncIterable[SettledTree],
    store: SnapshotStore,
    parsing: Parsing,
    acceptance: Acceptance,
    observer: ReloadObserver,
) -> None:
    """Publish a snapshot for every settled tree that changes what is served; a bad file keeps its last good self."""
    loaded: Loaded | None = None
    async for settled in trees:
        parsed = await parsing.parse(changed_files(settled.tree, loaded))
        # Merging looks at every name: some milliseconds for ten thousand, which polls need not wait for.
        loaded = await asyncio.to_thread(_merge, settled.tree, loaded, parsed, acceptance)
        observer.problems_found(loaded)
        if store.current is None or not same_content(loaded.snapshot, store.current):
            observer.snapshot_published(loaded, settled.noticed_s)
            store.publish(loaded.snapshot)


def _merge(tree: SourceTree, before: Loaded | None, parsed: tuple[ParsedFile, ...], acceptance: Acceptance) -> Loaded:
    return load(tree, before, lambda _: parsed, acceptance)
