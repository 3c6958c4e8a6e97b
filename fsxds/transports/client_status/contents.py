"""A client status's content: nodes, states of resources, and content without secrets.

Large answers are written row by row. Source: envoy/service/status/v3/csds.proto,
envoy/type/matcher/v3/{node,struct,value,string,number}.proto.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import re2
from envoy.config.core.v3 import base_pb2
from envoy.service.status.v3 import csds_pb2
from envoy.type.matcher.v3 import node_pb2, number_pb2, string_pb2, struct_pb2, value_pb2
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import BytesValue

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import HIDDEN, Masker, mask_reason
from fsxds.model.errors import ApiError, ProtocolError
from fsxds.model.memo import Recent
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue, TypeUrl, Version
from fsxds.protocol.messages import (
    ClientResourceStatus,
    ClientStatus,
    ConfigStatus,
    Node,
    OwnStatus,
    ResourceStatus,
    WatchStatus,
    without_message,
)
from fsxds.protocol.subscription import WILDCARD
from fsxds.transports.rest.poll_responses import Payload

REJECTED = ConfigStatus.ERROR, ClientResourceStatus.NACKED


def resource_statuses(status: ClientStatus) -> Iterator[ResourceStatus]:
    """Yield sent and requested resources, by watch.

    A wildcard client that was sent nothing has asked for `*`.
    """
    is_delta = status.service.startswith("Delta")
    for watch in status.watches:
        yield from _held(watch, is_delta=is_delta)
        yield from _not_held(watch)


def _held(watch: WatchStatus, *, is_delta: bool) -> Iterator[ResourceStatus]:
    state, reason = _state_of_accepted(watch), _reason(watch)
    for resource in watch.resources:
        type_url, name = watch.type_url, resource.name
        if name not in watch.rejected:
            is_older = watch.acked is not None and watch.sent == watch.nacked
            version = resource.version if is_delta else watch.acked if is_older else watch.sent
            yield ResourceStatus(type_url, name, *state, version, resource)
            continue
        # The version that a Delta client kept is unknown.
        kept, nacked = (None, resource.version) if is_delta else (watch.acked, watch.nacked)
        yield ResourceStatus(type_url, name, *REJECTED, version=kept, resource=resource, nacked=nacked, reason=reason)


def _not_held(watch: WatchStatus) -> Iterator[ResourceStatus]:
    removed = sorted(watch.rejected - {resource.name for resource in watch.resources}) if watch.rejected else ()
    reason = _reason(watch) if removed else None
    for name in removed:
        yield ResourceStatus(watch.type_url, name, *REJECTED, nacked=watch.nacked, reason=reason)
    missing = frozenset(watch.missing) - watch.rejected
    for name in sorted(missing):
        yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientResourceStatus.DOES_NOT_EXIST)
    if watch.sent is None:
        requested = frozenset((WILDCARD,)) if watch.names is None else watch.names - missing
        for name in sorted(requested):
            yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientResourceStatus.REQUESTED)


def _state_of_accepted(watch: WatchStatus) -> tuple[ConfigStatus, ClientResourceStatus]:
    if watch.acked is None:
        return ConfigStatus.STALE, ClientResourceStatus.REQUESTED
    if watch.sent in (watch.acked, watch.nacked):
        return ConfigStatus.SYNCED, ClientResourceStatus.ACKED
    # Which resources are unchanged is unknown.
    return ConfigStatus.STALE, ClientResourceStatus.UNKNOWN


def _reason(watch: WatchStatus) -> str | None:
    # Envoy prints the rejected message, including secrets.
    return None if watch.reason is None else mask_reason(without_message(watch.reason))


_SECRET = frozenset(row.type_url for row in RESOURCE_TYPES if row.is_secret)
_NODE = "envoy.config.core.v3.Node"
_HIDDEN_BYTES = base64.b64encode(HIDDEN.encode()).decode()


class Contents:
    """Shows resources, `<hidden>` in place of secrets.

    Secrets and types beyond the catalogue are not shown. Content is cached; see `turn`.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._converter = Converter(catalogue)
        self._masker = Masker(catalogue, hide_bytes=lambda _: _HIDDEN_BYTES)
        self._bodies: Recent[tuple[TypeUrl, Version], bytes | None] = Recent()
        self._jsons: Recent[tuple[TypeUrl, Version], bytes | None] = Recent()
        self._nodes: Recent[bytes, bytes] = Recent()

    def turn(self, *, with_contents: bool = True) -> None:
        """Begin a report; drop content unused since the last."""
        self._nodes.turn()
        if with_contents:
            self._bodies.turn()
            self._jsons.turn()

    def body_of(self, resource: Resource) -> bytes | None:
        """Return a resource without secrets, serialized; None: not shown."""
        key = resource.type_url, resource.version
        return self._bodies.get(key, lambda: self._body(resource.type_url, resource.body))

    def json_of(self, resource: Resource) -> bytes | None:
        """Return a resource without secrets as proto JSON with `@type`; None: not shown."""
        return self._jsons.get((resource.type_url, resource.version), lambda: self._json(resource))

    def node_json(self, node: Message) -> bytes:
        """Return a Node without secrets as JSON."""
        return self._nodes.get(node.SerializeToString(), lambda: dump(self.plain_node(node)))

    def plain_node(self, node: Message) -> dict[str, PlainValue]:
        """Return a Node without secrets as values."""
        if not self._catalogue.knows(_NODE):
            return {}
        plain = self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))
        return self._masker.masked_message(plain, _NODE)

    def _json(self, resource: Resource) -> bytes | None:
        body = self.body_of(resource)
        # Resources that JSON cannot express have no body here.
        return None if body is None else self._printer.any_json(resource.type_url, body)

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        if type_url in _SECRET:
            return None
        try:
            plain = json.loads(self._printer.any_json(type_url, body))
        except (ApiError, DecodeError):
            return None
        masked = self._masker.masked(plain)
        if masked == plain:
            return body
        message = self._converter.convert_any(masked).message
        return None if message is None else message.SerializeToString(deterministic=True)


