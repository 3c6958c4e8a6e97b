"""What may stand between percent signs: the commands of Envoy's format strings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_COMMAND = re.compile(r"%([A-Z0-9_]+)(?:\((.*?)\))?(?::([0-9]+))?%", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z:]*")
_MOST_REMEMBERED = 10_000

# Each list was found by asking Envoy 1.40.

_PLAIN = frozenset(
    [
        "ACCESS_LOG_TYPE",
        "BYTES_RECEIVED",
        "BYTES_RETRANSMITTED",
        "BYTES_SENT",
        "CONNECTION_ID",
        "CONNECTION_TERMINATION_DETAILS",
        "CUSTOM_FLAGS",
        "DOWNSTREAM_CX_RTT",
        "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
        "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
        "DOWNSTREAM_DETECTED_CLOSE_TYPE",
        "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
        "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
        "DOWNSTREAM_DIRECT_LOCAL_PORT",
        "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
        "DOWNSTREAM_DIRECT_REMOTE_PORT",
        "DOWNSTREAM_HANDSHAKE_DURATION",
        "DOWNSTREAM_HEADER_BYTES_RECEIVED",
        "DOWNSTREAM_HEADER_BYTES_SENT",
        "DOWNSTREAM_LOCAL_ADDRESS",
        "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
        "DOWNSTREAM_LOCAL_CLOSE_REASON",
        "DOWNSTREAM_LOCAL_DNS_SAN",
        "DOWNSTREAM_LOCAL_EMAIL_SAN",
        "DOWNSTREAM_LOCAL_IP_SAN",
        "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
        "DOWNSTREAM_LOCAL_PORT",
        "DOWNSTREAM_LOCAL_SUBJECT",
        "DOWNSTREAM_LOCAL_URI_SAN",
        "DOWNSTREAM_PEER_CERT",
        "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
        "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
        "DOWNSTREAM_PEER_CHAIN_SERIALS",
        "DOWNSTREAM_PEER_DNS_SAN",
        "DOWNSTREAM_PEER_EMAIL_SAN",
        "DOWNSTREAM_PEER_FINGERPRINT_1",
        "DOWNSTREAM_PEER_FINGERPRINT_256",
        "DOWNSTREAM_PEER_IP_SAN",
        "DOWNSTREAM_PEER_ISSUER",
        "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
        "DOWNSTREAM_PEER_ISSUER_SERIAL",
        "DOWNSTREAM_PEER_OTHERNAME_SAN",
        "DOWNSTREAM_PEER_SERIAL",
        "DOWNSTREAM_PEER_SUBJECT",
        "DOWNSTREAM_PEER_URI_SAN",
        "DOWNSTREAM_REMOTE_ADDRESS",
        "DOWNSTREAM_REMOTE_PORT",
        "DOWNSTREAM_TLS_CIPHER",
        "DOWNSTREAM_TLS_GROUP",
        "DOWNSTREAM_TLS_SESSION_ID",
        "DOWNSTREAM_TLS_VERSION",
        "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
        "DOWNSTREAM_WIRE_BYTES_RECEIVED",
        "DOWNSTREAM_WIRE_BYTES_SENT",
        "DURATION",
        "FILTER_CHAIN_NAME",
        "GRPC_STATUS_NUMBER",
        "HOSTNAME",
        "LISTENER_NAME",
        "LOCAL_REPLY_BODY",
        "PACKETS_RETRANSMITTED",
        "PROTOCOL",
        "REQUEST_DURATION",
        "REQUEST_HEADERS_BYTES",
        "REQUEST_TX_DURATION",
        "RESPONSE_CODE",
        "RESPONSE_DURATION",
        "RESPONSE_FLAGS",
        "RESPONSE_FLAGS_LONG",
        "RESPONSE_HEADERS_BYTES",
        "RESPONSE_TRAILERS_BYTES",
        "RESPONSE_TX_DURATION",
        "ROUNDTRIP_DURATION",
        "ROUTE_NAME",
        "ROUTE_RESOLUTION_COUNT",
        "ROUTE_RESOLUTION_TIME_US",
        "SPAN_ID",
        "STREAM_ID",
        "TLS_JA3_FINGERPRINT",
        "TLS_JA4_FINGERPRINT",
        "TRACE_ID",
        "UNIQUE_ID",
        "UPSTREAM_CLUSTER",
        "UPSTREAM_CLUSTER_RAW",
        "UPSTREAM_CONNECTION_ID",
        "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
        "UPSTREAM_CONNECTION_POOL_READY_DURATION",
        "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
        "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
        "UPSTREAM_DETECTED_CLOSE_TYPE",
        "UPSTREAM_HEADER_BYTES_RECEIVED",
        "UPSTREAM_HEADER_BYTES_SENT",
        "UPSTREAM_HOST",
        "UPSTREAM_HOSTS_ATTEMPTED",
        "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
        "UPSTREAM_HOST_NAME",
        "UPSTREAM_HOST_NAMES_ATTEMPTED",
        "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
        "UPSTREAM_HOST_NAME_WITHOUT_PORT",
        "UPSTREAM_LOCAL_ADDRESS",
        "UPSTREAM_LOCAL_CLOSE_REASON",
        "UPSTREAM_LOCAL_DNS_SAN",
        "UPSTREAM_LOCAL_IP_SAN",
        "UPSTREAM_LOCAL_PORT",
        "UPSTREAM_LOCAL_URI_SAN",
        "UPSTREAM_PEER_CERT",
        "UPSTREAM_PEER_DNS_SAN",
        "UPSTREAM_PEER_IP_SAN",
        "UPSTREAM_PEER_ISSUER",
        "UPSTREAM_PEER_SUBJECT",
        "UPSTREAM_PEER_URI_SAN",
        "UPSTREAM_PROTOCOL",
        "UPSTREAM_REMOTE_ADDRESS",
        "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
        "UPSTREAM_REMOTE_PORT",
        "UPSTREAM_REQUEST_ATTEMPT_COUNT",
        "UPSTREAM_SERVER_NAME",
        "UPSTREAM_TLS_CIPHER",
        "UPSTREAM_TLS_GROUP",
        "UPSTREAM_TLS_SESSION_ID",
        "UPSTREAM_TLS_VERSION",
        "UPSTREAM_TRANSPORT_FAILURE_REASON",
        "UPSTREAM_WIRE_BYTES_RECEIVED",
        "UPSTREAM_WIRE_BYTES_SENT",
        "VIRTUAL_CLUSTER_NAME",
    ]
)

_WITHOUT_LENGTH = frozenset(
    [
        "CLUSTER_METADATA",
        "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
        "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
        "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
        "DOWNSTREAM_PEER_CERT_V_END",
        "DOWNSTREAM_PEER_CERT_V_START",
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
        "EMIT_TIME",
        "EMIT_TIME_LOCAL",
        "GRPC_STATUS",
        "REQUESTED_SERVER_NAME",
        "RESPONSE_CODE_DETAILS",
        "START_TIME",
        "START_TIME_LOCAL",
        "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
        "UPSTREAM_METADATA",
        "UPSTREAM_PEER_CERT_V_END",
        "UPSTREAM_PEER_CERT_V_START",
        "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    ]
)

_WITH_PARAMETERS = frozenset(
    [
        "CEL",
        "CLUSTER_METADATA",
        "COALESCE",
        "COMMON_DURATION",
        "DYNAMIC_METADATA",
        "ENVIRONMENT",
        "FILTER_STATE",
        "METADATA",
        "QUERY_PARAM",
        "REQ",
        "REQUEST_HEADER",
        "RESP",
        "RESPONSE_HEADER",
        "RESPONSE_TRAILER",
        "STREAM_INFO_REQ",
        "TRAILER",
        "UPSTREAM_FILTER_STATE",
        "UPSTREAM_METADATA",
    ]
)

_HEADERS = frozenset({"REQ", "RESP", "TRAILER", "REQUEST_HEADER", "RESPONSE_HEADER", "RESPONSE_TRAILER"})

_METADATA_SOURCES = frozenset({
    "DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "LISTENER_FILTER_CHAIN", "VIRTUAL_HOST",
})  # fmt: skip

_COMMANDS = _PLAIN | _WITHOUT_LENGTH | _WITH_PARAMETERS | {"PATH", "QUERY_PARAMS", "XFCC_VALUE"}

# In the values of headers, the old spelling of FILTER_STATE.
_OF_HEADERS = frozenset({"PER_REQUEST_STATE"})
_NO_MORE: frozenset[str] = frozenset()


class FormatStrings:
    """Reads format strings as Envoy does, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, bool], tuple[str, str] | None] = {}

    def fault(self, text: str, *, is_extended: bool = False, is_header: bool = False) -> tuple[str, str] | None:
        """Tell what is wrong with a format string.

        Args:
            text: the whole string.
            is_extended: formatters of the user's choice may know more commands.
            is_header: it is the value of a header, where older spellings are understood.

        Returns:
            the fact and the remedy, None when nothing is wrong.
        """
        if "%" not in text:
            return None
        key = text, is_extended, is_header
        if key not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            more = _OF_HEADERS if is_header else _NO_MORE
            self._known[key] = _fault(text, None if is_extended else _COMMANDS | more)
        return self._known[key]


