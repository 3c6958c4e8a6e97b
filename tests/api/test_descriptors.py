"""Order, completion and merging of sets of proto files."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fsxds.api.descriptors import completed, in_dependency_order, merged
from fsxds.model.errors import ApiError


def _file(name: str, *dependencies: str, package: str = "") -> FileDescriptorProto:
    return FileDescriptorProto(name=name, dependency=dependencies, package=package)


def test_dependencies_come_first() -> None:
    """A file follows those it imports; else names decide, so that the order never varies."""
    files = [_file("a", "c"), _file("d", "b", "a"), _file("c", "e"), _file("b"), _file("e")]

    actual = [file.name for file in in_dependency_order(files)]

    assert ["e", "c", "a", "b", "d"] == actual


def test_long_chains() -> None:
    """A chain of thousands of imports is no deep recursion."""
    files = [_file(f"{number:05}", f"{number + 1:05}") for number in range(3000)] + [_file("03000")]

    actual = [file.name for file in in_dependency_order(files)]

    assert actual == sorted(actual, reverse=True)


@pytest.mark.parametrize("files", [[_file("a", "a")], [_file("a", "b"), _file("b", "c"), _file("c", "a")]])
def test_circles(files: list[FileDescriptorProto]) -> None:
    """Files that import one another in a circle are an ApiError, not an endless loop."""
    with pytest.raises(ApiError, match="imports itself"):
        in_dependency_order(files)


def test_well_known_files_are_added() -> None:
    """What `google/protobuf/` lacks comes from protobuf itself; what is given is kept."""
    own = _file("google/protobuf/any.proto", package="mine")

    actual = {file.name: file for file in completed([_file("a", "google/protobuf/struct.proto"), own])}

    assert actual["google/protobuf/any.proto"].package == "mine"
    assert {"google/protobuf/struct.proto", "google/protobuf/descriptor.proto", "a"} <= actual.keys()


def test_own_files_win() -> None:
    """Of two files of one name, the user's own is taken."""
    base = FileDescriptorSet(file=[_file("a", package="base"), _file("b")])
    own = FileDescriptorSet(file=[_file("a", package="own"), _file("c", "b")])

    actual = [(file.name, file.package) for file in merged(base, own).file]

    assert [("a", "own"), ("b", ""), ("c", "")] == actual
