"""References between types, over a whole tree: dangling references and unused names.

A new file with a dangling reference is held back if that is an error. A served file stays, even if its referents are
removed; the error is reported at the references. So a tree with such an error may be held back when loaded anew.

A broken file causes no problems elsewhere. Its known names count as defined; if its content is unknown, no name of its
possible types is reported as missing. A new file that needs a name only in the broken one is held without a problem.

An edit costs only the changed files, and those that mention or define a changed name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType

from rpds import HashTrieMap

from fsxds.lint.claims import CLAIMS, MEMBERSHIP_RULES, ClaimKey, Memberships, MembershipScope, conflicts, owned_claims
from fsxds.lint.reference_findings import (
    REFERENTS,
    FileAt,
    ReferenceFinding,
    ReferenceFindings,
    ReferenceScope,
    declares,
    similar_names,
)
from fsxds.lint.rules import RuleLevels
from fsxds.lint.tree_names import (
    USERS,
    Definitions,
    KeySet,
    NamesChange,
    NamesOfFiles,
    OpenNames,
    OutsideNames,
    StaticNames,
    TouchedKeys,
    TreeNames,
    collection_of,
    source_key,
)
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, ParsedFile, Resource, key_of
from fsxds.model.values import Problem, Severity, TypeUrl, pointer_of
from fsxds.snapshots.load import may_define
from fsxds.snapshots.proposals import (
    Conflicts,
    Decision,
    FieldLocator,
    FileRule,
    Proposal,
    Proposals,
    Records,
    ServedFiles,
    problem_at,
)
from fsxds.snapshots.references import IN_FILE, ROUTES, VIRTUAL_HOST


@dataclass(frozen=True, slots=True)
class ReferenceMemory:
    """State from one tree to the next.

    Attributes:
        before: names that were served before the decision about the tree.
        after: names served by that decision.
        decided: contents of changed files. If the decision was not followed, `before` is still served.
        changed: names with changes from `before` to `after`.
        beside: names with changes from `after` to the report.
    """

    before: NamesOfFiles
    after: NamesOfFiles
    decided: Mapping[PurePosixPath, ParsedFile | None]
    reported: ReportedTree
    changed: TouchedKeys
    beside: TouchedKeys


class ReferenceCheck:
    """The check of one load of a tree."""

    def __init__(
        self, memory: ReferenceMemory | None, locator: FieldLocator, served: ServedFiles, settings: ReferenceSettings
    ) -> None:
        self.memory = memory
        self._locator = locator
        self._served = served
        self._settings = settings
        self._claims = {sort: settings.levels.severity_of(claim.rule) for sort, claim in CLAIMS.items()}
        self._names, self._touched = self._remembered()
        self._seen: tuple[Proposals, TreeNames] | None = None

    def _remembered(self) -> tuple[NamesOfFiles, TouchedKeys]:
        memory, good = self.memory, self._served.good
        if memory is None:
            files = tuple(record.good for record in self._served.records.values() if record.good is not None)
            resources = (resource for parsed in files for resource in parsed.resources)
            change = NamesChange.of(((), ()), (files, resources))
            names = TreeNames(NamesOfFiles(), change, Definitions(Proposals(self._served, ()), self._settings.outside))
            return names.of_files, names.touched
        if all(good(path) is parsed for path, parsed in memory.decided.items()):
            return memory.after, memory.beside
        return memory.before, memory.beside | memory.changed

    @property
    def rules(self) -> tuple[FileRule, ...]:
        """The rules that hold files back."""
        return self.hold_claims, self.hold

    @property
    def wanted(self) -> frozenset[Key]:
        """Undefined needed names; known after `report`, with an upstream."""
        if self.memory is None or not self._settings.outside.elsewhere:
            return frozenset()
        opened = self.memory.reported.open
        return frozenset(key for keys in (opened.missing, opened.elsewhere) for key in keys if key[0] in BY_TYPE_URL)

    def hold(self, proposals: Proposals) -> Conflicts:
        """Find new files that Envoy would reject, or wait for in vain; `report` gives reasons."""
        names = self._names_of(proposals)
        levels = self._settings.levels
        by_collections = any(levels.severity_of(rule, Severity.NOTE) is Severity.ERROR for rule in MEMBERSHIP_RULES)
        if not (names.open.missing or names.open.lacking or names.mentions.sources or by_collections):
            return {}
        # A name of an undeclared type is reported with a lower severity; a proposed file must not raise it.
        elsewhere, file_at = _declared_beside_trials(names, proposals), _files_of(proposals)
        memberships = Memberships(names)
        scope = memberships.scope(frozenset()) if by_collections else MembershipScope()
        held: dict[PurePosixPath, tuple[Problem, ...]] = {}
        for proposal in proposals:
            if proposal.is_last_good or proposal.is_gone:
                continue
            finder = ReferenceFindings(names, ReferenceScope(elsewhere | proposal.parsed.declared), file_at)
            found = [*finder.of_names(proposal.parsed), *finder.of_sources(proposal.parsed)]
            found += memberships.findings(proposal.parsed, scope) if by_collections else ()
            if any(finding.fault.severity is Severity.ERROR for finding in self._settings.adjusted(found)):
                held[proposal.path] = ()
        return held

    def hold_claims(self, proposals: Proposals) -> Conflicts:
        """Find files with others' addresses or domains."""
        sorts = {sort for sort, severity in self._claims.items() if severity is Severity.ERROR}
        paths = claiming(self._names_of(proposals), sorts)
        if not paths:
            return {}
        # Contested claims concern no other file.
        concerned = proposals.of_files(paths)
        files = ((proposal.parsed, proposal.is_on_trial) for proposal in concerned)
        found = conflicts(files, sorts, _owned_claims(concerned))
        parsed = {proposal.path: proposal.parsed for proposal in concerned if proposal.path in found}
        return {path: tuple(self._placed(parsed[path], findings)) for path, findings in found.items()}

    def _names_of(self, proposals: Proposals) -> TreeNames:
        if self._seen is None or self._seen[0] is not proposals:
            changes = [change for change in proposals.changes if change.was is not change.now]
            was = (change.was for change in changes if change.was)
            now = (change.now for change in changes if change.now)
            trials = (proposal.parsed for proposal in proposals.on_trial)
            difference = NamesChange.of((was, proposals.lost), ((*now, *trials), proposals.added))
            names = TreeNames(self._names, difference, Definitions(proposals, self._settings.outside))
            self._seen = proposals, names
        return self._seen[1]

    def report(self, decision: Decision) -> Conflicts:
        """Return reference problems of decided files as they are now, served or not, and of others with a changed report."""
        served, unserved = self._names_of(decision.proposals), _unserved_of(decision)
        definitions = Definitions(decision.proposals, self._settings.outside, unserved.added, unserved.absent)
        names = TreeNames(served.of_files, unserved.change, definitions, unserved.touched)
        before = self.memory.reported if self.memory else None
        known = KnownReport(before, self._touched | served.touched | names.touched)
        report = TreeReport(decision, names, self._settings, known)
        was = report.before.files
        now: dict[PurePosixPath, ReportedFindings] = {}
        for path in report.concerned:
            parsed, findings = report.file_at(path), self._settings.adjusted(report.findings(path))
            if parsed is not None and findings:
                same = was.get(path)
                if same is None or same.parsed is not parsed or same.findings != findings:
                    same = ReportedFindings(parsed, findings, tuple(self._placed(parsed, findings)))
                now[path] = same
        files = was
        # Files that are gone are proposals without a record: nothing is remembered of them either.
        for path in report.concerned | decision.records.keys() | decision.proposals.files:
            files = files if path in now or path not in files else files.discard(path)
        self.memory = ReferenceMemory(
            self._names,
            served.of_files,
            {path: change.now for path, change in decision.proposals.changes_by_path.items()},
            report.reported(files.update(now)),
            served.touched,
            names.touched,
        )
        found = report.concerned | decision.records.keys()
        return {path: now[path].problems if path in now else () for path in found if report.is_there(path)}

    def _placed(self, parsed: ParsedFile, findings: tuple[ReferenceFinding, ...]) -> Iterator[Problem]:
        places = self._locator.places(
            parsed, [(finding.resource.origin, finding.fault.field_path) for finding in findings]
        )
        for finding, place in zip(findings, places, strict=True):
            yield problem_at(place, finding.fault)


