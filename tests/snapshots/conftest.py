"""The API of the Envoy in use, found once per test process."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.snapshots.parse import FileParser
from fsxds.source.envoy_api import find_api


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every message type that this Envoy knows, wherever it lies."""
    found = find_api(envoy=None, descriptors=None, cache_dir=None)
    return Catalogue.of(found.serialized, "this Envoy", found.features)


@pytest.fixture(scope="session")
def parser(catalogue: Catalogue) -> FileParser:
    """A parser for which unknown fields are errors."""
    return FileParser(catalogue)
