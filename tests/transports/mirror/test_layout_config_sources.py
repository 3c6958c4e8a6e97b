"""Config sources inside of resources, and the files that take their place."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from fsxds.model.resources import Origin
from fsxds.model.values import PlainValue
from fsxds.transports.config_sources import RequestedResources
from fsxds.transports.mirror.layout import Find, MirrorConfigSources
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import (
    ADS,
    HCM,
    Plain,
    by_eds,
    by_rds,
    listener,
    message,
    resource,
    static,
    url,
)

REST: Plain = {
    "resource_api_version": "V3",
    "initial_fetch_timeout": "3s",
    "api_config_source": {
        "api_type": "REST",
        "transport_api_version": "V3",
        "cluster_names": ["xds"],
        "refresh_delay": "1s",
    },
}
GRPC: Plain = {
    "resource_api_version": "V3",
    "api_config_source": {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}],
    },
}
SELF: Plain = {"resource_api_version": "V3", "self": {}}
MUTATION = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"


def found(reference: RequestedResources) -> PurePosixPath:
    """Have every file there is, called after what is asked for."""
    names = "scoped" if reference.names is None else "+".join(reference.names)
    return PurePosixPath("/out", reference.type_url.rpartition(".")[2], names)


def missing(_: RequestedResources) -> None:
    """Have no file at all."""


@pytest.fixture
def sources() -> MirrorConfigSources:
    return MirrorConfigSources(this_envoy())


def paths(sources: MirrorConfigSources, short_name: str, value: Plain, find: Find = found) -> list[str]:
    """Rewrite, and return all paths that then stand in the resource, at whatever depth."""
    rewritten = sources.rewrite(resource(short_name, value), find).resource
    plain = _plain(rewritten.body, short_name)
    return sorted(_paths(plain))


def _plain(body: bytes, short_name: str) -> Any:
    from google.protobuf.json_format import MessageToDict

    made = message(short_name, body)
    return MessageToDict(made, preserving_proto_field_name=True, descriptor_pool=this_envoy().pool)


def _paths(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["path_config_source"]["path"]] if "path_config_source" in value else []
        return own + [path for inner in value.values() for path in _paths(inner)]
    return [path for inner in value for path in _paths(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("source", [ADS, REST, GRPC, SELF])
def test_sources_of_every_server_become_paths(sources: MirrorConfigSources, source: Plain) -> None:
    """ADS, REST, gRPC and `self` give way to the path; the time limit of the first fetch stays."""
    rewritten = sources.rewrite(resource("cds", by_eds("web", source=source)), found)

    config = message("cds", rewritten.resource.body).eds_cluster_config.eds_config
    assert config.path_config_source.path == "/out/ClusterLoadAssignment/web"
    assert config.WhichOneof("config_source_specifier") == "path_config_source"
    assert config.resource_api_version == 2
    assert config.HasField("initial_fetch_timeout") == ("initial_fetch_timeout" in source)


@pytest.mark.parametrize("source", [{"path_config_source": {"path": "/mine"}}, {"path": "/mine"}])
def test_paths_of_the_author_stay(sources: MirrorConfigSources, source: Plain) -> None:
    """A source that is a path already is left alone, and so are the bytes around it."""
    before = resource("cds", by_eds("web", source=source))

    assert sources.rewrite(before, found).resource is before


def test_a_cluster_without_subscriptions_keeps_its_bytes(sources: MirrorConfigSources) -> None:
    """What has nothing to rewrite is not serialized again."""
    before = resource("cds", static("a"))

    assert sources.rewrite(before, found).resource is before


def test_the_service_name_goes_before_the_name_of_the_cluster(sources: MirrorConfigSources) -> None:
    """Endpoints are asked for by service_name where there is one."""
    assert paths(sources, "cds", by_eds("web", "web/eds")) == ["/out/ClusterLoadAssignment/web/eds"]
    clusters = [resource("cds", value) for value in (by_eds("web", "web/eds"), by_eds("b"), static("c"))]
    assert sources.eds_names(clusters) == {"web/eds", "b"}


def test_load_reports_are_not_a_subscription(sources: MirrorConfigSources) -> None:
    """The server that load is reported to stays, though it is a config source too."""
    assert paths(sources, "cds", {**static("a"), "lrs_server": SELF}) == []


def test_secrets_are_found_inside_of_any(sources: MirrorConfigSources) -> None:
    """Each secret of a transport socket is pointed at its own file; a static one has no source."""
    tls: Plain = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [{"name": "cert", "sds_config": ADS}, {"name": "static"}],
            "combined_validation_context": {
                "default_validation_context": {},
                "validation_context_sds_secret_config": {"name": "trust", "sds_config": REST},
            },
        },
    }
    cluster: Plain = {**static("a"), "transport_socket": {"name": "tls", "typed_config": tls}}

    assert paths(sources, "cds", cluster) == ["/out/Secret/cert", "/out/Secret/trust"]


def test_routes_are_found_in_listeners(sources: MirrorConfigSources) -> None:
    """An HttpConnectionManager's routes are pointed at the file of its route table."""
    assert paths(sources, "lds", by_rds("front", 1, "main")) == ["/out/RouteConfiguration/main"]


def test_scopes_point_at_the_bundle_and_at_their_one_table(sources: MirrorConfigSources) -> None:
    """Scoped RDS reads the bundle of scopes; its routes are those that the scopes name."""
    key: Plain = {"fragments": [{"header_value_extractor": {"name": "h", "element_separator": ";"}}]}
    scoped: Plain = {
        "name": "s",
        "scope_key_builder": key,
        "rds_config_source": ADS,
        "scoped_rds": {"scoped_rds_config_source": ADS},
    }

    actual = paths(sources, "lds", listener("front", 1, scoped_routes=scoped))
    assert actual == ["/out/RouteConfiguration/scoped", "/out/ScopedRouteConfiguration"]