def _declared_beside_trials(names: TreeNames, proposals: Proposals) -> frozenset[TypeUrl]:
    tried = [one.parsed for one in proposals.of_files({proposal.path for proposal in proposals.on_trial})]
    counts = dict(names.mentions.declared)
    for type_url in (type_url for parsed in tried for type_url in parsed.declared):
        counts[type_url] -= 1
    return frozenset(type_url for type_url, count in counts.items() if count > 0)


def _owned_claims(proposals: Iterable[Proposal]) -> Mapping[ClaimKey, Resource]:
    owned: dict[ClaimKey, Resource] = {}
    for proposal in proposals:
        if proposal.was and not (proposal.is_last_good or proposal.is_gone or proposal.is_on_trial):
            # If two replace one that is gone, the first path owns the claims of both.
            owned = {**owned_claims(proposal.parsed, proposal.was), **owned}
    return owned


def _files_of(proposals: Proposals) -> FileAt:
    changed = {proposal.path: proposal.parsed for proposal in proposals}

    def file_at(path: PurePosixPath) -> ParsedFile | None:
        return changed.get(path) if path in proposals.files else proposals.served.good(path)

    return file_at


@dataclass(frozen=True, slots=True)
class _Unserved:
    """Unserved content of held files.

    Attributes:
        touched: names with changes from the served ones.
        absent: ids of served resources no longer in their files.
    """

    change: NamesChange
    touched: TouchedKeys
    added: tuple[Resource, ...]
    absent: frozenset[int]


