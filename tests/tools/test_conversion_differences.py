from __future__ import annotations

import math
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.values import FieldPath
from fsxds.tools.conversion import first_difference
from tests.support.messages import Generator

METADATA = "envoy.config.core.v3.Metadata"
CLUSTER = "envoy.config.cluster.v3.Cluster"


def metadata(catalogue: Catalogue, number: float, packed: bytes = b"") -> Any:
    """Return metadata with a number deep in a struct, and perhaps a packed message."""
    message: Any = catalogue.message_class(METADATA)()
    message.filter_metadata["a"].fields["b"].list_value.values.add().number_value = number
    if packed:
        any_message = message.typed_filter_metadata["c"]
        any_message.type_url, any_message.value = f"type.googleapis.com/{METADATA}", packed
    return message


@pytest.mark.parametrize("seed", range(10))
def test_a_message_is_itself(catalogue: Catalogue, seed: int) -> None:
    """A message is no different from its copy, NaN included."""
    first, second = (Generator(catalogue, seed, fractions=True).message(CLUSTER) for _ in range(2))

    assert first_difference(first, second, catalogue) is None


def test_numbers_by_their_bits(catalogue: Catalogue) -> None:
    """NaN is itself, 0.0 is not -0.0; the path is that of an author, through structs and lists."""
    path: FieldPath = ("filter_metadata", "a", "b", 0)

    assert first_difference(metadata(catalogue, math.nan), metadata(catalogue, math.nan), catalogue) is None
    assert path == first_difference(metadata(catalogue, 0.0), metadata(catalogue, -0.0), catalogue)


def test_within_an_any(catalogue: Catalogue) -> None:
    """What is packed is compared by its fields; bytes that are no message are different as a whole."""
    inner = [metadata(catalogue, number).SerializeToString() for number in (1, 2)]
    first, second = (metadata(catalogue, 0, packed) for packed in inner)
    broken = metadata(catalogue, 0, b"\xff")

    assert ("typed_filter_metadata", "c", "filter_metadata", "a", "b", 0) == first_difference(first, second, catalogue)
    assert ("typed_filter_metadata", "c") == first_difference(first, broken, catalogue)


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"name": "a"}, {"name": "b"}, ("name",)),
        ({"name": "a"}, {}, ("name",)),
        ({}, {"outlier_detection": {}}, ("outlier_detection",)),
        ({"alt_stat_name": "a", "name": "x"}, {"name": "y"}, ("name",)),
        ({"health_checks": [{}]}, {"health_checks": [{}, {}]}, ("health_checks", 1)),
        ({"typed_extension_protocol_options": {"a": {}}}, {}, ("typed_extension_protocol_options", "a")),
    ],
)
def test_fields(catalogue: Catalogue, before: dict[str, Any], after: dict[str, Any], path: FieldPath) -> None:
    """The first field that is different is named, absent and empty messages told apart."""
    message_class = catalogue.message_class(CLUSTER)

    assert path == first_difference(message_class(**before), message_class(**after), catalogue)


def test_unknown_fields(catalogue: Catalogue) -> None:
    """What a message holds beyond its type counts."""
    message_class = catalogue.message_class(CLUSTER)

    assert () == first_difference(message_class.FromString(b"\xfa\xff\x03\x01x"), message_class(), catalogue)
