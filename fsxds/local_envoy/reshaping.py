"""Change messages in place wherever they stand in a resource, also where they are packed (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, LIST_VALUE, STRUCT, VALUE, is_map

Change: TypeAlias = Callable[[Any], None]
"""Changes one message in place."""

# Free-form content: it can be large, and nothing in it is a message of its own.
_LEAVES = frozenset({LIST_VALUE, STRUCT, VALUE})


class Reshaper:
    """Walks messages, and what is packed into them, to those that are to be changed.

    What the catalogue does not know, or cannot read, stays as it is.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._roads: dict[str, frozenset[int]] = {}

    def reshape(self, message: Any, changes: Mapping[str, Change], every: Change | None = None) -> None:
        """Change a message and all that is in it, the outer before the inner.

        Args:
            message: what to change.
            changes: what to do to messages, by their full names.
            every: what else to do to each message.
        """
        full_name = message.DESCRIPTOR.full_name
        if full_name == ANY:
            self._reshape_packed(message, changes, every)
            return
        if change := changes.get(full_name):
            change(message)
        if every is not None:
            every(message)
        roads = self._roads_from(message.DESCRIPTOR)
        for field, value in message.ListFields():
            if field.number in roads:
                for inner in _messages_in(field, value):
                    self.reshape(inner, changes, every)

    def _reshape_packed(self, packed: Any, changes: Mapping[str, Change], every: Change | None) -> None:
        message_type = packed.type_url.rpartition("/")[2]
        if not self._catalogue.knows(message_type):
            return
        try:
            inner = self._catalogue.message_class(message_type).FromString(packed.value)
        except DecodeError:
            return
        self.reshape(inner, changes, every)
        packed.value = inner.SerializeToString(deterministic=True)

    def _roads_from(self, descriptor: Descriptor) -> frozenset[int]:
        """Return the numbers of the fields that hold messages."""
        if (roads := self._roads.get(descriptor.full_name)) is None:
            roads = frozenset(field.number for field in descriptor.fields if _holds_messages(field))
            self._roads[descriptor.full_name] = roads
        return roads


def _holds_messages(field: FieldDescriptor) -> bool:
    if is_map(field) and field.message_type is not None:
        return _holds_messages(field.message_type.fields_by_name["value"])
    return field.message_type is not None and field.message_type.full_name not in _LEAVES


def _messages_in(field: FieldDescriptor, value: Any) -> Iterator[Any]:
    if not field.is_repeated:
        yield value
    elif is_map(field):
        yield from value.values()
    else:
        yield from value
