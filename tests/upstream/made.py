"""Updates as an upstream sends them, and an upstream that takes them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import config_source_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.client.updates import ELSEWHERE, Update
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.proposals import NoCheck
from fsxds.upstream.holdings import ResponseReader
from fsxds.upstream.subscriptions import NameScope
from fsxds.upstream.upstream import Upstream
from tests.support.snapshots import type_url

CDS, EDS, RDS, VHDS = map(type_url, ("cds", "eds", "rds", "vhds"))
SERVER = "127.0.0.1:18000"
NOW_S = 1_000_000.0


def reader_of(catalogue: Catalogue, name: str = SERVER) -> ResponseReader:
    """Return what reads the responses of an upstream of this name."""
    return ResponseReader(catalogue, NoCheck(), name)


def upstream_of(catalogue: Catalogue, scope: NameScope | None = None) -> Upstream:
    """Return an upstream of which nothing is held."""
    return Upstream(UpstreamRule((SERVER,)), reader_of(catalogue), scope or NameScope())


def cluster(name: str, *, uses_eds: bool = False, timeout_s: int = 1) -> DynamicMessage:
    """Return a cluster; one that gets its endpoints from where it came from itself refers to them."""
    made = cluster_pb2.Cluster(name=name, connect_timeout={"seconds": timeout_s})
    if uses_eds:
        made.type = cluster_pb2.Cluster.EDS
        made.eds_cluster_config.eds_config.CopyFrom(config_source_pb2.ConfigSource(ads={}))
    return made


def endpoints(name: str, *ports: int) -> DynamicMessage:
    """Return the endpoints of a cluster."""
    made = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    for port in ports:
        address = made.endpoints.add().lb_endpoints.add().endpoint.address.socket_address
        address.address, address.port_value = "127.0.0.1", port
    return made


def routes(name: str, *clusters: str) -> DynamicMessage:
    """Return a route configuration that leads to clusters."""
    made = route_pb2.RouteConfiguration(name=name)
    host = made.virtual_hosts.add(name="all", domains=["*"])
    for each in clusters:
        host.routes.add(match={"prefix": f"/{each}"}, route={"cluster": each})
    return made


def virtual_host(name: str, *domains: str) -> DynamicMessage:
    """Return a virtual host of some domains."""
    return route_components_pb2.VirtualHost(name=name, domains=domains)


def came(
    of_type: TypeUrl, name: str, message: DynamicMessage, version: str = "", ttl_s: float | None = None
) -> Resource:
    """Return a resource as a client of the server reads it; without a version, it is that of its content."""
    body = message if isinstance(message, bytes) else message.SerializeToString()
    given = Version(version) or version_of_body(of_type, body)
    return Resource(of_type, name, body, given, ELSEWHERE, ttl_s=ttl_s)


def redirect(of_type: TypeUrl, name: str, locator: str) -> Resource:
    """Return a redirect as a client of the server reads it."""
    return Resource(of_type, name, b"", Version("1"), ELSEWHERE, redirect=locator)


def update(of_type: TypeUrl, messages: Mapping[str, DynamicMessage], *removed: str) -> Update:
    """Return a response of Delta with resources, by name, and removals."""
    return update_of(of_type, *(came(of_type, name, message) for name, message in messages.items()), removed=removed)


def update_of(of_type: TypeUrl, *resources: Resource, removed: tuple[str, ...] = ()) -> Update:
    """Return a response of Delta with resources and removals."""
    return Update(of_type, Version("1"), Nonce("1"), {each.name: each for each in resources}, removed)


def full_state(of_type: TypeUrl, messages: Mapping[str, DynamicMessage]) -> Update:
    """Return a response with the full state of a type."""
    return replace(update(of_type, messages), is_full=True)