def _fault(text: str, commands: frozenset[str] | None) -> tuple[str, str] | None:
    """Look at every command of a text; `commands` are those that exist, None where they are not known."""
    position = text.find("%")
    while position >= 0:
        if text.startswith("%%", position):
            position = text.find("%", position + 2)
            continue
        match = _COMMAND.match(text, position)
        if match is None:
            shown = text[position : position + 20]
            remedy = 'write "%%" for a percent sign, "%NAME(parameters)%" for a command'
            return f'"{shown}" is no command of a format', remedy
        name, parameters, length = match.groups()
        if commands is not None and name not in commands:
            remedy = 'see "Command Operators" in Envoy\'s documentation of access logs'
            return f"%{name}% is not a command that Envoy knows", remedy
        fault = _command_fault(name, parameters or "", has_length=length is not None)
        if fault is not None:
            return fault
        position = text.find("%", match.end())
    return None


def _command_fault(name: str, parameters: str, *, has_length: bool) -> tuple[str, str] | None:
    if name in _PLAIN and (parameters or has_length):
        return f"%{name}% takes no parameters and no length", f"write %{name}%"
    if name in _WITHOUT_LENGTH and has_length:
        return f"%{name}% takes no length", "remove the colon and the number"
    if name in _WITH_PARAMETERS and not parameters:
        return f"%{name}% needs parameters", f"write them in parentheses: %{name}(...)%"
    check = _CHECKS.get(name)
    return None if check is None else check(parameters)


