"""Binary files: one DiscoveryResponse, rejected if damaged."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.decoded import Decoded, MessageDocument, unreadable
from fsxds.model.values import Fault

_RESPONSE: Final = "envoy.service.discovery.v3.DiscoveryResponse"
_REMEDY: Final = "write it again, whole; Envoy itself would delete its resources"


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:  # noqa: ARG001 - one signature for all
    """Read a DiscoveryResponse; no other type, since any bytes are some message.

    Envoy takes an empty file, garbage and a truncated file as far as they parse, and deletes the rest (ENVOY.md E13).
    """
    if not content:
        return unreadable(Fault("empty-file", "the file is empty", _REMEDY, (), 1, 1))
    message = catalogue.message_class(_RESPONSE)()
    try:
        message.MergeFromString(content)
    except DecodeError:
        return unreadable(Fault("bad-syntax", "this is no whole DiscoveryResponse", _REMEDY, (), 1, 1))
    if len(UnknownFieldSet(message)) or message.ByteSize() != len(content):
        fact = "this is another message than a DiscoveryResponse, or damaged"
        return unreadable(Fault("bad-syntax", fact, "write a serialized DiscoveryResponse", (), 1, 1))
    return Decoded((MessageDocument(message, 1),))


def encode(message: Message, printer: Printer) -> bytes:  # noqa: ARG001 - one signature for all
    """Write a message with maps in one order."""
    return message.SerializeToString(deterministic=True)