def test_scopes_of_a_locator_stay(sources: MirrorConfigSources) -> None:
    """A collection of scopes by xdstp has no file."""
    key: Plain = {"fragments": [{"header_value_extractor": {"name": "h", "element_separator": ";"}}]}
    locator = "xdstp://a/envoy.config.route.v3.ScopedRouteConfiguration/*"
    scoped_rds: Plain = {"scoped_rds_config_source": ADS, "srds_resources_locator": locator}
    scoped: Plain = {"name": "s", "scope_key_builder": key, "scoped_rds": scoped_rds}

    assert paths(sources, "lds", listener("front", 1, scoped_routes=scoped)) == []


def test_scopes_that_stand_in_the_listener_name_their_tables(sources: MirrorConfigSources) -> None:
    """Without SRDS the tables are those of the list, each once."""
    key: Plain = {"fragments": [{"header_value_extractor": {"name": "h", "element_separator": ";"}}]}
    scopes: list[PlainValue] = [
        {"name": name, "route_configuration_name": route, "key": {"fragments": [{"string_key": name}]}}
        for name, route in (("x", "r2"), ("y", "r1"), ("z", "r1"))
    ]
    scoped: Plain = {
        "name": "s",
        "scope_key_builder": key,
        "rds_config_source": ADS,
        "scoped_route_configurations_list": {"scoped_route_configurations": scopes},
    }

    assert paths(sources, "lds", listener("front", 1, scoped_routes=scoped)) == ["/out/RouteConfiguration/r1+r2"]


def test_filters_are_asked_for_by_their_names(sources: MirrorConfigSources) -> None:
    """Discovered HTTP, network and listener filters are found, and also those of a discovered filter's own kind."""
    discovery: Plain = {"config_source": ADS, "type_urls": [MUTATION]}
    front = listener("front", 1, filters=[{"name": "http-filter", "config_discovery": discovery}], route_config={})
    front["listener_filters"] = [{"name": "listener-filter", "config_discovery": discovery}]
    chains = front["filter_chains"]
    assert isinstance(chains, list)
    chains.append({"filters": [{"name": "network-filter", "config_discovery": discovery}]})

    actual = paths(sources, "lds", front)
    assert actual == [f"/out/TypedExtensionConfig/{name}-filter" for name in ("http", "listener", "network")]


def test_what_has_no_file_is_left_and_told(sources: MirrorConfigSources) -> None:
    """A source that no file can take the place of stays as it was written."""
    before = resource("lds", by_rds("front", 1, "main"))

    after = sources.rewrite(before, missing)
    assert after.resource is before
    assert after.paths == {RequestedResources(url("rds"), ("main",)): None}


def test_a_resource_is_rewritten_anew_when_a_file_comes_or_goes(sources: MirrorConfigSources) -> None:
    """The same version of a resource points at a file or not, as there is one; between changes it is one object."""
    before = resource("cds", by_eds("web"))

    first = sources.rewrite(before, found)
    assert sources.rewrite(before, found) is first
    assert sources.rewrite(before, missing).resource is before
    assert sources.rewrite(before, found) == first


def test_a_rewritten_resource_keeps_its_version(sources: MirrorConfigSources) -> None:
    """Its version is that of what the author wrote."""
    before = resource("cds", by_eds("web"))

    assert sources.rewrite(before, found).resource.version == before.version


def test_unknown_and_damaged_messages_stay_as_they_are(sources: MirrorConfigSources) -> None:
    """What is packed and cannot be read is Envoy's to judge."""
    from google.protobuf.any_pb2 import Any as Packed

    body = message("lds", b"")
    for type_url, value in (("type.googleapis.com/no.such.Type", b"x"), (HCM, b"\xff")):
        body.filter_chains.add().filters.add(name="f").typed_config.MergeFromString(
            Packed(type_url=type_url, value=value).SerializeToString()
        )
    before = resource("lds", {"name": "l"})
    before = type(before)(before.type_url, "l", body.SerializeToString(), before.version, before.origin)

    assert sources.rewrite(before, found).resource is before


def test_forgotten_resources_are_read_again(sources: MirrorConfigSources) -> None:
    """Only what is still served is remembered."""
    kept, gone = resource("cds", by_eds("kept")), resource("cds", by_eds("gone"))
    results = [sources.rewrite(one, found) for one in (kept, gone)]
    sources.turn()
    assert sources.rewrite(kept, found) is results[0]
    sources.turn()

    assert sources.rewrite(kept, found) is results[0]
    assert sources.rewrite(gone, found) is not results[1]


def test_the_routes_of_scopes(sources: MirrorConfigSources) -> None:
    """The tables that scopes name, each once and in order."""
    key: Plain = {"fragments": [{"string_key": "k"}]}
    scopes = [
        resource("srds", {"name": name, "route_configuration_name": route, "key": key})
        for name, route in (("a", "r2"), ("b", "r1"), ("c", "r2"))
    ]

    assert sources.routes_of_scopes(scopes) == ("r1", "r2")
    assert sources.routes_of_scopes([]) == ()


def test_an_empty_assignment_has_a_name_and_nothing_else(sources: MirrorConfigSources) -> None:
    """It takes a cluster's endpoints away (ENVOY.md E27)."""
    empty = sources.empty_assignment("web", Origin(PurePosixPath("eds/web.pb"), 1))

    assert empty == resource("eds", {"cluster_name": "web"})
