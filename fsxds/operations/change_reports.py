"""What became of each change: gathered for a moment after it was published, then told in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Never

from fsxds.operations.log_lines import Level, LogLine
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot, TypeChange
from fsxds.values import PlainValue, TypeUrl

# Held polls are answered within milliseconds; a change is reported when so long nobody more was answered …
QUIET_S = 0.2

# … or after this time at the latest, however many clients there are.
MOST_GATHERING_S = 5.0

MOST_NAMES = 3
LONGEST_NAME = 80


@dataclass(slots=True)
class PublishedChange:
    """One snapshot that was published, and who was told of it.

    Attributes:
        types: what changed, by type; types without a change are not in it.
        noticed_s: clock reading at the first sign of the change.
        last_s: clock reading at publication, later at the last answer.
        clients: the node ids that were answered, in order; an ordered set.
        rejected_by: the node ids that rejected something of it, likewise.
    """

    types: Mapping[TypeUrl, TypeChange]
    noticed_s: float
    last_s: float
    clients: dict[str, None] = field(default_factory=dict)
    rejected_by: dict[str, None] = field(default_factory=dict)

    def line(self) -> LogLine:
        """Word the report: what changed, from which files, for whom it was news, and how long it took."""
        counts = [_counts(type_url, change) for type_url, change in self.types.items()]
        files = sorted({str(path) for change in self.types.values() for path in change.files})
        took_ms = round((self.last_s - self.noticed_s) * 1000)
        source = f" from {some_of(files)}" if files else ""
        clients = tuple(self.clients)
        audience = _audience(clients, took_ms)
        if self.rejected_by:
            audience += f"; rejected by {some_of(tuple(self.rejected_by))}"
        details: dict[str, PlainValue] = {
            "changes": {type_name(type_url): _details(change) for type_url, change in self.types.items()},
            "files": [*files],
            "client_count": len(clients),
            "clients": [*clients[:MOST_NAMES]],
            "took_ms": took_ms,
            **({"rejected_by": [*tuple(self.rejected_by)[:MOST_NAMES]]} if self.rejected_by else {}),
        }
        return LogLine(Level.INFO, "snapshot_published", ", ".join(counts) + source + audience, details)


class ChangeReports:
    """Gathers answers for the changes that were published last, and reports each change when it is quiet."""

    def __init__(self, write: Callable[[LogLine], None], now_s: Callable[[], float]) -> None:
        self._write = write
        self._now_s = now_s
        self._inbox: asyncio.Queue[PublishedChange] = asyncio.Queue()
        self._gathering: list[PublishedChange] = []

    def publish(self, snapshot: Snapshot, noticed_s: float) -> None:
        """Begin to gather for a snapshot that became current just now."""
        types = {
            type_url: change
            for type_url, change in snapshot.changes.items()
            if change.generation == snapshot.generation and (change.added or change.changed or change.removed)
        }
        if not types:
            self._write(LogLine(Level.DEBUG, "snapshot_published", "files changed, what is served did not"))
            return
        change = PublishedChange(types, noticed_s, self._now_s())
        self._gathering.append(change)
        self._inbox.put_nowait(change)

    def answer(self, type_url: TypeUrl, client: str) -> None:
        """Count an answer to a client as news of the newest change of its type that was not reported yet."""
        if change := self._newest_of(type_url):
            change.clients[client[:LONGEST_NAME]] = None
            change.last_s = self._now_s()

    def reject(self, type_url: TypeUrl, client: str) -> None:
        """Note that a client rejected the newest change of a type, as long as that was not reported yet."""
        if change := self._newest_of(type_url):
            change.rejected_by[client[:LONGEST_NAME]] = None

    def _newest_of(self, type_url: TypeUrl) -> PublishedChange | None:
        return next((change for change in reversed(self._gathering) if type_url in change.types), None)

    async def report(self) -> Never:
        """Report every change when its answers are in; what is open when it is cancelled is reported as it stands."""
        try:
            while True:
                await self._inbox.get()
                await self._wait_until_quiet(self._gathering[0])
                self._write(self._gathering.pop(0).line())
        except asyncio.CancelledError:
            for change in self._gathering:
                self._write(change.line())
            self._gathering.clear()
            raise

    async def _wait_until_quiet(self, change: PublishedChange) -> None:
        published_s = change.last_s
        while True:
            quiet_at_s = min(change.last_s + QUIET_S, published_s + MOST_GATHERING_S)
            if (rest_s := quiet_at_s - self._now_s()) <= 0:
                return
            await asyncio.sleep(rest_s)


def type_name(type_url: TypeUrl) -> str:
    """Return what people call a type: `cds`; its URL where it is none of the table's."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def some_of(names: Sequence[str]) -> str:
    """Return the first few names as a phrase: `a, b, c and 5 more`."""
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def _counts(type_url: TypeUrl, change: TypeChange) -> str:
    row = BY_TYPE_URL.get(type_url)
    return f"+{len(change.added)} ~{len(change.changed)} -{len(change.removed)} {row.noun if row else type_url}"


def _details(change: TypeChange) -> PlainValue:
    return {"added": len(change.added), "changed": len(change.changed), "removed": len(change.removed)}


def _audience(clients: tuple[str, ...], took_ms: int) -> str:
    if not clients:
        return f", published in {took_ms} ms, no client waited"
    return f" for {count_of(len(clients), 'client')}: {some_of(clients)} in {took_ms} ms"
