"""Snapshots of many clusters, and what is in a state directory, for the tests of the history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath

from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.name_table import NameTable
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Origin, Reference, Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import Severity, TypeUrl
from fsxds.snapshots.upstream_content import Held, HeldResource, origin_of

UPSTREAM = "10.0.0.1:18000"
CDS, EDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["eds"].type_url


def cluster(name: str, body: bytes = b"1", *, path: str = "clusters.yaml", ttl_s: float | None = None) -> Resource:
    """Return a cluster with an alias and a reference; its line is that of its name's length."""
    origin = Origin(PurePosixPath(path), len(name), 2, ("resources", 3))
    references = (Reference(EDS, name, ("eds_cluster_config", "service_name"), Severity.WARNING),)
    return Resource(CDS, name, body, version_of_body(CDS, body), origin, (f"{name}.alias",), ttl_s, references)


def clusters(count: int, changed: Mapping[int, bytes] | None = None) -> list[Resource]:
    """Return so many clusters, some of which have another body."""
    return [cluster(f"cluster-{number:05}", (changed or {}).get(number, b"%d" % number)) for number in range(count)]


def resource_of(name: str, body: bytes, type_url: TypeUrl = CDS) -> Resource:
    """Return a resource of the upstream."""
    return Resource(type_url, name, body, version_of_body(type_url, body), origin_of(UPSTREAM))


def held_resource(name: str, body: bytes = b"1", type_url: TypeUrl = CDS, received_s: float = 10.0) -> HeldResource:
    """Return a resource as its server numbers it."""
    return HeldResource(resource_of(name, body, type_url), f"v{len(body)}", UPSTREAM, received_s)


def held_of(*members: HeldResource) -> Held:
    """Return tables of resources."""
    by_type: dict[TypeUrl, dict[str, HeldResource]] = {}
    for one in members:
        by_type.setdefault(one.resource.type_url, {})[one.resource.name] = one
    return {type_url: NameTable(table) for type_url, table in by_type.items()}


def snapshot_of(resources: Iterable[Resource], before: Snapshot | None = None) -> Snapshot:
    """Return a snapshot of clusters, made of the one before where there is one."""
    members = {resource.name: resource for resource in resources}
    old = before.resources(CDS) if before else Rows(CDS)
    rows = old.with_changes(members.values(), old.keys() - members.keys())
    generation = before.generation + 1 if before else 1
    by_type = {row.type_url: rows if row.type_url == CDS else Rows(row.type_url) for row in RESOURCE_TYPES}
    return Snapshot(generation, by_type)


def assert_same(expected: Snapshot, found: Snapshot | None) -> None:
    """Check that two snapshots are equal to clients and to a rollout, whatever their generations."""
    assert found is not None
    assert dict(expected.versions) == dict(found.versions)
    for type_url, rows in expected.by_type.items():
        other = found.resources(type_url)
        assert list(rows) == list(other)
        for resource in rows.values():
            restored = other[resource.name]
            assert resource == restored
            assert (resource.origin.path, resource.references) == (restored.origin.path, restored.references)
    assert dict(expected.authored) == dict(found.authored)
    assert (expected.incomplete, expected.withheld, expected.undeclared) == (
        found.incomplete,
        found.withheld,
        found.undeclared,
    )


def objects_in(directory: Path) -> dict[bytes, bytes]:
    """Return the contents of all objects in the database of a directory by their digests."""
    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        return dict(connection.execute("SELECT digest, content FROM objects"))


def check_database(directory: Path) -> None:
    """Check that the database is whole, and that each object in it is named by something."""
    from fsxds.history.entries import ObjectTable

    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        table = ObjectTable(connection)
        assert set(table._uses) == set(objects_in(directory))


def reopened(state: State) -> State:
    """Return the state as another process has it when this one ended."""
    state.close()
    return State.open(state.path, state._directory._observer)
