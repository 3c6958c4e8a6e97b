"""Serialize what is inside of every Any in one order, so that equal texts become equal bytes.

text_format packs an Any without the deterministic flag: the entries of a map inside would come in another order in
another process, and the version of the resource with them.
"""

from __future__ import annotations

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue

_ANY = AnyMessage.DESCRIPTOR.full_name


def repack_in_order(message: Message, catalogue: Catalogue) -> None:
    """Repack every Any in a message, from the inside out. What is of an unknown type, or damaged, stays as it is."""
    if message.DESCRIPTOR.full_name == _ANY:
        _repack(message, catalogue)
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not field.is_repeated:
            repack_in_order(value, catalogue)
            continue
        options = field.message_type.GetOptions()
        if not options.map_entry:
            parts = value
        elif field.message_type.fields_by_name["value"].message_type is None:
            continue
        else:
            parts = value.values()
        for part in parts:
            repack_in_order(part, catalogue)


def _repack(message: Message, catalogue: Catalogue) -> None:
    any_message: AnyMessage = message  # type: ignore[assignment]  # an Any of the catalogue's own pool
    message_type = any_message.type_url.rpartition("/")[2]
    if not catalogue.knows(message_type):
        return
    try:
        inner = catalogue.message_class(message_type).FromString(any_message.value)
    except DecodeError:
        return
    repack_in_order(inner, catalogue)
    any_message.value = inner.SerializeToString(deterministic=True)
