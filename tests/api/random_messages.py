"""Random messages of any type, with values on both sides of the bounds that the API states."""

from __future__ import annotations

import random
import re
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.catalogue import Catalogue

TEXTS = ("", "a", "ab", "/", "/path", "x-Header", ":path", "a\nb", "a\r", "a\x00", "a\x07b", "tab\t", "é" * 130, "a" * 260,
         "x" * 16385, "a/b", "a b", "a,b", "GET", "~", "`", "\x7f", "x.mmdb", "\n", "%")  # fmt: skip
NUMBERS = (0, 1, 2, 5, 100, 101, 65535, 65536, 70000, 2**31 - 1)
DOUBLES = (0.0, -0.0, -1.0, 0.5, 1.0, 50.0, 100.0, 100.5, float("nan"), float("inf"), -float("inf"))
SECONDS = (0, 0, 1, -1, 5, 60, 315_576_000_001)
NANOS = (0, 0, 1, 500_000, 1_000_000, 999_999, -1, 1_000_000_000)
PACKED = ("envoy.config.core.v3.Address", "envoy.config.core.v3.HeaderValue", "google.protobuf.Duration",
          "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "google.protobuf.Any",
          "envoy.config.core.v3.TypedExtensionConfig", "envoy.type.v3.Percent")  # fmt: skip
SMALL = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32}


class RandomMessages:
    """Makes messages of a pool, the same ones for the same seed."""

    def __init__(self, catalogue: Catalogue, seed: int) -> None:
        self.catalogue = catalogue
        self.pool = catalogue.pool
        self.random = random.Random(seed)
        self.near: list[int] = []

    def message(self, descriptor: Any, depth: int = 0) -> Any:
        """Return a message with some of its fields set."""
        if descriptor.full_name == "google.protobuf.Any":
            return self.packed(depth)
        message: Any = message_factory.GetMessageClass(descriptor)()
        if descriptor.full_name == "google.protobuf.Duration":
            message.seconds = self.random.choice((*SECONDS, *self.near))
            message.nanos = self.random.choice((*NANOS, *(number for number in self.near if number < 10**9)))
            return message
        fields = list(descriptor.fields)
        share = self.random.choice((0.1, 0.4, 0.9)) if len(fields) < 25 else 6 / len(fields)
        for field in fields:
            if self.random.random() < share:
                self.fill(message, field, depth + 1)
        return message

    def packed(self, depth: int) -> Any:
        """Return an Any: mostly of a known type, now and then one that nobody can read."""
        message: Any = message_factory.GetMessageClass(self.pool.FindMessageTypeByName("google.protobuf.Any"))()
        name = self.random.choice(PACKED)
        message.type_url = f"type.googleapis.com/{name}"
        if depth < 7:
            message.value = self.message(self.pool.FindMessageTypeByName(name), depth + 1).SerializeToString()
        broken = self.random.random()
        if broken < 0.05:
            message.value = b"\xff\xff"
        elif broken < 0.1:
            message.type_url = self.random.choice(("", "x", "a/no.Such"))
        return message

    def fill(self, message: Any, field: Any, depth: int) -> None:
        """Set one field, half the time near to the numbers in its rules."""
        numbers = re.findall(r": (\d{1,9})\b", str(self.catalogue.options_of(field)))
        self.near = [max(int(number) + self.random.choice((-1, 0, 1)), 0) for number in numbers]
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if depth > 8 and field.message_type is not None and not is_map:
            if not field.is_repeated:
                getattr(message, field.name).SetInParent()
            return
        if is_map:
            parts = field.message_type.fields_by_name
            for _ in range(self.random.choice((1, 2))):
                target, key = getattr(message, field.name), self.scalar(parts["key"])
                if parts["value"].message_type is None:
                    target[key] = self.scalar(parts["value"])
                else:
                    target[key].CopyFrom(self.message(parts["value"].message_type, depth))
        elif field.is_repeated:
            for _ in range(self.random.choice((1, 1, 2, 3))):
                values = getattr(message, field.name)
                if field.message_type is None:
                    values.append(self.scalar(field))
                else:
                    values.add().CopyFrom(self.message(field.message_type, depth))
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(self.message(field.message_type, depth))
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, self.scalar(field))

    def scalar(self, field: Any) -> Any:
        """Return a value that the type of a field can hold."""
        if field.type == FieldDescriptor.TYPE_STRING:
            sizes = [size for size in self.near if size < 20_000]
            return (
                "a" * self.random.choice(sizes) if sizes and self.random.random() < 0.5 else self.random.choice(TEXTS)
            )
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.choice(TEXTS).encode()
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        if field.type == FieldDescriptor.TYPE_ENUM:
            undefined = [] if field.enum_type.is_closed else [77]
            return self.random.choice([*(value.number for value in field.enum_type.values), *undefined])
        if field.type in {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}:
            return self.random.choice(DOUBLES)
        near = self.near if self.random.random() < 0.5 else ()
        number = self.random.choice(near or NUMBERS)
        return -number if field.type in SMALL and self.random.random() < 0.2 else number
