"""Messages of any type with all that their fields can hold, made from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, DURATION, FIELD_MASK, LIST_VALUE, STRUCT, TIMESTAMP, VALUE, enum_of, is_map, map_parts

TEXTS = (
    *(
        "",
        "a",
        "web",
        "yes",
        "off",
        "null",
        "~",
        "1",
        "1.0",
        "1e3",
        "0x1F",
        "0755",
        "-0",
        ".inf",
        "NaN",
        "<<",
        "a: b",
        "#x",
    ),
    *(
        "- a",
        "'",
        '"',
        "\\",
        "\\n",
        "a\nb",
        "\r\n",
        "\t",
        " a ",
        "\0",
        "\x1b",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "ä",
        "😀",
    ),
    *("{{", "}", "[a]", "*a", "&a", "!b", "%", "@", "`", "a b " * 40, "\ud7ff\ue000", "type.googleapis.com/x", "@type"),
)
PACKED = (
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.config.core.v3.Metadata",
    "google.protobuf.StringValue",
    "google.protobuf.UInt64Value",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    DURATION, TIMESTAMP, STRUCT, LIST_VALUE, ANY,
)  # fmt: skip

DEEPEST = 7
_LONGEST_DURATION_S, _FIRST_MOMENT_S, _LAST_MOMENT_S = 315_576_000_000, -62_135_596_800, 253_402_300_799
_WHOLE = (0.0, 1.0, -1.0, 2147483647.0, -2147483648.0)
_FRACTIONS = (0.5, -0.0, 1e300, 5e-324, 2147483648.0, -1.5e-7, 0.1)
_SPECIAL = (math.nan, math.inf, -math.inf)
_DOUBLES = (*_WHOLE, *_FRACTIONS, *_SPECIAL, 1.7976931348623157e308, 9007199254740993.0)
_FLOATS = (*_WHOLE, *_SPECIAL, 0.5, -0.0, 3.4028234663852886e38, 1e-45, 0.1)


class Generator:
    """Fills messages of one catalogue.

    With `fractions`, numbers within a Struct may have one, which YAML cannot say.
    """

    def __init__(self, catalogue: Catalogue, seed: int, *, fractions: bool = False) -> None:
        self._catalogue = catalogue
        self._random = random.Random(seed)
        self._numbers = (*_WHOLE, *_FRACTIONS) if fractions else _WHOLE
        self._special: dict[str, Callable[[Any, int], None]] = {
            ANY: self._pack,
            DURATION: lambda message, _: self._moment(message, -_LONGEST_DURATION_S, _LONGEST_DURATION_S),
            TIMESTAMP: lambda message, _: self._moment(message, _FIRST_MOMENT_S, _LAST_MOMENT_S),
            FIELD_MASK: lambda message, _: message.paths.extend(self._random.sample(["name", "a_b.c", "x"], 2)),
            VALUE: self._value,
        }

    def message(self, message_type: str, depth: int = 0) -> Message:
        """Return a message of a type."""
        message = self._catalogue.message_class(message_type)()
        self._fill(message, depth)
        return message

    def _fill(self, message: Any, depth: int) -> None:
        descriptor: Descriptor = message.DESCRIPTOR
        special = self._special.get(descriptor.full_name)
        if special is not None:
            special(message, depth)
            return
        share = 0.7 if depth == 0 else 0.35 / (1 + depth / 4)
        chosen = {self._random.choice(oneof.fields).name for oneof in descriptor.oneofs}
        for field in descriptor.fields:
            if (field.containing_oneof is None or field.name in chosen) and self._random.random() < share:
                self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and depth >= DEEPEST:
            return
        if is_map(field):
            self._set_map(getattr(message, field.name), field, depth)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(self._random.randint(1, 3)):
                if field.message_type is None:
                    values.append(self._scalar(field))
                else:
                    self._fill(values.add(), depth + 1)
        elif field.message_type is None:
            setattr(message, field.name, self._scalar(field))
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            if self._random.random() < 0.85:
                self._fill(inner, depth + 1)

    def _set_map(self, values: Any, field: FieldDescriptor, depth: int) -> None:
        key_field, value_field = map_parts(field)
        for _ in range(self._random.randint(1, 3)):
            key = self._scalar(key_field)
            if value_field.message_type is None:
                values[key] = self._scalar(value_field)
            else:
                self._fill(values[key], depth + 1)

    def _scalar(self, field: FieldDescriptor) -> Any:
        choose = self._random.choice
        if field.type == FieldDescriptor.TYPE_STRING:
            return choose(TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return choose((b"", b"\0\xff", b"abc", bytes(range(256)), self._random.randbytes(5)))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return choose((True, False))
        if field.type == FieldDescriptor.TYPE_ENUM:
            return choose((*enum_of(field).values_by_number, 12345, -1))
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return choose(_DOUBLES if field.type == FieldDescriptor.TYPE_DOUBLE else _FLOATS)
        return choose(_integers(field))

    def _pack(self, message: Any, depth: int) -> None:
        if depth >= DEEPEST or self._random.random() < 0.05:
            return  # an empty Any is one too
        message_type = self._random.choice(PACKED)
        message.type_url = self._random.choice(("type.googleapis.com/", "example.com/a/")) + message_type
        message.value = self.message(message_type, depth + 1).SerializeToString(deterministic=True)

    def _moment(self, message: Any, first_s: int, last_s: int) -> None:
        message.seconds = self._random.choice((0, 1, first_s, last_s, self._random.randint(first_s, last_s)))
        nanos = self._random.choice((0, 0, 1, 500_000_000, 999_999_999))
        if message.DESCRIPTOR.full_name == DURATION:
            # Of one sign, and within the bounds.
            nanos = 0 if abs(message.seconds) == _LONGEST_DURATION_S else -nanos if message.seconds < 0 else nanos
        message.nanos = nanos

    def _value(self, message: Any, depth: int) -> None:
        chosen = self._random.choice(("null", "number", "string", "bool", "struct", "list"))
        if chosen == "null" or (depth >= DEEPEST and chosen in ("struct", "list")):
            message.null_value = 0
        elif chosen == "number":
            message.number_value = self._random.choice(self._numbers)
        elif chosen == "string":
            message.string_value = self._random.choice(TEXTS)
        elif chosen == "bool":
            message.bool_value = self._random.choice((True, False))
        else:
            inner = getattr(message, f"{chosen}_value")
            inner.SetInParent()
            self._fill(inner, depth + 1)


def _integers(field: FieldDescriptor) -> tuple[int, ...]:
    bits = 64 if "64" in _NAMES[field.type] else 32
    if "U" in _NAMES[field.type] or _NAMES[field.type].startswith("FIXED"):
        return 0, 1, 2**31, 2**bits - 1
    return 0, 1, -1, 2**31 - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_")
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
