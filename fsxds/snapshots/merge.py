"""Merge the accepted files: one immutable snapshot of all types, and how it differs from the one before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.resource_types import RESOURCE_TYPES, exact_type_from_path
from fsxds.resources import ParsedFile, Resource, Rows, Snapshot, TypeChange
from fsxds.snapshots.check_protocol import Records
from fsxds.values import TypeUrl, Version

TYPE_URLS = tuple(row.type_url for row in RESOURCE_TYPES)


def merge(records: Records, old_records: Records, before: Snapshot | None, *, authored: bool) -> Snapshot:
    """Make the snapshot that `records` add up to.

    Args:
        records: all files, as they were accepted; no name of a type is in two of them.
        old_records: the same of the tree before.
        before: the snapshot that those add up to; None for the first. What changed files do not touch is kept.
        authored: send the authors' versions.
    """
    generation = before.generation + 1 if before else 1
    good = [record.good for record in records.values() if record.good is not None]
    was, now = _replaced(old_records, records), _replaced(records, old_records)
    by_type, changes = {}, {}
    for type_url in TYPE_URLS:
        old = before.by_type[type_url] if before else Rows(type_url)
        new = now.get(type_url, {})
        removed = was.get(type_url, {}).keys() - new.keys()
        # Merging may be done beside the event loop, which works out nothing then that takes long.
        by_type[type_url] = rows = old.with_changes(new.values(), removed).prepared()
        if before is None or rows.changes_since(old):
            changes[type_url] = _change(old, rows, generation)
        else:
            changes[type_url] = before.changes[type_url]
    undeclared = _undeclared(good, before)
    incomplete = _incomplete(records)
    return Snapshot(
        generation,
        MappingProxyType(by_type),
        MappingProxyType(_authored(good) if authored else {}),
        MappingProxyType(changes),
        incomplete,
        # Of a tree in which nothing was ever good, no type may be reported as empty.
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


def _replaced(records: Records, others: Records) -> Mapping[TypeUrl, Mapping[str, Resource]]:
    """Return by type and name what is served of those files of which the other records serve something else."""
    found: defaultdict[TypeUrl, dict[str, Resource]] = defaultdict(dict)
    for path, record in records.items():
        other = others[path].good if path in others else None
        if record.good is not None and record.good is not other:
            for resource in record.good.resources:
                found[resource.type_url][resource.name] = resource
    return found


def _change(old: Rows, rows: Rows, generation: int) -> TypeChange:
    change = rows.changes_since(old)
    updated, removed = sorted(change.fresh | change.renewed), tuple(sorted(change.removed))
    added, changed = (tuple(name for name in updated if (name in old) is known) for known in (False, True))
    files = {rows[name].origin.path for name in updated} | {old[name].origin.path for name in removed}
    return TypeChange(generation, added, changed, removed, tuple(sorted(files)))


def _undeclared(good: Iterable[ParsedFile], before: Snapshot | None) -> frozenset[TypeUrl]:
    """Return the types that no document ever listed; a type whose last file was removed is declared still, and empty."""
    declared = frozenset[TypeUrl]().union(*{document.declared for parsed in good for document in parsed.documents})
    return (before.undeclared if before else frozenset(TYPE_URLS)) - declared


def _incomplete(records: Records) -> frozenset[TypeUrl]:
    never_good = [path for path, record in records.items() if record.was_never_good]
    return frozenset[TypeUrl]().union(*map(may_define, never_good))


def may_define(path: PurePosixPath) -> frozenset[TypeUrl]:
    """Return the types that a file may define which could not be read: that of its name, else any."""
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
