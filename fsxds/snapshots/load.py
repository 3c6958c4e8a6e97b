"""The whole path, in order; the only entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.snapshots.accept import FileRecord, Records, Rule, accept
from fsxds.snapshots.checks import AuthoredVersions, names_are_unique
from fsxds.snapshots.merge import merge
from fsxds.snapshots.parsed import ParsedFile
from fsxds.values import Problem, Severity, Snapshot, SourceFile, SourceTree, TypeUrl

Parse = Callable[[tuple[SourceFile, ...]], Iterable[ParsedFile]]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a tree is accepted: file by file or whole, and whose versions are served."""

    whole_trees: bool = False
    authored_versions: bool = False


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of which something older is served, or nothing.

    `problem` is the first thing that is wrong with it, None where it waits for others.
    """

    path: PurePosixPath
    problem: Problem | None
    has_last_good: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tree as it was loaded: what is served, and all that is wrong with it now, sorted by place."""

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    records: Mapping[PurePosixPath, FileRecord]


def changed_files(tree: SourceTree, before: Loaded | None) -> tuple[SourceFile, ...]:
    """Return the files whose content was not parsed yet; the others cost nothing."""
    known = before.records if before else {}
    return tuple(file for file in tree.files if _known_parse(file, known.get(file.path)) is None)


def load(tree: SourceTree, before: Loaded | None, parse: Parse, acceptance: Acceptance) -> Loaded:
    """Load a tree, on top of what was loaded before.

    Args:
        tree: the files as they are.
        before: the result for the tree before, None for the first.
        parse: turns files into documents; it is called once, with those that changed.
        acceptance: what may replace what.
    """
    fresh = {parsed.path: parsed for parsed in parse(changed_files(tree, before))}
    old_records: Records = before.records if before else {}
    served = before.snapshot if before else None
    present = _present(tree, old_records, fresh)
    rules: tuple[Rule, ...] = (names_are_unique,)
    if acceptance.authored_versions:
        rules = (*rules, AuthoredVersions(served))
    records = accept(present, old_records, rules, whole_trees=acceptance.whole_trees)
    touched = _touched(records, old_records)
    snapshot = merge(records, served, touched, authored=acceptance.authored_versions)
    problems = {problem for record in records.values() for problem in record.problems} | set(tree.problems)
    return Loaded(
        snapshot, tuple(sorted(problems)), tuple(_held(records)), MappingProxyType(dict(sorted(records.items())))
    )


def _known_parse(file: SourceFile, record: FileRecord | None) -> ParsedFile | None:
    if record is None:
        return None
    return next((known for known in (record.parsed, record.good) if known and known.digest == file.digest), None)


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


def _touched(records: Records, before: Records) -> frozenset[TypeUrl]:
    """Return the types spoken of by any file of which something else is served than before."""
    touched: set[TypeUrl] = set()
    for path in records.keys() | before.keys():
        now = records[path].good if path in records else None
        was = before[path].good if path in before else None
        if now is not was:
            touched |= (now.declared if now else frozenset()) | (was.declared if was else frozenset())
    return frozenset(touched)


def _held(records: Records) -> Iterator[HeldFile]:
    for path, record in sorted(records.items()):
        if record.is_held or record.was_never_good:
            first = next((p for p in record.problems if p.severity is Severity.ERROR), None)
            yield HeldFile(path, first, record.good is not None)
