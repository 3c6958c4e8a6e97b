import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import ROUTER, TYPE, Case, assert_accepted, assert_rejected, manager

HTTP = TYPE + "envoy.extensions.filters.http."
XFF = {"name": "x", "typed_config": {"@type": TYPE + "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig"}}


def discovered(**fields: object) -> Case:
    """A filter that is discovered."""
    discovery = {"config_source": {"ads": {}}, "type_urls": [HTTP + "cors.v3.Cors"], **fields}
    return manager({"http_filters": [{"name": "f", "config_discovery": discovery}, ROUTER]})


def scoped(scope: str) -> Case:
    """Scopes that are written in the listener."""
    key = "{fragments: [{string_key: a}]}"
    builder = "{fragments: [{header_value_extractor: {name: a, element: {key: b, separator: '='}}}]}"
    scopes = f"{{scoped_route_configurations: [{{name: s, key: {key}, {scope}}}]}}"
    return manager(
        f"{{scoped_routes: {{name: x, scope_key_builder: {builder}, scoped_route_configurations_list: {scopes}}}}}"
    )


def test_managers_that_envoy_takes(catalogue: Catalogue) -> None:
    """What does not exclude itself."""
    assert_accepted(
        catalogue,
        manager({"strip_any_host_port": True, "strip_matching_host_port": False}),
        manager({"original_ip_detection_extensions": [XFF], "use_remote_address": False}),
        manager({"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}]}),
    )


@pytest.mark.parametrize(
    "case",
    [
        manager({"strip_any_host_port": True, "strip_matching_host_port": True}),
        manager({"original_ip_detection_extensions": [XFF], "use_remote_address": True}),
        manager({"original_ip_detection_extensions": [XFF], "xff_num_trusted_hops": 1}),
        manager({"access_log_options": {}, "access_log_flush_interval": "1s"}),
        manager({"access_log_options": {}, "flush_access_log_on_new_request": True}),
        manager({"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "WebSocket"}]}),
        discovered(apply_default_config_without_warming=True),
        discovered(default_config={"@type": HTTP + "buffer.v3.Buffer", "max_request_bytes": 3}),
        scoped("route_configuration_name: r"),
    ],
)
def test_managers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """What excludes itself, and what is discovered against its own settings."""
    assert_rejected(catalogue, "wrong-filter", case)


def traced(**fields: str) -> Case:
    """A connection manager that traces by Zipkin."""
    config = {"@type": TYPE + "envoy.config.trace.v3.ZipkinConfig", "collector_endpoint_version": "HTTP_JSON", **fields}
    return manager({"tracing": {"provider": {"name": "zipkin", "typed_config": config}}})


def test_zipkin_has_a_collector(catalogue: Catalogue) -> None:
    """Zipkin needs a cluster and a path to send spans to."""
    assert_accepted(catalogue, traced(collector_cluster="xds", collector_endpoint="/"))
    assert_rejected(catalogue, "wrong-filter", traced(collector_endpoint="/"))
    assert_rejected(catalogue, "wrong-filter", traced(collector_cluster="xds"))
