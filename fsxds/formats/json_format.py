"""JSON files: strict JSON first, then Envoy's leniency; and written for people."""

from __future__ import annotations

import json
from typing import Final

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.documents import Decoded, UnreadableError, unreadable
from fsxds.formats.json_lenient import make_strict
from fsxds.formats.json_reader import read_json
from fsxds.formats.utf8 import place_after, read_text
from fsxds.values import Fault, PlainValue

# (how json's own message begins, what the author can do)
_REMEDIES: Final = (
    ("Expecting ',' delimiter", "add the comma, or close what is open above"),
    ("Expecting property name", "write a key in double quotes, or remove the comma before it"),
    ("Expecting ':' delimiter", "add the colon after the key"),
    ("Expecting value", "write a value: a text in double quotes, a number, true, false, null, an object or a list"),
    ("Unterminated string", "close the quote"),
    ("Invalid control character", "write it as an escape, such as \\n"),
    ("Invalid \\", "write \\\\ for a backslash"),
    ("Extra data", "a JSON file holds one value: put several into a list"),
    ("Illegal trailing comma", "remove the comma"),
)


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:  # noqa: ARG001 - one signature for all
    """Read the one document of a JSON file; neither catalogue nor message type matter to plain values."""
    try:
        return _read(read_text(content, allow_mark=False))
    except UnreadableError as error:
        return unreadable(error.fault)


def encode(message: Message, printer: Printer) -> bytes:
    """Write a message as indented JSON."""
    return encode_plain(printer.to_plain(message))


def encode_plain(value: PlainValue) -> bytes:
    """Write a plain value as indented JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _read(text: str) -> Decoded:
    try:
        return read_json(text)
    except json.JSONDecodeError as complaint:
        strict = make_strict(text)
        try:
            return read_json(strict.text)
        except json.JSONDecodeError:
            raise UnreadableError(_syntax_fault(complaint, text, strict.comment_at)) from None


def _syntax_fault(complaint: json.JSONDecodeError, text: str, comment: int | None) -> Fault:
    if comment is not None:
        remedy = "remove it, or name the file .yaml and begin it with #"
        return Fault(
            "bad-syntax", "JSON has no comments, and Envoy takes none", remedy, (), *place_after(text[:comment])
        )
    remedy = next((remedy for words, remedy in _REMEDIES if complaint.msg.startswith(words)), "correct the JSON here")
    # The words of json are constants: they hold nothing of the file.
    return Fault("bad-syntax", complaint.msg, remedy, (), complaint.lineno, complaint.colno)
