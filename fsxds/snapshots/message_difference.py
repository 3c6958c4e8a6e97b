"""Where two messages begin to differ, to the last bit and inside of every Any."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, LIST_VALUE, STRUCT, VALUE, is_map
from fsxds.values import FieldPath

# Their fields are no words of an author: a struct is written as its content.
_UNSPOKEN = frozenset({LIST_VALUE, STRUCT, VALUE})


def first_difference(before: Message, after: Message, catalogue: Catalogue) -> FieldPath | None:
    """Return the path of the first field that is not the same in two messages of one type; None where all are.

    Numbers are the same when their bits are, so NaN is itself and 0.0 is not -0.0. A message that holds something that
    its type does not know is different from one that does not.
    """
    return next(_differences(before, after, catalogue, ()), None)


def _differences(before: Message, after: Message, catalogue: Catalogue, path: FieldPath) -> Iterator[FieldPath]:
    descriptor = cast("Descriptor", before.DESCRIPTOR)
    if descriptor.full_name == ANY:
        yield from _in_any(before, after, catalogue, path)
        return
    if _unknown(before) != _unknown(after):
        yield path
    fields = {field.number: field for field, _ in (*before.ListFields(), *after.ListFields())}
    for number in sorted(fields):
        field = fields[number]
        here = path if descriptor.full_name in _UNSPOKEN else (*path, field.name)
        yield from _in_field(field, before, after, catalogue, here)


def _in_any(before: Any, after: Any, catalogue: Catalogue, path: FieldPath) -> Iterator[FieldPath]:
    if before.type_url != after.type_url:
        yield path
        return
    if before.value == after.value:
        return
    message_type = before.type_url.rpartition("/")[2]
    try:
        message_class = catalogue.message_class(message_type)
        inner = message_class.FromString(before.value), message_class.FromString(after.value)
    except (KeyError, DecodeError):
        yield path
        return
    yield from _differences(*inner, catalogue, path)


def _in_field(
    field: FieldDescriptor, before: Message, after: Message, catalogue: Catalogue, path: FieldPath
) -> Iterator[FieldPath]:
    old: Any = getattr(before, field.name)
    new: Any = getattr(after, field.name)
    if is_map(field):
        yield from _in_members({key: old[key] for key in old}, {key: new[key] for key in new}, catalogue, path)
    elif field.is_repeated:
        yield from _in_members(dict(enumerate(old)), dict(enumerate(new)), catalogue, path)
    elif field.has_presence and before.HasField(field.name) != after.HasField(field.name):
        yield path
    elif field.message_type is not None:
        yield from _differences(old, new, catalogue, path)
    elif not _are_same(old, new):
        yield path


def _in_members(old: dict[Any, Any], new: dict[Any, Any], catalogue: Catalogue, path: FieldPath) -> Iterator[FieldPath]:
    for key in (*old, *(key for key in new if key not in old)):
        here = (*path, key if isinstance(key, int) and not isinstance(key, bool) else str(key))
        if key not in old or key not in new:
            yield here
        elif isinstance(old[key], Message):
            yield from _differences(old[key], new[key], catalogue, here)
        elif not _are_same(old[key], new[key]):
            yield here


def _are_same(before: object, after: object) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return struct.pack("<d", before) == struct.pack("<d", after)
    return before == after


def _unknown(message: Message) -> list[tuple[int, int, str]]:
    fields = UnknownFieldSet(message)
    found = (fields[index] for index in range(len(fields)))
    return [(field.field_number, field.wire_type, repr(field.data)) for field in found]
