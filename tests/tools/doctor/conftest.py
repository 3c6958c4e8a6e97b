"""The API of the Envoy in use, found once per test process."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.source.envoy_api import find_api
from tests.tools.doctor.patients import Surgery


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every message type that this Envoy knows."""
    return find_api(envoy=None, descriptors=None, cache_dir=None)


@pytest.fixture(scope="session")
def surgery(catalogue: Catalogue) -> Surgery:
    """Examines what is written down in tests."""
    return Surgery(catalogue)
