"""Loads a tree on top of the previous one: parse, check, accept, merge. The only entry.

A snapshot says of each type whether it may be reported as empty, and its missing names as removed:

| a document, now or before, lists the type | a file that was never good may define it | `incomplete` | `undeclared` | `withheld` |
| --- | --- | --- | --- | --- |
| yes | no | no | no | no |
| yes | yes | yes | no | no |
| no | no | no | yes | only if no document ever listed any type |
| no | yes | yes | yes | yes |

Rules: how many resources a view may have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Protocol

from rpds import HashTrieMap

from fsxds.model.resource_types import RESOURCE_TYPES, exact_type_from_path
from fsxds.model.resources import Key, ParsedFile, Resource, Rows, Snapshot, TypeChange, key_of
from fsxds.model.values import HeldFile, OverlaidTree, Problem, Severity, SourceFile, Tree, TypeUrl
from fsxds.snapshots.accept import (
    AuthoredVersions,
    Declarations,
    TreeChange,
    accept,
    authored_versions,
    declarations_of,
    declarations_with,
)
from fsxds.snapshots.layer_documents import nothing_below
from fsxds.snapshots.names import unique_names
from fsxds.snapshots.proposals import (
    NOWHERE,
    Check,
    Conflicts,
    Elsewhere,
    FieldLocator,
    FileChange,
    FileRecord,
    FileRule,
    NoCheck,
    Proposals,
    Records,
    ServedFiles,
    differing,
)

# At about 1.6 kB per resource, this takes as many GB as a config server usually gets.
MOST_RESOURCES = 1_000_000


class ResourceLimit:
    """Rejects files that would exceed the resource limit, the least trusted first.

    A file that does not grow never is. `most` counts all types in one view.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self, proposals: Proposals) -> Conflicts:
        """Return files to hold, with a problem at the first surplus resource."""
        snapshot = proposals.served.snapshot
        count = 0 if snapshot is None else sum(map(len, snapshot.by_type.values()))
        if count + len(proposals.added) <= self._most:
            return {}
        count += sum(map(_growth, proposals.changes))
        held = {}
        for proposal in reversed(tuple(proposals)):
            change = proposals.changes_by_path[proposal.path]
            if proposal.is_on_trial:
                change = proposals.served.change_to(proposal.path, proposal.parsed)
            total = count + _growth(change) if proposal.is_on_trial else count
            if total > self._most and _growth(change) > 0:
                surplus = min(total - self._most, len(change.added))
                resource = change.added[-surplus]
                fact = f"with this the view would have more than {self._most} resources"
                remedy = "leave some out, divide the tree into views, or raise the setting max_resources"
                held[proposal.path] = (resource.origin.problem("too-many-resources", fact, remedy),)
                count -= 0 if proposal.is_on_trial else _growth(change)
        return held


def _growth(change: FileChange) -> int:
    return len(change.added) - len(change.lost)


TYPE_URLS = tuple(row.type_url for row in RESOURCE_TYPES)


class LayerPatching(Protocol):
    """Applies edits of layers below: see `layers.Patching`."""

    def done(
        self,
        parsed: ParsedFile,
        bases: Mapping[Key, Resource],
        may_exist: Callable[[Key], bool],
        locator: FieldLocator,
    ) -> ParsedFile:
        """Return a file with all its edits applied."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How a tree is accepted.

    Attributes:
        check: only its errors hold a file back.
        locate_up_to_bytes: in larger files, problems of references are at the resource; None for no limit.
        patching: None without layers.
        elsewhere: undefined names may refer to it.
    """

    whole_trees: bool = False
    authored_versions: bool = False
    check: Check = field(default_factory=NoCheck)
    locate_up_to_bytes: int | None = None
    patching: LayerPatching | None = field(default=None, compare=False, repr=False)
    max_resources: int = MOST_RESOURCES
    elsewhere: Elsewhere = NOWHERE


