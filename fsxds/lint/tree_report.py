"""The report on a tree's references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from rpds import HashTrieMap

from fsxds.lint.claims import CLAIMS, conflicts
from fsxds.lint.memberships import Memberships, MembershipScope
from fsxds.lint.mentions import KeySet, TouchedKeys, collection_of, source_key
from fsxds.lint.reference_findings import (
    REFERENTS,
    ReferenceFinding,
    ReferenceFindings,
    ReferenceScope,
    declares,
    similar_names,
)
from fsxds.lint.rules import RuleLevels
from fsxds.lint.tree_names import USERS, OpenNames, OutsideNames, StaticNames, TreeNames
from fsxds.model.resources import Key, ParsedFile, Resource, key_of
from fsxds.model.values import Problem, Severity, TypeUrl, pointer_of
from fsxds.snapshots.load import may_define
from fsxds.snapshots.proposals import Decision, FileRecord, Records
from fsxds.snapshots.references import IN_FILE, ROUTES, VIRTUAL_HOST

# Problems of a whole resource, which name it.
_NAMED = frozenset({"duplicate-name"})

_Found = Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """The rules' severities, and the names outside of the tree."""

    levels: RuleLevels = field(default_factory=RuleLevels)
    outside: OutsideNames = field(default_factory=OutsideNames)

    @property
    def static(self) -> StaticNames:
        """The names of the bootstrap."""
        return self.outside.static

    def adjusted(self, findings: Iterable[ReferenceFinding]) -> tuple[ReferenceFinding, ...]:
        """Apply the severities, and drop rules that are off."""
        return tuple(
            ReferenceFinding(finding.resource, fault)
            for finding in findings
            if (fault := self.levels.adjusted(finding.fault)) is not None
        )


