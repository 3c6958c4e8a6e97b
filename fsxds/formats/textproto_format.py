"""Protobuf text format: the message is named by a header, by its fields, or by the file's name."""

from __future__ import annotations

import re
from typing import Final, cast

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.api.quotes import may_quote_type
from fsxds.formats.documents import (
    LONGEST_TYPE,
    Decoded,
    PlainDocument,
    UnreadableError,
    shown,
    too_deep,
    unreadable,
)
from fsxds.formats.textproto_outline import Outline, outline_of
from fsxds.formats.textproto_reader import TextprotoReader
from fsxds.formats.utf8 import read_text
from fsxds.resource_types import PREFIX
from fsxds.values import Fault

RESPONSE: Final = "envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER: Final = "envoy.service.discovery.v3.Resource"

_HEADER: Final = re.compile(r"^#\s*proto-message:\s*([\w.]+)\s*$", re.MULTILINE)
_CONTENT: Final = re.compile(r"^[ \t]*+[^#\s]", re.MULTILINE)
_RESPONSE_FIELDS: Final = frozenset(("resources", "version_info", "type_url"))
# What is in a wrapper and in no resource under this name.
_WRAPPER_FIELDS: Final = frozenset(("resource",))


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:
    """Read the one message of a text format file.

    Args:
        content: the bytes of the file.
        catalogue: the message types that may be named.
        message_type: what the file's name speaks of; asked last, after a `# proto-message:` header and the fields.
    """
    try:
        text = read_text(content)
        outline = outline_of(text)
        if outline.too_deep_at is not None:
            return unreadable(too_deep(*outline.too_deep_at))
        if not _CONTENT.search(text):
            return Decoded((PlainDocument(None, 1),))
        descriptor = _descriptor(text, outline, catalogue, message_type)
    except UnreadableError as error:
        return unreadable(error.fault)
    return _document(text, outline, descriptor, catalogue)


def encode(message: Message, printer: Printer) -> bytes:  # noqa: ARG001 - one signature for all
    """Write a message as text, the messages inside of Any too as far as the message's own pool knows them."""
    # The stubs give a descriptor's pool a wider type than the functions that take one.
    pool = cast("DescriptorPool", message.DESCRIPTOR.file.pool)
    return text_format.MessageToString(message, as_utf8=True, descriptor_pool=pool).encode()


def _descriptor(text: str, outline: Outline, catalogue: Catalogue, hint: str | None) -> Descriptor:
    header = _HEADER.search(text)
    if header:
        return _known(header[1], catalogue, text.count("\n", 0, header.start()) + 1)
    names = outline.names
    if names & _WRAPPER_FIELDS:
        return _known(WRAPPER, catalogue, outline.first_line)
    if hint is None or "resources" in names or (names & _RESPONSE_FIELDS and not _fits(names, hint, catalogue)):
        if names & _RESPONSE_FIELDS:
            return _known(RESPONSE, catalogue, outline.first_line)
        fact = "nothing says which message this is"
        remedy = (
            'begin the file with "# proto-message: envoy.config.cluster.v3.Cluster", or name it such as clusters.txtpb'
        )
        raise UnreadableError(Fault("missing-type", fact, remedy, (), outline.first_line, 1))
    return _known(hint, catalogue, outline.first_line)


def _fits(names: frozenset[str], message_type: str, catalogue: Catalogue) -> bool:
    if not catalogue.knows(message_type):
        return False
    return names <= set(catalogue.message_class(message_type).DESCRIPTOR.fields_by_name)


def _known(message_type: str, catalogue: Catalogue, line: int) -> Descriptor:
    descriptor = catalogue.descriptor(message_type)
    if descriptor is not None:
        return descriptor
    similar = catalogue.similar(message_type)
    remedy = f"did you mean {similar}?" if similar else "use a type that this API has (--envoy, --descriptors)"
    is_shown = similar is not None or may_quote_type(message_type)
    fact = f"there is no message type {shown(message_type, LONGEST_TYPE) if is_shown else 'of this name'}"
    raise UnreadableError(Fault("unknown-type", fact, remedy, (), line, 1))


def _document(text: str, outline: Outline, descriptor: Descriptor, catalogue: Catalogue) -> Decoded:
    reader = TextprotoReader(text, catalogue)
    value = reader.read(descriptor)
    if value is None or reader.faults:
        return Decoded((), reader.faults)
    if descriptor.full_name == RESPONSE:
        # Here an author cannot say "none" but by saying nothing.
        value.setdefault("resources", [])
    elif descriptor.full_name != WRAPPER:
        value = {"@type": PREFIX + descriptor.full_name, **value}
    return Decoded((PlainDocument(value, outline.first_line, outline.lines_of("resources")),))
