"""Which files of a new tree may replace their last good content: the one home of "a file's last good content stays".

A bad file never takes resources away: what it held when it was last good stays, and other files are served as they are.
A file is held back

* when it does not parse, or could not be read;
* when it defines what another file owns (a name, an address, the version of a type): a file owns what it is served with,
  as long as it still has it, whatever else changed in it and whatever its path. Of what no file owns, the first path wins;
* when it refers to what no file serves, and Envoy would reject that, or wait for it in vain;
* with all others, where a tree is accepted whole or not at all.

What is held back counts for nothing: no other file is held because of it, and none is served because of it. So what the
rules held is tried again once it is known what is served.

A file that was removed takes its resources along, but for one case: it vanished in the very step in which a file appeared
that does not parse, or that is held and defines some of the same names. It may have been renamed; what it held, and no
other file does, stays until that file is served or removed. A file that appeared as another vanished owns the names that
both define.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import ParsedFile, Snapshot, key_of
from fsxds.snapshots.check_protocol import Conflicts, FileRecord, FileRule, Proposal, Records
from fsxds.values import Problem, Severity, TypeUrl, Version

# Each group of held files that is tried again costs all rules once; groups are tried one by one up to this many files.
MOST_TRIED_ALONE = 16


def report_nothing(_: Records) -> Conflicts:
    """Find nothing wrong."""
    return {}


def accept(
    present: Records,
    before: Records,
    rules: Iterable[FileRule],
    *,
    whole_trees: bool,
    report: Callable[[Records], Conflicts] = report_nothing,
) -> dict[PurePosixPath, FileRecord]:
    """Decide what is served of each file.

    Args:
        present: the files of the new tree, with what they parsed to and their own problems; `good` is not looked at.
        before: the records of the tree before.
        rules: the rules between files.
        whole_trees: one file with an error holds back all of them.
        report: finds what else is wrong with files as they were accepted, which holds none of them back.
    """
    fresh = {path: _on_its_own(record, before.get(path)) for path, record in present.items()}
    deciding = _Deciding(fresh, before, tuple(rules))
    decision = deciding.decide({})
    conflicts = deciding.conflicts_of_held(decision)
    while better := deciding.better_than(decision, conflicts):
        decision, conflicts = better, deciding.conflicts_of_held(better)
    records = decision.records | {path: deciding.held_back(path, problems) for path, problems in conflicts.items()}
    for path, problems in report(records).items():
        records[path] = replace(records[path], problems=records[path].problems + problems)
    if whole_trees and any(_has_error(record) for record in records.values()):
        return _as_before(records, before)
    return records


def _on_its_own(record: FileRecord, before: FileRecord | None) -> FileRecord:
    """Return the record of a file as if it were the only one: an error in it keeps its last good content."""
    is_good = record.parsed is not None and (not record.problems or record.parsed.is_good)
    return FileRecord(record.parsed, record.parsed if is_good else before.good if before else None, record.problems)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What is served of each file, and the files that rules held back, each with what they found."""

    records: dict[PurePosixPath, FileRecord]
    held: Mapping[PurePosixPath, tuple[Problem, ...]]


