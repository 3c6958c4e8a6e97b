"""What a real Envoy makes of several servers and of authorities, by servers that answer as told: facts of fsxds/ENVOY.md."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.config_source_pb2 import ApiVersion
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as http

from tests.end_to_end.test_envoy_names import CLUSTERS, ENDPOINTS, Fields, asked, assignment, cluster, clusters
from tests.support.authorities import BY_AUTHORITY, FAILOVER, aggregated, envoy_bootstrap, envoy_source
from tests.support.envoy_admin import EnvoyError
from tests.support.grpc_envoy import StreamingEnvoy
from tests.support.resources import direct_route
from tests.support.scripted_streams import Request, ScriptedStreams, names_of, packed, resource
from tests.support.structured_names import message, structured, type_url
from tests.support.tcp_relay import Relay

LISTENERS, ROUTES = type_url("Listener"), type_url("RouteConfiguration")
OURS, THEIRS, OTHERS = "ours.example", "theirs.example", "others.example"
GLOB = structured("Cluster", "edge/*", OURS)


def located(name: str, authority: str) -> Cluster:
    """Return a cluster of the collection whose endpoints have a name of an authority, and no source."""
    made = cluster(structured("Cluster", f"edge/{name}", OURS), endpoints_of(authority))
    made.eds_cluster_config.ClearField("eds_config")
    return made


def endpoints_of(authority: str) -> str:
    """Return the name of endpoints."""
    return structured("ClusterLoadAssignment", "e", authority)


def listener_of(authority: str) -> Listener:
    """Return a listener whose routes have a name of an authority, and no source."""
    manager = http.HttpConnectionManager(stat_prefix="web")
    manager.rds.route_config_name = structured("RouteConfiguration", "r", authority)
    manager.http_filters.add(name="router", typed_config=packed(router_pb2.Router()))
    made = Listener(name="web")
    made.address.socket_address.address = "127.0.0.1"
    made.address.socket_address.port_value = 0
    made.filter_chains.add().filters.add(name="http", typed_config=packed(manager))
    return made


def answers(request: Request) -> Fields | None:
    """Answer what is asked for by name with endpoints and routes of that name."""
    names = names_of(request)
    if request.type_url == ENDPOINTS and names:
        return {"resources": [resource(name, assignment(name)) for name in names]}
    if request.type_url == ROUTES and names:
        route = message(direct_route("x", "hi"), RouteConfiguration)
        route.name = names[0]
        return {"resources": [resource(route.name, route)]}
    return None


def address(server: ScriptedStreams | Relay) -> str:
    """Return where it listens."""
    return server.address if isinstance(server, Relay) else f"127.0.0.1:{server.port}"


def test_singletons_are_asked_of_the_source_of_their_authority() -> None:
    """With the feature on, for endpoints and routes; a collection is asked of its own source, whatever its authority."""
    foreign = located("foreign", OURS)
    foreign.eds_cluster_config.eds_config.resource_api_version = ApiVersion.V3
    foreign.eds_cluster_config.eds_config.ads.SetInParent()
    foreign.eds_cluster_config.eds_config.authorities.add(name=OURS)
    named = [located("ours", OURS), located("others", OTHERS), foreign]

    def first(request: Request) -> Fields | None:
        if request.response_nonce:
            return None
        if request.type_url == LISTENERS:
            return {"resources": [resource("web", listener_of(THEIRS))]}
        return {"resources": [resource(each.name, each) for each in named]}

    with (
        ScriptedStreams(first) as main,
        ScriptedStreams(answers) as ours,
        ScriptedStreams(answers) as theirs,
        ScriptedStreams(answers) as default,
    ):
        servers = {"main": main, "ours": ours, "theirs": theirs, "default": default}
        sources: Any = {
            "config_sources": [envoy_source("ours", authorities=[OURS]), envoy_source("theirs", authorities=[THEIRS])],
            "default_config_source": envoy_source("default"),
        }
        ads = aggregated("main", cds_resources_locator=GLOB)
        ads["lds_config"] = ads["cds_config"]
        addresses = {name: address(server) for name, server in servers.items()}
        bootstrap = envoy_bootstrap(addresses, BY_AUTHORITY, dynamic_resources=ads, **sources)
        with StreamingEnvoy(bootstrap) as envoy:
            envoy.until_clusters(named[0].name, named[1].name)
            assert envoy.ask("web").body == "hi"

            assert [[GLOB]] == asked(main)
            assert [[endpoints_of(OURS)]] == asked(ours, ENDPOINTS)
            assert [[endpoints_of(OTHERS)]] == asked(default, ENDPOINTS)
            assert [[structured("RouteConfiguration", "r", THEIRS)]] == asked(theirs, ROUTES)
            (reason,) = main.rejections()
            assert "non-bootstrap defined xDS-TP config sources is not yet supported" in reason


def test_authorities_count_for_nothing_by_default() -> None:
    """Without the feature endpoints are asked of the source that their cluster names, and one without a source is rejected."""
    aggregated_eds = cluster("aggregated", endpoints_of(OURS))
    sent = {"resources": [resource("aggregated", aggregated_eds), resource("none", located("none", OURS))]}

    def first(request: Request) -> Fields | None:
        return sent if request.type_url == CLUSTERS and not request.response_nonce else answers(request)

    with ScriptedStreams(first) as main, ScriptedStreams(answers) as ours:
        sources = [envoy_source("ours", authorities=[OURS])]
        servers = {"main": address(main), "ours": address(ours)}
        bootstrap = envoy_bootstrap(servers, config_sources=sources, dynamic_resources=aggregated("main"))
        with StreamingEnvoy(bootstrap) as envoy:
            envoy.until_clusters("aggregated")

            assert [[endpoints_of(OURS)]] == asked(main, ENDPOINTS)
            assert [] == ours.requests
            (reason,) = main.rejections()
            assert "Missing config source specifier" in reason


def test_a_second_server_is_asked_while_the_first_never_answered() -> None:
    """Once the first has answered Envoy asks no other; from the second to the first it carries no versions."""

    def holding(*names: str) -> ScriptedStreams:
        return ScriptedStreams(lambda request: None if request.response_nonce else clusters(*names))

    with (
        holding("both", "old") as first,
        holding("both", "new") as second,
        Relay(first.port) as to_first,
        Relay(second.port) as to_second,
    ):
        to_first.cut()
        servers = {"first": address(to_first), "second": address(to_second)}
        bootstrap = envoy_bootstrap(servers, FAILOVER, dynamic_resources=aggregated("first", "second"))
        with StreamingEnvoy(bootstrap) as envoy:
            envoy.until_clusters("both", "new")
            to_first.is_cut = False
            to_second.cut()
            envoy.until(lambda: first.requests, "a request to the first")
            assert {} == dict(first.requests[0].initial_resource_versions)
            # Nobody tells it that the first does not have `new`.
            envoy.until_clusters("both", "new", "old")

            asked_of_second = len(second.requests)
            to_second.is_cut = False
            to_first.cut()
            tried = envoy.stat("cluster.first.upstream_cx_total")
            envoy.until(lambda: envoy.stat("cluster.first.upstream_cx_total") > tried + 2, "three more attempts")
            assert asked_of_second == len(second.requests)


def test_two_services_without_the_feature_end_the_start() -> None:
    """Envoy takes a second `grpc_services` only where its runtime says so."""
    envoy = StreamingEnvoy(
        envoy_bootstrap({"a": "127.0.0.1:1", "b": "127.0.0.1:2"}, dynamic_resources=aggregated("a", "b"))
    )
    with pytest.raises(EnvoyError, match=r"Envoy exited(.|\n)*no more than 1 gRPC services"):
        envoy.start()
    envoy.stop()
