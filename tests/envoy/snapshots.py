"""Snapshots of made-up resources, for tests that look at names and versions only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, TypeChange, version_of_body
from fsxds.model.values import TypeUrl


def type_url(short_name: str) -> TypeUrl:
    """Return the type URL of `cds` and the like."""
    return BY_SHORT_NAME[short_name].type_url


def snapshot_of(
    content: Mapping[str, Mapping[str, str]],
    *,
    generation: int = 1,
    files: Mapping[str, str] | None = None,
    unsure: tuple[str, ...] = (),
) -> Snapshot:
    """Make a snapshot of `{"cds": {"a": "its body"}}`; each resource is at `<type>/<name>.yaml:7`.

    `files` is the file that last changed each type, `unsure` the types that a file which was never good may define. Types
    that are not in `content` are undeclared.
    """
    by_type: dict[TypeUrl, Rows] = {}
    for row in RESOURCE_TYPES:
        bodies = content.get(row.short_name, {})
        by_type[row.type_url] = Rows(
            row.type_url, {name: _resource(row.short_name, name, bodies[name]) for name in sorted(bodies)}
        )
    changes = {
        type_url(short_name): TypeChange(generation, files=(PurePosixPath(path),))
        for short_name, path in (files or {}).items()
    }
    return Snapshot(
        generation,
        by_type,
        changes=changes,
        incomplete=frozenset(map(type_url, unsure)),
        undeclared=frozenset(row.type_url for row in RESOURCE_TYPES if row.short_name not in content),
    )


def _resource(short_name: str, name: str, body: str) -> Resource:
    url, content = type_url(short_name), body.encode()
    return Resource(
        url, name, content, version_of_body(url, content), Origin(PurePosixPath(short_name, f"{name}.yaml"), 7)
    )