class _Deciding:
    """Decides about one tree: first as if all were served, then about those again that were held for what is not served."""

    def __init__(self, fresh: Records, before: Records, rules: tuple[FileRule, ...]) -> None:
        self._fresh = fresh
        self._before = before
        self._rules = rules
        self._heirs = _heirs(fresh, before)

    def decide(self, held: Mapping[PurePosixPath, tuple[Problem, ...]]) -> _Decision:
        """Serve all files but those in `held`, and those that the rules hold back then."""
        records, held, given_up = dict(self._fresh), dict(held), set[PurePosixPath]()
        records |= {path: self.held_back(path, problems) for path, problems in held.items()}
        while True:
            records |= _kept_though_gone(records, self._before, given_up)
            conflicts = self._conflicts(records)
            if not conflicts:
                return _Decision(records, held)
            for path, problems in conflicts.items():
                record = records.pop(path)
                if not record.suspects:
                    held[path] = problems
                    records[path] = self.held_back(path, problems)
                elif left := _what_is_left(record, records):
                    records[path] = left
                else:
                    given_up.add(path)

    def better_than(self, decision: _Decision, conflicts: Conflicts) -> _Decision | None:
        """Return a decision that serves all that this one serves, and some of what it held; None where there is none."""
        for group in _groups([path for path in decision.held if path not in conflicts]):
            tried = self.decide({path: problems for path, problems in decision.held.items() if path not in group})
            if tried.held.keys() < decision.held.keys():
                return tried
        return None

    def conflicts_of_held(self, decision: _Decision) -> Conflicts:
        """Return what the rules find in the files that they held, beside what is served and what other held files define."""
        if not decision.held:
            return {}
        trials = [self._proposal(path, self._fresh[path], is_on_trial=True) for path in sorted(decision.held)]
        proposals = tuple(sorted((*self._proposals(decision.records), *filter(None, trials)), key=_trust))
        conflicts: dict[PurePosixPath, tuple[Problem, ...]] = {}
        for rule in self._rules:
            for path, problems in rule(proposals).items():
                if path in decision.held:
                    conflicts[path] = conflicts.get(path, ()) + problems
        return conflicts

    def _conflicts(self, records: Records) -> Conflicts:
        proposals = tuple(sorted(self._proposals(records), key=_trust))
        # What is served already, and still there, is never taken away by a rule.
        movable = {proposal.path for proposal in proposals if proposal.is_gone or not proposal.is_last_good}
        for rule in self._rules:
            if found := {path: problems for path, problems in rule(proposals).items() if path in movable}:
                return found
        return {}

    def _proposals(self, records: Records) -> Iterator[Proposal]:
        for path, record in records.items():
            if proposal := self._proposal(path, record):
                yield proposal

    def _proposal(self, path: PurePosixPath, record: FileRecord, *, is_on_trial: bool = False) -> Proposal | None:
        if record.good is None:
            return None
        before = self._before.get(path)
        served = before.good if before else None
        was = self._heirs.get(path, ()) if served is None else (served,)
        return Proposal(path, record.good, served is record.good, bool(record.suspects), was, is_on_trial)

    def held_back(self, path: PurePosixPath, problems: tuple[Problem, ...]) -> FileRecord:
        """Return the record of a file that rules hold back: what was good of it stays."""
        record, before = self._fresh[path], self._before.get(path)
        return replace(record, good=before.good if before else None, problems=record.problems + problems)


def _groups(candidates: list[PurePosixPath]) -> Iterator[AbstractSet[PurePosixPath]]:
    """Yield what to try: all of them, all but one, and one."""
    if candidates:
        yield frozenset(candidates)
    if 1 < len(candidates) <= MOST_TRIED_ALONE:
        yield from (frozenset(candidates) - {path} for path in candidates)
        yield from (frozenset({path}) for path in candidates)


def _heirs(present: Records, before: Records) -> Mapping[PurePosixPath, tuple[ParsedFile, ...]]:
    """Return for files that appeared what was served of files that vanished and share names with them: renamed files."""
    gone = [record.good for path, record in before.items() if record.good is not None and path not in present]
    if not gone:
        return {}
    by_key = {key_of(resource): parsed for parsed in gone for resource in parsed.resources}
    heirs = {}
    for path, record in present.items():
        if path not in before and record.parsed is not None:
            found = {was.path: was for key in map(key_of, record.parsed.resources) if (was := by_key.get(key))}
            heirs[path] = tuple(found.values())
    return heirs


def _what_is_left(record: FileRecord, others: Records) -> FileRecord | None:
    """Return the record of a file that was removed with what no other file defines; None where that is nothing."""
    was = record.good.resources if record.good else ()
    taken = {key_of(resource) for other in others.values() if other.good for resource in other.good.resources}
    left = [resource for resource in was if key_of(resource) not in taken]
    if not record.good or not 0 < len(left) < len(was):
        return None
    documents = tuple(
        replace(document, resources=tuple(resource for resource in document.resources if key_of(resource) not in taken))
        for document in record.good.documents
    )
    # No content of any file is this one, so that it cannot be taken for a file that came back.
    return replace(record, good=replace(record.good, documents=documents, digest=""))


def _kept_though_gone(
    records: Records, before: Records, given_up: AbstractSet[PurePosixPath]
) -> Iterator[tuple[PurePosixPath, FileRecord]]:
    """Yield the records of files that vanished and may have been renamed, except those that were given up."""
    broken = {path for path, record in records.items() if record.was_never_good}
    appeared = sorted(broken - before.keys())
    for path, record in before.items():
        if path in records or path in given_up or record.good is None:
            continue
        suspects = record.suspects & broken | {new for new in appeared if _may_hold(records[new], record.good)}
        if suspects:
            yield path, FileRecord(None, record.good, (_vanished(path, suspects),), suspects)


def _may_hold(record: FileRecord, gone: ParsedFile) -> bool:
    """Return whether a file may be the new form of another: it shares a name, or its names are not known."""
    if record.parsed is None or not record.parsed.is_good:
        return True
    return not set(map(key_of, record.parsed.resources)).isdisjoint(map(key_of, gone.resources))


def _vanished(path: PurePosixPath, suspects: frozenset[PurePosixPath]) -> Problem:
    names = ", ".join(str(suspect) for suspect in sorted(suspects)[:3])
    fact = f"the file was removed, and what appeared with it does not load ({names}); what it held is kept"
    return Problem.of_file(path, "vanished", fact, "fix the new file, or remove it as well")


