"""What excludes itself in an HTTP connection manager, and what discovered filters need."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_RULE = "wrong-filter"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

# The second of each pair cannot stand beside the first.
_EXCLUSIVE = (
    ("strip_matching_host_port", "strip_any_host_port"),
    ("original_ip_detection_extensions", "use_remote_address"),
    ("original_ip_detection_extensions", "xff_num_trusted_hops"),
    ("access_log_options", "access_log_flush_interval"),
    ("access_log_options", "flush_access_log_on_new_request"),
)


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over HTTP connection managers."""
    return {
        _MANAGER: (_check_exclusive, _check_upgrades),
        "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes": (_check_scopes,),
        "envoy.config.core.v3.ExtensionConfigSource": (_check_discovery,),
        "envoy.config.trace.v3.ZipkinConfig": (_check_zipkin,),
    }


def _check_exclusive(manager: Any, path: Path, walk: Walk) -> None:
    present = {field.name for field, value in manager.ListFields() if value or field.message_type is not None}
    if manager.HasField("use_remote_address") and not manager.use_remote_address.value:
        present.discard("use_remote_address")
    for first, second in _EXCLUSIVE:
        if first in present and second in present:
            walk.tell((path, second), _RULE, f"cannot stand beside {first}", "keep one of the two")


def _check_upgrades(manager: Any, path: Path, walk: Walk) -> None:
    if len(manager.upgrade_configs) < 2:
        return
    seen: set[str] = set()
    for index, config in enumerate(manager.upgrade_configs):
        name = config.upgrade_type.lower()
        if name in seen:
            place = (((path, "upgrade_configs"), index), "upgrade_type")
            walk.tell(place, _RULE, "is here twice", "keep one of them")
        seen.add(name)


def _check_scopes(scoped: Any, path: Path, walk: Walk) -> None:
    if scoped.WhichOneof("config_specifier") != "scoped_route_configurations_list":
        return
    place = (path, "scoped_route_configurations_list")
    for index, scope in enumerate(scoped.scoped_route_configurations_list.scoped_route_configurations):
        if scope.route_configuration_name:
            at = (((place, "scoped_route_configurations"), index), "route_configuration_name")
            message = "a scope that is written in the listener cannot name a route configuration"
            walk.tell(at, _RULE, message, "write the route_configuration itself, or discover scopes by scoped_rds")


def _check_discovery(source: Any, path: Path, walk: Walk) -> None:
    default = source.default_config if source.HasField("default_config") else None
    if source.apply_default_config_without_warming and default is None:
        message = "there is no default_config to apply"
        walk.tell((path, "apply_default_config_without_warming"), _RULE, message, "add default_config")
    if default is not None and default.type_url:
        name = default.type_url.rpartition("/")[2]
        allowed = {type_url.rpartition("/")[2] for type_url in source.type_urls}
        if allowed and name not in allowed and not name.endswith(".TypedStruct"):
            message = f"{name} is not among type_urls"
            walk.tell((path, "default_config"), _RULE, message, "add it there, or correct the type")


def _check_zipkin(config: Any, path: Path, walk: Walk) -> None:
    if any(field.name == "collector_service" for field, _ in config.ListFields()):
        return
    for field in ("collector_cluster", "collector_endpoint"):
        if not getattr(config, field):
            walk.tell((path, field), _RULE, "is missing", "add it, or a collector_service")
