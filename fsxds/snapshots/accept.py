"""Decides which changed files replace their last good content; the only place with this rule.

A bad file never removes resources: its last good content stays. A file is held back

* if it does not parse, or could not be read;
* if it defines a name, an address or a version of a type that another file owns, that is: is served with and still has.
  Without an owner, the first path wins;
* if it references a resource that no file serves, and Envoy would reject that, or wait for it in vain;
* with all other files, if a tree is accepted as a whole.

As no other file is held or served because of a held one, held files are tried again once the served files are known.

A removed file takes its resources along, unless in the same step a file appeared that does not parse, or is held and
defines some of the same names. It may have been renamed: its resources that no other file defines stay until the new
file is served or removed. A file that appeared as another vanished owns the names that both define.

Rules: an author's version changes with the content.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import ParsedFile, key_of
from fsxds.model.values import Problem, Severity, TypeUrl, Version
from fsxds.snapshots.proposals import (
    Conflicts,
    Decision,
    FileChange,
    FileRecord,
    FileRule,
    Proposal,
    Proposals,
    Records,
    ServedFiles,
)

# Each trial of a group of held files costs all rules once. Up to this many files are tried one by one.
MOST_TRIED_ALONE = 16

MISSING_LAYER = "missing-layer"
"""The rule of layers without a folder. Its errors belong to no file, so they hold back no whole tree."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The difference between a tree and the served files.

    `present` has the new and changed files, perhaps more; their `good` is ignored.
    """

    present: Records
    gone: frozenset[PurePosixPath]
    served: ServedFiles


def report_nothing(_: Decision) -> Conflicts:
    """Report no problem."""
    return {}


def accept(
    change: TreeChange,
    rules: Iterable[FileRule],
    *,
    whole_trees: bool,
    report: Callable[[Decision], Conflicts] = report_nothing,
) -> dict[PurePosixPath, FileRecord]:
    """Decide which content of changed files is served.

    `report` finds further problems in accepted files, which hold back none.

    Returns:
        The records of changed files, of removed files that are kept, and of files whose problems changed.
    """
    deciding = _Deciding(change, tuple(rules))
    decision = deciding.decide({})
    conflicts = deciding.conflicts_of_held(decision)
    while better := deciding.better_than(decision, conflicts):
        decision, conflicts = better, deciding.conflicts_of_held(better)
    decision.records.update({path: deciding.held_back(path, problems) for path, problems in conflicts.items()})
    records = dict(decision.records)
    for path, problems in report(decision).items():
        record = records.get(path)
        if record is None:
            record = change.served.records[path]
            record = replace(record, problems=record.parsed.problems if record.parsed else ())
        records[path] = replace(record, problems=record.problems + problems)
    if whole_trees and _has_error(records, change):
        before = change.served.records
        kept = {path: replace(before[path], parsed=None) for path in change.gone if before[path].good is not None}
        return kept | {path: replace(record, good=change.served.good(path)) for path, record in records.items()}
    return records


def _on_its_own(record: FileRecord, before: FileRecord | None) -> FileRecord:
    is_good = record.parsed is not None and (not record.problems or record.parsed.is_good)
    return FileRecord(record.parsed, record.parsed if is_good else before.good if before else None, record.problems)


@dataclass(frozen=True, slots=True)
class _Attempt(Decision):
    held: Mapping[PurePosixPath, tuple[Problem, ...]]


class _Deciding:
    def __init__(self, change: TreeChange, rules: tuple[FileRule, ...]) -> None:
        self._served = change.served
        self._before = change.served.records
        self._gone = {
            path: record
            for path in sorted(change.gone, key=lambda path: path.parts)
            if (record := self._before[path]).good is not None
        }
        self._fresh = {path: _on_its_own(record, self._before.get(path)) for path, record in change.present.items()}
        self._paths = change.gone | self._fresh.keys()
        self._rules = rules
        self._successors = self._find_successors()

    def decide(self, held: Mapping[PurePosixPath, tuple[Problem, ...]]) -> _Attempt:
        records, held, given_up = dict(self._fresh), dict(held), set[PurePosixPath]()
        records |= {path: self.held_back(path, problems) for path, problems in held.items()}
        while True:
            records |= self._kept_though_gone(records, given_up)
            proposals = self._proposals(records)
            conflicts = self._conflicts(proposals)
            if not conflicts:
                return _Attempt(records, proposals, held)
            for path, problems in conflicts.items():
                record = records.pop(path)
                if not record.suspects:
                    held[path] = problems
                    records[path] = self.held_back(path, problems)
                elif left := _without_redefined(record, self._proposals(records)):
                    records[path] = left
                else:
                    given_up.add(path)

    def better_than(self, attempt: _Attempt, conflicts: Conflicts) -> _Attempt | None:
        """Serve more of the held files and lose none; None if that is impossible."""
        for group in _groups([path for path in attempt.held if path not in conflicts]):
            tried = self.decide({path: problems for path, problems in attempt.held.items() if path not in group})
            if tried.held.keys() < attempt.held.keys():
                return tried
        return None

    def conflicts_of_held(self, attempt: _Attempt) -> Conflicts:
        if not attempt.held:
            return {}
        trials = [self._proposal(path, self._fresh[path], is_on_trial=True) for path in attempt.held]
        proposals = self._proposals(attempt.records, trials)
        conflicts: dict[PurePosixPath, tuple[Problem, ...]] = {}
        for rule in self._rules:
            for path, problems in rule(proposals).items():
                if path in attempt.held:
                    conflicts[path] = conflicts.get(path, ()) + problems
        return conflicts

    def held_back(self, path: PurePosixPath, problems: tuple[Problem, ...]) -> FileRecord:
        record = self._fresh[path]
        return replace(record, good=self._served.good(path), problems=record.problems + problems)

    def _conflicts(self, proposals: Proposals) -> Conflicts:
        # Rules never remove served content that is still in its file.
        movable = {proposal.path for proposal in proposals if proposal.is_gone or not proposal.is_last_good}
        for rule in self._rules:
            if found := {path: problems for path, problems in rule(proposals).items() if path in movable}:
                return found
        return {}

    def _proposals(self, records: Records, trials: Iterable[Proposal | None] = ()) -> Proposals:
        proposals = [self._proposal(path, record) for path, record in records.items()]
        return Proposals(self._served, filter(None, (*proposals, *trials)), self._paths)

    def _proposal(self, path: PurePosixPath, record: FileRecord, *, is_on_trial: bool = False) -> Proposal | None:
        if record.good is None:
            return None
        served = self._served.good(path)
        was = self._successors.get(path, ()) if served is None else (served,)
        return Proposal(path, record.good, served is record.good, bool(record.suspects), was, is_on_trial)

    def _find_successors(self) -> Mapping[PurePosixPath, tuple[ParsedFile, ...]]:
        gone = [record.good for record in self._gone.values() if record.good is not None]
        by_key = {key_of(resource): parsed for parsed in gone for resource in parsed.resources}
        successors = {}
        for path, record in self._fresh.items() if by_key else ():
            if path not in self._before and record.parsed is not None:
                found = {was.path: was for key in map(key_of, record.parsed.resources) if (was := by_key.get(key))}
                successors[path] = tuple(found.values())
        return successors

    def _kept_though_gone(
        self, records: Records, given_up: AbstractSet[PurePosixPath]
    ) -> Iterator[tuple[PurePosixPath, FileRecord]]:
        broken = {path for path, record in records.items() if record.good is None} if self._gone else set()
        appeared = sorted(path for path in broken if path not in self._before)
        for path, record in self._gone.items():
            if path in records or path in given_up or record.good is None:
                continue
            suspects = record.suspects & broken | {new for new in appeared if _may_hold(records[new], record.good)}
            if suspects:
                names = ", ".join(str(suspect) for suspect in sorted(suspects)[:3])
                fact = f"the file was removed, and the files that appeared with it do not load ({names}); its resources stay"
                problem = Problem.of_file(path, "vanished", fact, "fix the new file, or remove it as well")
                yield path, FileRecord(None, record.good, (problem,), suspects)


def _groups(candidates: list[PurePosixPath]) -> Iterator[AbstractSet[PurePosixPath]]:
    if candidates:
        yield frozenset(candidates)
    if 1 < len(candidates) <= MOST_TRIED_ALONE:
        yield from (frozenset(candidates) - {path} for path in candidates)
        yield from (frozenset({path}) for path in candidates)


def _without_redefined(record: FileRecord, others: Proposals) -> FileRecord | None:
    """Keep names that no other file defines; None if none or all are left."""
    was = record.good.resources if record.good else ()
    left = {id(resource) for resource in was if not others.defining(key_of(resource))}
    if not record.good or not 0 < len(left) < len(was):
        return None
    # The empty digest matches no file, so this is never mistaken for a file that came back.
    return replace(record, good=record.good.with_some(lambda resource: id(resource) in left, ""))


def _may_hold(record: FileRecord, gone: ParsedFile) -> bool:
    if record.parsed is None or not record.parsed.is_good:
        return True
    return not set(map(key_of, record.parsed.resources)).isdisjoint(map(key_of, gone.resources))


def _has_error(records: Records, change: TreeChange) -> bool:
    others = (problem for problem in change.served.problems if problem.path not in records)
    # Problems of removed files do not count.
    found = (*(problem for record in records.values() for problem in record.problems), *others)
    return any(
        one.severity is Severity.ERROR
        and one.rule != MISSING_LAYER
        and (one.path in records or one.path not in change.gone)
        for one in found
    )


Declarations = Mapping[tuple[TypeUrl, str | None], int]
"""The number of documents that declare a type with a version, or with None."""


def declarations_of(files: Iterable[ParsedFile]) -> Counter[tuple[TypeUrl, str | None]]:
    """Count the declarations in files."""
    documents = (document for parsed in files for document in parsed.documents)
    return Counter((type_url, document.version_info) for document in documents for type_url in document.declared)


def declarations_with(before: Declarations, changes: Collection[FileChange]) -> Declarations:
    """Return the declarations after some changes."""
    now = Counter(before)
    now.update(declarations_of(change.now for change in changes if change.now))
    now.subtract(declarations_of(change.was for change in changes if change.was))
    return +now


class AuthoredVersions:
    """Rejects second versions of a type, and new content under an old one."""

    def __init__(self, served: Declarations) -> None:
        self._served = served

    def __call__(self, proposals: Proposals) -> Conflicts:
        """Return the files to hold back."""
        declared = declarations_with(self._served, proposals.changes)
        declared = Counter(declared) + declarations_of(proposal.parsed for proposal in proposals.on_trial)
        agreed = {type_url: version for type_url, version in declared if version is not None}
        if len(agreed) < len(declared):
            found, agreed = _disagreements(proposals.all_files())
            if found:
                return {path: tuple(problems) for path, problems in found.items()}
        return {path: tuple(problems) for path, problems in _stale_versions(agreed, proposals).items()}


def _disagreements(proposals: tuple[Proposal, ...]) -> tuple[Mapping[PurePosixPath, list[Problem]], dict[TypeUrl, str]]:
    found: defaultdict[PurePosixPath, list[Problem]] = defaultdict(list)
    agreed: dict[TypeUrl, tuple[str, PurePosixPath]] = {}
    declared = [
        (proposal, type_url, document.version_info)
        for proposal in proposals
        for document in proposal.parsed.documents
        for type_url in sorted(document.declared)
    ]
    # Documents already served with the type come first.
    declared.sort(key=lambda one: (one[0].is_on_trial, not _serves(one[0], one[1])))
    for proposal, type_url, version_info in declared:
        if version_info is None:
            fact = f"there is no version_info for its {BY_TYPE_URL[type_url].noun}"
            problem = Problem.of_file(proposal.path, "no-version", fact, "add one, or set `versions: content`")
            found[proposal.path].append(problem)
            continue
        own = (version_info, proposal.path)
        version, path = agreed.get(type_url, own) if proposal.is_on_trial else agreed.setdefault(type_url, own)
        if version != version_info and not (proposal.is_on_trial and path == proposal.path):
            fact = f'version "{version_info}" is not that of {path}, "{version}"'
            remedy = "give all documents of a type one version"
            found[proposal.path].append(_wrong_version(proposal.path, "version-conflict", fact, remedy))
    return found, {type_url: version for type_url, (version, _) in agreed.items()}


def _stale_versions(agreed: Mapping[TypeUrl, str], proposals: Proposals) -> Mapping[PurePosixPath, list[Problem]]:
    found: defaultdict[PurePosixPath, list[Problem]] = defaultdict(list)
    served = proposals.served.snapshot
    stale = {
        type_url
        for type_url, version in agreed.items()
        if served is not None and served.authored.get(type_url) == version and _changes_content(type_url, proposals)
    }
    for proposal in proposals if stale else ():
        if proposal.is_on_trial or proposal.is_last_good:
            continue
        declared = (type_url for document in proposal.parsed.documents for type_url in sorted(document.declared))
        for type_url in dict.fromkeys(declared):
            if type_url in stale and _content(type_url, (proposal.parsed,)) != _content(type_url, proposal.was):
                fact = f'the {BY_TYPE_URL[type_url].noun} changed under the unchanged version "{agreed[type_url]}"'
                problem = _wrong_version(proposal.path, "stale-version", fact, "give new content a new version")
                found[proposal.path].append(problem)
    return found


def _changes_content(type_url: TypeUrl, proposals: Proposals) -> bool:
    rows = proposals.served.rows(type_url)
    added: dict[str, Version | None] = {}
    for change in proposals.changes:
        added |= {one.name: one.version for one in change.added if one.type_url == type_url}
    lost = {one.name for one in proposals.lost if one.type_url == type_url} - added.keys()
    return bool(lost) or any(name not in rows or rows[name].version != version for name, version in added.items())


def authored_versions(declarations: Declarations, good: Callable[[], Iterable[ParsedFile]]) -> Mapping[TypeUrl, str]:
    """Return the authored versions of types.

    `good` returns the served files in order: if versions disagree, the last counts.
    """
    authored = {type_url: Version(version) for type_url, version in declarations if version is not None}
    if len(authored) < sum(version is not None for _, version in declarations):
        declared = ((document, one) for parsed in good() for document in parsed.documents for one in document.declared)
        authored |= {
            one: Version(document.version_info) for document, one in declared if document.version_info is not None
        }
    return MappingProxyType(authored)


def _serves(proposal: Proposal, type_url: TypeUrl) -> bool:
    return proposal.is_last_good or any(type_url in was.declared for was in proposal.was)


def _content(type_url: TypeUrl, files: Iterable[ParsedFile]) -> dict[str, Version]:
    return {
        resource.name: resource.version
        for parsed in files
        for resource in parsed.resources
        if resource.type_url == type_url
    }


def _wrong_version(path: PurePosixPath, rule: str, fact: str, remedy: str) -> Problem:
    return replace(Problem.of_file(path, rule, fact, remedy), pointer="version_info")