def _trust(proposal: Proposal) -> tuple[bool, bool, bool, tuple[str, ...]]:
    # Comparing the parts is what comparing the paths does, and takes a tenth of the time.
    return proposal.is_gone, proposal.is_on_trial, not proposal.is_last_good, proposal.path.parts


def _has_error(record: FileRecord) -> bool:
    return any(problem.severity is Severity.ERROR for problem in record.problems)


def _as_before(records: Records, before: Records) -> dict[PurePosixPath, FileRecord]:
    """Serve nothing new: every file keeps its last good content, also those that were removed."""
    kept = {path: replace(record, parsed=None) for path, record in before.items() if record.good is not None}
    present = {
        path: replace(record, good=before[path].good if path in before else None) for path, record in records.items()
    }
    return kept | present


class AuthoredVersions:
    """Holds authors to their versions, where those are served: one for a type, and a new one for new content."""

    def __init__(self, served: Snapshot | None) -> None:
        self._served = served

    def __call__(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the files whose version disagrees with a more trusted one, or with the content that it was served with."""
        found: defaultdict[PurePosixPath, list[Problem]] = defaultdict(list)
        agreed: dict[TypeUrl, tuple[str, PurePosixPath]] = {}
        for proposal, type_url, version_info in _declarations(proposals):
            if version_info is None:
                found[proposal.path].append(_no_version(proposal.path, type_url))
                continue
            own = (version_info, proposal.path)
            version, path = agreed.get(type_url, own) if proposal.is_on_trial else agreed.setdefault(type_url, own)
            if version != version_info and not (proposal.is_on_trial and path == proposal.path):
                found[proposal.path].append(_disagrees(proposal.path, version_info, version, path))
        if not found:
            for type_url, (version, _) in agreed.items():
                self._compare(type_url, version, proposals, found)
        return {path: tuple(problems) for path, problems in found.items()}

    def _compare(
        self,
        type_url: TypeUrl,
        version: str,
        proposals: tuple[Proposal, ...],
        found: defaultdict[PurePosixPath, list[Problem]],
    ) -> None:
        served = self._served
        if served is None or served.authored.get(type_url) != version:
            return
        counted = [proposal for proposal in proposals if not proposal.is_on_trial]
        content = _content(type_url, (proposal.parsed for proposal in counted))
        if content == {name: resource.version for name, resource in served.resources(type_url).items()}:
            return
        for proposal in counted:
            if proposal.is_last_good or type_url not in proposal.parsed.declared:
                continue
            if _content(type_url, (proposal.parsed,)) != _content(type_url, proposal.was):
                found[proposal.path].append(_same_version(proposal.path, type_url, Version(version)))


def _declarations(proposals: tuple[Proposal, ...]) -> list[tuple[Proposal, TypeUrl, str | None]]:
    """Return the version that each document gives each of its types, those first that are served with the type."""
    declared = [
        (proposal, type_url, document.version_info)
        for proposal in proposals
        for document in proposal.parsed.documents
        for type_url in sorted(document.declared)
    ]
    return sorted(declared, key=lambda one: (one[0].is_on_trial, not _serves(one[0], one[1])))


def _serves(proposal: Proposal, type_url: TypeUrl) -> bool:
    return proposal.is_last_good or any(type_url in was.declared for was in proposal.was)


def _content(type_url: TypeUrl, files: Iterable[ParsedFile]) -> dict[str, Version]:
    """Return the versions of the resources of a type by their names."""
    return {
        resource.name: resource.version
        for parsed in files
        for resource in parsed.resources
        if resource.type_url == type_url
    }


def _no_version(path: PurePosixPath, type_url: TypeUrl) -> Problem:
    fact = f"there is no version_info for its {BY_TYPE_URL[type_url].noun}"
    return Problem.of_file(path, "no-version", fact, "add one, or serve `--versions content`")


def _disagrees(path: PurePosixPath, version: str, agreed: str, other: PurePosixPath) -> Problem:
    fact = f'version "{version}" is not that of {other}, "{agreed}"'
    return _wrong_version(path, "version-conflict", fact, "give all documents of a type one version")


def _same_version(path: PurePosixPath, type_url: TypeUrl, version: Version) -> Problem:
    fact = f'the {BY_TYPE_URL[type_url].noun} changed under the unchanged version "{version}"'
    return _wrong_version(path, "stale-version", fact, "give new content a new version")


def _wrong_version(path: PurePosixPath, rule: str, fact: str, remedy: str) -> Problem:
    return replace(Problem.of_file(path, rule, fact, remedy), pointer="version_info")
