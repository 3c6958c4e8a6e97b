"""Sets of proto files: put in order, completed and merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

from fsxds.errors import ApiError

_WELL_KNOWN = (
    any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
    timestamp_pb2, type_pb2, wrappers_pb2,
)  # fmt: skip


def parse_set(serialized: bytes) -> FileDescriptorSet:
    """Parse a FileDescriptorSet; ApiError when it is none, or holds no file."""
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
    """Return the files and those of `google/protobuf/` that are missing, in dependency order."""
    by_name = {module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb for module in _WELL_KNOWN}
    given = list(files)
    for file in given:
        by_name.pop(file.name, None)
    missing = [FileDescriptorProto.FromString(serialized) for serialized in by_name.values()]
    return in_dependency_order([*missing, *given])


def merged(base: FileDescriptorSet, own: FileDescriptorSet) -> FileDescriptorSet:
    """Return the files of both; where a name is in both, the one of `own`."""
    by_name = {file.name: file for file in (*base.file, *own.file)}
    return FileDescriptorSet(file=in_dependency_order(by_name.values()))


def in_dependency_order(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Sort by name, but each file after those it imports.

    Raises:
        ApiError: when files import one another, or one that is neither there nor a well-known one.
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
    """Append a file after all it imports. Uses its own stack, as chains of imports may be long."""
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
