"""Node attributes that views match beside id and cluster.

They are read once per distinct node, and the result is small: metadata may hold annotations of many kilobytes, and a
client may send anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from envoy.config.core.v3 import base_pb2
from google.protobuf.struct_pb2 import Struct

from fsxds.model.values import PlainValue, scalar_text

Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Names such as `metadata.labels.tier`, with values, sorted."""

# Longer values match no view: they do not occur in rules or folder names.
LONGEST_TEXT = 1024

# The limit for all names and values together, each counted with the size of an object. Shallow values come first.
MOST_BYTES = 16 * 1024
_OBJECT_BYTES = 64

_LOCALITY = ("region", "zone", "sub_zone")


def attributes_of_message(node: base_pb2.Node) -> Attributes:
    """Return a protobuf node's attributes."""
    build = node.user_agent_build_version.version
    version = node.user_agent_version
    if not version and node.HasField("user_agent_build_version"):
        version = f"{build.major_number}.{build.minor_number}.{build.patch}"
    locality = {name: getattr(node.locality, name) for name in _LOCALITY}
    return _attributes(version, locality, _members(node.metadata))


def attributes_of_json(version: object, locality: Mapping[str, object], metadata: Mapping[str, object]) -> Attributes:
    """Return a JSON node's attributes."""
    return _attributes(version, locality, metadata.items())


def metadata_of(attributes: Iterable[tuple[str, str]]) -> dict[str, PlainValue]:
    """Return metadata as JSON; dots become nested objects."""
    metadata: dict[str, PlainValue] = {}
    for name, value in attributes:
        first, *steps = name.split(".")
        holder = metadata
        for step in steps[:-1]:
            inner = holder.setdefault(step, {})
            holder = inner if isinstance(inner, dict) else {}
        if first == "metadata":
            holder[steps[-1]] = value
    return metadata


def _attributes(version: object, locality: Mapping[str, object], metadata: Iterable[tuple[str, object]]) -> Attributes:
    named: dict[str, object] = {"user_agent_version": version}
    named |= {f"locality.{name}": locality.get(name) for name in _LOCALITY}
    found = {name: text for name, value in named.items() if (text := _kept_text(value))} | _metadata(metadata)
    return _shared(tuple(sorted((intern(name), intern(value)) for name, value in found.items())))


def _metadata(members: Iterable[tuple[str, object]]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = MOST_BYTES
    waiting = deque([("metadata", members)])
    while waiting:
        prefix, members = waiting.popleft()
        for key, value in members:
            name = f"{prefix}.{key}"
            # Counts skipped values, too: visiting them takes time.
            left -= len(name) + _OBJECT_BYTES
            if isinstance(value, Mapping | Struct):
                # A Struct counts as a mapping, but its `items` raise if a value in it is not set.
                waiting.append((name, _members(value) if isinstance(value, Struct) else value.items()))
            elif text := _kept_text(value):
                left -= len(text)
                # A key may have a dot: `{a: {b: 1}, "a.b": 2}`.
                found.setdefault(name, text)
            if left < 0:
                return found
    return found


def _kept_text(value: object) -> str:
    text = scalar_text(value)
    return text if text and len(text) <= LONGEST_TEXT and is_unicode(text) else ""


def is_unicode(text: str) -> bool:
    """The json module accepts half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _members(struct: Struct) -> Iterator[tuple[str, object]]:
    for key, value in struct.fields.items():
        chosen = value.WhichOneof("kind")
        yield key, (None if chosen in (None, "null_value", "list_value") else getattr(value, chosen))


@lru_cache(maxsize=4096)
def _shared(attributes: Attributes) -> Attributes:
    """Equal nodes share one tuple."""
    return attributes
