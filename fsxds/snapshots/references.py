"""References between types, over a whole tree: whether what resources name is there, and whether anybody names them.

A new file whose reference leads nowhere is held back where that is an error, as by any rule between files; references
among new files are fine in any direction. What is served already stays, whatever is taken away from it: to delete a
file is its author's will, and the error is told at the places that still name what was in it. So a tree with such an
error may be served as it stands now, and be held back when it is loaded anew.

A broken file causes no problems elsewhere. The names in it that are known count as defined, and where its content is
not known, nothing of the types that it may define is said to be missing. A new file that needs what is only in the
broken one waits for it: it is held without a problem of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.rules.levels import RuleLevels
from fsxds.rules.mentions import ANY, CLUSTER, ROUTES
from fsxds.snapshots.accept import Conflicts, Proposal, Records
from fsxds.snapshots.address_conflicts import RULE as ADDRESS_RULE
from fsxds.snapshots.address_conflicts import address_conflicts
from fsxds.snapshots.file_names import FileNames, NameBook, Pages, union
from fsxds.snapshots.file_sources import RULE as SOURCE_RULE
from fsxds.snapshots.file_sources import source_findings
from fsxds.snapshots.findings import Finding, World
from fsxds.snapshots.merge import may_define
from fsxds.snapshots.parsed import Key, ParsedFile
from fsxds.snapshots.places import Places
from fsxds.snapshots.reference_words import REFERENTS
from fsxds.snapshots.similar_names import similar_names
from fsxds.snapshots.static_names import StaticNames
from fsxds.values import Problem, Severity, TypeUrl, pointer_of


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of a file, and what it came of."""

    parsed: ParsedFile
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReferenceMemory:
    """What is remembered from one tree to the next, so that only what changed is looked at."""

    names: Pages = field(default_factory=lambda: MappingProxyType({}))
    told: Mapping[PurePosixPath, Told] = field(default_factory=lambda: MappingProxyType({}))
    hints: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))


