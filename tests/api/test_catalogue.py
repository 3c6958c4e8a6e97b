"""What a catalogue knows, and what no catalogue can be made of."""

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import ApiError
from tests.api.samples import CLUSTER


def _set(*files: FileDescriptorProto) -> bytes:
    return FileDescriptorSet(file=files).SerializeToString()


def test_knows_the_types_of_its_set(catalogue: Catalogue) -> None:
    """A catalogue knows the types it was made of and the well-known ones."""
    assert catalogue.knows(CLUSTER)
    assert catalogue.knows("google.protobuf.Struct")
    assert not catalogue.knows("envoy.api.v2.Cluster")
    assert not catalogue.knows("\ud800")
    with pytest.raises(KeyError):
        catalogue.message_class("envoy.api.v2.Cluster")


def test_is_apart_from_the_default_pool(catalogue: Catalogue) -> None:
    """Its classes are its own: the process's other protobuf messages neither help nor hinder."""
    message = catalogue.message_class(CLUSTER)(name="a")

    assert message.DESCRIPTOR.file.pool is catalogue.pool


def test_can_be_made_again(catalogue: Catalogue) -> None:
    """The bytes and the description are all that another process needs."""
    again = Catalogue.of(catalogue.serialized, catalogue.description)

    assert again.description == catalogue.description
    assert again.knows(CLUSTER)


def test_reads_options_of_fields(catalogue: Catalogue) -> None:
    """The extensions of options, such as field rules, can be read by this pool's own names."""
    descriptor = catalogue.descriptor(CLUSTER)
    assert descriptor is not None
    options = catalogue.options_of(descriptor.fields_by_name["connect_timeout"])

    by_name = {extension.full_name: str(value) for extension, value in options.ListFields()}

    assert "duration" in by_name["validate.rules"]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("envoy.api.v2.Cluster", CLUSTER),
        ("envoy.config.cluster.v3.Clutser", CLUSTER),
        ("envoy.config.cluster.v3.Cluster.DiscoveryTyp", None),
        ("own.thing.Entirely", None),
        ("", None),
    ],
)
def test_similar(wrong: str, near: str | None, catalogue: Catalogue) -> None:
    """A namesake in another package is the first guess, a similar full name the second."""
    actual = catalogue.similar(wrong)

    assert near in (actual, None)
    assert actual is None or catalogue.knows(actual)


def test_nested_types_are_similar_too(catalogue: Catalogue) -> None:
    """Messages within messages are known by their full names."""
    assert catalogue.similar("envoy.config.cluster.v3.Cluster.LbSubsetConfi") == f"{CLUSTER}.LbSubsetConfig"


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"name: x", _set(FileDescriptorProto())])
def test_bytes_that_are_no_set(content: bytes) -> None:
    """Other bytes are an ApiError that tells how to make a set."""
    with pytest.raises(ApiError, match="protoc --include_imports"):
        Catalogue.of(content, "own.pb")


def test_files_that_do_not_fit() -> None:
    """A file that speaks of what is nowhere is an ApiError that names the file."""
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="M").field.add(
        name="f", number=1, type="TYPE_MESSAGE", label="LABEL_OPTIONAL", type_name=".no.Such"
    )

    with pytest.raises(ApiError, match=r"^a\.proto does not fit"):
        Catalogue.of(_set(file), "own.pb")


def test_all_message_types_are_listed(catalogue: Catalogue) -> None:
    """Those within others are listed too, and the entries of maps."""
    names = [descriptor.full_name for descriptor in catalogue.descriptors()]

    assert {
        "envoy.config.cluster.v3.Cluster",
        "envoy.config.cluster.v3.Cluster.EdsClusterConfig",
        "envoy.config.core.v3.Metadata.FilterMetadataEntry",
    } <= set(names)
    assert len(names) == len(set(names))


def test_options_are_those_of_the_own_pool(catalogue: Catalogue) -> None:
    """The options of messages, oneofs and values of enums can be asked for this pool's extensions."""
    required: Any = catalogue.extension("validate.required")
    disallowed: Any = catalogue.extension("envoy.annotations.disallowed_by_default_enum")
    health_check: Any = catalogue.descriptor("envoy.config.core.v3.HealthCheck")
    source: Any = catalogue.descriptor("envoy.config.core.v3.ApiConfigSource")
    legacy = source.enum_types_by_name["ApiType"].values_by_number[0]
    entry: Any = catalogue.descriptor("envoy.config.core.v3.Metadata.FilterMetadataEntry")
    entry_options: Any = catalogue.options_of(entry)

    assert catalogue.options_of(health_check.oneofs_by_name["health_checker"]).Extensions[required]
    assert catalogue.options_of(legacy).Extensions[disallowed]
    assert entry_options.map_entry
    assert catalogue.extension("no.such") is None