def _unserved_of(decision: Decision) -> _Unserved:
    held = {path: record.parsed for path, record in decision.records.items() if record.is_held}
    served = decision.proposals.served
    changes = [served.change_to(path, parsed) for path, parsed in held.items()]
    added = tuple(resource for change in changes for resource in change.added)
    lost = tuple(resource for change in changes for resource in change.lost)
    files = tuple(parsed for parsed in held.values() if parsed is not None)
    return _Unserved(
        NamesChange.of(((), ()), (files, added)),
        NamesChange.of(((), lost), ((), ())).touched,
        added,
        frozenset(map(id, lost)) - frozenset(map(id, added)),
    )


# Problems of a whole resource, which name it.
_NAMED = frozenset({"duplicate-name"})

_Found = Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Rules' severities, and names outside of the tree."""

    levels: RuleLevels = field(default_factory=RuleLevels)
    outside: OutsideNames = field(default_factory=OutsideNames)

    @property
    def static(self) -> StaticNames:
        """The names of the bootstrap."""
        return self.outside.static

    def adjusted(self, findings: Iterable[ReferenceFinding]) -> tuple[ReferenceFinding, ...]:
        """Apply severities; drop rules that are off."""
        return tuple(
            ReferenceFinding(finding.resource, fault)
            for finding in findings
            if (fault := self.levels.adjusted(finding.fault)) is not None
        )


