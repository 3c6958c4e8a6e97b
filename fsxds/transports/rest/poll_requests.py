"""Parses REST requests: hold time, body, and DiscoveryRequest, with a cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn, cast

from aiohttp import HttpVersion11, web
from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format
from google.protobuf.message import EncodeError

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.fields import camel_case, quoted_type_url, shown_pointer
from fsxds.model.errors import ProtocolError
from fsxds.model.memo import Lru
from fsxds.model.resource_types import ResourceType
from fsxds.model.values import Nonce, PlainValue, Severity, Version
from fsxds.protocol.messages import (
    MOST_KEPT_NODE_BYTES,
    Attributes,
    Node,
    attributes_of_json,
    check_length,
    is_unicode,
    without_message,
)
from fsxds.protocol.poll import PollRequest, patience_s
from fsxds.protocol.subscription import Subscription, checked_names

DEADLINE_HEADER = "x-envoy-expected-rq-timeout-ms"
_NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s)?", re.ASCII)

MOST_REMEMBERED = 8192
# Envoy asks for one name. Requests for thousands are parsed each time, to keep the cache below about 100 MB, and as
# much for nodes.
MOST_KEPT_CHARACTERS = 4096

# Envoy's request takes 77 kB, mostly its extensions (ENVOY.md E1). `max_body` is for polls.
MAX_REQUEST_BYTES = 1024 * 1024
# Envoy sends it at once; a slow link takes seconds.
BODY_S = 30.0
# Error codes with their own HTTP status.
TOO_LARGE, TOO_SLOW, UNKNOWN_CODING = "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"
# Formats of compressed bodies, as `wbits` of zlib.
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}

_DISCOVERY_REQUEST = "envoy.service.discovery.v3.DiscoveryRequest"
_ERROR_DETAIL = frozenset({"error_detail", "errorDetail"})

EMPTY_BODY = "the body is empty; send a DiscoveryRequest in JSON, `{}` at least"
NOT_JSON = "the body is not JSON; send a DiscoveryRequest in JSON"


def is_json(content_type: str | None) -> bool:
    """Whether a type is JSON, which no page sends without a preflight."""
    if content_type is None or content_type == "application/json":
        return content_type is not None
    return content_type.partition(";")[0].strip().lower().endswith(("/json", "+json"))


def is_continue_expected(request: web.Request) -> bool:
    """Whether a client waits for `100 Continue`."""
    return request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue"


def patience_of(
    deadline_text: str | None, timeout_text: str | None, max_hold_s: float, parameter: str = "timeout"
) -> float:
    """Return for how many seconds to hold a request; 0.0: answer at once. Raises ProtocolError.

    Args:
        deadline_text: the `DEADLINE_HEADER`, in milliseconds.
        timeout_text: `?timeout=`, in seconds, or as `30s` or `500ms`.
        max_hold_s: the operator's limit.
        parameter: its name.
    """
    expected_ms = None if deadline_text is None else _milliseconds(DEADLINE_HEADER, deadline_text, 1)
    query_ms = None if timeout_text is None else _milliseconds(parameter, timeout_text, 1000)
    return patience_s(expected_ms, None if query_ms is None else query_ms / 1000, max_hold_s)


def _milliseconds(name: str, text: str, milliseconds_each: int) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or (match[2] and milliseconds_each == 1):
        demand = "a number of milliseconds" if milliseconds_each == 1 else "a number of seconds, such as 30 or 30s"
        raise ProtocolError(f"{name}: is not {demand}")
    return float(match[1]) * (1 if match[2] == "ms" else milliseconds_each)


async def read_body(
    request: web.Request, most_bytes: int = MAX_REQUEST_BYTES, count: Callable[[int], object] = lambda _: None
) -> bytes:
    """Read a body, chunked or compressed or not; the request keeps no copy.

    `most_bytes` limits it as sent and as decompressed. `count` gets each part's size, and may raise.

    Raises:
        ProtocolError: broken, or, with their codes, too large, too slow, or of an unknown coding.
        ConnectionError: the client went away.
    """
    if (request.content_length or 0) > most_bytes:
        raise _too_large(most_bytes)
    if is_continue_expected(request):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # Or aiohttp would take it for the answer's beginning.
        request.writer.output_size = 0
    chunks, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_S):
            while chunk := await request.content.readany():
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                count(len(chunk))
                chunks.append(chunk)
    except TimeoutError as error:
        message = f"the body did not come within {BODY_S:g} seconds; send it at once"
        raise ProtocolError(message, TOO_SLOW) from error
    except web.RequestPayloadError as error:
        raise ProtocolError("the body is broken; its length and its chunks must be as its headers say") from error
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    coding = request.headers.get("Content-Encoding")
    return body if coding is None else _decoded(body, coding.strip().lower(), most_bytes)


def _decoded(body: bytes, coding: str, most_bytes: int) -> bytes:
    if coding in {"", "identity"}:
        return body
    if coding not in _WINDOW_BITS:
        message = f"content-encoding: {coding[:40]!r} is not known; send the body as it is, or compressed with gzip"
        raise ProtocolError(message, UNKNOWN_CODING)
    decoder = zlib.decompressobj(_WINDOW_BITS[coding])
    try:
        decoded = decoder.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise ProtocolError(f"the body is not compressed with {coding}, as its content-encoding says") from error
    if len(decoded) > most_bytes:
        raise _too_large(most_bytes)
    if not decoder.eof or decoder.unused_data:
        raise ProtocolError(f"the body is not one whole {coding} stream, as its content-encoding says")
    return decoded


def _too_large(most_bytes: int) -> ProtocolError:
    message = f"the body is over {most_bytes} bytes; send the fields of the request alone, or have the setting max_body raised"
    return ProtocolError(message, TOO_LARGE)


class RestRequestReader:
    """Parses requests, cached: an Envoy sends the same 77 kB with every poll (ENVOY.md E1).

    `parsed` counts cache misses; `authority` is for structured names without one.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        most_remembered: int = MOST_REMEMBERED,
        authority: Callable[[], str] = lambda: "",
    ) -> None:
        self._authority = authority
        self.parsed = 0
        self._catalogue = catalogue
        self._converter = Converter(catalogue)
        self._remembered: Lru[tuple[bytes, ResourceType, str, bool, str], PollRequest] = Lru(most_remembered)

    def read(self, body: bytes, row: ResourceType, peer: str, *, from_envoy: bool) -> PollRequest:
        """Parse a body, or return the cached poll. Raises ProtocolError with field, problem and remedy.

        Args:
            body: proto JSON in either spelling; an Envoy's unknown fields are ignored.
            row: the path's.
            peer: an IP address, empty on a unix socket.
            from_envoy: the request has Envoy's deadline header.
        """
        key = hashlib.sha256(body).digest(), row, peer, from_envoy, self._authority()
        poll = self._remembered.get(key)
        if poll is not None:
            return poll
        poll = self._parse(body, row, peer, from_envoy=from_envoy)
        self.parsed += 1
        texts = (poll.node.id, poll.node.cluster, poll.version_info or "", poll.response_nonce or "")
        names = poll.subscription.names
        size = sum(map(len, texts)) + len(poll.error_detail or "") + sum(map(len, names)) + 64 * len(names)
        if size <= MOST_KEPT_CHARACTERS:
            self._remembered.put(key, poll)
        return poll

    def _parse(self, body: bytes, row: ResourceType, peer: str, *, from_envoy: bool) -> PollRequest:
        if not body:
            raise ProtocolError(EMPTY_BODY)
        try:
            message = _loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"{NOT_JSON}: {error}") from error
        fields = _object("the body", message)
        node = _object("node", _field(fields, "node"))
        type_url = _text("type_url", _field(fields, "type_url"))
        if type_url and type_url != row.type_url:
            raise ProtocolError(
                f"type_url: is {quoted_type_url(type_url)}, but this path serves {row.type_url}; send that, or leave type_url out"
            )
        detail = _field(fields, "error_detail")
        names = _names(_field(fields, "resource_names"))
        # Features matter to streams alone.
        texts = _text("node.id", node.get("id")), _text("node.cluster", node.get("cluster"))
        agent = _text("node.user_agent_name", _field(node, "user_agent_name"))
        poll = PollRequest(
            node=Node(*texts, peer, agent=agent, attributes=_attributes(node), serialized=serialized_node(node)),
            subscription=Subscription.for_request(row.type_url, checked_names(names, row.type_url, self._authority())),
            version_info=Version(_text("version_info", _field(fields, "version_info"))) or None,
            response_nonce=Nonce(_text("response_nonce", _field(fields, "response_nonce"))) or None,
            error_detail=None if detail is None else _reason(detail),
            from_envoy=from_envoy,
        )
        # An Envoy sends its version's fields, which no person types.
        if not poll.node.agent.lower().startswith("envoy"):
            try:
                json.loads(body, object_pairs_hook=self._unique)
            except RecursionError as error:
                raise ProtocolError(f"{NOT_JSON}: {error}") from error
            self._check_fields(fields)
        return poll

    def _unique(self, pairs: list[tuple[str, object]]) -> None:
        """JSON readers differ in which value of a duplicate key they take."""
        keys = set[str]()
        for key, _ in pairs:
            if key in keys:
                name = key if self._catalogue.knows_word(key) else "a key"
                raise ProtocolError(f"{name}: is there twice in one object; send it once")
            keys.add(key)

    def _check_fields(self, fields: Mapping[str, object]) -> None:
        """A misspelt `resource_names` would request all resources."""
        known = dict(fields)
        for name in _ERROR_DETAIL & fields.keys():
            if isinstance(detail := fields[name], dict):
                # Details may have a type that the catalogue lacks.
                known[name] = {key: each for key, each in detail.items() if key != "details"}
        for fault in self._converter.convert(cast("PlainValue", known), _DISCOVERY_REQUEST).faults:
            if fault.severity is Severity.ERROR:
                place = shown_pointer(fault.field_path, fault.message, self._catalogue)
                raise ProtocolError(f"{place}: {fault.message}; {fault.remedy}")