class WireForm:
    """Protobuf's wire format: concatenated fields are one message."""

    def __init__(self, contents: Contents) -> None:
        self.content = contents.body_of

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write a resource's state: a GenericXdsConfig field."""
        client = csds_pb2.ClientConfig()
        row = client.generic_xds_configs.add(
            type_url=status.type_url,
            name=status.name,
            version_info=status.version,
            config_status=status.config_status,
            client_status=status.client_status,
        )
        if status.updated_s is not None:
            row.last_updated.FromMilliseconds(round(status.updated_s * 1000))
        if status.client_status is ClientResourceStatus.NACKED:
            row.error_state.details = status.reason or ""
            row.error_state.version_info = status.nacked or ""
        if content is not None:
            row.xds_config.type_url = status.type_url
            row.xds_config.value = content
        return bytes(client.SerializeToString())

    def client(self, status: ClientStatus | OwnStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a client: a ClientConfig field."""
        head = csds_pb2.ClientConfig(node=node_message(status.node), client_scope=status.service).SerializeToString()
        # In a ClientStatusResponse, bytes in field 1.
        return BytesValue(value=b"".join((head, *rows))).SerializeToString()

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the whole answer."""
        return Payload(await asyncio.to_thread(b"".join, clients) if len(clients) > 1 else b"".join(clients))


class JsonForm:
    """Proto JSON with snake_case names, without empty fields except messages."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self.content = contents.json_of

    def row(self, status: ResourceStatus, content: bytes | None) -> bytes:
        """Write a resource's state: a GenericXdsConfig."""
        plain: dict[str, PlainValue] = {"type_url": status.type_url, "name": status.name}
        if status.version:
            plain["version_info"] = status.version
        if status.updated_s is not None:
            updated = datetime.fromtimestamp(status.updated_s, UTC)
            plain["last_updated"] = updated.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if status.config_status:
            plain["config_status"] = status.config_status.name
        if status.client_status:
            plain["client_status"] = status.client_status.name
        if status.client_status is ClientResourceStatus.NACKED:
            error = {"details": status.reason, "version_info": status.nacked}
            plain["error_state"] = {name: value for name, value in error.items() if value}
        row = dump(plain)
        return row if content is None else b'%b,"xds_config":%b}' % (row[:-1], content)

    def client(self, status: ClientStatus | OwnStatus, rows: list[bytes], *, is_first: bool) -> bytes:
        """Write a ClientConfig, after a comma unless `is_first`."""
        begin = b'%b{"node":%b' % (b"" if is_first else b",", self._contents.node_json(node_message(status.node)))
        end = b',"client_scope":%b}' % dump(status.service)
        if not rows:
            return begin + end
        listed = [b","] * (2 * len(rows) - 1)
        listed[::2] = rows
        return b"".join((begin, b',"generic_xds_configs":[', *listed, b"]", end))

    async def payload(self, clients: list[bytes]) -> Payload:
        """Return the whole answer."""
        return Payload(b'{"config":[', *clients, b"]}")


Form = WireForm | JsonForm
"""A format of a ClientStatusResponse."""


# RE2 compiles a megabyte for seconds; node ids need less.
LONGEST_REGEX = 4096


def node_message(node: Node) -> base_pb2.Node:
    """Return a node as sent, or its known fields."""
    if node.serialized:
        # Serializable messages may be nested too deeply to be parsed.
        with suppress(DecodeError):
            return base_pb2.Node.FromString(node.serialized)
    return base_pb2.Node(id=node.id, cluster=node.cluster, client_features=sorted(node.features))


def node_filter(matchers: Iterable[node_pb2.NodeMatcher]) -> Callable[[Node], bool]:
    """Return a predicate: any matcher matches, or there are none.

    Raises:
        ProtocolError: with field and remedy.
    """
    alternatives = [_node(matcher, f"node_matchers[{index}]") for index, matcher in enumerate(matchers)]
    if not alternatives:
        return lambda _: True
    return lambda node: any(matches(node) for matches in alternatives)


def _node(matcher: node_pb2.NodeMatcher, place: str) -> Callable[[Node], bool]:
    matches_id = _text(matcher.node_id, f"{place}.node_id") if matcher.HasField("node_id") else None
    metadatas = [_struct(each, f"{place}.node_metadatas[{index}]") for index, each in enumerate(matcher.node_metadatas)]

    def matches(node: Node) -> bool:
        if matches_id is not None and not matches_id(node.id):
            return False
        if not metadatas:
            return True
        metadata = node_message(node).metadata
        return all(matches_metadata(metadata) for matches_metadata in metadatas)

    return matches


# The key is absent, or has an object.
_ABSENT = object()
_Matches = Callable[[object], bool]
"""A predicate on text, number, boolean, None, a list of these, or `_ABSENT`."""


def _struct(matcher: struct_pb2.StructMatcher, place: str) -> Callable[[Struct], bool]:
    keys = [segment.key for segment in matcher.path]
    if not keys or not all(keys):
        raise _fault(f"{place}.path", "is empty, or one of its keys is; name the keys that lead to the value")
    matches = _value(matcher.value, f"{place}.value")
    return lambda struct: matches(_value_at(struct, keys))


def _value_at(struct: Struct, keys: list[str]) -> object:
    *parents, last = keys
    for key in parents:
        if key not in struct.fields:
            return _ABSENT
        struct = struct.fields[key].struct_value
    return _plain(struct.fields[last]) if last in struct.fields else _ABSENT


def _plain(value: Value) -> object:
    chosen = value.WhichOneof("kind")
    if chosen == "null_value":
        return None
    if chosen == "list_value":
        return [_plain(member) for member in value.list_value.values]
    return _ABSENT if chosen in (None, "struct_value") else getattr(value, chosen)


def _value(matcher: value_pb2.ValueMatcher, place: str) -> _Matches:
    pattern = matcher.WhichOneof("match_pattern")
    if pattern == "null_match":
        return lambda value: value is None
    if pattern == "bool_match":
        wanted = matcher.bool_match
        return lambda value: value is wanted
    if pattern == "present_match":
        # Absent and compound values never match, even if absence is wanted.
        wanted = matcher.present_match
        return lambda value: wanted and value is not _ABSENT and not isinstance(value, list)
    if pattern == "double_match":
        return _number(matcher.double_match, f"{place}.double_match")
    if pattern == "string_match":
        matches_text = _text(matcher.string_match, f"{place}.string_match")
        return lambda value: isinstance(value, str) and matches_text(value)
    return _compound(matcher, pattern, place)


def _compound(matcher: value_pb2.ValueMatcher, pattern: str | None, place: str) -> _Matches:
    if pattern == "list_match":
        if matcher.list_match.WhichOneof("match_pattern") is None:
            raise _fault(f"{place}.list_match", "is empty; set the matcher of a value in one_of")
        matches_one = _value(matcher.list_match.one_of, f"{place}.list_match.one_of")
        return lambda value: isinstance(value, list) and any(map(matches_one, value))
    if pattern == "or_match":
        place = f"{place}.or_match.value_matchers"
        choices = [_value(each, f"{place}[{index}]") for index, each in enumerate(matcher.or_match.value_matchers)]
        if len(choices) < 2:
            raise _fault(place, "has less than two matchers; give two or more, or use one alone")
        return lambda value: any(matches(value) for matches in choices)
    raise _fault(place, "is empty; choose one of null_match, double_match, string_match, bool_match, and the others")


def _number(matcher: number_pb2.DoubleMatcher, place: str) -> _Matches:
    pattern = matcher.WhichOneof("match_pattern")
    if pattern is None:
        raise _fault(place, "is empty; give exact, or range")
    if pattern == "exact":
        exact = matcher.exact
        return lambda value: isinstance(value, float) and value == exact
    start, end = matcher.range.start, matcher.range.end
    return lambda value: isinstance(value, float) and start <= value < end


_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}


