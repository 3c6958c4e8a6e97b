"""The odd values that mutations put in, and values of every sort for fields that were absent."""

from __future__ import annotations

import base64
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tests.agreement.places import form_of, is_map, value_field
from tests.agreement.seeds import certificate_and_key

ENVIRONMENT = {
    "filename", "environment_variable", "watched_directory", "inline_bytes", "path_config_source", "network_namespace_filepath",
}  # fmt: skip
"""What the machine decides on which Envoy runs, and what says the same as another field."""

NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2, 3, 15, 16, 17, 99, 100, 101, 128, 129, 255, 256, 599, 600, 65535, 65536, 8388608, 8388609, 2147483647,
    2147483648, -2147483648, -2147483649, 4294967295, 4294967296, 9223372036854775807, 9223372036854775808,
    18446744073709551615, 18446744073709551616, 0.5, 1.5, -0.5, 1e30, 1e300, 5000011, 5000012, "10", "-1", "abc", "1.0",
    1.0, 1e3, "0x10", "1e2", " 5", "", "NaN", "Infinity", "-Infinity", "inf",
)  # fmt: skip
DURATIONS: tuple[Any, ...] = (
    "-1s", "0s", "1", "1m", "1h", "10ms", "1.0000000001s", "0.000000001s", "0.0001s", "315576000000s", "315576000001s",
    "-315576000000s", "", "s", "1e3s", "1 s", " 1s", "1S", "+1s", "1.s", ".5s", "01s", "--1s", "9223372036s",
    "9223372037s", "2147483647s", "4294967s", "4294968s", "86400s", 5, 1.5, {"seconds": 1}, {"seconds": -1},
    {"seconds": 1, "nanos": -1}, {"nanos": 1000000000}, {}, [], "NaNs",
)  # fmt: skip
REGEXES = (
    "(", ")", "[", "[a-", "[z-a]", "*a", "a**", "a{1001}", "a{2,1}", "(?=a)", "(?<!a)", "(?P<n>a)(?P<n>b)", "(?<n>a)",
    "\\", "\\1", "\\2", "\\9", "\\g<1>", "(?i)abc", "a++", "\\d+", "\\p{Greek}", "\\p{Nope}", "\\C", "[[:alpha:]]",
    "[[:nope:]]", "(?P<1a>x)", "", ".*", "((((((((((a*)*)*)*)*)*)*)*)*)*", "(a{1000}){1000}", "\x00", "é", "(?#x)",
    "\\Qa.b\\E", "\\z", "\\Z", "/{a}/{a}", "/a/{b=**}/{c}", "a" * 5000,
)  # fmt: skip
ADDRESSES = (
    "300.1.1.1", "1.2.3", "1.2.3.4.5", "example.com", "localhost", "", " 127.0.0.1", "127.0.0.1 ", "::1", "::g", "[::1]",
    "fe80::1%eth0", "127.0.0.1:80", "0x7f.1", "127.1", "010.0.0.1", "0.0.0.0", "::", "::ffff:1.2.3.4", "10.0.0.1/8",
    "255.255.255.255", "2001:db8::1::2", "2001:DB8::1", "xn--bcher-kva.example", "a" * 300, "*", "unix:///tmp/x",
)  # fmt: skip
CIDRS = ("10.0.0.0", "10.1.2.3", "fd00::", "10.0.0.0/8", "1.2.3", "example.org")
PORTS: tuple[Any, ...] = (
    -1, 0, 1, 32, 33, 64, 128, 129, 80, 65535, 65536, 70000, 4294967295, 4294967296, "80", "http", "", 1.5, 80.0, True, None,
)  # fmt: skip
ENUM_GARBAGE: tuple[Any, ...] = (
    "NO_SUCH_VALUE", "", " ", 0, 1, 2, 3, 5, 7, 999, -1, 2147483648, "1", "0", "round_robin", "Round_Robin", "static",
    "6f1c2f6e-9f0e-4a3a-8f57-0d1c7d0d8a11", 1.0, 1.5, True, [], {}, "ROUND_ROBIN ", "UNRECOGNIZED",
)  # fmt: skip
TYPE_URLS: tuple[Any, ...] = (
    "type.googleapis.com/no.such.Type", "type.googleapis.com/envoy.extensions.filters.http.router.v3.Ruoter", "", "/", "x/",
    "envoy.extensions.filters.http.router.v3.Router", "type.googleapis.com/", "type.googleapis.com/google.protobuf.Empty",
    "type.googleapis.com/google.protobuf.Struct", "type.googleapis.com/google.protobuf.Any", None, 5,
    "type.googleapis.com/envoy.config.filter.http.router.v2.Router", "example.com/envoy.extensions.filters.http.cors.v3.Cors",
    "type.googleapis.com/xds.type.v3.TypedStruct", "type.googleapis.com/envoy.config.cluster.v3.Cluster.CustomClusterType",
)  # fmt: skip
HEADERS = (
    "", " ", "bad name", "x-ok", ":path", ":authority", ":method", ":scheme", ":status", ":nope", "host", "Host", "x\ny",
    "x\ry", "x\0y", "x:y", "é", "x-UPPER", "connection", "content-length", "transfer-encoding", "te", "a" * 9000, "x_y",
    "x(y)", "x,y", '"x"', "te\tst", "x-envoy-x", "cookie", "set-cookie", "%REQ(a)%",
)  # fmt: skip
FORMATS = (
    "%", "%%", "%NOPE%", "%REQ(", "%REQ(%", "%REQ()%", "%REQ%", "%REQ(a", "%REQ(a)", "%REQ(a?b)%", "%REQ(a?b?c)%",
    "%REQ(a):5%", "%REQ(a):%", "%REQ(a):x%", "%REQ(a):-1%", "%RESP(a)%", "%TRAILER(a)%", "%START_TIME%", "%START_TIME(%",
    "%START_TIME()%", "%START_TIME(%Y)%", "%START_TIME(%E4n)%", "%START_TIME(\n)%", "%PROTOCOL(x)%", "%PROTOCOL%",
    "%protocol%", "%DYNAMIC_METADATA(a:b)%", "%DYNAMIC_METADATA(a)%", "%DYNAMIC_METADATA()%", "%DYNAMIC_METADATA%",
    "%FILTER_STATE(a:PLAIN)%", "%FILTER_STATE(a:NOPE)%", "%FILTER_STATE(a)%", "%FILTER_STATE%", "%ENVIRONMENT(HOME)%",
    "%ENVIRONMENT()%", "%ENVIRONMENT%", "%UPSTREAM_HOST%%", "100%", "a%20b", "%RESPONSE_CODE%:3", "%RESPONSE_CODE:3%",
    "%DOWNSTREAM_PEER_URI_SAN%", "%PER_REQUEST_STATE(a)%", '%UPSTREAM_METADATA(["a", "b"])%', "%METADATA(ROUTE:a:b)%",
    "%METADATA(NOPE:a)%", "%HOSTNAME%", "%COALESCE({})%", "%QUERY_PARAM(a)%", "%PATH(NQ)%", "%PATH(XX)%", "%CEL(request.path)%",
    "%REQ_WITHOUT_QUERY(a)%", "%REQ_WITHOUT_QUERY%", "%BYTES_SENT%", "%CONNECTION_ID%", "%STREAM_ID%", "%ROUTE_NAME%",
    "%REQ(a b)%", "%REQ(:nope)%", "plain", "", "%GRPC_STATUS%", "%GRPC_STATUS(NUMBER)%", "%GRPC_STATUS(nope)%",
    "%TRACE_ID%", "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%", "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms)%", "%COMMON_DURATION(a:b)%",
)  # fmt: skip
_CERTIFICATE, _KEY = certificate_and_key(7)
_OTHER_CERTIFICATE, _OTHER_KEY = certificate_and_key(8)
PEMS = (
    _OTHER_CERTIFICATE, _OTHER_KEY, _CERTIFICATE, _KEY, _CERTIFICATE[:200], _CERTIFICATE.replace("CERTIFICATE", "NOTHING"),
    _CERTIFICATE + _OTHER_CERTIFICATE, _KEY + _CERTIFICATE, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
    "text\n" + _CERTIFICATE, _CERTIFICATE + "\ntrailing text", _CERTIFICATE.replace("\n", ""), _CERTIFICATE.replace("M", "N"),
    _CERTIFICATE.replace("\n", "\r\n"), _KEY[:80], _KEY.replace("PRIVATE", "EC PRIVATE"), "", "x", _CERTIFICATE + _KEY,
)  # fmt: skip
LONG = ("a" * 300, "a" * 1025, "a" * 16385, "a" * 70000, "é" * 200, "a/" * 200, "a.b" * 100)
STRINGS: tuple[Any, ...] = (
    "x", "/", "*", "a b", "é", "\n", "a\nb", "\0", "a\0b", " ", "\t", "%", "%REQ(a)%", "🙂", "http://x", "x" * 60, "5", "true",
    "null", "~", "y", "1.0", "0x1F", "2024-01-01", "12:30:45", "- a", "{a: b}", "#x", "'", '"', "\\", "\u2028", "\ufeffx", "..", "a,b",
    "*.example.com", "x.*", "[x]", "www.*.com", "/a?b#c", "//", ":80", "\x7f", "=", "GET", "https", "-1", "5xx", "!",
)  # fmt: skip


