"""`fsxds history`: shows served snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fsxds.cli.rollout import AdminFlags, asked, number_of, print_answer, scope_parameters
from fsxds.cli.tables import print_table
from fsxds.history.entries import HistoryChange, HistoryEntry, SomeNames
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.settings.options import Settings
from fsxds.transports.admin.admin_api import report_of

COMMIT_DIGITS = 12


def run_history(number: str | None, settings: Settings, flags: AdminFlags) -> None:
    """Show the history or one snapshot; exit with 1 if it does not exist."""
    if number is not None:
        content = asked(settings, "GET", f"/api/history/{number_of(number, flags)}", {})
        print_answer(content, flags, [*_lines_of(report_of(HistoryEntry, content))])
        return
    content = asked(settings, "GET", "/api/history", scope_parameters(flags))
    print_answer(content, flags, [])
    if flags["output_format"] == "text":
        headings = ("NUMBER", "TIME", "LAYERS", "VERSION", "COMMIT", "CHANGES")
        print_table(headings, map(_row_of, report_of(tuple[HistoryEntry, ...], content.get("snapshots"))))


def _row_of(kept: HistoryEntry) -> tuple[str, ...]:
    changes = ", ".join(f"{_counts(change)} {BY_SHORT_NAME[name].noun}" for name, change in kept.changes.items())
    layers, commit = "+".join(kept.layers) or "whole tree", (kept.commit or "")[:COMMIT_DIGITS]
    return f"@{kept.number}", _time(kept), layers, kept.version, commit, changes


def _lines_of(kept: HistoryEntry) -> Iterator[str]:
    commit = f", commit {kept.commit}" if kept.commit else ""
    yield f"@{kept.number} {kept.version} of {_time(kept)}{commit}"
    for short_name, change in kept.changes.items():
        for sign, some in _parts(change):
            yield from (f"{sign} {BY_SHORT_NAME[short_name].noun} {name}" for name in some.names)
            if some.count > len(some.names):
                yield f"{sign} {BY_SHORT_NAME[short_name].noun}: {some.count - len(some.names)} more"


def _counts(change: HistoryChange) -> str:
    return " ".join(f"{sign}{some.count}" for sign, some in _parts(change))


def _parts(change: HistoryChange) -> list[tuple[str, SomeNames]]:
    parts = (("+", change.added), ("~", change.changed), ("-", change.removed))
    return [(sign, some) for sign, some in parts if some.count]


def _time(kept: HistoryEntry) -> str:
    return datetime.fromtimestamp(kept.time_s).astimezone().isoformat(timespec="seconds")
