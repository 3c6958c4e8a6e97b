"""What views match of a node beside its id and cluster: its locality, its version, and the values in its metadata.

They are read once per distinct node, of nodes of any size, and what is kept of one is small: an operator's metadata may
hold annotations of many kilobytes, and a client may send anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from envoy.config.core.v3 import base_pb2
from google.protobuf.struct_pb2 import Struct, Value

from fsxds.model.values import PlainValue, scalar_text

Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Names such as `metadata.labels.tier`, with their values, sorted."""

# Longer values name no view: nobody writes them into a rule, or names a folder so.
LONGEST_TEXT = 1024

# Of all names and values together, each counted with what an object takes. What is less deep comes first.
MOST_BYTES = 16 * 1024
_OBJECT_BYTES = 64

_LOCALITY = ("region", "zone", "sub_zone")


def attributes_of_message(node: base_pb2.Node) -> Attributes:
    """Return the attributes of a node that came as protobuf."""
    build = node.user_agent_build_version.version
    version = node.user_agent_version
    if not version and node.HasField("user_agent_build_version"):
        version = f"{build.major_number}.{build.minor_number}.{build.patch}"
    locality = {name: getattr(node.locality, name) for name in _LOCALITY}
    return _attributes(version, locality, _members(node.metadata))


def attributes_of_json(version: object, locality: Mapping[str, object], metadata: Mapping[str, object]) -> Attributes:
    """Return the attributes of a node that came as JSON."""
    return _attributes(version, locality, metadata.items())


def metadata_of(attributes: Iterable[tuple[str, str]]) -> dict[str, PlainValue]:
    """Return the metadata of a node that has these attributes, as JSON; a name with dots leads into objects."""
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
    """Return the texts, numbers and truth values in metadata by their names, of which those that are less deep come first."""
    found: dict[str, str] = {}
    left = MOST_BYTES
    waiting = deque([("metadata", members)])
    while waiting:
        prefix, members = waiting.popleft()
        for key, value in members:
            name = f"{prefix}.{key}"
            # Also of what is not kept: looking at it takes time.
            left -= len(name) + _OBJECT_BYTES
            if isinstance(value, Mapping | Struct):
                # A Struct counts as a mapping, whose `items` raise where a value in it is not set.
                waiting.append((name, _members(value) if isinstance(value, Struct) else value.items()))
            elif text := _kept_text(value):
                left -= len(text)
                # A key may have a dot: `{a: {b: 1}, "a.b": 2}`.
                found.setdefault(name, text)
            if left < 0:
                return found
    return found


def _kept_text(value: object) -> str:
    """Return what is kept of a value, nothing of most."""
    text = scalar_text(value)
    return text if text and len(text) <= LONGEST_TEXT and is_unicode(text) else ""


def is_unicode(text: str) -> bool:
    """Whether a text is well-formed: the json module lets half of a surrogate pair through, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _members(struct: Struct) -> Iterator[tuple[str, object]]:
    """Yield the keys and plain values of a message; those within it stay messages."""
    for key, value in struct.fields.items():
        yield key, _plain(value)


def _plain(value: Value) -> object:
    chosen = value.WhichOneof("kind")
    return None if chosen in (None, "null_value", "list_value") else getattr(value, chosen)


@lru_cache(maxsize=4096)
def _shared(attributes: Attributes) -> Attributes:
    """Return attributes of which all nodes that have them hold one tuple."""
    return attributes
