"""Nodes as messages, and the node matchers of a ClientStatusRequest.

Source: envoy/type/matcher/v3/{node,struct,value,string,number}.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import re2
from envoy.config.core.v3 import base_pb2
from envoy.type.matcher.v3 import node_pb2, number_pb2, string_pb2, struct_pb2, value_pb2
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value

from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import Node

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
        ProtocolError: one is malformed; with field and remedy.
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


@dataclass(frozen=True, slots=True)
class _Absent:
    """The key is absent, or has an object."""


_ABSENT = _Absent()
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
        return lambda value: wanted and not isinstance(value, list | _Absent)
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


def _text(matcher: string_pb2.StringMatcher, place: str) -> Callable[[str], bool]:
    pattern = matcher.WhichOneof("match_pattern")
    if pattern == "safe_regex":
        return _regex(matcher.safe_regex.regex, f"{place}.safe_regex.regex")
    if pattern in (None, "custom"):
        raise _fault(place, "has no form known here; choose one of exact, prefix, suffix, contains, safe_regex")
    wanted = getattr(matcher, pattern)
    if not wanted and pattern != "exact":
        raise _fault(f"{place}.{pattern}", "is empty; give some text, or leave the matcher out")
    fold = str.lower if matcher.ignore_case else str
    wanted = fold(wanted)
    if pattern == "exact":
        return lambda text: fold(text) == wanted
    if pattern == "prefix":
        return lambda text: fold(text).startswith(wanted)
    if pattern == "suffix":
        return lambda text: fold(text).endswith(wanted)
    return lambda text: wanted in fold(text)


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
