"""Rules for config sources."""

from __future__ import annotations

import re

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hook, Hooks, Path, Walk, field_path_of

_REST, _GRPC, _DELTA_GRPC, _AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC = 1, 2, 3, 5, 6
_V2 = 1

# Messages that connect by gRPC and name a protocol version.
_VERSIONED = (
    "envoy.config.ratelimit.v3.RateLimitServiceConfig",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz",
    "envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig",
)
_SHORTEST_DELAY_NS = 1_000_000
_LB_ENDPOINTS = "envoy.config.endpoint.v3.LbEndpoint"
_COLLECTION = re.compile(rf"xdstp://[^/]*/{re.escape(_LB_ENDPOINTS)}/[^#]*")


def hooks(_: Catalogue) -> Hooks:
    """Return the rules for config sources."""
    return dict.fromkeys(_VERSIONED, (_check_version,)) | {
        "envoy.config.core.v3.ConfigSource": (_check_choice,),
        "envoy.config.core.v3.ApiConfigSource": (_check_source, _check_version),
        "envoy.config.cluster.v3.Cluster.EdsClusterConfig": (_check_presence("eds_config"),),
        "envoy.config.endpoint.v3.LedsClusterLocalityConfig": (_check_collection,),
    }


def _check_presence(field: str) -> Hook:
    def check_presence(message: DynamicMessage, path: Path, walk: Walk) -> None:
        if not message.HasField(field):
            # With a source for the authority of the name an Envoy does without; by default it rejects that
            # (ENVOY.md E81, E82). `ads: {}` is right for both.
            remedy = "set the source of the resources, such as ads: {}"
            walk.error((path, field), "wrong-config-source", "is missing", remedy)

    return check_presence


def _check_collection(locality: DynamicMessage, path: Path, walk: Walk) -> None:
    """By EDS, Envoy rejects other names."""
    walk.depend_on_place()
    is_served = field_path_of(path)[:1] != ("load_assignment",)
    if is_served and not _COLLECTION.fullmatch(locality.leds_collection_name):
        message = "Envoy asks for endpoints of a locality by names of another form"
        remedy = f"write xdstp://<authority>/{_LB_ENDPOINTS}/<name>/*"
        walk.error((path, "leds_collection_name"), "wrong-config-source", message, remedy)


def _check_choice(source: DynamicMessage, path: Path, walk: Walk) -> None:
    """`self` has a meaning only in the routes of some listeners."""
    if source.WhichOneof("config_source_specifier") == "self" and _last_field(path) in {"eds_config", "sds_config"}:
        remedy = "write ads: {} or an api_config_source"
        walk.error((path, "self"), "wrong-config-source", "Envoy does not support it here", remedy)


def _last_field(path: Path) -> str | int | None:
    return None if path is None else path[1]


def _holder(path: Path) -> str | int | None:
    return None if path is None else _last_field(path[0])


def _check_source(source: DynamicMessage, path: Path, walk: Walk) -> None:
    walk.depend_on_place()
    if _holder(path) == "rds_config_source":
        return  # of scoped routes: read only when a scope names its routes
    if source.api_type == _REST:
        _check_rest(source, path, walk)
    elif source.api_type in {_GRPC, _DELTA_GRPC}:
        if source.cluster_names:
            message = "a gRPC source names its cluster under grpc_services"
            remedy = "write grpc_services with envoy_grpc.cluster_name"
            walk.error((path, "cluster_names"), "wrong-config-source", message, remedy)
        elif len(source.grpc_services) != 1:
            message = f"a gRPC source has one grpc_services, here are {len(source.grpc_services)}"
            remedy = "write one, with envoy_grpc.cluster_name"
            walk.error((path, "grpc_services"), "wrong-config-source", message, remedy)
    elif source.api_type in {_AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC} and _last_field(path) == "api_config_source":
        message = "an aggregated source is for config sources with an authority only"
        walk.error((path, "api_type"), "wrong-config-source", message, "write ads: {} in place of api_config_source")


def _check_rest(source: DynamicMessage, path: Path, walk: Walk) -> None:
    if source.grpc_services:
        message = "a REST source has no gRPC services"
        walk.error((path, "grpc_services"), "wrong-config-source", message, "write cluster_names, or api_type: GRPC")
    elif not source.cluster_names or (len(source.cluster_names) > 1 and _holder(path) != "sds_config"):
        message = f"a REST source names one cluster, here are {len(source.cluster_names)}"
        walk.error((path, "cluster_names"), "wrong-config-source", message, "name the cluster of the xDS server")
    if not source.HasField("refresh_delay"):
        walk.error((path, "refresh_delay"), "wrong-config-source", "is required for REST", "write one, such as 0.1s")
    elif source.refresh_delay.seconds == 0 and 0 <= source.refresh_delay.nanos < _SHORTEST_DELAY_NS:
        message = "must be at least 1 ms: below that Envoy crashes"
        walk.error((path, "refresh_delay"), "short-refresh-delay", message, "write 0.01s or more")


def _check_version(service: DynamicMessage, path: Path, walk: Walk) -> None:
    is_by_http = service.DESCRIPTOR.name == "ExtAuthz" and not service.HasField("grpc_service")
    if service.transport_api_version == _V2 and not is_by_http:
        _report_version(path, walk)


def _report_version(path: Path, walk: Walk) -> None:
    message = "version 2 of the protocol exists no more"
    walk.error((path, "transport_api_version"), "wrong-config-source", message, "write transport_api_version: V3")