def camel_case(name: str) -> str:
    """Return the other spelling of a field's name."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def snake_case(name: str) -> str:
    """Return the spelling of the API of a field's name."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def generated(rng: random.Random, field: FieldDescriptor) -> Any:
    """Return a value of a field's own form, often an extreme one."""
    if is_map(field):
        return {rng.choice(["a", "", "x.y", "envoy.lb"]): _single(rng, value_field(field), 0)}
    if field.is_repeated:
        return [_single(rng, field, 0) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
    return _single(rng, field, 0)


def _single(rng: random.Random, field: FieldDescriptor, depth: int) -> Any:
    form = form_of(field)
    if form == "message":
        return _message(rng, field, depth)
    if form == "enum":
        assert field.enum_type is not None
        return rng.choice([one.name for one in field.enum_type.values])
    return rng.choice(_VALUES[form])


_ANY_TYPES = (
    "google.protobuf.Empty",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    "envoy.extensions.filters.http.cors.v3.Cors",
)


_VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "number": (0, 1, 2, 5, 10, 100, 1000, 65536, 4294967295, -1),
    "duration": ("1s", "0.5s", "60s", "0s", "-1s", "0.0001s"),
    "string": ("x", "web", "/x", "x-header", "", "a b", "127.0.0.1", "*", "%REQ(a)%"),
    "bytes": ("", base64.b64encode(b"x").decode(), base64.b64encode(b"bytes").decode()),
    "struct": ({"a": 1}, {}),
    "any": tuple({"@type": f"type.googleapis.com/{name}"} for name in _ANY_TYPES),
}


def _message(rng: random.Random, field: FieldDescriptor, depth: int) -> dict[str, Any]:
    fields = [one for one in field.message_type.fields if one.name not in ENVIRONMENT] if field.message_type else []
    if depth > 3 or not fields:
        return {}
    chosen: dict[str, Any] = {}
    for one in rng.sample(fields, min(len(fields), rng.choice([0, 1, 1, 2, 3]))):
        taken = one.containing_oneof and any(member.name in chosen for member in one.containing_oneof.fields)
        if taken:
            continue
        if is_map(one):
            chosen[one.name] = {}
        elif one.is_repeated:
            chosen[one.name] = [_single(rng, one, depth + 1)]
        else:
            chosen[one.name] = _single(rng, one, depth + 1)
    return chosen
