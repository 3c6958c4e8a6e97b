"""Which values a comparison never shows: those of fields that hold secrets, wherever the fields stand."""

from __future__ import annotations

import re
from collections.abc import Mapping

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.secrecy import INLINE_FIELDS, SECRET_FIELDS, Secrecy
from fsxds.values import PlainValue

HIDDEN = "<hidden>"

# What may be seen within a secret: where it comes from.
_PLACES = frozenset({"@type", "environment_variable", "filename", "name", "sds_config", "watched_directory"})

# Fields whose inline content is code or a page, which people want to see change.
_OPEN_CONTENT = frozenset({"body", "body_format", "default_source_code", "inline_code", "source_codes"})

_PEM_MARK = "-----BEGIN "
_SECRET_HEADER = re.compile(
    r"authorization|cookie|token|secret|password|credential|(?:api|access)[-_]?key", re.IGNORECASE
)


class Hiding:
    """Knows what may be seen, step by step from the top of a resource down."""

    def __init__(self, secrecy: Secrecy) -> None:
        self._secrecy = secrecy

    def covers(self, name: str, field: FieldDescriptor | None, holder: str) -> bool:
        """Tell whether what stands in a field is a secret, all within it included.

        Args:
            name: the field in snake_case.
            field: its descriptor, None where the type of the message is not known.
            holder: the name of the field that the message with this field stands in.
        """
        if name in INLINE_FIELDS:
            return holder not in _OPEN_CONTENT
        return name in SECRET_FIELDS if field is None else self._secrecy.covers(field)

    def opens(self, name: str) -> bool:
        """Tell whether a field within a secret only says where the secret comes from."""
        return name in _PLACES


def is_secret_text(value: PlainValue) -> bool:
    """Tell whether a text is a secret by its look, whatever field it stands in."""
    return isinstance(value, str) and _PEM_MARK in value


def is_secret_header(header: Mapping[str, PlainValue]) -> bool:
    """Tell whether an object is a header, or the like, whose value grants access."""
    key = header.get("key", header.get("name"))
    return isinstance(key, str) and _SECRET_HEADER.search(key) is not None
