"""Snapshots from plain values, and what stands in a directory of mirrored files."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from fsxds.api.converter import Converter
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.transports.mirror.files import MirrorEncoding, MirrorFile
from tests.support.this_envoy import this_envoy

HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
ADS: dict[str, PlainValue] = {"resource_api_version": "V3", "ads": {}}
Plain = dict[str, PlainValue]


@functools.cache
def converter() -> Converter:
    """Converts to messages of that API."""
    return Converter(this_envoy())


def url(short_name: str) -> TypeUrl:
    """The type URL of a short name."""
    return BY_SHORT_NAME[short_name].type_url


def resource(short_name: str, value: Plain) -> Resource:
    """Make a resource of plain values."""
    row = BY_SHORT_NAME[short_name]
    fields = value if row.name_field else {key: field for key, field in value.items() if key != "name"}
    converted = converter().convert(fields, row.message_type)
    assert converted.message is not None, converted.faults
    body = converted.message.SerializeToString(deterministic=True)
    name = str(value[row.name_field or "name"])
    return Resource(row.type_url, name, body, version_of_body(row.type_url, body), Origin(PurePosixPath("a.yaml"), 1))


def snapshot(
    generation: int = 1, /, *, unsure: Mapping[str, Iterable[str]] | None = None, **values: list[Plain]
) -> Snapshot:
    """Make a snapshot of `cds=[{...}]`; `unsure={"withheld": ["cds"]}` names types for those fields of the snapshot.

    Types that are not mentioned at all are declared and empty.
    """
    rows = {
        row.type_url: Rows(
            row.type_url,
            {
                made.name: made
                for made in sorted(
                    (resource(row.short_name, v) for v in values.get(row.short_name, [])), key=lambda r: r.name
                )
            },
        )
        for row in RESOURCE_TYPES
    }
    marks = {field: frozenset(map(url, names)) for field, names in (unsure or {}).items()}
    return Snapshot(
        generation,
        MappingProxyType(rows),
        **marks,  # type: ignore[arg-type]
    )


def read(root: Path, path: str) -> MirrorFile:
    """Read a mirrored file; its form by its suffix, its type by its path."""
    found = PurePosixPath(path)
    content = MirrorEncoding(this_envoy(), found.suffix.removeprefix("."))
    row = BY_SHORT_NAME[found.parts[0] if len(found.parts) > 1 else found.stem]
    file = content.decode((root / path).read_bytes(), found, row.type_url)
    assert file is not None, path
    return file


def message(short_or_url: str, body: bytes) -> Any:
    """Parse a body."""
    row = BY_SHORT_NAME.get(short_or_url) or BY_TYPE_URL[TypeUrl(short_or_url)]
    return this_envoy().message_class(row.message_type).FromString(body)


def files_in(root: Path) -> set[str]:
    """All files below a directory but those of our own folder."""
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != ".fsxds"}


def static(name: str, port: int = 9) -> Plain:
    """A cluster of one endpoint."""
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment(name, port)}


def by_eds(name: str, service_name: str | None = None, source: Plain | None = None) -> Plain:
    """A cluster that takes its endpoints from EDS."""
    config: Plain = {"eds_config": source or ADS}
    if service_name:
        config["service_name"] = service_name
    return {"name": name, "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": config}


def assignment(name: str, *ports: int) -> Plain:
    """A ClusterLoadAssignment."""
    lb_endpoints: list[PlainValue] = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": lb_endpoints}]} if ports else {"cluster_name": name}


def routes(name: str, cluster: str) -> Plain:
    """A route table that sends everything to one cluster."""
    hosts: list[PlainValue] = [
        {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]}
    ]
    return {"name": name, "virtual_hosts": hosts}


def listener(name: str, port: int, *, filters: list[PlainValue] | None = None, **routing: PlainValue) -> Plain:
    """A listener with an HttpConnectionManager; `routing` is its `rds`, `route_config` or `scoped_routes`."""
    router: Plain = {"name": "router", "typed_config": {"@type": ROUTER}}
    manager: Plain = {"@type": HCM, "stat_prefix": name, "http_filters": [*(filters or []), router], **routing}
    return {
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def by_rds(name: str, port: int, route: str) -> Plain:
    """A listener that takes its routes from RDS."""
    return listener(name, port, rds={"route_config_name": route, "config_source": ADS})
