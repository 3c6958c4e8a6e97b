from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.filters import CHOICES
from tests.lint.envoy_answers import (
    NETWORK,
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    chain,
    http_filter,
    listener,
    manager,
    read,
)

GRPC = "{envoy_grpc: {cluster_name: xds}}"
HTTP = "{http_uri: {uri: http://x/y, cluster: xds, timeout: 1s}}"
SOURCE = f"{{api_config_source: {{api_type: GRPC, transport_api_version: V3, grpc_services: [{GRPC}]}}}}"


def tracer(text: str) -> Case:
    """A connection manager that sends traces by OpenTelemetry."""
    config = {"@type": TYPE + "envoy.config.trace.v3.OpenTelemetryConfig", **read(text)}
    return manager({"tracing": {"provider": {"name": "x", "typed_config": config}}})


def log(text: str) -> Case:
    """A listener that logs by OpenTelemetry."""
    name = "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig"
    return listener({"access_log": [{"name": "x", "typed_config": {"@type": TYPE + name, **read(text)}}]})


def claim(text: str) -> Case:
    """A filter for tokens that makes a header of a claim."""
    provider = f"{{remote_jwks: {HTTP}, claim_to_headers: [{text}]}}"
    return http_filter("jwt_authn.v3.JwtAuthentication", f"{{providers: {{p: {provider}}}}}")


def scopes(extractor: str) -> Case:
    """A connection manager that finds the scope of a request by the value of a header."""
    key = f"scope_key_builder: {{fragments: [{{header_value_extractor: {extractor}}}]}}"
    discovery = f"scoped_rds: {{scoped_rds_config_source: {SOURCE}}}"
    return manager(f"{{scoped_routes: {{name: x, {key}, rds_config_source: {SOURCE}, {discovery}}}}}")


def parameter(mutation: str) -> Case:
    """A filter that changes a query parameter."""
    return http_filter(
        "header_mutation.v3.HeaderMutation", f"{{mutations: {{query_parameter_mutations: [{mutation}]}}}}"
    )


REDIS = "stat_prefix: s, settings: {op_timeout: 5s}"
FOR_A, CATCH_ALL = "{prefix: a, cluster: xds}", "catch_all_route: {cluster: xds}"


def adapting(calculation: str) -> Case:
    """A filter that adapts the concurrency, and measures the shortest time so."""
    interval = "concurrency_limit_params: {concurrency_update_interval: 1s}"
    gradient = f"{{{interval}, min_rtt_calc_params: {calculation}}}"
    return http_filter("adaptive_concurrency.v3.AdaptiveConcurrency", f"{{gradient_controller_config: {gradient}}}")


def before_tcp(message_type: str, text: str) -> Case:
    """A filter of connections of this type, and a TCP proxy unless it answers."""
    config = {"@type": f"{TYPE}{NETWORK}{message_type}", **read(text)}
    after = [] if "redis" in message_type else TCP_CHAIN["filters"]
    return chain({"filters": [{"name": "f", "typed_config": config}, *after]})


RECORD = "{record: {key: a, value: b}}"


def test_one_of_a_choice_is_accepted(catalogue: Catalogue) -> None:
    """What has one of the fields, and a flag that is false beside another field, is right."""
    assert_accepted(
        catalogue,
        tracer(f"{{grpc_service: {GRPC}}}"),
        tracer(f"{{http_service: {HTTP}}}"),
        log(f"{{common_config: {{log_name: x, transport_api_version: V3, grpc_service: {GRPC}}}}}"),
        log(f"{{http_service: {HTTP}}}"),
        claim("{header_name: x, claim_name: a}"),
        scopes("{name: x, index: 0}"),
        scopes('{name: x, element: {separator: "=", key: a}}'),
        parameter(f"{{append: {RECORD}}}"),
        parameter("{remove: a}"),
        before_tcp("redis_proxy.v3.RedisProxy", f"{{{REDIS}, prefix_routes: {{routes: [{FOR_A}], {CATCH_ALL}}}}}"),
        before_tcp("connection_limit.v3.ConnectionLimit", "{stat_prefix: s, max_connections: 1}"),
        adapting("{interval: 60s}"),
        adapting("{fixed_value: 1s}"),
        manager("{use_remote_address: false, xff_num_trusted_hops: 1, strip_any_host_port: true}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        tracer("{}"),
        tracer(f"{{grpc_service: {GRPC}, http_service: {HTTP}}}"),
        log("{}"),
        log(f"{{grpc_service: {GRPC}, http_service: {HTTP}}}"),
        log(
            f"{{common_config: {{log_name: x, transport_api_version: V3, grpc_service: {GRPC}}}, grpc_service: {GRPC}}}"
        ),
        claim("{header_name: x}"),
        claim("{header_name: x, claim_name: a, claim_path: [{key: a}]}"),
        scopes("{name: x}"),
        parameter("{}"),
        parameter(f"{{append: {RECORD}, remove: a}}"),
        manager("{strip_matching_host_port: true, strip_any_host_port: true}"),
        adapting("{}"),
        before_tcp("redis_proxy.v3.RedisProxy", f"{{{REDIS}}}"),
        before_tcp("redis_proxy.v3.RedisProxy", f"{{{REDIS}, prefix_routes: {{case_insensitive: true}}}}"),
        before_tcp("connection_limit.v3.ConnectionLimit", "{stat_prefix: s}"),
    ],
)
def test_none_and_two_of_a_choice_are_rejected(catalogue: Catalogue, case: Case) -> None:
    """What has none of the fields or two of them is told."""
    assert_rejected(catalogue, "wrong-filter", case)


def test_choices_are_fields_of_the_api(catalogue: Catalogue) -> None:
    """Every field of a choice exists."""
    unknown = []
    for message_type, choices in CHOICES.items():
        fields = catalogue.message_class(message_type).DESCRIPTOR.fields_by_name
        unknown += [one for choice in choices for one in choice.fields if one.partition(".")[0] not in fields]

    assert [] == unknown
