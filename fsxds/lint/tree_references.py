"""References between types, over a whole tree: dangling references and unused names.

A new file with a dangling reference is held back if that is an error; references among new files are fine in any
direction. A served file stays, even if its referents are removed: deleting a file is intended, and the error is
reported at the references to it. So a tree with such an error may be served now, and be held back when it is loaded
anew.

A broken file causes no problems elsewhere. Its known names count as defined; if its content is unknown, no name of its
possible types is reported as missing. A new file that needs a name only in the broken one is held without a problem.

After an edit only the changed files, and those that mention or define a changed name, are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.lint.claims import CLAIMS, ClaimKey, conflicts, owned_claims
from fsxds.lint.memberships import MEMBERSHIP_RULES, Memberships, MembershipScope
from fsxds.lint.mentions import NamesChange, TouchedKeys
from fsxds.lint.reference_findings import FileAt, ReferenceFinding, ReferenceFindings, ReferenceScope
from fsxds.lint.tree_names import Definitions, NamesOfFiles, TreeNames
from fsxds.lint.tree_report import KnownReport, ReferenceSettings, ReportedFindings, ReportedTree, TreeReport, claiming
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, ParsedFile, Resource
from fsxds.model.values import Problem, Severity, TypeUrl
from fsxds.snapshots.proposals import (
    Conflicts,
    Decision,
    FieldLocator,
    FileRule,
    Proposal,
    Proposals,
    ServedFiles,
    problem_at,
)


@dataclass(frozen=True, slots=True)
class ReferenceMemory:
    """State from one tree to the next, so that only changes are checked.

    Attributes:
        before: the names that were served before the decision about the tree.
        after: the names served by that decision.
        decided: the decided contents of changed files. If the decision was not followed, `before` is still served.
        changed: the names with changes from `before` to `after`.
        beside: the names with changes from `after` to the report.
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
        """Undefined needed names; known after `report`, if there is an upstream."""
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
        """Find files that claim others' addresses or domains."""
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
        """Return reference problems of files as they are now, served or not.

        They are the decided files, and others with a changed report.
        """
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
                now[path] = self._reported(parsed, findings, was.get(path))
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

    def _reported(
        self, parsed: ParsedFile, findings: tuple[ReferenceFinding, ...], before: ReportedFindings | None
    ) -> ReportedFindings:
        if before is not None and before.parsed is parsed and before.findings == findings:
            return before
        return ReportedFindings(parsed, findings, tuple(self._placed(parsed, findings)))

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
    """The unserved content of held files.

    Attributes:
        touched: the names with changes from the served ones.
        absent: the ids of served resources no longer in their files.
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