@dataclass(frozen=True, slots=True)
class ReportedFindings:
    """The report on a file, and its basis."""

    parsed: ParsedFile
    findings: tuple[ReferenceFinding, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReportedTree:
    """The report on a tree, and its basis.

    Attributes:
        harmless: files with duplicate claims that are no error.
    """

    open: OpenNames = field(default_factory=OpenNames)
    references: ReferenceScope = field(default_factory=ReferenceScope)
    collections: MembershipScope = field(default_factory=MembershipScope)
    harmless: _Found = field(default_factory=lambda: MappingProxyType({}))
    files: HashTrieMap[PurePosixPath, ReportedFindings] = field(default_factory=HashTrieMap)


@dataclass(frozen=True, slots=True)
class KnownReport:
    """The previous report, if known, and possibly changed names since."""

    tree: ReportedTree | None
    touched: TouchedKeys


class TreeReport:
    """The faults of references, and files with a changed report."""

    def __init__(self, decision: Decision, names: TreeNames, settings: ReferenceSettings, known: KnownReport) -> None:
        self.before = known.tree or ReportedTree()
        self._decision = decision
        self._names = names
        self._settings = settings
        self._touched = known.touched
        # Files that rules hold back are ordered last.
        self._held = frozenset(path for path, one in decision.records.items() if one.is_held and _can_be_served(one))
        self._memberships = Memberships(names, self._held, self._held_good())
        self._references = self._scope()
        before = known.tree.collections if known.tree else None
        self._collections = self._memberships.scope(self._references.unknown, before, known.touched)
        self._harmless = self._harmless_conflicts()
        self._finder = ReferenceFindings(names, self._references, self.file_at)
        # No previous report is known.
        others = () if known.tree else decision.proposals.served.records
        self.concerned = frozenset(path for path in (*self._concerned(), *others) if self.is_there(path))

    def is_there(self, path: PurePosixPath) -> bool:
        """Whether a file exists, or is kept though it does not."""
        return path in self._decision.records or path not in self._decision.proposals.files

    def file_at(self, path: PurePosixPath) -> ParsedFile | None:
        """Return a file's current content, served or not, or None."""
        record = self._decision.records.get(path)
        if record is None and self.is_there(path):
            record = self._decision.proposals.served.records.get(path)
        return None if record is None else record.parsed

    def findings(self, path: PurePosixPath) -> tuple[ReferenceFinding, ...]:
        """Return the faults of a file."""
        parsed = self.file_at(path)
        if parsed is None:
            return ()
        return (
            *self._finder.of_names(parsed),
            *self._harmless.get(path, ()),
            *self._finder.of_sources(parsed),
            *self._memberships.findings(parsed, self._collections),
        )

    def reported(self, files: HashTrieMap[PurePosixPath, ReportedFindings]) -> ReportedTree:
        """Return the report, given those on files."""
        return ReportedTree(self._names.open, self._references, self._collections, self._harmless, files)

    # The scope of the report

    def _held_good(self) -> frozenset[int]:
        if not self._names.open.unasked:
            return frozenset()
        held = (record.good for record in self._decision.records.values() if record.is_held and record.good)
        return frozenset(id(resource) for parsed in held for resource in parsed.resources)

    def _scope(self) -> ReferenceScope:
        broken, opened = tuple(_broken(self._decision.records)), self._names.open
        unknown = _types_of((path, parsed) for path, parsed in broken if parsed is None or not _names_are_known(parsed))
        declared = frozenset(self._names.mentions.declared)
        # Routes from elsewhere may lead to any cluster.
        elsewhere = {ROUTES} if opened.missing.of(ROUTES) and ROUTES not in unknown else set()
        elsewhere |= {VIRTUAL_HOST} if opened.empty.of(VIRTUAL_HOST) else set()
        half_read = _types_of(broken) | elsewhere
        unused_of = frozenset(one for one in opened.unmentioned.types if USERS[one].isdisjoint(half_read))
        if self._settings.outside.elsewhere:
            # Resources of upstreams may use any name.
            unused_of = frozenset()
        hints = similar_names(self._names, unknown, self.before.references.hints)
        return ReferenceScope(declared, unknown, unused_of, self._first(declared, unknown), hints)

    def _first(self, declared: frozenset[TypeUrl], unknown: frozenset[TypeUrl]) -> Mapping[TypeUrl, str]:
        """One missing name of each type that the tree lacks is enough.

        All are reported if the settings change the severity of the rule.
        """
        missing, static = self._names.open.missing, self._settings.static
        types = [one for one in missing.types if missing.of(one) and not declares(one, declared, static)]
        rules = self._settings.levels.changed
        return {one: self._first_of(one) for one in types if one not in unknown and REFERENTS[one].missing not in rules}

    def _first_of(self, type_url: TypeUrl) -> str:
        missing, before = self._names.open.missing, self.before.references.first.get(type_url)
        if before is None or (type_url, before) not in missing:
            return min(missing.of(type_url))
        return min(name for one, name in (*self._new_names(type_url), (type_url, before)))

    def _new_names(self, type_url: TypeUrl) -> Iterator[Key]:
        return (key for key in self._touched.names if key[0] == type_url and key in self._names.open.missing)

    def _harmless_conflicts(self) -> _Found:
        levels = {sort: self._settings.levels.severity_of(claim.rule) for sort, claim in CLAIMS.items()}
        sorts = {sort for sort, severity in levels.items() if severity not in {None, Severity.ERROR}}
        paths = sorted(claiming(self._names, sorts), key=lambda path: (path in self._held, path.parts))
        files = ((parsed, False) for path in paths if (parsed := self.file_at(path)) is not None)
        return conflicts(files, sorts) if paths else {}

    # The files to check

    def _concerned(self) -> Iterator[PurePosixPath]:
        yield from (resource.origin.path for resource in self._resources())
        yield from (path for path in self._harmless.keys() | self.before.harmless.keys() if self._is_other_claim(path))
        hints, were = self._collections.hints, self.before.collections.hints
        yield from (path for path, key in hints.keys() | were.keys() if hints.get((path, key)) != were.get((path, key)))
        yield from (path for path in self._decision.records if self._may_concern(path))

    def _is_other_claim(self, path: PurePosixPath) -> bool:
        return self._harmless.get(path) != self.before.harmless.get(path)

    def _may_concern(self, path: PurePosixPath) -> bool:
        record, served = self._decision.records[path], self._decision.proposals.served
        before = served.records.get(path)
        if path in self.before.files or record.is_held or (before is not None and before.is_held):
            return True
        return any(map(self._has_findings, served.change_to(path, record.good).added))

    def _has_findings(self, resource: Resource) -> bool:
        opened = self._names.open
        if key_of(resource) in opened.unmentioned or (opened.unasked and resource.type_url == VIRTUAL_HOST):
            return True
        return any(
            key in opened.lacking if is_static else self._finder.is_missing(key) or type_url.startswith(IN_FILE)
            for type_url, name, _, _, is_static in resource.references
            if (key := (type_url, name))
        ) or bool(opened.empty)

    def _resources(self) -> Iterator[Resource]:
        opened, were, mentions = self._names.open, self.before.open, self._names.mentions
        yield from self._of_other_names()
        static = _differing(self._touched.static | self._touched.names, opened.lacking, were.lacking)
        yield from (resource for key in static for resource in mentions.static.of(key))
        for path in self._decision.records.keys() | self._decision.proposals.files:
            yield from mentions.sources.of(source_key(path))
        yield from self._of_other_collections()

    def _of_other_names(self) -> Iterator[Resource]:
        opened, were, mentions = self._names.open, self.before.open, self._names.mentions
        scope, before = self._references, self.before.references
        missing = set(_differing(self._touched.names, opened.missing, were.missing))
        types = scope.unknown ^ before.unknown | scope.declared ^ before.declared
        missing |= {(type_url, name) for type_url in types for name in opened.missing.of(type_url)}
        missing |= (scope.first.items() ^ before.first.items()) | {
            key for key in scope.hints.keys() | before.hints.keys() if scope.hints.get(key) != before.hints.get(key)
        }
        yield from (resource for key in missing for resource in mentions.demanded.of(key))
        unused = set(_differing(self._touched.names, opened.unmentioned, were.unmentioned))
        for one in scope.unused_of ^ before.unused_of:
            unused |= {(one, name) for names in (opened, were) for name in names.unmentioned.of(one)}
        yield from (resource for key in unused for resource in self._names.defining(key))

    def _of_other_collections(self) -> Iterator[Resource]:
        opened, were, mentions = self._names.open, self.before.open, self._names.mentions
        touched = self._touched.collections
        empty = set(_differing(touched, opened.empty, were.empty))
        types = self._collections.unknown ^ self.before.collections.unknown
        empty |= {(type_url, name) for type_url in types for name in opened.empty.of(type_url)}
        yield from (resource for key in empty for resource in mentions.asked.of(key))
        unasked = set(_differing(touched, opened.unasked, were.unasked))
        if opened.unasked:
            tables = {name for type_url, name in self._touched.names if type_url == ROUTES}
            unasked |= {(VIRTUAL_HOST, collection_of(VIRTUAL_HOST, f"{name}/")) for name in tables}
            is_other = self._collections.has_routes != self.before.collections.has_routes
            held = any(record.is_held for record in self._decision.records.values())
            unasked |= set(opened.unasked) if is_other or held else set()
        yield from (resource for key in unasked for resource in mentions.members.of(key))


def _can_be_served(record: FileRecord) -> bool:
    return record.parsed is not None and record.parsed.is_good


def claiming(names: TreeNames, sorts: Iterable[TypeUrl]) -> frozenset[PurePosixPath]:
    """Return the files with contested claims of these kinds."""
    keys = ((sort, name) for sort in sorts for name in names.open.contested.of(sort))
    return frozenset(resource.origin.path for key in keys for resource in names.mentions.claims.of(key))


def _differing(keys: Iterable[Key], now: KeySet, before: KeySet) -> Iterator[Key]:
    return (key for key in keys if (key in now) != (key in before))


def _broken(records: Records) -> Iterator[tuple[PurePosixPath, ParsedFile | None]]:
    """A file that is gone is known by its last content."""
    for path, record in records.items():
        if record.parsed is None or record.problems:
            is_broken = record.parsed is None or not record.parsed.is_good
            if is_broken and not record.suspects:
                yield path, record.parsed


def _types_of(files: Iterable[tuple[PurePosixPath, ParsedFile | None]]) -> frozenset[TypeUrl]:
    types = (may_define(path) | (parsed.declared if parsed else frozenset()) for path, parsed in files)
    return frozenset[TypeUrl]().union(*types)


def _names_are_known(parsed: ParsedFile) -> bool:
    """Whether every error of a file lies within a resource with a readable name."""
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    if not errors:
        return True
    paths = (
        *(resource.origin.field_path for resource in parsed.resources),
        *(resource.field_path for resource in parsed.unread),
    )
    known = tuple(map(pointer_of, paths))
    return bool(known) and all(problem.pointer.startswith(known) or problem.rule in _NAMED for problem in errors)
