"""Fields that exclude one another, and groups that need one, unstated by the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hook, Hooks, Path, Walk

_HTTP = "envoy.extensions.filters.http."
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3."


class Choice(NamedTuple):
    """At most one field may be set, if they exclude one another; one must be if `is_needed`. Inner fields have dots."""

    fields: tuple[str, ...]
    is_needed: bool = False
    excludes: bool = True


CHOICES: Mapping[str, tuple[Choice, ...]] = {
    "envoy.config.core.v3.KeyValueMutation": (Choice(("append", "remove"), is_needed=True),),
    "envoy.config.trace.v3.OpenTelemetryConfig": (
        Choice(("grpc_service", "http_service", "exporter"), is_needed=True),
    ),
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig": (
        Choice(("grpc_service", "http_service", "common_config.grpc_service"), is_needed=True),
    ),
    f"{_HTTP}ext_proc.v3.ExternalProcessor": (Choice(("grpc_service", "http_service"), is_needed=True),),
    f"{_HTTP}jwt_authn.v3.JwtClaimToHeader": (Choice(("claim_name", "claim_path"), is_needed=True),),
    f"{_HTTP}lua.v3.Lua": (Choice(("inline_code", "default_source_code")),),
    f"{_HTTP}aws_lambda.v3.PerRouteConfig": (Choice(("invoke_config",), is_needed=True),),
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit": (
        Choice(("max_connections",), is_needed=True),
    ),
    "envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight": (
        Choice(("weight",), is_needed=True),
    ),
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy": (
        Choice(("prefix_routes.routes", "prefix_routes.catch_all_route"), is_needed=True, excludes=False),
    ),
    f"{_MANAGER}HttpConnectionManager": (
        Choice(("strip_matching_host_port", "strip_any_host_port")),
        Choice(("original_ip_detection_extensions", "use_remote_address")),
        Choice(("original_ip_detection_extensions", "xff_num_trusted_hops")),
        Choice(("access_log_options", "access_log_flush_interval")),
        Choice(("access_log_options", "flush_access_log_on_new_request")),
    ),
    f"{_MANAGER}ScopedRoutes.ScopeKeyBuilder.FragmentBuilder.HeaderValueExtractor": (
        Choice(("index", "element"), is_needed=True),
    ),
}


def hooks(_: Catalogue) -> Hooks:
    """Return the checks of all choices."""
    return {message_type: (_check(choices),) for message_type, choices in CHOICES.items()}


def _check(choices: tuple[Choice, ...]) -> Hook:
    def check_choices(message: DynamicMessage, path: Path, walk: Walk) -> None:
        for fields, is_needed, excludes in choices:
            present = [field for field in fields if _is_set(message, field)]
            if excludes and len(present) > 1:
                place = path
                for step in present[1].split("."):
                    place = (place, step)
                walk.error(place, "wrong-filter", f"cannot be set with {present[0]}", "keep one of the two")
            elif is_needed and not present:
                walk.error(path, "wrong-filter", f"needs {' or '.join(fields)}", "add it")

    return check_choices


def _is_set(message: DynamicMessage, field: str) -> bool:
    name, _, inner = field.partition(".")
    descriptor = message.DESCRIPTOR.fields_by_name.get(name)
    if descriptor is None or (descriptor.has_presence and not message.HasField(name)):
        return False
    value = getattr(message, name)
    if inner:
        return _is_set(value, inner)
    if descriptor.message_type is not None and descriptor.message_type.full_name == "google.protobuf.BoolValue":
        return bool(value.value)
    return descriptor.has_presence or bool(value)
