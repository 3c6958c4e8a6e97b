import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    TYPE,
    Case,
    action,
    assert_accepted,
    assert_rejected,
    http_filter,
    listener,
    virtual_host,
)

LOGS = "envoy.extensions.access_loggers."


def log(message_type: str, **fields: object) -> Case:
    """A listener with an access log."""
    config = {"@type": TYPE + LOGS + message_type, **fields}
    return listener({"access_log": [{"name": "log", "typed_config": config}]})


def stdout(**log_format: object) -> Case:
    """A listener that logs in a format."""
    return log("stream.v3.StdoutAccessLog", log_format=log_format)


def file(**fields: object) -> Case:
    """A listener that logs to a file."""
    return log("file.v3.FileAccessLog", path="/dev/null", **fields)


def telemetry(**fields: object) -> Case:
    """A listener that logs by OpenTelemetry."""
    service = {"envoy_grpc": {"cluster_name": "xds"}}
    return log("open_telemetry.v3.OpenTelemetryAccessLogConfig", grpc_service=service, log_name="x", **fields)


WITHOUT_QUERY = {
    "name": "x",
    "typed_config": {"@type": TYPE + "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery"},
}


def header(value: str) -> Case:
    """A virtual host that adds a header."""
    return virtual_host({"request_headers_to_add": [{"header": {"key": "a", "value": value}}]})


def authorization(value: str) -> Case:
    """An authorization by HTTP with a header of this value."""
    return http_filter(
        "ext_authz.v3.ExtAuthz",
        {
            "http_service": {
                "server_uri": {"uri": "http://x", "cluster": "xds", "timeout": "1s"},
                "authorization_request": {"headers_to_add": [{"key": "a", "value": value}]},
            }
        },
    )


def test_formats_that_envoy_takes(catalogue: Catalogue) -> None:
    """Right formats, keys, numbers, and commands of formatters of one's own."""
    assert_accepted(
        catalogue,
        stdout(text_format="%PROTOCOL%"),
        stdout(json_format={"%FOO%": "x", "a": 5, "b": {"c": ["%PROTOCOL%", 1, None]}}),
        stdout(text_format="%REQ_WITHOUT_QUERY(a)%", formatters=[WITHOUT_QUERY]),
        file(),
        telemetry(body={"string_value": "%PROTOCOL%"}),
        header("%PER_REQUEST_STATE(x)%"),
        action('{host_rewrite_literal: "%FOO%"}'),
        authorization("%PROTOCOL%"),
    )


@pytest.mark.parametrize(
    "case",
    [
        stdout(text_format="%FOO%"),
        stdout(text_format_source={"inline_string": "%FOO%"}),
        stdout(json_format={"a": {"b": "%FOO%"}}),
        stdout(json_format={"a": [1, {"b": "%FOO%"}]}),
        file(format="%FOO%"),
        file(json_format={"a": "%FOO%"}),
        file(typed_json_format={"a": "%FOO%"}),
        log("fluentd.v3.FluentdAccessLogConfig", cluster="xds", tag="t", stat_prefix="s", record={"a": "%FOO%"}),
        telemetry(body={"string_value": "%FOO%"}),
        telemetry(attributes={"values": [{"key": "a", "value": {"string_value": "%FOO%"}}]}),
        header("100%"),
        action('{path_rewrite: "/%FOO%"}'),
        action('{host_rewrite: "%FOO%"}'),
        authorization("%FOO%"),
    ],
)
def test_formats_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A wrong format is found wherever one may stand."""
    assert_rejected(catalogue, "wrong-format-string", case)
