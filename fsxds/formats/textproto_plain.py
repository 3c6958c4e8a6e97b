"""Messages of text format, read field by field, in the form that JSON gives them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from google.protobuf.descriptor import Descriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import (
    DURATION,
    FIELD_MASK,
    LIST_VALUE,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
)
from fsxds.api.printing import Printer
from fsxds.api.special import empty_value
from fsxds.errors import ApiError
from fsxds.values import PlainValue, TypeUrl

Fields = dict[str, PlainValue]
"""A message's fields by name, each in its own JSON form already."""


class BrokenAnyError(ValueError):
    """The bytes of an Any are no message of its type."""


def plain_of(descriptor: Descriptor) -> Callable[[Fields], PlainValue] | None:
    """Return what turns a message's fields into its JSON, None where the fields are its JSON."""
    if descriptor.full_name in WRAPPERS:
        default = empty_value(descriptor.full_name)
        return lambda fields: fields.get("value", default)
    return _FORMS.get(descriptor.full_name)


def packed_plain(fields: Fields, catalogue: Catalogue) -> Fields:
    """Return the JSON of an Any that is written as `type_url` and `value`.

    Raises:
        BrokenAnyError: the bytes are no message of the type.
    """
    type_url, packed = str(fields.get("type_url", "")), base64.b64decode(str(fields.get("value", "")))
    if not type_url or not catalogue.knows(type_url.rpartition("/")[2]):
        # Whoever reads on says that there is no such type.
        return {"@type": type_url} if type_url or packed else {}
    try:
        plain: Fields = json.loads(Printer(catalogue).any_json(TypeUrl(type_url), packed))
    except ApiError as error:
        raise BrokenAnyError from error
    return plain


def _duration(fields: Fields) -> PlainValue:
    seconds, nanos = fields.get("seconds", 0), fields.get("nanos", 0)
    if type(seconds) is int and type(nanos) is int and seconds >= 0 and 0 <= nanos < 10**9:
        return f"{seconds}.{nanos:09}s" if nanos else f"{seconds}s"
    return dict(fields)


def _field_mask(fields: Fields) -> PlainValue:
    paths = fields.get("paths", [])
    return ",".join(map(_camel_case, map(str, paths))) if isinstance(paths, list) else ""


def _camel_case(path: str) -> str:
    first, *others = path.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _value(fields: Fields) -> PlainValue:
    return next(iter(fields.values()), None)


_FORMS: Mapping[str, Callable[[Fields], PlainValue]] = MappingProxyType(
    {
        DURATION: _duration,
        FIELD_MASK: _field_mask,
        LIST_VALUE: lambda fields: fields.get("values", []),
        STRUCT: lambda fields: fields.get("fields", {}),
        TIMESTAMP: dict,
        VALUE: _value,
    }
)