def _field(message: Mapping[str, object], name: str) -> object:
    other = camel_case(name)
    if other == name or other not in message:
        return message.get(name)
    if name in message:
        raise ProtocolError(f"{name}: is duplicated, also as {other}; send one of them")
    return message[other]


def _object(name: str, value: object) -> Mapping[str, object]:
    if value is None and name != "the body":
        return {}
    return value if isinstance(value, dict) else _reject(name, value, "an object")


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    return check_length(name, _well_formed(name, value)) if isinstance(value, str) else _reject(name, value, "a string")


def _names(value: object) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        _reject("resource_names", value, "a list of strings")
    for index, name in enumerate(value):
        if not isinstance(name, str):
            _reject(f"resource_names[{index}]", name, "a string")
        yield _well_formed("resource_names", name)


def _reason(detail: object) -> str:
    message = _object("error_detail", detail).get("message")
    if not isinstance(message, str | None):
        _reject("error_detail.message", message, "a string")
    return without_message(_well_formed("error_detail.message", message or ""))


def _well_formed(name: str, text: str) -> str:
    if is_unicode(text):
        return text
    raise ProtocolError(f"{name}: holds half a surrogate pair; send valid Unicode")


_JSON_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
}


def _reject(name: str, value: object, demand: str) -> NoReturn:
    raise ProtocolError(f"{name}: is {_JSON_TYPE_NAMES.get(type(value), 'null')}; send {demand}")


