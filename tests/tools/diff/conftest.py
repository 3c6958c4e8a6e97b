"""A comparer of the API that every machine that runs the tests has, and messages to compare."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.model.values import PlainValue
from fsxds.source.envoy_api import read_xds_protos
from fsxds.tools.diff.compare import FieldChange, FieldComparer

Compare = Callable[[str, str, str], tuple[FieldChange, ...]]


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every type of the package xds-protos."""
    return Catalogue.of(read_xds_protos().SerializeToString(), "xds-protos")


@pytest.fixture(scope="session")
def compare(catalogue: Catalogue) -> Compare:
    """Compare two messages of a type that are written as YAML, as they would be served."""
    converter, printer, comparer = Converter(catalogue), Printer(catalogue), FieldComparer(catalogue)

    def plain(message_type: str, text: str) -> dict[str, PlainValue]:
        converted = converter.convert(yaml.safe_load(text), message_type)
        assert converted.message is not None, converted.faults
        return {"@type": f"type.googleapis.com/{message_type}", **printer.to_plain(converted.message)}

    def compare_texts(message_type: str, before: str, after: str) -> tuple[FieldChange, ...]:
        return comparer.compare(plain(message_type, before), plain(message_type, after))

    return compare_texts