@dataclass(frozen=True, slots=True)
class ReportedFindings:
    """A file's report, and its basis."""

    parsed: ParsedFile
    findings: tuple[ReferenceFinding, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReportedTree:
    """A tree's report, and its basis.

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
    """The previous report, if known, and possibly changed names."""

    tree: ReportedTree | None
    touched: TouchedKeys


class TreeReport:
    """Faults of references, and files with a changed report."""

    def __init__(self, decision: Decision, names: TreeNames, settings: ReferenceSettings, known: KnownReport) -> None:
        self.before = known.tree or ReportedTree()
        self._decision = decision
        self._names = names
        self._settings = settings
        self._touched = known.touched
        # Files that rules hold back are ordered last.
        held = (path for path, one in decision.records.items() if one.is_held and one.parsed and one.parsed.is_good)
        self._held = frozenset(held)
        self._memberships = Memberships(names, self._held, self._held_good())
        self._references = self._scope()
        before = known.tree.collections if known.tree else None
        self._collections = self._memberships.scope(self._references.unknown, before, known.touched)
        self._harmless = self._harmless_conflicts()
        # No previous report is known.
        others = () if known.tree else decision.proposals.served.records
        self.concerned = frozenset(path for path in (*self._concerned(), *others) if self.is_there(path))

    @cached_property
    def _finder(self) -> ReferenceFindings:
        return ReferenceFindings(self._names, self._references, self.file_at)

    def is_there(self, path: PurePosixPath) -> bool:
        """Whether a file exists, or is kept."""
        return path in self._decision.records or path not in self._decision.proposals.files

    def file_at(self, path: PurePosixPath) -> ParsedFile | None:
        """Return current content, served or not, or None."""
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
        were = self.before.references.hints
        hints = similar_names(self._names, unknown, were) if opened.missing or were else were
        return ReferenceScope(declared, unknown, unused_of, self._first(declared, unknown), hints)

    def _first(self, declared: frozenset[TypeUrl], unknown: frozenset[TypeUrl]) -> Mapping[TypeUrl, str]:
        """One missing name of each type that the tree lacks is enough.

        All are reported if the rule's severity is set.
        """
        missing, static = self._names.open.missing, self._settings.static
        types = [one for one in missing.types if missing.of(one) and not declares(one, declared, static)]
        rules = self._settings.levels.changed
        return {one: self._first_of(one) for one in types if one not in unknown and REFERENTS[one].missing not in rules}

    def _first_of(self, type_url: TypeUrl) -> str:
        missing, before = self._names.open.missing, self.before.references.first.get(type_url)
        if before is None or (type_url, before) not in missing:
            return min(missing.of(type_url))
        return min((before, *(name for one, name in self._touched.names if one == type_url and (one, name) in missing)))

    def _harmless_conflicts(self) -> _Found:
        levels = {sort: self._settings.levels.severity_of(claim.rule) for sort, claim in CLAIMS.items()}
        sorts = {sort for sort, severity in levels.items() if severity not in {None, Severity.ERROR}}
        paths = sorted(claiming(self._names, sorts), key=lambda path: (path in self._held, path.parts))
        files = ((parsed, False) for path in paths if (parsed := self.file_at(path)) is not None)
        return conflicts(files, sorts) if paths else {}

    # The files to check

    def _concerned(self) -> Iterator[PurePosixPath]:
        yield from (resource.origin.path for resource in self._resources())
        now, before = self._harmless, self.before.harmless
        yield from (path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
        hints, were = self._collections.hints, self.before.collections.hints
        yield from (path for path, key in hints.keys() | were.keys() if hints.get((path, key)) != were.get((path, key)))
        yield from (path for path in self._decision.records if self._may_concern(path))

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


def claiming(names: TreeNames, sorts: Iterable[TypeUrl]) -> frozenset[PurePosixPath]:
    """Return files with contested claims of these kinds."""
    keys = ((sort, name) for sort in sorts for name in names.open.contested.of(sort))
    return frozenset(resource.origin.path for key in keys for resource in names.mentions.claims.of(key))


def _differing(keys: Iterable[Key], now: KeySet, before: KeySet) -> Iterator[Key]:
    return (key for key in keys if (key in now) != (key in before))


def _broken(records: Records) -> Iterator[tuple[PurePosixPath, ParsedFile | None]]:
    """One that is gone is known by its last content."""
    for path, record in records.items():
        if record.parsed is None or record.problems:
            is_broken = record.parsed is None or not record.parsed.is_good
            if is_broken and not record.suspects:
                yield path, record.parsed


def _types_of(files: Iterable[tuple[PurePosixPath, ParsedFile | None]]) -> frozenset[TypeUrl]:
    types = (may_define(path) | (parsed.declared if parsed else frozenset()) for path, parsed in files)
    return frozenset[TypeUrl]().union(*types)


def _names_are_known(parsed: ParsedFile) -> bool:
    """Every error lies within a resource with a readable name."""
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    if not errors:
        return True
    paths = (
        *(resource.origin.field_path for resource in parsed.resources),
        *(resource.field_path for resource in parsed.unread),
    )
    known = tuple(map(pointer_of, paths))
    return bool(known) and all(problem.pointer.startswith(known) or problem.rule in _NAMED for problem in errors)
