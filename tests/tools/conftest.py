"""The API of the Envoy in use, found once per test process."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.source.envoy_api import find_api


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every message type that this Envoy knows."""
    return find_api(envoy=None, descriptors=None, cache_dir=None)


@pytest.fixture(scope="session")
def converter(catalogue: Catalogue) -> Converter:
    """A converter for which unknown fields are errors."""
    return Converter(catalogue)


@pytest.fixture(scope="session")
def printer(catalogue: Catalogue) -> Printer:
    """A printer of the same types."""
    return Printer(catalogue)