class References:
    """The rule about references, for one load of a tree."""

    def __init__(self, memory: ReferenceMemory, places: Places, levels: RuleLevels, static: StaticNames) -> None:
        self.memory = memory
        self._book = NameBook(memory.names)
        self._places = places
        self._levels = levels
        self._static = static

    def hold(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the new files that Envoy would refuse, or wait for in vain; `tell` says why."""
        new = [proposal for proposal in proposals if not (proposal.is_last_good or proposal.is_gone)]
        if not new:
            return {}
        files = self._book.all_of(proposal.parsed for proposal in proposals)
        world, sources = self._world(files), self._sources(files)
        found = {p.path: (*world.findings(self._book.of(p.parsed)), *sources.get(p.path, ())) for p in new}
        return {
            path: ()
            for path, findings in found.items()
            if any(finding.severity is Severity.ERROR for finding in findings)
        }

    def hold_addresses(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the files whose listeners take the addresses of others."""
        is_new = any(not p.is_last_good and self._book.of(p.parsed).claims for p in proposals)
        if not is_new or self._address_weight is not Severity.ERROR:
            return {}
        conflicts = address_conflicts(self._book.all_of(p.parsed for p in proposals), Severity.ERROR)
        parsed = {proposal.path: proposal.parsed for proposal in proposals if proposal.path in conflicts}
        return {path: tuple(self._placed(parsed[path], findings)) for path, findings in conflicts.items()}

    def tell(self, records: Records) -> Mapping[PurePosixPath, tuple[Problem, ...]]:
        """Say what is wrong with the references of all files as they stand there, served or not."""
        present = self._book.all_of(record.parsed for record in records.values() if record.parsed is not None)
        served = self._book.all_of(record.good for record in records.values() if record.good and record.is_held)
        broken = tuple(_broken(records))
        unknown = _types_of((path, parsed) for path, parsed in broken if parsed is None or not _names_are_known(parsed))
        world = replace(self._world(present + served), unknown=unknown)
        missing = union(filter(None, map(world.missing_from, present)))
        world = replace(
            world,
            hints=similar_names(missing, world.defined, self.memory.hints),
            quiet=world.of_elsewhere(missing),
            unused=_unused(world, present + served, missing, _types_of(broken)),
        )
        conflicts, sources = self._harmless_conflicts(present), self._sources(present)
        told = {}
        for names in present:
            findings = world.findings(names)
            if conflicts or sources:
                findings += (*conflicts.get(names.parsed.path, ()), *sources.get(names.parsed.path, ()))
            if findings:
                told[names.parsed.path] = self._told(names.parsed, findings)
        self.memory = ReferenceMemory(self._book.pages, told, world.hints)
        return {path: said.problems for path, said in told.items()}

    @property
    def _address_weight(self) -> Severity | None:
        return self._levels.changed.get(ADDRESS_RULE, Severity.ERROR)

    def _harmless_conflicts(self, files: Iterable[FileNames]) -> Mapping[PurePosixPath, tuple[Finding, ...]]:
        weight = self._address_weight
        return {} if weight is None or weight is Severity.ERROR else address_conflicts(files, weight)

    def _sources(self, files: list[FileNames]) -> Mapping[PurePosixPath, tuple[Finding, ...]]:
        found = source_findings(files)
        if SOURCE_RULE not in self._levels.changed:
            return found
        weight = self._levels.changed[SOURCE_RULE]
        if weight is None:
            return {}
        return {path: tuple(replace(finding, severity=weight) for finding in found[path]) for path in found}

    def _world(self, files: list[FileNames]) -> World:
        defined = union(names.defined for names in files)
        declared = frozenset[TypeUrl]().union(*{names.declared for names in files})
        some = {(type_url, ANY) for type_url in {type_url for type_url, _ in defined}}
        static = {(CLUSTER, name) for name in self._static.clusters or ()}
        return World(defined.union(some, static), declared, self._static, self._levels)

    def _told(self, parsed: ParsedFile, findings: tuple[Finding, ...]) -> Told:
        before = self.memory.told.get(parsed.path)
        if before is not None and before.parsed is parsed and before.findings == findings:
            return before
        return Told(parsed, findings, tuple(self._placed(parsed, findings)))

    def _placed(self, parsed: ParsedFile, findings: tuple[Finding, ...]) -> Iterator[Problem]:
        places = self._places.of(parsed, [(finding.resource, finding.field_path) for finding in findings])
        for finding, (line, column) in zip(findings, places, strict=True):
            pointer = pointer_of(finding.resource.origin.field_path + finding.field_path)
            rule, message, remedy = finding.rule, finding.message, finding.remedy
            yield Problem(parsed.path, line, column, pointer, rule, message, remedy, finding.severity)


def _unused(
    world: World, files: Iterable[FileNames], missing: frozenset[Key], half_read: frozenset[TypeUrl]
) -> frozenset[Key]:
    """Return what nobody mentions, of the types whose users are all known."""
    mentioned = union(names.mentioned for names in files)
    types = {
        type_url
        for type_url, referent in REFERENTS.items()
        if referent.users & world.declared and not referent.users & half_read and (type_url, ANY) not in mentioned
    }
    # Routes of elsewhere may lead to any cluster.
    if any(type_url == ROUTES for type_url, _ in missing):
        types.discard(CLUSTER)
    return frozenset(key for key in world.defined - mentioned if key[0] in types and key[1] != ANY)


def _broken(records: Records) -> Iterator[tuple[PurePosixPath, ParsedFile | None]]:
    """Yield the files that are there and could not be read, or not wholly. A file that is gone is known by what it was."""
    for path, record in records.items():
        if record.parsed is None or record.problems:
            is_broken = record.parsed is None or not record.parsed.is_good
            if is_broken and not record.suspects:
                yield path, record.parsed


def _types_of(files: Iterable[tuple[PurePosixPath, ParsedFile | None]]) -> frozenset[TypeUrl]:
    """Return the types that files may define."""
    types = (may_define(path) | (parsed.declared if parsed else frozenset()) for path, parsed in files)
    return frozenset[TypeUrl]().union(*types)


def _names_are_known(parsed: ParsedFile) -> bool:
    """Tell whether every error of a file lies within a resource whose name could be read."""
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    if not errors:
        return True
    known = tuple(pointer_of(resource.origin.field_path) for resource in parsed.resources)
    return bool(known) and all(problem.pointer.startswith(known) or problem.rule in _NAMED for problem in errors)


# Problems of a whole resource, whose name they tell.
_NAMED = frozenset({"duplicate-name"})
