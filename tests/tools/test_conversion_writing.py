from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.formats import FORMATS, Format
from fsxds.model.errors import ApiError
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES, ResourceType
from fsxds.model.values import SourceFile
from fsxds.tools.conversion import (
    ConversionLossError,
    ConversionReader,
    ConversionWriter,
    NotOneResponseError,
    Part,
    first_difference,
)
from tests.support.messages import Generator

FORMAT = {row.name: row for row in FORMATS}
YAML, JSON, TEXTPROTO, BINARY = (FORMAT[name] for name in ("yaml", "json", "textproto", "binary"))
CDS, EDS = BY_SHORT_NAME["cds"], BY_SHORT_NAME["eds"]
RUNTIME = "envoy.service.runtime.v3.Runtime"


@pytest.fixture(scope="session")
def writer(catalogue: Catalogue) -> ConversionWriter:
    """A writer of the API's types."""
    return ConversionWriter(catalogue)


def sent_around(catalogue: Catalogue, writer: ConversionWriter, message: Message, *formats: Format) -> Message:
    """Write a message in one format after the other, and return what the last one says."""
    reader = ConversionReader(catalogue)
    parts: tuple[Part, ...] = (Part((message,)),)
    for row in formats:
        content = writer.write(parts, row, None).content
        found = reader.read(SourceFile.of(PurePosixPath("x"), content), row, None)
        assert () == found.problems
        parts = found.parts
    response: Any = parts[0].messages[0]
    (packed,) = response.resources
    return type(message).FromString(packed.value)


def made(catalogue: Catalogue, row: ResourceType, seed: int, *, fractions: bool) -> Any:
    """Return a resource that is not empty: with a name where it has one, and all else by chance."""
    message: Any = Generator(catalogue, seed, fractions=fractions).message(row.message_type)
    if row.name_field:
        setattr(message, row.name_field, "n")
    elif row.short_name == "lcds":
        message.entries.add().inline_entry.name = "n"
    else:
        # An empty file is no message.
        message.load_balancing_weight.value = 1
    return message


@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=lambda row: row.short_name)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost(catalogue: Catalogue, writer: ConversionWriter, row: ResourceType, seed: int) -> None:
    """Through all formats and back, a resource is the same to the last bit."""
    message = made(catalogue, row, seed, fractions=False)
    back = sent_around(catalogue, writer, message, YAML, JSON, TEXTPROTO, BINARY, YAML)

    assert first_difference(message, back, catalogue) is None


@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=lambda row: row.short_name)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_in_structs(
    catalogue: Catalogue, writer: ConversionWriter, row: ResourceType, seed: int
) -> None:
    """Numbers with a fraction within a Struct come through all formats but YAML."""
    message = made(catalogue, row, seed, fractions=True)
    back = sent_around(catalogue, writer, message, JSON, TEXTPROTO, BINARY, JSON)

    assert first_difference(message, back, catalogue) is None


def runtime(catalogue: Catalogue, number: float) -> tuple[Part, ...]:
    """Return a runtime layer with a number in its struct."""
    message: Any = catalogue.message_class(RUNTIME)(name="r")
    message.layer.fields["a"].number_value = number
    return (Part((message,)),)


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        (YAML, (0.5, -0.0, 2147483648.0, 1e300, math.nan, math.inf)),
        (JSON, (math.nan, math.inf, -math.inf)),
    ],
    ids=["yaml", "json"],
)
def test_what_a_format_cannot_hold(
    catalogue: Catalogue, writer: ConversionWriter, row: Format, numbers: tuple[float, ...]
) -> None:
    """YAML has no words for numbers within a Struct but whole ones of 32 bits, JSON none for NaN: refused with the path."""
    for number in numbers:
        with pytest.raises(ConversionLossError) as raised:
            writer.write(runtime(catalogue, number), row, None)
        assert ("layer", "a") == raised.value.field_path


@pytest.mark.parametrize("number", [0.0, 5.0, -1.0, 2147483647.0, -2147483648.0])
def test_whole_numbers_are_numbers_in_yaml(catalogue: Catalogue, writer: ConversionWriter, number: float) -> None:
    """Whole numbers of 32 bits stay numbers within a Struct."""
    assert f"a: {number:.0f}\n" in writer.write(runtime(catalogue, number), YAML, None).content.decode()


