"""Look into every Any of a message that did not go through the converter, for what nobody could read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.values import FieldPath

# Messages in messages, counted through every Any; the deepest real Envoy configurations have about 40.
MAX_DEPTH = 100

_ANY = AnyMessage.DESCRIPTOR.full_name


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An Any that cannot be read: its message type is not known, or its bytes are no message of that type."""

    field_path: FieldPath
    message_type: str
    is_known: bool


def unreadable_parts(
    message: Message, catalogue: Catalogue, field_path: FieldPath = (), depth: int = 0
) -> Iterator[Unreadable]:
    """Yield every Any within a message, however deep, that cannot be read. One that nests too deep is damaged."""
    if message.DESCRIPTOR.full_name == _ANY:
        yield from _look_into(message, catalogue, field_path, depth)
        return
    for field, value in message.ListFields():
        for step, part in _messages(field, value):
            yield from unreadable_parts(part, catalogue, (*field_path, field.name, *step), depth + 1)


def _messages(field: FieldDescriptor, value: Message) -> Iterator[tuple[FieldPath, Message]]:
    """Yield the messages in a field, with the index or key that leads to each."""
    if field.message_type is None:
        return
    if not field.is_repeated:
        yield (), value
    elif not field.message_type.GetOptions().map_entry:
        yield from (((index,), part) for index, part in enumerate(value))  # type: ignore[arg-type, var-annotated]  # a list
    elif field.message_type.fields_by_name["value"].message_type is not None:
        yield from (((str(key),), part) for key, part in value.items())  # type: ignore[attr-defined]  # a map


def _look_into(message: Message, catalogue: Catalogue, field_path: FieldPath, depth: int) -> Iterator[Unreadable]:
    any_message: AnyMessage = message  # type: ignore[assignment]  # an Any of the catalogue's own pool
    message_type = any_message.type_url.rpartition("/")[2]
    if not catalogue.knows(message_type):
        yield Unreadable(field_path, message_type, is_known=False)
        return
    try:
        inner = catalogue.message_class(message_type).FromString(any_message.value)
    except DecodeError:
        inner = None
    if inner is None or depth > MAX_DEPTH:
        yield Unreadable(field_path, message_type, is_known=True)
        return
    yield from unreadable_parts(inner, catalogue, field_path, depth + 1)
