"""Reads the API authors' comments, if the descriptors have them.

`protoc --include_source_info` keeps them; Envoy executables have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

from fsxds.api.catalogue import Catalogue
from fsxds.api.descriptors import parse_set

# The field numbers of the parts of a file, a message and an enum, which make up paths.
# Source: google/protobuf/descriptor.proto, SourceCodeInfo.Location.path.
_MESSAGES, _ENUMS = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_FIELDS = DescriptorProto.FIELD_FIELD_NUMBER
_INNER_MESSAGES, _INNER_ENUMS = DescriptorProto.NESTED_TYPE_FIELD_NUMBER, DescriptorProto.ENUM_TYPE_FIELD_NUMBER
_VALUES = EnumDescriptorProto.VALUE_FIELD_NUMBER

_Path = tuple[int, ...]


def read_comments(catalogue: Catalogue) -> Mapping[str, str]:
    """Return first paragraphs by full name; `catalogue.once` keeps them.

    An enum value's name follows the enum's: `envoy.config.cluster.v3.Cluster.LbPolicy.MAGLEV`.
    """
    found = {}
    for file in parse_set(catalogue.serialized).file:
        if not file.HasField("source_code_info"):
            continue
        names = dict(_names(file))
        for location in file.source_code_info.location:
            name, text = names.get(tuple(location.path)), first_paragraph(location.leading_comments)
            if name is not None and text:
                found[name] = text
    return found


def first_paragraph(comment: str) -> str:
    """Return the first paragraph, in one line."""
    lines = [line.strip() for line in comment.strip().splitlines()]
    return " ".join(lines[: lines.index("")] if "" in lines else lines)


def _names(file: FileDescriptorProto) -> Iterator[tuple[_Path, str]]:
    prefix = f"{file.package}." if file.package else ""
    for number, message in enumerate(file.message_type):
        yield from _of_message(message, (_MESSAGES, number), prefix + message.name)
    for number, enum in enumerate(file.enum_type):
        yield from _of_enum(enum, (_ENUMS, number), prefix + enum.name)


def _of_message(message: DescriptorProto, path: _Path, name: str) -> Iterator[tuple[_Path, str]]:
    yield path, name
    for number, field in enumerate(message.field):
        yield (*path, _FIELDS, number), f"{name}.{field.name}"
    for number, inner in enumerate(message.nested_type):
        yield from _of_message(inner, (*path, _INNER_MESSAGES, number), f"{name}.{inner.name}")
    for number, enum in enumerate(message.enum_type):
        yield from _of_enum(enum, (*path, _INNER_ENUMS, number), f"{name}.{enum.name}")


def _of_enum(enum: EnumDescriptorProto, path: _Path, name: str) -> Iterator[tuple[_Path, str]]:
    yield path, name
    for number, value in enumerate(enum.value):
        yield (*path, _VALUES, number), f"{name}.{value.name}"
