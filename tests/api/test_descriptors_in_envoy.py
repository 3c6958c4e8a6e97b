"""Reading the real Envoy's bytes, and bytes that are none."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.descriptors import read_descriptors, read_version
from fsxds.model.errors import ApiError


def _file(name: str, *dependencies: str) -> FileDescriptorProto:
    file = FileDescriptorProto(name=name, package="p", dependency=dependencies, syntax="proto3")
    file.message_type.add(name="M").field.add(name="f", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    return file


def test_real_envoy(envoy_bytes: bytes) -> None:
    """The real executable holds its whole API, each file after those it imports, with the options of its fields."""
    files = read_descriptors(memoryview(envoy_bytes)).file

    seen: set[str] = set()
    for file in files:
        assert seen.issuperset(file.dependency)
        seen.add(file.name)
    assert len(seen) == len(files) == 559
    assert {
        "envoy/config/cluster/v3/cluster.proto",
        "validate/validate.proto",
        "udpa/annotations/sensitive.proto",
    } <= seen


def test_version_of_real_envoy(envoy_bytes: bytes) -> None:
    """The version is the build stamp."""
    assert read_version(envoy_bytes) == "1.40.0"


@pytest.mark.parametrize("content", [b"", b"\0 1.40.0 \0", b"\x001.40.0\0 \x001.39.1\0"])
def test_unknown_version(content: bytes) -> None:
    """No stamp, or two, is no version."""
    assert read_version(content) is None


def test_files_among_other_bytes() -> None:
    """Files are found between other bytes, next to one another and with names of any length, in dependency order."""
    long_name = "deep/" * 40 + "a.proto"
    first, second, third = _file("z.proto"), _file(long_name, "z.proto"), _file("b.proto", long_name)
    content = (
        b"\x7fELF b.proto \x0a\x07x.proto \x0a\x07w.protoxx"
        + third.SerializeToString()
        + b"\0\xff\n.proto"
        + second.SerializeToString()
        + first.SerializeToString()
    )

    actual = list(read_descriptors(content).file)

    assert [first, second, third] == actual


def test_bytes_that_look_like_more_fields() -> None:
    """What follows a file may look like a field of it; it is given up for what parses."""
    file = _file("a.proto")
    file.ClearField("syntax")

    actual = list(read_descriptors(file.SerializeToString() + b"\x22\x02\xff\xff").file)

    assert [file] == actual


def test_file_that_never_parses() -> None:
    """Where nothing parses after all, there is no file."""
    with pytest.raises(ApiError, match="no protobuf descriptors"):
        read_descriptors(b"\x0a\x07a.proto" + b"\x22\x02\xff\xff" * 9)


def test_longest_copy_wins() -> None:
    """Of two files of one name the fuller one is taken."""
    small, large = _file("a.proto"), _file("a.proto")
    large.message_type.add(name="N")

    actual = list(read_descriptors(small.SerializeToString() + b"\0" + large.SerializeToString()).file)

    assert [large] == actual


@pytest.mark.parametrize("cut", range(1, 12))
def test_torn_files(cut: int) -> None:
    """A file torn at the end of the bytes is taken as far as it parses, or not at all."""
    whole = _file("a.proto").SerializeToString()

    try:
        actual = [file.name for file in read_descriptors(whole[:-cut]).file]
    except ApiError:
        actual = []

    assert actual in ([], ["a.proto"])


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"\x0a\x07", b"a.proto", b".proto", b"\x12", b"\xff"])).map(b"".join)
)
def test_garbage(content: bytes) -> None:
    """Bytes that hold no descriptors are an ApiError, and nothing else."""
    with pytest.raises(ApiError, match="descriptors"):
        read_descriptors(content)


def test_missing_dependency() -> None:
    """A file that imports one that is not there is an ApiError that names both."""
    with pytest.raises(ApiError, match=r"a\.proto imports gone\.proto"):
        read_descriptors(_file("a.proto", "gone.proto").SerializeToString())
