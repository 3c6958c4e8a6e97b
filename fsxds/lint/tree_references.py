"""References between types, over a whole tree: whether what resources name is there, and whether anything names them.

A new file whose reference leads nowhere is held back where that is an error, as by any rule between files; references
among new files are fine in any direction. What is served already stays, whatever is taken away from it: to delete a
file is intended, and the error is reported at the places that still name what was in it. So a tree with such an
error may be served now, and be held back when it is loaded anew.

A broken file causes no problems elsewhere. The names in it that are known count as defined, and where its content is
not known, nothing of the types that it may define is reported as missing. A new file that needs what is only in the
broken one waits for it: it is held without a problem of its own.

Envoy asks for some resources by the collection that they are in: virtual hosts by their route configuration, endpoints by
their locality (`Memberships`). That a collection is empty, or that nothing asks for one, is reported once for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

from fsxds.lint.claims import CLAIMS, ClaimKey, conflicts, owned_claims
from fsxds.lint.reference_findings import (
    REFERENTS,
    KnownNames,
    ReferenceFinding,
    nearest,
    similar_names,
    source_findings,
)
from fsxds.lint.rules import RuleLevels
from fsxds.lint.tree_names import FileNames, NamesOfFiles, StaticNames, union
from fsxds.resource_types import route_configuration_of
from fsxds.resources import Key, ParsedFile, Resource
from fsxds.snapshots.check_protocol import Conflicts, FieldLocator, FileRule, Proposal, Records
from fsxds.snapshots.load import may_define
from fsxds.snapshots.references import ANY, CLUSTER, ROUTES, VIRTUAL_HOST
from fsxds.values import Fault, Problem, Severity, TypeUrl, pointer_of

# Each takes some milliseconds where there are many route configurations, whenever anything changes.
MOST_HINTS = 5

MEMBERSHIP_RULES = ("no-virtual-hosts", "no-lb-endpoints", "unused-virtual-host")


class Memberships:
    """Finds empty collections, and virtual hosts in collections that no resource asks for."""

    def __init__(self, files: Sequence[FileNames], unknown: frozenset[TypeUrl] = frozenset()) -> None:
        """Look at all files; of the types in `unknown`, nothing is reported as missing."""
        self._files = files
        self._unknown = unknown
        # Few files have to do with collections.
        self._present = frozenset[Key]().union(*(names.members for names in files if names.members))
        self._asked = frozenset[Key]().union(*(names.collections for names in files if names.collections))
        self._looked_up = 0

    @property
    def has_hosts_elsewhere(self) -> bool:
        """Whether some route configuration discovers virtual hosts that this tree does not have."""
        return any(type_url == VIRTUAL_HOST for type_url, _ in self._asked - self._present)

    def findings(self, files: Iterable[FileNames]) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
        """Return what is wrong with some of the files."""
        concerned = (names for names in files if names.collections or names.members)
        found = {names.parsed.path: (*self._empty(names), *self._unasked(names)) for names in concerned}
        return {path: findings for path, findings in found.items() if findings}

    def _empty(self, names: FileNames) -> Iterator[ReferenceFinding]:
        """Yield the collections that a file asks for, and that are empty."""
        for key, (resource, field_path) in names.collections.items():
            if key in self._present or key[0] in self._unknown:
                continue
            if key[0] == VIRTUAL_HOST:
                fact = f'there are no virtual hosts of route configuration "{resource.name}" in this tree'
                remedy = f'name them "{resource.name}/<name>", unless they come from elsewhere'
                rule = "no-virtual-hosts"
            else:
                fact = f'there is nothing in the collection "{key[1]}" in this tree'
                remedy = "name endpoints so that they are in it, unless they come from elsewhere"
                rule = "no-lb-endpoints"
            yield ReferenceFinding(resource, Fault(rule, fact, remedy, field_path, severity=Severity.NOTE))

    def _unasked(self, names: FileNames) -> Iterator[ReferenceFinding]:
        """Yield the first virtual host of each route configuration that is not there, or discovers none."""
        for key, host in names.members.items():
            if key[0] == VIRTUAL_HOST and key not in self._asked and self._has_routes:
                words = self._words(route_configuration_of(host.name))
                yield ReferenceFinding(host, Fault("unused-virtual-host", *words, severity=Severity.WARNING))

    @cached_property
    def _has_routes(self) -> bool:
        return ROUTES not in self._unknown and any(ROUTES in names.declared for names in self._files)

    @cached_property
    def _tables(self) -> Mapping[str, Resource]:
        files = (names.parsed for names in self._files if ROUTES in names.declared)
        return {one.name: one for parsed in files for one in parsed.resources if one.type_url == ROUTES}

    def _words(self, table: str) -> tuple[str, str]:
        """Return the fact and the remedy of virtual hosts that no route configuration asks for."""
        found = self._tables.get(table)
        if found is not None:
            fact = f'route configuration "{table}" at {found.origin} has no vhds; Envoy asks for none of its hosts'
            return fact, "add `vhds: {config_source: {ads: {}, resource_api_version: V3}}` to it"
        hint = self._nearest(table)
        remedy = f'did you mean "{hint}"?' if hint else "name the host after the route configuration that it belongs to"
        return f'there is no route configuration "{table}"; Envoy asks for none of its virtual hosts', remedy

    def _nearest(self, table: str) -> str:
        self._looked_up += 1
        if self._looked_up > MOST_HINTS:
            return ""
        return nearest((ROUTES, table), frozenset((ROUTES, name) for name in self._tables))


# Problems of a whole resource, which name it.
_NAMED = frozenset({"duplicate-name"})

_Found: TypeAlias = Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]


@dataclass(frozen=True, slots=True)
class ReportedFindings:
    """What was reported about a file, and why."""

    parsed: ParsedFile
    findings: tuple[ReferenceFinding, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReferenceMemory:
    """What is remembered from one tree to the next, so that only what changed is looked at."""

    names: Mapping[object, FileNames] = field(default_factory=lambda: MappingProxyType({}))
    reported: Mapping[PurePosixPath, ReportedFindings] = field(default_factory=lambda: MappingProxyType({}))
    hints: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))


class ReferenceCheck:
    """The check of references and claims, for one load of a tree."""

    def __init__(self, memory: ReferenceMemory, locator: FieldLocator, levels: RuleLevels, static: StaticNames) -> None:
        self.memory = memory
        self._names = NamesOfFiles(memory.names)
        self._locator = locator
        self._levels = levels
        self._static = static
        self._claims = {sort: levels.severity_of(claim.rule) for sort, claim in CLAIMS.items()}

    @property
    def rules(self) -> tuple[FileRule, ...]:
        """What holds files back: addresses and domains that others have, and references that lead nowhere."""
        return self.hold_claims, self.hold

    def hold(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the new files that Envoy would reject, or wait for in vain; `report` says why."""
        new = [proposal for proposal in proposals if not (proposal.is_last_good or proposal.is_gone)]
        if not new:
            return {}
        files = self._names.of_all(proposal.parsed for proposal in proposals)
        known, others = self._known_names(files), self._others(files, self._memberships_to_hold_by(files))
        # A name of a type that the tree does not declare is reported with a lower severity; a proposed file must not raise it.
        on_trial = {proposal.path for proposal in proposals if proposal.is_on_trial}
        declared_elsewhere = _declared(self._names.of_all(p.parsed for p in proposals if p.path not in on_trial))
        held = {}
        for proposal in new:
            names = self._names.of(proposal.parsed)
            own = replace(known, declared=declared_elsewhere | names.declared)
            found = self._adjusted((*own.findings(names), *others.get(proposal.path, ())))
            if any(finding.fault.severity is Severity.ERROR for finding in found):
                held[proposal.path] = ()
        return held

    def hold_claims(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the files whose listeners take the addresses of others, or their virtual hosts the domains of others."""
        is_new = any(not p.is_last_good and self._names.of(p.parsed).claims for p in proposals)
        sorts = {sort for sort, severity in self._claims.items() if severity is Severity.ERROR}
        if not is_new or not sorts:
            return {}
        files = self._names.of_all(p.parsed for p in proposals)
        trials = self._names.of_all(p.parsed for p in proposals if p.is_on_trial)
        found = conflicts(files, sorts, self._owned_claims(proposals), trials)
        parsed = {proposal.path: proposal.parsed for proposal in proposals if proposal.path in found}
        return {path: tuple(self._placed(parsed[path], findings)) for path, findings in found.items()}

    def _owned_claims(self, proposals: tuple[Proposal, ...]) -> Mapping[ClaimKey, Resource]:
        owned: dict[ClaimKey, Resource] = {}
        for proposal in proposals:
            if proposal.was and not (proposal.is_last_good or proposal.is_gone or proposal.is_on_trial):
                names = self._names.of(proposal.parsed)
                if names.claims:
                    # Of two that took the place of one which is gone, the first path owns what both claim.
                    owned = {**owned_claims(names, self._names.of_all(proposal.was)), **owned}
        return owned

    def report(self, records: Records) -> Mapping[PurePosixPath, tuple[Problem, ...]]:
        """Return what is wrong with the references of all files as they are now, served or not."""
        present = self._names.of_all(record.parsed for record in records.values() if record.parsed is not None)
        served = self._names.of_all(record.good for record in records.values() if record.good and record.is_held)
        broken = tuple(_broken(records))
        unknown = _types_of((path, parsed) for path, parsed in broken if parsed is None or not _names_are_known(parsed))
        known = replace(self._known_names(present + served), unknown=unknown)
        missing = union(filter(None, map(known.missing_from, present)))
        collections = Memberships(present + served, unknown)
        known = replace(
            known,
            hints=similar_names(missing, known.defined, self.memory.hints),
            unreported=known.of_elsewhere(missing, self._levels),
            unused=_unused(known, present + served, _types_of(broken) | _elsewhere(missing, collections)),
        )
        harmless, others = self._harmless_conflicts(present), self._others(present, collections)
        reported = {}
        for names in present:
            findings = known.findings(names)
            if harmless or others:
                findings += (*harmless.get(names.parsed.path, ()), *others.get(names.parsed.path, ()))
            if adjusted := self._adjusted(findings):
                reported[names.parsed.path] = self._reported(names.parsed, adjusted)
        self.memory = ReferenceMemory(self._names.memory, reported, known.hints)
        return {path: one.problems for path, one in reported.items()}

    def _harmless_conflicts(self, files: Iterable[FileNames]) -> _Found:
        sorts = {sort for sort, severity in self._claims.items() if severity not in {None, Severity.ERROR}}
        return conflicts(files, sorts) if sorts else {}

    def _memberships_to_hold_by(self, files: list[FileNames]) -> Memberships | None:
        """Return the collections where a rule about them is raised to an error, which none of them is by itself."""
        is_error = any(self._levels.severity_of(rule, Severity.NOTE) is Severity.ERROR for rule in MEMBERSHIP_RULES)
        return Memberships(files) if is_error else None

    def _others(self, files: list[FileNames], collections: Memberships | None) -> _Found:
        """Return what is wrong with files beside references to names; None where collections do not matter."""
        sources, lonely = source_findings(files), collections.findings(files) if collections else {}
        return {path: (*sources.get(path, ()), *lonely.get(path, ())) for path in sources.keys() | lonely.keys()}

    def _known_names(self, files: list[FileNames]) -> KnownNames:
        static = frozenset((CLUSTER, name) for name in self._static.clusters or ())
        defined = union((static, *(names.defined for names in files)))
        return KnownNames(defined, _declared(files), self._static)

    def _adjusted(self, findings: Iterable[ReferenceFinding]) -> tuple[ReferenceFinding, ...]:
        """Return findings with the severities that their rules have here, without those whose rules are off."""
        return tuple(
            ReferenceFinding(finding.resource, fault)
            for finding in findings
            if (fault := self._levels.adjusted(finding.fault)) is not None
        )

    def _reported(self, parsed: ParsedFile, findings: tuple[ReferenceFinding, ...]) -> ReportedFindings:
        before = self.memory.reported.get(parsed.path)
        if before is not None and before.parsed is parsed and before.findings == findings:
            return before
        return ReportedFindings(parsed, findings, tuple(self._placed(parsed, findings)))

    def _placed(self, parsed: ParsedFile, findings: tuple[ReferenceFinding, ...]) -> Iterator[Problem]:
        places = self._locator.locate(parsed, [(finding.resource, finding.fault.field_path) for finding in findings])
        for finding, (line, column) in zip(findings, places, strict=True):
            fault = finding.fault
            pointer = pointer_of(finding.resource.origin.field_path + fault.field_path)
            yield Problem(parsed.path, line, column, pointer, fault.rule, fault.message, fault.remedy, fault.severity)


def _declared(files: Iterable[FileNames]) -> frozenset[TypeUrl]:
    return frozenset[TypeUrl]().union(*{names.declared for names in files})


def _unused(known: KnownNames, files: Iterable[FileNames], half_read: frozenset[TypeUrl]) -> frozenset[Key]:
    """Return what no resource mentions, of the types whose users are all known, which those in `half_read` are not."""
    mentioned = union(names.mentioned for names in files)
    types = {
        type_url
        for type_url, referent in REFERENTS.items()
        if referent.users & known.declared and not referent.users & half_read and (type_url, ANY) not in mentioned
    }
    return (
        frozenset(key for key in known.defined - mentioned if key[0] in types and key[1] != ANY)
        if types
        else frozenset()
    )


def _elsewhere(missing: frozenset[Key], memberships: Memberships) -> frozenset[TypeUrl]:
    """Return the types of which more is in use than the tree has: routes of elsewhere may lead to any cluster."""
    routes = {type_url for type_url, _ in missing if type_url == ROUTES}
    return frozenset(routes | ({VIRTUAL_HOST} if memberships.has_hosts_elsewhere else set()))


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
    """Return whether every error of a file lies within a resource whose name could be read."""
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    if not errors:
        return True
    paths = (
        *(resource.origin.field_path for resource in parsed.resources),
        *(resource.field_path for resource in parsed.unread),
    )
    known = tuple(map(pointer_of, paths))
    return bool(known) and all(problem.pointer.startswith(known) or problem.rule in _NAMED for problem in errors)
