"""Put the accepted files together: one immutable snapshot of all types, and what became different."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.resource_types import RESOURCE_TYPES, exact_type_from_path
from fsxds.resources import ParsedFile, Rows, Snapshot, TypeChange
from fsxds.snapshots.accept import Records
from fsxds.values import TypeUrl, Version

TYPE_URLS = tuple(row.type_url for row in RESOURCE_TYPES)


def merge(records: Records, before: Snapshot | None, touched: frozenset[TypeUrl], *, authored: bool) -> Snapshot:
    """Make the snapshot that `records` add up to.

    Args:
        records: all files, as they were accepted.
        before: the snapshot before, whose rows are kept where nothing touched them; None for the first.
        touched: the types that a file which changed speaks of, now or before.
        authored: send the authors' versions.
    """
    generation = before.generation + 1 if before else 1
    good = [record.good for record in records.values() if record.good is not None]
    by_type, changes = {}, {}
    for type_url in TYPE_URLS:
        if before is not None and type_url not in touched:
            by_type[type_url], changes[type_url] = before.by_type[type_url], before.changes[type_url]
            continue
        by_type[type_url] = rows = _rows(type_url, good)
        changes[type_url] = _change(before, rows, generation)
    undeclared = _undeclared(good, before)
    incomplete = _incomplete(records)
    return Snapshot(
        generation,
        MappingProxyType(by_type),
        MappingProxyType(_authored(good) if authored else {}),
        MappingProxyType(changes),
        incomplete,
        # Of a tree in which nothing was ever good, nothing can be said at all.
        undeclared & (incomplete if len(undeclared) < len(TYPE_URLS) else frozenset(TYPE_URLS)),
        undeclared,
    )


def same_content(snapshot: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots serve the same to everybody."""
    return _served(snapshot) == _served(other)


def _served(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        dict(snapshot.versions),
        # Versions are those of contents; a time to live may change without them.
        {type_url: change.generation for type_url, change in snapshot.changes.items()},
        dict(snapshot.authored),
        snapshot.incomplete,
        snapshot.withheld,
        snapshot.undeclared,
    )


def _rows(type_url: TypeUrl, good: Iterable[ParsedFile]) -> Rows:
    found = {r.name: r for parsed in good for d in parsed.documents for r in d.resources if r.type_url == type_url}
    return Rows(type_url, dict(sorted(found.items())))


def _change(before: Snapshot | None, rows: Rows, generation: int) -> TypeChange:
    old = before.by_type[rows.type_url] if before else Rows(rows.type_url)
    change = rows.changes_since(old)
    if before is not None and not change:
        return before.changes[rows.type_url]
    updated, removed = sorted(change.fresh | change.renewed), tuple(sorted(change.removed))
    added, changed = (tuple(name for name in updated if (name in old) is known) for known in (False, True))
    files = {rows[name].origin.path for name in updated} | {old[name].origin.path for name in removed}
    return TypeChange(generation, added, changed, removed, tuple(sorted(files)))


def _undeclared(good: Iterable[ParsedFile], before: Snapshot | None) -> frozenset[TypeUrl]:
    """Return the types that no document ever spoke of; a type whose last file went is declared still, and empty."""
    declared = frozenset[TypeUrl]().union(*{document.declared for parsed in good for document in parsed.documents})
    return (before.undeclared if before else frozenset(TYPE_URLS)) - declared


def _incomplete(records: Records) -> frozenset[TypeUrl]:
    never_good = [path for path, record in records.items() if record.was_never_good]
    return frozenset[TypeUrl]().union(*map(may_define, never_good))


def may_define(path: PurePosixPath) -> frozenset[TypeUrl]:
    """Return the types that a file may define which could not be read: its name tells, else it may be any."""
    row = exact_type_from_path(path)
    return frozenset((row.type_url,)) if row else frozenset(TYPE_URLS)


def _authored(good: Iterable[ParsedFile]) -> dict[TypeUrl, str]:
    return {
        type_url: Version(document.version_info)
        for parsed in good
        for document in parsed.documents
        if document.version_info is not None
        for type_url in document.declared
    }
