"""Sorts, completes and merges proto files, and reads Envoy executables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from fsxds.model.errors import ApiError

_WELL_KNOWN = (
    any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
    timestamp_pb2, type_pb2, wrappers_pb2,
)  # fmt: skip


def parse_set(serialized: bytes) -> FileDescriptorSet:
    """ApiError: the set is invalid or empty."""
    try:
        files = FileDescriptorSet.FromString(serialized)
    except DecodeError as error:
        raise ApiError(
            "not a serialized FileDescriptorSet; make one with `protoc --include_imports -o FILE`"
        ) from error
    if not files.file or not all(file.name for file in files.file):
        raise ApiError("a FileDescriptorSet without proto files; make one with `protoc --include_imports -o FILE`")
    return files


def completed(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Add missing `google/protobuf/` files, in dependency order."""
    well_known = (FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in _WELL_KNOWN)
    return in_dependency_order((*well_known, *files))


def merged(base: FileDescriptorSet, own: FileDescriptorSet) -> FileDescriptorSet:
    """Merge files; `own` takes precedence."""
    return FileDescriptorSet(file=in_dependency_order((*base.file, *own.file)))


def in_dependency_order(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Sort by name, but after imports. Of equal names, the last one counts.

    Raises:
        ApiError: an import is circular, or missing and not well-known.
    """
    by_name = {file.name: file for file in files}
    well_known = {module.DESCRIPTOR.name for module in _WELL_KNOWN}
    ordered: dict[str, FileDescriptorProto] = {}
    for name in sorted(by_name):
        _place(name, by_name, ordered, well_known)
    return list(ordered.values())


def _place(
    name: str, by_name: Mapping[str, FileDescriptorProto], ordered: dict[str, FileDescriptorProto], known: set[str]
) -> None:
    """Import chains may be long, hence a stack."""
    stack, open_names = [name], set[str]()
    while stack:
        current = stack[-1]
        waiting = [dependency for dependency in by_name[current].dependency if dependency not in ordered]
        absent = [dependency for dependency in waiting if dependency not in by_name]
        if unknown := [dependency for dependency in absent if dependency not in known]:
            raise ApiError(f"{current} imports {unknown[0]}, which is missing; build the set with --include_imports")
        present = [dependency for dependency in waiting if dependency in by_name]
        if current in ordered or not present:
            ordered.setdefault(current, by_name[current])
            stack.pop()
        elif current in open_names and any(dependency in open_names for dependency in present):
            raise ApiError(f"{current} imports itself by way of {present[0]}")
        else:
            open_names.add(current)
            stack.extend(reversed(present))


# Envoy links its descriptors as serialized FileDescriptorProtos. Field 1, the file's name, comes first (tag 0x0A,
# length, text), so they are found by names that end in ".proto" and by the fields that follow.
_NAME_END = re.compile(rb"\.proto")
_NAME_TAG = 0x0A
_LONGEST_NAME = 250

# The version is a separate C string. Other libraries in the executable have versions too; Envoy's is 1.x with x > 9.
_VERSION = re.compile(rb"\x00(1\.\d\d{1,2}\.\d{1,2}(?:-[0-9a-z.]{1,20})?)\x00")

_LENGTH_DELIMITED = 2
_VARINT = 0
_FIELDS = frozenset((*range(1, 13), 14))  # of FileDescriptorProto
_UNORDERED_FIELDS = frozenset((10, 11))  # public and weak dependencies, which protoc writes interleaved
_FIELDS_TO_GIVE_UP = 4  # how many trailing fields may prove to be other bytes that resemble fields


def read_descriptors(executable: bytes | memoryview) -> descriptor_pb2.FileDescriptorSet:
    """Find an Envoy executable's proto files, in dependency order.

    Raises:
        ApiError: there is none, or a file needs a missing one.
    """
    found: dict[str, tuple[int, descriptor_pb2.FileDescriptorProto]] = {}
    for match in _NAME_END.finditer(executable):
        for start, name in _names_ending_at(executable, match.end()):
            file, size = _file_at(executable, start)
            if file is not None and file.name == name and size > found.get(name, (0, file))[0]:
                found[name] = (size, file)
    if not found:
        raise ApiError(
            "no protobuf descriptors in these bytes; is this an Envoy executable, and not a script or a stub?"
        )
    files = in_dependency_order(file for _, file in found.values())
    return descriptor_pb2.FileDescriptorSet(file=files)


def read_version(executable: bytes | memoryview) -> str | None:
    """Return Envoy's version, such as `1.40.0`, or None."""
    versions = {match[1].decode() for match in _VERSION.finditer(executable)}
    return versions.pop() if len(versions) == 1 else None


def _names_ending_at(data: bytes | memoryview, end: int) -> Iterator[tuple[int, str]]:
    """Yield possible first fields, as offset and text."""
    first = max(0, end - _LONGEST_NAME)
    window = bytes(data[first:end])
    at = window.rfind(_NAME_TAG)
    while at >= 0:
        size, text_at = _varint(window, at + 1)
        if 0 < size == len(window) - text_at and window[text_at:].isascii():
            yield first + at, window[text_at:].decode()
        at = window.rfind(_NAME_TAG, 0, at)


def _file_at(data: bytes | memoryview, start: int) -> tuple[descriptor_pb2.FileDescriptorProto | None, int]:
    ends = _field_ends(data, start)
    for end in reversed(ends[-_FIELDS_TO_GIVE_UP:]):
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(bytes(data[start:end]))
        except DecodeError:
            continue
        has_content = file.message_type or file.enum_type or file.service or file.extension or file.dependency
        return (file, end - start) if has_content else (None, 0)
    return None, 0


def _field_ends(data: bytes | memoryview, start: int) -> list[int]:
    """Ends of top-level fields, which protoc writes in ascending order."""
    at, last, ends = start, 0, []
    while at < len(data):
        tag, after = _varint(data, at)
        field, wire_type = tag >> 3, tag & 7
        in_order = field in _UNORDERED_FIELDS or field >= last
        if field not in _FIELDS or not in_order or (field == 1 and at != start):
            break
        if wire_type == _LENGTH_DELIMITED:
            size, after = _varint(data, after)
            after += size
        elif wire_type == _VARINT:
            _, after = _varint(data, after)
        else:
            break
        if after > len(data) or after <= at:
            break
        last = last if field in _UNORDERED_FIELDS else field
        at = after
        ends.append(at)
    return ends


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A torn varint ends beyond the data."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, len(data) + 1