def _header_fault(parameters: str) -> tuple[str, str] | None:
    names = parameters.split("?")
    if len(names) > 2:
        return f'"{parameters}" has more than one alternative', "write one or two names of headers: A?B"
    for name in names:
        if _HEADER_NAME.fullmatch(name) is None:
            return f'"{name}" is not the name of a header', "write one or two names of headers: A?B"
    return None


def _metadata_fault(parameters: str) -> tuple[str, str] | None:
    source = parameters.partition(":")[0]
    if source not in _METADATA_SOURCES:
        return f'"{source}" is no source of metadata', f"write one of {', '.join(sorted(_METADATA_SOURCES))}"
    return None


def _filter_state_fault(parameters: str) -> tuple[str, str] | None:
    key, *form = parameters.split(":", 2)
    if not key:
        return "the key is empty", "write %FILTER_STATE(KEY:PLAIN)%"
    if form and form[0] not in {"PLAIN", "TYPED", "FIELD"}:
        return f'"{form[0]}" is no form of a filter state', "write PLAIN, TYPED or FIELD"
    if form and (form[0] == "FIELD") != (len(form) == 2):
        return "FIELD, and nothing else, is followed by the name of a field", "write %FILTER_STATE(KEY:FIELD:NAME)%"
    return None


def _grpc_status_fault(parameters: str) -> tuple[str, str] | None:
    if parameters not in {"", "CAMEL_STRING", "SNAKE_STRING", "NUMBER"}:
        return f'"{parameters}" is no form of a gRPC status', "write CAMEL_STRING, SNAKE_STRING or NUMBER"
    return None


def _duration_fault(parameters: str) -> tuple[str, str] | None:
    parts = parameters.split(":")
    if len(parts) not in {2, 3}:
        return f'"{parameters}" is not two points in time', "write %COMMON_DURATION(START:END:ms)%"
    if len(parts) == 3 and parts[2] not in {"ms", "us", "ns"}:
        return f'"{parts[2]}" is no precision', "write ms, us or ns"
    return None


def _coalesce_fault(parameters: str) -> tuple[str, str] | None:
    remedy = 'write %COALESCE({"operators": [{"command": "REQ", "param": "x-a"}, ...]})%'
    try:
        config = json.loads(parameters)
    except (ValueError, RecursionError):
        return "the parameters are not JSON", remedy
    if not isinstance(config, dict) or not isinstance(config.get("operators"), list):
        return 'the parameters have no list "operators"', remedy
    return None


def _path_fault(parameters: str) -> tuple[str, str] | None:
    parts = parameters.split(":")
    if parts[0] not in {"", "WQ", "NQ"}:
        return f'"{parts[0]}" does not say whether the query belongs to the path', "write WQ (with query) or NQ"
    if len(parts) > 1 and parts[1] not in {"", "ORIG", "PATH", "ORIG_OR_PATH"}:
        return f'"{parts[1]}" does not say which path', "write ORIG, PATH or ORIG_OR_PATH"
    return None


def _query_parameters_fault(parameters: str) -> tuple[str, str] | None:
    if parameters not in {"", "ORIG", "DECODED"}:
        return f'"{parameters}" does not say whether the query is decoded', "write ORIG or DECODED"
    return None


def _server_name_fault(parameters: str) -> tuple[str, str] | None:
    source, *host = parameters.split(":")
    if source not in {"", "SNI_ONLY", "SNI_FIRST", "HOST_FIRST"}:
        return f'"{source}" does not say where the name comes from', "write SNI_ONLY, SNI_FIRST or HOST_FIRST"
    if host and host[0] not in {"", "ORIG", "HOST", "ORIG_OR_HOST"}:
        return f'"{host[0]}" does not say which host', "write ORIG, HOST or ORIG_OR_HOST"
    return None


_CHECKS: dict[str, Callable[[str], tuple[str, str] | None]] = {
    **dict.fromkeys(_HEADERS, _header_fault),
    "COALESCE": _coalesce_fault,
    "METADATA": _metadata_fault,
    "FILTER_STATE": _filter_state_fault,
    "UPSTREAM_FILTER_STATE": _filter_state_fault,
    "GRPC_STATUS": _grpc_status_fault,
    "COMMON_DURATION": _duration_fault,
    "PATH": _path_fault,
    "QUERY_PARAMS": _query_parameters_fault,
    "REQUESTED_SERVER_NAME": _server_name_fault,
}
