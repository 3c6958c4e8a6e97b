from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.format_strings import FormatStrings
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

TAKEN = (
    """
%%|100%%|%PROTOCOL%|%PROTOCOL%%PROTOCOL%|%%PROTOCOL%%|%DURATION()%|%REQ(a)%|%REQ(a?b):5%|%REQ(:path)%|%REQ(?)%|%REQ(a%b)%
%START_TIME%|%START_TIME(%Y-%m)%|%START_TIME(%Y(x))%|%START_TIME()%|%DYNAMIC_METADATA(a:b:c):3%|%METADATA(ROUTE:a)%
%FILTER_STATE(a)%|%FILTER_STATE(a:PLAIN):5%|%FILTER_STATE(a:FIELD:x:y)%|%GRPC_STATUS%|%GRPC_STATUS(NUMBER)%
%COMMON_DURATION(A:B)%|%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%|%PATH%|%PATH(WQ:ORIG)%|%PATH(:PATH)%|%QUERY_PARAM(a)%
%COALESCE({"operators":[{"command":"REQ","param":"a"}]})%|%CEL(request.path)%|%ENVIRONMENT(HOME):3%|%UPSTREAM_METADATA(["a","b"])%|%RESPONSE_CODE_DETAILS(X)%|%REQ(a):99999999999%
%REQUESTED_SERVER_NAME%|%REQUESTED_SERVER_NAME(SNI_FIRST:ORIG)%|%PACKETS_RETRANSMITTED%|%ROUTE_RESOLUTION_COUNT%
%ROUTE_RESOLUTION_TIME_US%|%QUERY_PARAMS(DECODED):5%
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

REJECTED = (
    """
%|100%|%FOO|% %|%FOO%|%1%|%REQ%|%REQ()%|%REQ(a?b?c)%|%REQ(a b)%|%REQ(é)%|%REQ(a):x%|%REQ(a|%req(a)%|%PROTOCOL %
%PROTOCOL(a)%|%PROTOCOL:5%|%START_TIME:3%|%GRPC_STATUS(a)%|%METADATA%|%METADATA(FOO:a)%|%FILTER_STATE(:PLAIN)%
%FILTER_STATE(a:FOO)%|%FILTER_STATE(a:FIELD)%|%FILTER_STATE(a:PLAIN:5)%|%COMMON_DURATION(A)%|%COMMON_DURATION(A:B:s)%
%COALESCE(a)%|%COALESCE({})%|%PATH(FOO)%|%PATH(WQ:FOO)%|%TRAILER()%|%%%|a%b%c|%PER_REQUEST_STATE(x)%
%REQUESTED_SERVER_NAME(x)%|%REQUESTED_SERVER_NAME(SNI_FIRST:x)%|%REQUESTED_SERVER_NAME:5%|%QUERY_PARAMS(x)%|%PATH(WQ:FOO:x)%
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


def logged(format_string: str) -> Case:
    """A listener that logs in a format."""
    log_format = {"text_format_source": {"inline_string": format_string}}
    config = {
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
        "log_format": log_format,
    }
    return listener({"access_log": [{"name": "stdout", "typed_config": config}]})


def test_formats_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Commands with the parameters that they know are right, and so is a percent sign written twice."""
    assert_accepted(catalogue, *map(logged, TAKEN))


@pytest.mark.parametrize("format_string", REJECTED)
def test_formats_that_envoy_rejects(catalogue: Catalogue, format_string: str) -> None:
    """A single percent sign, an unknown command and wrong parameters are rejected."""
    assert_rejected(catalogue, "wrong-format-string", logged(format_string))


def test_more_commands_are_known_elsewhere(catalogue: Catalogue) -> None:
    """With formatters of one's own any command may exist; in headers an old one does."""
    formats = FormatStrings(catalogue.features)

    assert formats.fault("plain") is None
    assert formats.fault("%MINE(a)%", is_extended=True) is None
    assert formats.fault("%PER_REQUEST_STATE(x)%", is_header=True) is None
    assert formats.fault("%MINE(a)%") is not None


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


def parameter(value: str) -> Case:
    """A filter that adds a query parameter."""
    mutation = {"append": {"record": {"key": "a", "value": value}}}
    return http_filter("header_mutation.v3.HeaderMutation", {"mutations": {"query_parameter_mutations": [mutation]}})


def attributes(**value: object) -> dict[str, object]:
    """A list of pairs with one such value."""
    return {"values": [{"key": "a", "value": value}]}


COUNTED = attributes(int_value=5)


@pytest.mark.parametrize("body", [{"int_value": 5}, {"kvlist_value": COUNTED}, {"array_value": {"values": [{}]}}])
def test_telemetry_is_of_texts(catalogue: Catalogue, body: object) -> None:
    """A log of OpenTelemetry has texts, and lists of some; of a resource it has other values, too."""
    assert_rejected(catalogue, "wrong-filter", telemetry(body=body))
    assert_rejected(catalogue, "wrong-filter", telemetry(attributes=COUNTED))


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


def test_fields_with_formats_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Right formats, keys, numbers, and commands of formatters of one's own."""
    assert_accepted(
        catalogue,
        stdout(text_format="%PROTOCOL%"),
        stdout(json_format={"%FOO%": "x", "a": 5, "b": {"c": ["%PROTOCOL%", 1, None]}}),
        stdout(text_format="%REQ_WITHOUT_QUERY(a)%", formatters=[WITHOUT_QUERY]),
        file(),
        telemetry(body={"string_value": "%PROTOCOL%"}),
        telemetry(body={"array_value": {"values": [{"kvlist_value": {}}]}}, resource_attributes=COUNTED),
        parameter("%PROTOCOL%"),
        header("%PER_REQUEST_STATE(x)%"),
        action('{host_rewrite_literal: "%FOO%"}'),
        authorization("%PROTOCOL%"),
    )


@pytest.mark.parametrize(
    "case",
    [
        stdout(text_format="%FOO%"),
        stdout(text_format_source={"inline_string": "%FOO%"}),
        stdout(text_format_source={"inline_bytes": "JUZPTyU="}),
        stdout(json_format={"a": {"b": "%FOO%"}}),
        stdout(json_format={"a": [1, {"b": "%FOO%"}]}),
        file(format="%FOO%"),
        file(json_format={"a": "%FOO%"}),
        file(typed_json_format={"a": "%FOO%"}),
        log("fluentd.v3.FluentdAccessLogConfig", cluster="xds", tag="t", stat_prefix="s", record={"a": "%FOO%"}),
        telemetry(body={"string_value": "%FOO%"}),
        telemetry(attributes={"values": [{"key": "a", "value": {"string_value": "%FOO%"}}]}),
        telemetry(body={"array_value": {"values": [{"kvlist_value": attributes(string_value="%FOO%")}]}}),
        parameter("%FOO%"),
        header("100%"),
        action('{path_rewrite: "/%FOO%"}'),
        action('{host_rewrite: "%FOO%"}'),
        authorization("%FOO%"),
    ],
)
def test_fields_with_formats_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A wrong format is found wherever one may stand."""
    assert_rejected(catalogue, "wrong-format-string", case)
