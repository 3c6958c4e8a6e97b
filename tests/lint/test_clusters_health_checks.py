import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import HTTP_OPTIONS, TYPE, Case, assert_accepted, assert_rejected, cluster, read

EVERY = {"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1}


def checked(*texts: str, **fields: object) -> Case:
    """A cluster with health checks."""
    return cluster({"health_checks": [{**EVERY, **read(text)} for text in texts], **fields})


def speaking(**options: object) -> dict[str, object]:
    """The protocol options of a cluster."""
    return {"typed_extension_protocol_options": {HTTP_OPTIONS: {"@type": TYPE + HTTP_OPTIONS, **options}}}


def statuses(start: int, end: int, field: str = "expected_statuses") -> Case:
    """A health check by HTTP with a range of statuses."""
    return checked(f"{{http_health_check: {{path: /, {field}: [{{start: {start}, end: {end}}}]}}}}")


HTTP1: dict[str, object] = {"explicit_http_config": {"http_protocol_options": {}}}
HTTP2: dict[str, object] = {"explicit_http_config": {"http2_protocol_options": {}}}
GRPC = "{grpc_health_check: {}}"


def test_checks_that_envoy_takes(catalogue: Catalogue) -> None:
    """Hex, ranges within 100 and 600, bodies of POST, gRPC where HTTP/2 is spoken."""
    assert_accepted(
        catalogue,
        checked('{tcp_health_check: {send: {text: "00fF"}, receive: [{text: "01"}]}}'),
        checked("{name: a, http_health_check: {path: x}}", "{name: b, tcp_health_check: {}}"),
        statuses(100, 600),
        checked('{http_health_check: {path: /, method: POST, send: {text: "00"}}}'),
        checked(GRPC, http2_protocol_options={}),
        checked(GRPC, **speaking(**HTTP2)),
        checked(GRPC, **speaking(use_downstream_protocol_config={"http2_protocol_options": {}})),
    )


@pytest.mark.parametrize(
    "case",
    [
        checked("{tcp_health_check: {send: {text: zz}}}"),
        checked('{tcp_health_check: {send: {text: "000"}}}'),
        statuses(300, 200),
        statuses(200, 200),
        statuses(99, 200),
        statuses(100, 601),
        statuses(300, 200, "retriable_statuses"),
        checked('{http_health_check: {path: /, send: {text: "00"}}}'),
        checked(GRPC),
        checked(GRPC, **speaking(**HTTP1)),
        checked("{name: a, tcp_health_check: {}}", "{name: a, tcp_health_check: {}}"),
        checked("{name: a, tcp_health_check: {}}", "{tcp_health_check: {}}"),
    ],
)
def test_checks_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """What cannot be sent, expected or asked is rejected."""
    assert_rejected(catalogue, "wrong-health-check", case)
