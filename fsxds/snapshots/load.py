"""Load a tree of files, on top of the tree before: parse, check, accept, merge. The only entry.

`merge` makes one immutable snapshot of the accepted files, which knows how it differs from the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.resource_types import RESOURCE_TYPES, exact_type_from_path
from fsxds.resources import ParsedFile, Resource, Rows, Snapshot, TypeChange
from fsxds.snapshots.accept import AuthoredVersions, accept
from fsxds.snapshots.check_protocol import Check, FieldLocator, FileRecord, FileRule, NoCheck, Records
from fsxds.snapshots.names import UniqueNames
from fsxds.values import HeldFile, Problem, Severity, SourceFile, SourceTree, TypeUrl, Version

TYPE_URLS = tuple(row.type_url for row in RESOURCE_TYPES)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a tree is accepted.

    Attributes:
        whole_trees: one file with an error holds back all of them.
        authored_versions: the versions that the files' authors wrote are served.
        check: judges the files beside one another; what is no error holds nothing back.
        locate_up_to_bytes: in files up to this size, what is wrong with a reference is reported at its own line and
            column, in larger ones at those of its resource; None for no limit.
    """

    whole_trees: bool = False
    authored_versions: bool = False
    check: Check = field(default_factory=NoCheck)
    locate_up_to_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tree as it was loaded: what is served, and all that is wrong with it now, sorted by place.

    `memory` is for loading the next tree on top of it.
    """

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    records: Mapping[PurePosixPath, FileRecord]
    memory: object = field(default=None, compare=False, repr=False)


def changed_files(tree: SourceTree, before: Loaded | None) -> tuple[SourceFile, ...]:
    """Return the files whose content was not parsed yet; the others cost nothing."""
    known = before.records if before else {}
    return tuple(file for file in tree.files if _known_parse(file, known.get(file.path)) is None)


def unjudged(loaded: Loaded) -> Loaded:
    """Return what was loaded, for a load by other checks: what was good stays; every file is parsed and checked again."""
    records = {
        # Good content without a digest is that of no file.
        path: replace(record, parsed=None, good=None if record.good is None else replace(record.good, digest=""))
        for path, record in loaded.records.items()
    }
    return replace(loaded, records=MappingProxyType(records), memory=None)


def load(tree: SourceTree, before: Loaded | None, parse: Parse, acceptance: Acceptance) -> Loaded:
    """Load a tree, on top of what was loaded before.

    Args:
        tree: the files as they are.
        before: the result for the tree before, None for the first.
        parse: turns files into documents; it is called once, with those that changed.
        acceptance: how the tree is accepted.
    """
    fresh = {parsed.path: parsed for parsed in parse(changed_files(tree, before))}
    old_records: Records = before.records if before else {}
    served = before.snapshot if before else None
    present = _present(tree, old_records, fresh)
    locator = FieldLocator(tree, acceptance.locate_up_to_bytes)
    check = acceptance.check.tree_check(before.memory if before else None, locator)
    rules: tuple[FileRule, ...] = (UniqueNames(served), *check.rules)
    if acceptance.authored_versions:
        rules = (*rules, AuthoredVersions(served))
    accepted = accept(present, old_records, rules, whole_trees=acceptance.whole_trees, report=check.report)
    records = _in_order(accepted)
    snapshot = merge(records, old_records, served, authored=acceptance.authored_versions)
    problems = {problem for record in records.values() for problem in record.problems} | set(tree.problems)
    return Loaded(
        snapshot,
        tuple(sorted(problems, key=_place)),
        tuple(_held(records)),
        MappingProxyType(records),
        check.memory,
    )


def _known_parse(file: SourceFile, record: FileRecord | None) -> ParsedFile | None:
    if record is None:
        return None
    if record.parsed is not None and record.parsed.digest == file.digest:
        return record.parsed
    return record.good if record.good is not None and record.good.digest == file.digest else None


def _present(
    tree: SourceTree, before: Records, fresh: Mapping[PurePosixPath, ParsedFile]
) -> dict[PurePosixPath, FileRecord]:
    present = {}
    for file in tree.files:
        parsed = fresh.get(file.path) or _known_parse(file, before.get(file.path))
        present[file.path] = FileRecord(parsed, None, parsed.problems if parsed else ())
    for problem in tree.problems:
        if problem.severity is Severity.ERROR:
            present[problem.path] = FileRecord(None, None, (problem,))
    return present


def _place(problem: Problem) -> tuple[object, ...]:
    """Return what problems are sorted by, as they would be by themselves, only faster."""
    path = problem.path.parts
    return path, problem.line, problem.column, problem.pointer, problem.rule, problem.message, problem.remedy


def _in_order(records: Records) -> dict[PurePosixPath, FileRecord]:
    # Comparing the parts is what comparing the paths does, and takes a tenth of the time.
    return {path: records[path] for path in sorted(records, key=lambda path: path.parts)}


def _held(records: Records) -> Iterator[HeldFile]:
    for path, record in records.items():
        if record.is_held or record.was_never_good:
            first = next((p for p in record.problems if p.severity is Severity.ERROR), None)
            digest = record.parsed.digest if record.parsed else ""
            yield HeldFile(path, first, record.good is not None, digest)


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


Parse = Callable[[tuple[SourceFile, ...]], Iterable[ParsedFile]]
