"""Rules over the resources of a whole tree: a name once in a type, one authored version for a type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource, Snapshot
from fsxds.snapshots.accept import Conflicts, Proposal
from fsxds.snapshots.document import duplicate_name
from fsxds.snapshots.parsed import Key, ParsedFile, key_of
from fsxds.values import Problem, TypeUrl, Version


def names_are_unique(proposals: tuple[Proposal, ...]) -> Conflicts:
    """Find the names that stand in two files; the one that does not own the name is named, with all names that others have."""
    keys = [(r.type_url, r.name) for p in proposals for document in p.parsed.documents for r in document.resources]
    if len(set(keys)) == len(keys):
        return {}
    taken = _owned(proposals)
    held: list[Proposal] = []
    for proposal in proposals:
        own = {key_of(resource): resource for resource in proposal.parsed.resources}
        if any(_is_of_another(taken, key, proposal.path) for key in own):
            held.append(proposal)
        elif not proposal.is_on_trial:
            # What is held back takes no names from those that come after it.
            taken |= own
    return {proposal.path: tuple(_doubles(proposal, taken)) for proposal in held}


def _owned(proposals: tuple[Proposal, ...]) -> dict[Key, Resource]:
    """Return the names that files have and are served with; of those that are served as they are, the order tells."""
    owned: dict[Key, Resource] = {}
    for proposal in proposals:
        if proposal.was and not (proposal.is_last_good or proposal.is_gone or proposal.is_on_trial):
            served = {key_of(resource) for parsed in proposal.was for resource in parsed.resources}
            for resource in proposal.parsed.resources:
                if key_of(resource) in served:
                    owned.setdefault(key_of(resource), resource)
    return owned


def _is_of_another(taken: Mapping[Key, Resource], key: Key, path: PurePosixPath) -> bool:
    return key in taken and taken[key].origin.path != path


def _doubles(proposal: Proposal, taken: Mapping[Key, Resource]) -> Iterator[Problem]:
    for resource in proposal.parsed.resources:
        if _is_of_another(taken, key_of(resource), proposal.path):
            yield duplicate_name(resource, taken[key_of(resource)])


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
    noun = BY_TYPE_URL[type_url].noun
    return Problem(
        path,
        1,
        1,
        "",
        "no-version",
        f"there is no version_info for its {noun}",
        "add one, or serve `--versions content`",
    )


def _disagrees(path: PurePosixPath, version: str, agreed: str, other: PurePosixPath) -> Problem:
    return Problem(
        path, 1, 1, "version_info", "version-conflict", f'version "{version}" is not that of {other}, "{agreed}"',
        "give all documents of a type one version",
    )  # fmt: skip


def _same_version(path: PurePosixPath, type_url: TypeUrl, version: Version) -> Problem:
    noun = BY_TYPE_URL[type_url].noun
    return Problem(
        path, 1, 1, "version_info", "stale-version", f'the {noun} changed under the unchanged version "{version}"',
        "give new content a new version",
    )  # fmt: skip