def _attributes(node: Mapping[str, object]) -> Attributes:
    version = _field(node, "user_agent_version")
    if not version:
        build = _members(_members(_field(node, "user_agent_build_version")).get("version"))
        numbers = [_field(build, name) or 0 for name in ("major_number", "minor_number", "patch")]
        version = ".".join(map(str, numbers)) if build and all(isinstance(one, int) for one in numbers) else ""
    locality = _members(node.get("locality"))
    named = {name: _field(locality, name) for name in ("region", "zone", "sub_zone")}
    return attributes_of_json(version, named, _members(node.get("metadata")))


def _members(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def serialized_node(node: Mapping[str, object]) -> bytes:
    """Return `Node.serialized`; empty if unreadable or very large."""
    try:
        text = json.dumps({name: value for name, value in node.items() if name != "extensions"}, ensure_ascii=False)
    except RecursionError:
        return b""
    return _serialized(text) if len(text) <= MOST_KEPT_NODE_BYTES else b""


# An Envoy polls with the same node; parsing it takes a tenth of a millisecond.
@lru_cache(maxsize=2048)
def _serialized(text: str) -> bytes:
    try:
        message = json_format.Parse(text, base_pb2.Node(), ignore_unknown_fields=True)
        return bytes(message.SerializeToString())
    except (json_format.ParseError, EncodeError):
        return b""


def strict_loads(body: bytes) -> Any:
    """Parse like orjson: UTF-8 only, no NaN. Raises ValueError or RecursionError."""

    def reject_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    return json.loads(body.decode(), parse_constant=reject_constant)


_loads: Callable[[bytes], Any]
try:
    from orjson import loads as _loads
except ImportError:  # the extra "fast" is not installed
    _loads = strict_loads
