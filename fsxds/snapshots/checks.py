"""Rules over the resources of a whole tree: a name once in a type, one authored version for a type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL
from fsxds.snapshots.accept import Conflicts, Proposal
from fsxds.snapshots.document import duplicate_name
from fsxds.snapshots.parsed import Key, key_of
from fsxds.values import Problem, Resource, Snapshot, TypeUrl, Version


def names_are_unique(proposals: tuple[Proposal, ...]) -> Conflicts:
    """Find the names that stand in two files; the file that is trusted less is named, with all names that others have."""
    keys = [(r.type_url, r.name) for p in proposals for document in p.parsed.documents for r in document.resources]
    if len(set(keys)) == len(keys):
        return {}
    seen: dict[Key, Resource] = {}
    held: list[Proposal] = []
    for proposal in proposals:
        own = {key_of(resource): resource for resource in proposal.parsed.resources}
        # What is held back takes no names from those that come after it.
        if seen.keys().isdisjoint(own):
            seen |= own
        else:
            held.append(proposal)
    return {proposal.path: tuple(_doubles(proposal, seen)) for proposal in held}


def _doubles(proposal: Proposal, seen: Mapping[Key, Resource]) -> Iterator[Problem]:
    for resource in proposal.parsed.resources:
        if key_of(resource) in seen:
            yield duplicate_name(resource, seen[key_of(resource)])


class AuthoredVersions:
    """Holds authors to their versions, where those are served: one for a type, and a new one for new content."""

    def __init__(self, served: Snapshot | None) -> None:
        self._served = served

    def __call__(self, proposals: tuple[Proposal, ...]) -> Conflicts:
        """Find the files whose version disagrees with a more trusted one, or with the content that it was served with."""
        found: defaultdict[PurePosixPath, list[Problem]] = defaultdict(list)
        agreed: dict[TypeUrl, tuple[str, PurePosixPath]] = {}
        for proposal in proposals:
            for document in proposal.parsed.documents:
                for type_url in sorted(document.declared):
                    if document.version_info is None:
                        found[proposal.path].append(_no_version(proposal.path, type_url))
                        continue
                    version, path = agreed.setdefault(type_url, (document.version_info, proposal.path))
                    if version != document.version_info:
                        found[proposal.path].append(_disagrees(proposal.path, document.version_info, version, path))
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
        content = {
            resource.name: resource.version
            for proposal in proposals
            for resource in proposal.parsed.resources
            if resource.type_url == type_url
        }
        if content == {name: resource.version for name, resource in served.resources(type_url).items()}:
            return
        for proposal in proposals:
            if not proposal.is_last_good and type_url in proposal.parsed.declared:
                found[proposal.path].append(_same_version(proposal.path, type_url, Version(version)))


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
