"""What the files of the mirror are, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.resources import Resource, version_of_body, version_of_set
from fsxds.transports.mirror_names import file_name_of
from fsxds.values import TypeUrl, Version

BUNDLES = tuple(row.type_url for row in RESOURCE_TYPES if row.rest_path and row.full_state_in_sotw)
SINGLES = tuple(row.type_url for row in RESOURCE_TYPES if row.rest_path and not row.full_state_in_sotw)
"""The types of one file each, and those of one file per resource (ENVOY.md B3). VHDS and LEDS have no form as files."""

FORMS = ("pb", "json", "yaml", "pb_text")
"""What the names of files can end with for Envoy (ENVOY.md B1): it takes any other suffix for JSON."""


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """One file as it should be: a DiscoveryResponse.

    `path` is relative to the directory. `is_stand_in`: nobody wrote this resource, it is an empty ClusterLoadAssignment
    for a cluster that still names it.
    """

    path: PurePosixPath
    type_url: TypeUrl
    version: Version
    resources: tuple[Resource, ...]
    is_stand_in: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what it holds."""
        return tuple(resource.name for resource in self.resources)


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of ours that is there. `content` is what it holds, None where that is not known."""

    type_url: TypeUrl
    names: tuple[str, ...]
    content: MirrorFile | None
    is_stand_in: bool = False


Held = Mapping[PurePosixPath, HeldFile]


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that was not done as asked: `subject` is a path or a resource, `reason` a sentence with the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What should be there in the end: `files`, and those of ours that stay as they are: `kept`.

    `kept_resources` tells what is kept although the snapshot does not have it, `left_sources` which config sources could
    not be pointed at a file.
    """

    files: Mapping[PurePosixPath, MirrorFile]
    kept: frozenset[PurePosixPath]
    kept_resources: tuple[Remark, ...] = ()
    left_sources: tuple[Remark, ...] = ()


# Making ten thousand paths takes longer than all else about an unchanged snapshot.
@lru_cache(maxsize=131_072)
def path_of(type_url: TypeUrl, name: str | None, suffix: str) -> PurePosixPath:
    """Return the path of a resource's file within the directory, or with None of a type's bundle."""
    short_name = BY_TYPE_URL[type_url].short_name
    return PurePosixPath(short_name + suffix if name is None else f"{short_name}/{file_name_of(name)}{suffix}")


def united(wanted: MirrorFile, before: MirrorFile | None) -> MirrorFile:
    """Return a bundle with what is wanted and, beside it, what was there before.

    Its version is the wanted one where nothing had to be kept, else the digest of what it holds, so that nobody takes it
    for the wanted one.
    """
    names = set(wanted.names)
    others = tuple(resource for resource in before.resources if resource.name not in names) if before else ()
    if not others or before is None:
        return wanted
    resources = tuple(sorted((*wanted.resources, *others), key=lambda resource: resource.name))
    if [(r.name, r.body) for r in resources] == [(r.name, r.body) for r in before.resources]:
        return replace(before, path=wanted.path)
    type_url = wanted.type_url
    version = version_of_set(type_url, ((r.name, version_of_body(type_url, r.body)) for r in resources))
    return MirrorFile(wanted.path, type_url, version, resources)