def cluster(catalogue: Catalogue, name: str) -> Message:
    """Return a cluster."""
    return catalogue.message_class(CDS.message_type)(name=name)


def response(catalogue: Catalogue, version: str = "", *names: str) -> Message:
    """Return a response with clusters."""
    message: Any = catalogue.message_class("envoy.service.discovery.v3.DiscoveryResponse")(version_info=version)
    message.type_url = CDS.type_url
    for name in names:
        message.resources.add(type_url=CDS.type_url, value=cluster(catalogue, name).SerializeToString())
    found: Message = message
    return found


def test_shapes_stay(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """YAML has all shapes; JSON makes several documents a list; the others make everything one response."""
    documents = (
        Part((cluster(catalogue, "a"), cluster(catalogue, "b")), is_list=True),
        Part((cluster(catalogue, "c"),)),
    )
    notes = [writer.write(documents, row, None).note for row in (YAML, JSON, TEXTPROTO, BINARY)]

    assert notes == [
        "",
        "several documents became one list",
        "several documents became one DiscoveryResponse",
        "several documents became one DiscoveryResponse",
    ]
    single = (Part((cluster(catalogue, "a"),)),)
    assert ["", "", "", "the resource became one DiscoveryResponse"] == [
        writer.write(single, row, None).note for row in (YAML, JSON, TEXTPROTO, BINARY)
    ]


def test_one_response(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """Documents of one version become one response, with the type that all have."""
    parts = (
        Part((response(catalogue, "7", "a"),)),
        Part((response(catalogue, "7", "b"),)),
        Part((cluster(catalogue, "c"),)),
    )
    merged: Any = catalogue.message_class("envoy.service.discovery.v3.DiscoveryResponse").FromString(
        writer.write(parts, BINARY, None).content
    )

    assert ("7", CDS.type_url, 3) == (merged.version_info, merged.type_url, len(merged.resources))


def test_documents_that_are_not_one(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """Two versions, or a type that has none beside another type, are not put into one response."""
    versions = (Part((response(catalogue, "7", "a"),)), Part((response(catalogue, "8", "b"),)))
    endpoints = catalogue.message_class(EDS.message_type)(cluster_name="x")
    types = (Part((response(catalogue),)), Part((endpoints,)))

    for parts in (versions, types):
        with pytest.raises(NotOneResponseError):
            writer.write(parts, TEXTPROTO, None)


def test_empty_lists(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """That there is none of a type is kept in every format, by the type of the file's name."""
    reader = ConversionReader(catalogue)
    for row in FORMATS:
        content = writer.write((Part((), is_list=True),), row, CDS).content
        parts = reader.read(SourceFile.of(PurePosixPath("x"), content), row, CDS).parts
        assert 1 == len(parts)
        assert not any(getattr(message, "resources", ()) for message in parts[0].messages)
    assert writer.write((Part((response(catalogue),)),), YAML, None).content.endswith(b"resources: []\n")


def test_heartbeats(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """A `Resource` without a resource, which renews a TTL, stays what it is."""
    message: Any = catalogue.message_class("envoy.service.discovery.v3.Resource")(name="a")
    message.ttl.seconds = 5

    for row in (YAML, JSON, BINARY):
        assert writer.write((Part((message,)),), row, None).content


def test_newer_fields_are_not_dropped(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """A field that this API does not know, deep in a binary file, is not silently dropped by a text format."""
    message: Any = response(catalogue)
    message.resources.add(type_url=CDS.type_url, value=b"\x0a\x01a\xfa\xff\x03\x01x")

    assert writer.write((Part((message,)),), BINARY, None).content
    for row in (YAML, JSON, TEXTPROTO):
        with pytest.raises(ConversionLossError) as raised:
            writer.write((Part((message,)),), row, None)
        assert ("resources", 0) == raised.value.field_path


def test_times_out_of_bounds(catalogue: Catalogue, writer: ConversionWriter) -> None:
    """A time that JSON has no words for is refused."""
    message: Any = cluster(catalogue, "a")
    message.connect_timeout.seconds = 2**62

    with pytest.raises(ApiError, match="cannot be written as JSON"):
        writer.write((Part((message,)),), JSON, None)
