"""The table of formats, one module per format.

Decoding never raises for bad input: mistakes are faults. A new format needs a module (`decode`, `encode`) and a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.formats import binary_format, json_format, textproto_format, yaml_format
from fsxds.formats.decoded import Decode, Decoded, Encode, MessageDocument, PlainDocument
from fsxds.formats.positions import Locate, locate_all, locate_in_textproto
from fsxds.formats.yaml_format import require_libyaml

__all__ = [
    "FORMATS",
    "Decoded",
    "Format",
    "MessageDocument",
    "PlainDocument",
    "format_of",
    "require_libyaml",
]


@dataclass(frozen=True, slots=True)
class Format:
    """`suffixes` are in lower case; `locate` is None without lines."""

    name: str
    suffixes: tuple[str, ...]
    decode: Decode
    encode: Encode
    locate: Locate | None = None


FORMATS: tuple[Format, ...] = (
    Format("yaml", (".yaml", ".yml"), yaml_format.decode, yaml_format.encode, locate_all),
    Format("json", (".json",), json_format.decode, json_format.encode, locate_all),
    Format(
        "textproto",
        (".textproto", ".txtpb", ".pbtxt", ".prototxt", ".pb_text"),
        textproto_format.decode,
        textproto_format.encode,
        locate_in_textproto,
    ),
    Format("binary", (".pb", ".binpb"), binary_format.decode, binary_format.encode),
)


def format_of(path: PurePosixPath) -> Format | None:
    """Return a suffix's format, ignoring case, or None."""
    suffix = path.suffix.lower()
    return next((row for row in FORMATS if suffix in row.suffixes), None)
