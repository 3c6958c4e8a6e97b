"""The field that Envoy speaks of; every reason is one that Envoy 1.40 gave."""

from __future__ import annotations

import pytest

from fsxds.envoy.envoy_rejections import field_named
from fsxds.model.values import FieldPath, PlainValue

CLUSTER = "envoy.config.cluster.v3.Cluster"
ROUTE = "envoy.config.route.v3.RouteConfiguration"
LISTENER = "envoy.config.listener.v3.Listener"
LONG_WAY = (
    "Proto constraint validation failed (BootstrapValidationError.StaticResources: embedded message failed validation | "
    "caused by Bootstrap_StaticResourcesValidationError.Clusters[0]: embedded message failed validation | caused by "
    "ClusterValidationError.{0})"
)
OF_FILTER = "Proto constraint validation failed (TcpProxyValidationError.StatPrefix: value length must be at least 1 characters)"


@pytest.mark.parametrize(
    ("reason", "message_type", "resource", "path"),
    [
        (
            LONG_WAY.format("ConnectTimeout: value must be greater than 0s"),
            CLUSTER,
            {"name": "a", "connect_timeout": "0s"},
            ("connect_timeout",),
        ),
        (
            LONG_WAY.format(
                "HealthChecks[1]: embedded message failed validation | caused by "
                "HealthCheckValidationError.HealthyThreshold: value is required"
            ),
            CLUSTER,
            {"health_checks": [{}, {"timeout": "1s"}]},
            ("health_checks", 1, "healthy_threshold"),
        ),
        (
            OF_FILTER,
            LISTENER,
            {"filters": [{"typed_config": {"@type": "a/x.HttpProxy"}}, {"typed_config": {"@type": "a/x.TcpProxy"}}]},
            ("filters", 1, "typed_config", "stat_prefix"),
        ),
        ("malformed IP address: foo.bar. Consider", CLUSTER, {"a": ["x", {"b": "foo.bar"}]}, ("a", 1, "b")),
        ("malformed IP address: ::1%lo. Consider", CLUSTER, {"address": {"address": "::1%lo"}}, ("address", "address")),
        ("missing ): (a", ROUTE, {"routes": [{"regex": "(a"}]}, ("routes", 0, "regex")),
        (
            "Only unique values for domains are permitted. Duplicate entry of domain x.y in route r",
            ROUTE,
            {"name": "r", "hosts": [{"domains": ["x.y"]}, {"domains": ["x.y"]}]},
            ("hosts", 1, "domains", 0),
        ),
        (
            "Only a single wildcard domain is permitted in route r",
            ROUTE,
            {"hosts": [{"domains": ["*"]}, {"domains": ["*"]}]},
            ("hosts", 1, "domains", 0),
        ),
        (
            "Didn't find a registered implementation for 'x' with type URL: 'google.protobuf.Empty'",
            LISTENER,
            {"typed_per_filter_config": {"x": {"@type": "type.googleapis.com/google.protobuf.Empty"}}},
            ("typed_per_filter_config", "x"),
        ),
        ("Failed to load trusted CA certificates from <inline>", "x.Secret", {"a": {"trusted_ca": {}}}, ("a", "trusted_ca")),
        ("Not supported field in StreamInfo: NOPE", ROUTE, {"header": {"value": "%NOPE%"}}, ("header", "value")),
        ("Invalid duration: Expected positive duration", CLUSTER, {"a": "1s", "b": "-1s"}, ("b",)),
        ("nobody knows", CLUSTER, {"name": "nobody"}, ()),
    ],
)  # fmt: skip
def test_field(reason: str, message_type: str, resource: PlainValue, path: FieldPath) -> None:
    """A reason leads to the field whose rule it names, whose value it repeats, or whose name it has in words."""
    assert path == field_named(reason, resource, message_type)
