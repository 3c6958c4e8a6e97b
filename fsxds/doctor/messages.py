"""Every message within a message, with the path that leads to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, is_map
from fsxds.values import FieldPath

# Messages in messages, counted through every Any; the deepest real Envoy configurations have about 40.
MAX_DEPTH = 100


def messages_in(
    message: Any, catalogue: Catalogue, field_path: FieldPath = (), depth: int = 0
) -> Iterator[tuple[FieldPath, Any]]:
    """Yield a message and all messages within it, each before its own; the content of an Any stands where the Any does.

    What nobody can read (an Any of an unknown type, broken bytes) is passed over: converting tells of it.
    """
    if depth > MAX_DEPTH:
        return
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpacked(message, catalogue)
        if inner is not None:
            yield from messages_in(inner, catalogue, field_path, depth + 1)
        return
    yield field_path, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for step, part in _parts(field, value):
                yield from messages_in(part, catalogue, (*field_path, field.name, *step), depth + 1)


def unpacked(packed: Any, catalogue: Catalogue) -> Message | None:
    """Return the content of an Any, None where it cannot be read."""
    message_type = packed.type_url.rpartition("/")[2]
    if not catalogue.knows(message_type):
        return None
    try:
        return catalogue.message_class(message_type).FromString(packed.value)
    except DecodeError:
        return None


def _parts(field: FieldDescriptor, value: Any) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the messages in a field, with the index or key that leads to each."""
    if not field.is_repeated:
        yield (), value
    elif not is_map(field):
        yield from (((index,), part) for index, part in enumerate(value))
    elif field.message_type is not None and field.message_type.fields_by_name["value"].message_type is not None:
        yield from (((str(key),), part) for key, part in value.items())