class FileRecords(Mapping[PurePosixPath, FileRecord]):
    """Immutable records by path; copies share unchanged ones.

    Each object sorts its paths once.
    """

    def __init__(self, records: HashTrieMap[PurePosixPath, FileRecord] | None = None) -> None:
        self._records = HashTrieMap() if records is None else records

    def __getitem__(self, path: PurePosixPath) -> FileRecord:
        return self._records[path]

    def __iter__(self) -> Iterator[PurePosixPath]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, path: object) -> bool:
        return path in self._records

    @cached_property
    def _order(self) -> list[PurePosixPath]:
        return sorted(self._records, key=_parts)

    @classmethod
    def of(cls, records: Records) -> FileRecords:
        """Convert records."""
        return records if isinstance(records, cls) else cls(HashTrieMap(records))

    def with_changes(self, changed: Records, gone: Iterable[PurePosixPath]) -> FileRecords:
        """Set `changed` and remove `gone`."""
        records = self._records
        for path in gone:
            records = records.discard(path)
        return FileRecords(records.update(changed))


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """The memory for the next load, which examines only changes.

    `repeating` files define a name twice; `declarations` is None without authored versions.
    """

    tree: Tree
    check: object
    repeating: frozenset[PurePosixPath]
    declarations: Declarations | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded tree, with all problems, sorted by place.

    Loading on top of `memory`, any number of times, costs only the changes; without it every file is loaded again. `wanted`
    has undefined names in references, if they may be elsewhere.
    """

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    records: Records
    memory: LoadMemory | None = field(default=None, compare=False, repr=False)
    wanted: frozenset[Key] = field(default=frozenset(), compare=False, repr=False)

    def depends_on(self, elsewhere: Elsewhere) -> bool:
        """Whether it may change the result."""
        return bool(elsewhere) and bool(self.wanted or self.held)


def changed_files(tree: Tree, before: Loaded | None) -> tuple[SourceFile, ...]:
    """Return the files to parse; others cost one comparison."""
    known = before.records if before else {}
    files = TreeDifference.between(before, tree).files
    return tuple(file for file in files if _known_parse(file, known.get(file.path)) is None)


def unchecked(loaded: Loaded) -> Loaded:
    """Return a copy for other checks: all is parsed again."""
    records = {
        # Good content with an empty digest matches no file.
        path: replace(record, parsed=None, good=None if record.good is None else replace(record.good, digest=""))
        for path, record in loaded.records.items()
    }
    return replace(loaded, records=FileRecords(HashTrieMap(records)), memory=None)


def load(tree: Tree, before: Loaded | None, parse: Parse, acceptance: Acceptance) -> Loaded:
    """`parse` is called once, with changed files."""
    memory = before.memory if before else None
    served = _served_by(before)
    fresh = {parsed.path: _undone(parsed, acceptance) for parsed in parse(changed_files(tree, before))}
    change = _change_of(TreeDifference.between(before, tree), fresh, served)
    locator = FieldLocator(tree, acceptance.locate_up_to_bytes)
    check = acceptance.check.tree_check(memory.check if memory else None, locator, served, acceptance.elsewhere)
    rules: tuple[FileRule, ...] = (unique_names, *check.rules)
    declared = _declared_by(before) if acceptance.authored_versions else None
    if declared is not None:
        rules = (*rules, AuthoredVersions(declared))
    rules = (*rules, ResourceLimit(acceptance.max_resources))
    changed = accept(change, rules, whole_trees=acceptance.whole_trees, report=check.report)
    records = FileRecords.of(served.records).with_changes(changed, change.gone)
    changes = served.changes_to(changed, change.gone)
    declared = None if declared is None else declarations_with(declared, changes.values())
    repeating = {path for path, change in changes.items() if change.repeats}
    known = served.repeating
    return Loaded(
        merge(records, changes, served.snapshot, declared),
        _problems(tree, before, records, changed.keys() | change.gone),
        tuple(_held(changed)),
        records,
        LoadMemory(tree, check.memory, known if known == repeating else (known - changes.keys()) | repeating, declared),
        check.wanted,
    )


def _undone(parsed: ParsedFile, acceptance: Acceptance) -> ParsedFile:
    """Add the problems of edits, which remain only without a layer below."""
    if not parsed.edits:
        return parsed
    found = nothing_below(parsed, (), acceptance.check.adjusted)
    return replace(parsed, problems=tuple(sorted((*parsed.problems, *found))))


def _served_by(before: Loaded | None) -> ServedFiles:
    if before is None:
        return ServedFiles()
    if before.memory is not None:
        return ServedFiles(before.snapshot, before.records, before.problems, before.memory.repeating)
    good = ((path, record.good.resources) for path, record in before.records.items() if record.good is not None)
    repeating = frozenset(path for path, resources in good if len(set(map(key_of, resources))) < len(resources))
    return ServedFiles(before.snapshot, before.records, before.problems, repeating)


def _declared_by(before: Loaded | None) -> Declarations:
    if before is None:
        return {}
    if before.memory is not None and before.memory.declarations is not None:
        return before.memory.declarations
    return declarations_of(record.good for record in before.records.values() if record.good is not None)


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """Files to examine, errors of other paths, and removed paths."""

    files: tuple[SourceFile, ...]
    errors: Mapping[PurePosixPath, Problem]
    gone: frozenset[PurePosixPath]

    @classmethod
    def between(cls, before: Loaded | None, tree: Tree) -> TreeDifference:
        """Unchanged file objects cost one comparison each."""
        errors = {problem.path: problem for problem in tree.problems if problem.severity is Severity.ERROR}
        if before is None:
            return cls(tree.files, errors, frozenset())
        if before.memory is None:
            files, missing = tree.files, set(before.records)
        else:
            files, missing = differing_files(before.memory.tree, tree)
            # Held files may become acceptable.
            missing.update(file.path for file in before.held)
            found = (tree.file_at(path) for path in missing.difference(file.path for file in files))
            files = (*files, *(file for file in found if file is not None))
        return cls(files, errors, frozenset(missing - errors.keys() - {file.path for file in files}))


def differing_files(before: Tree, tree: Tree) -> tuple[tuple[SourceFile, ...], set[PurePosixPath]]:
    """Return new file objects, and the paths of replaced or removed ones."""
    if isinstance(tree, OverlaidTree) and tree.below is before:
        return tuple(tree.changed.values()), set(tree.changed)
    gone, new = differing(before.files, tree.files)
    return new, {file.path for file in gone}


def _known_parse(file: SourceFile, record: FileRecord | None) -> ParsedFile | None:
    if record is None:
        return None
    if record.parsed is not None and record.parsed.digest == file.digest:
        return record.parsed
    return record.good if record.good is not None and record.good.digest == file.digest else None


def _change_of(
    difference: TreeDifference, fresh: Mapping[PurePosixPath, ParsedFile], served: ServedFiles
) -> TreeChange:
    present = {}
    for file in difference.files:
        record = served.records.get(file.path)
        parsed = fresh.get(file.path) or _known_parse(file, record)
        if record is None or parsed is None or not record.good is record.parsed is parsed:
            present[file.path] = FileRecord(parsed, None, parsed.problems if parsed else ())
    for path, problem in difference.errors.items():
        present[path] = FileRecord(None, None, (problem,))
    return TreeChange({path: present[path] for path in sorted(present, key=_parts)}, difference.gone, served)


# Same order as the paths themselves, in a tenth of the time.
_parts, _parts_of_problem = attrgetter("parts"), attrgetter("path.parts")


def _place(problem: Problem) -> tuple[object, ...]:
    path = problem.path.parts
    return path, problem.line, problem.column, problem.pointer, problem.rule, problem.message, problem.remedy


def _problems(
    tree: Tree, before: Loaded | None, records: Records, changed: Collection[PurePosixPath]
) -> tuple[Problem, ...]:
    """Only problems of `changed` files may differ from before."""
    of_tree: defaultdict[PurePosixPath, list[Problem]] = defaultdict(list)
    for problem in tree.problems:
        of_tree[problem.path].append(problem)
    old: tuple[Problem, ...] = ()
    if before is None or before.memory is None:
        paths = {*records, *of_tree}
    else:
        old, paths = before.problems, {*changed, *of_tree, *(problem.path for problem in before.memory.tree.problems)}
    pieces: list[Problem] = []
    start = 0
    for path in sorted(paths, key=_parts):
        first = bisect_left(old, path.parts, start, key=_parts_of_problem)
        pieces += old[start:first]
        record = records.get(path)
        pieces += sorted({*(record.problems if record else ()), *of_tree.get(path, ())}, key=_place)
        start = bisect_right(old, path.parts, first, key=_parts_of_problem)
    return (*pieces, *old[start:])


def _held(records: Records) -> Iterator[HeldFile]:
    for path in sorted(records, key=_parts):
        record = records[path]
        if record.is_held or record.good is None:
            first = next((p for p in record.problems if p.severity is Severity.ERROR), None)
            digest = record.parsed.digest if record.parsed else ""
            yield HeldFile(path, first, record.good is not None, digest)


def merge(
    records: Records,
    changes: Mapping[PurePosixPath, FileChange],
    before: Snapshot | None,
    declared: Declarations | None = None,
) -> Snapshot:
    """Make the snapshot of `records`, in which no name of a type is in two files.

    `changes` are of all files that are not served as before, or are not good. `before` shares unchanged parts. `declared` is
    None without authored versions.
    """
    generation = before.generation + 1 if before else 1
    was = _by_type(change.lost for change in changes.values())
    now = _by_type(change.added for change in changes.values())
    by_type, type_changes = {}, {}
    for type_url in TYPE_URLS:
        old = before.by_type[type_url] if before else Rows(type_url)
        new = now.get(type_url, {})
        removed = was.get(type_url, {}).keys() - new.keys()
        # This may run beside the event loop, which must not compute for long.
        by_type[type_url] = rows = old.with_changes(new.values(), removed).prepared()
        type_changes[type_url] = change_from(before, rows, generation)
    listed = frozenset[TypeUrl]().union(*{change.now.declared for change in changes.values() if change.now is not None})
    # A type stays declared when its last file goes.
    undeclared = before.undeclared if before else frozenset(TYPE_URLS)
    if not undeclared.isdisjoint(listed):  # else the same object, so that a thousand views share it
        undeclared -= listed
    never_good = [path for path in changes if path in records and records[path].good is None]
    incomplete = frozenset[TypeUrl]().union(*map(may_define, never_good))
    good = (record.good for record in records.values() if record.good is not None)
    return Snapshot(
        generation,
        MappingProxyType(by_type),
        MappingProxyType({}) if declared is None else authored_versions(declared, lambda: good),
        MappingProxyType(type_changes),
        incomplete,
        _withheld(undeclared, incomplete),
        undeclared,
    )


def _by_type(resources: Iterable[Iterable[Resource]]) -> Mapping[TypeUrl, Mapping[str, Resource]]:
    found: defaultdict[TypeUrl, dict[str, Resource]] = defaultdict(dict)
    for resource in chain.from_iterable(resources):
        found[resource.type_url][resource.name] = resource
    return found


def same_content(snapshot: Snapshot, other: Snapshot) -> bool:
    """Whether both serve the same to all clients."""
    return _served(snapshot) == _served(other)


def following(loaded: Loaded, before: Loaded, below: tuple[Snapshot, Snapshot]) -> Loaded:
    """Make `loaded` the successor of `before`, though loaded on another snapshot.

    `below` are the snapshots under both.
    """
    snapshot, was = loaded.snapshot, before.snapshot
    generation = was.generation + 1
    changes = {}
    for type_url, rows in snapshot.by_type.items():
        old, (now_below, old_below) = was.by_type[type_url], (each.by_type[type_url] for each in below)
        is_same = not rows.changes_over(now_below, old, old_below)
        changes[type_url] = was.changes[type_url] if is_same else type_change(old, rows, generation)
    undeclared = snapshot.undeclared & was.undeclared
    next_one = replace(
        snapshot,
        generation=generation,
        changes=MappingProxyType(changes),
        withheld=_withheld(undeclared, snapshot.incomplete),
        undeclared=snapshot.undeclared if undeclared == snapshot.undeclared else undeclared,
    )
    return replace(loaded, snapshot=next_one)


def _withheld(undeclared: frozenset[TypeUrl], incomplete: frozenset[TypeUrl]) -> frozenset[TypeUrl]:
    # If nothing was ever good in a tree, no type may be reported as empty.
    return undeclared & (incomplete if len(undeclared) < len(TYPE_URLS) else frozenset(TYPE_URLS))


def _served(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        dict(snapshot.versions),
        # Versions are digests of content; a TTL may change without them.
        {type_url: change.generation for type_url, change in snapshot.changes.items()},
        dict(snapshot.authored),
        snapshot.incomplete,
        snapshot.withheld,
        snapshot.undeclared,
        dict(snapshot.unresolved),
    )


def change_from(before: Snapshot | None, rows: Rows, generation: int) -> TypeChange:
    """Return a type's change in `before` if its rows are the same, else this generation's."""
    old = Rows(rows.type_url) if before is None else before.resources(rows.type_url)
    if before is not None and not rows.changes_since(old):
        return before.changes.get(rows.type_url) or type_change(old, rows, generation)
    return type_change(old, rows, generation)


def type_change(old: Rows, rows: Rows, generation: int) -> TypeChange:
    """Return a generation's change."""
    change = rows.changes_since(old)
    updated, removed = sorted(change.fresh | change.renewed), tuple(sorted(change.removed))
    added, changed = (tuple(name for name in updated if (name in old) is known) for known in (False, True))
    files = {rows[name].origin.path for name in updated} | {old[name].origin.path for name in removed}
    return TypeChange(generation, added, changed, removed, tuple(sorted(files)))


def may_define(path: PurePosixPath) -> frozenset[TypeUrl]:
    """Return the types that an unreadable file may define, by its name."""
    row = exact_type_from_path(path)
    return frozenset((row.type_url,)) if row else frozenset(TYPE_URLS)


Parse = Callable[[tuple[SourceFile, ...]], Iterable[ParsedFile]]
