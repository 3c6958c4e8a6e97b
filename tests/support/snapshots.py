"""Resources and snapshots written down by hand, for tests that need no files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import TypeUrl

ALL_TYPES = frozenset(row.type_url for row in RESOURCE_TYPES)

Contents = Mapping[str, Mapping[str, str]]
"""By the short name of a type (`EDS`): the content of each resource by its name. A type that is not in it was never declared."""


def type_url(short_name: str) -> TypeUrl:
    """Return the type URL of `EDS`."""
    return BY_SHORT_NAME[short_name.lower()].type_url


def resource(short_name: str, name: str, content: str = "1", path: str = "a.yaml", line: int = 1) -> Resource:
    """Make a resource whose body is its name and content."""
    body = f"{name}={content}".encode()
    url = type_url(short_name)
    return Resource(url, name, body, version_of_body(url, body), Origin(PurePosixPath(path), line))


def snapshot(
    contents: Contents,
    *,
    generation: int = 1,
    declared: Collection[str] = (),
    incomplete: Collection[str] = (),
    authored: Mapping[str, str] | None = None,
) -> Snapshot:
    """Make a snapshot of `contents`; `declared` are types that were spoken of once and are gone."""
    by_type = {
        url: Rows(
            url, {name: resource(short, name, content) for name, content in sorted(contents.get(short, {}).items())}
        )
        for short, url in ((row.short_name.upper(), row.type_url) for row in RESOURCE_TYPES)
    }
    undeclared = ALL_TYPES - {type_url(short) for short in (*contents, *declared)}
    unsure = frozenset(type_url(short) for short in incomplete)
    return Snapshot(
        generation,
        by_type,
        {type_url(short): version for short, version in (authored or {}).items()},
        incomplete=unsure,
        withheld=undeclared & (ALL_TYPES if undeclared == ALL_TYPES else unsure),
        undeclared=undeclared,
    )
