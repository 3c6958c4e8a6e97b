import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.format_strings import FormatStrings
from tests.lint.envoy_answers import Case, assert_accepted, assert_rejected, listener

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


def test_formats_that_envoy_takes(catalogue: Catalogue) -> None:
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