def _text(matcher: string_pb2.StringMatcher, place: str) -> Callable[[str], bool]:
    pattern = matcher.WhichOneof("match_pattern")
    if pattern == "safe_regex":
        return _regex(matcher.safe_regex.regex, f"{place}.safe_regex.regex")
    if pattern in (None, "custom"):
        raise _fault(place, "has no form known here; choose one of exact, prefix, suffix, contains, safe_regex")
    wanted = getattr(matcher, pattern)
    if not wanted and pattern != "exact":
        raise _fault(f"{place}.{pattern}", "is empty; give some text, or leave the matcher out")
    fold, matches = str.lower if matcher.ignore_case else str, _COMPARISONS[pattern]
    wanted = fold(wanted)
    return lambda text: matches(fold(text), wanted)


def _regex(regex: str, place: str) -> Callable[[str], bool]:
    if not regex or len(regex) > LONGEST_REGEX:
        raise _fault(
            place, f"is empty, or longer than {LONGEST_REGEX} characters; give a shorter one that is not empty"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise _fault(
            place, f"{reason.decode(errors='replace') if isinstance(reason, bytes) else reason}; give one for RE2"
        ) from error
    return lambda text: compiled.fullmatch(text) is not None


def _fault(place: str, fact: str) -> ProtocolError:
    return ProtocolError(f"{place}: {fact}")
