"""What tests of this room share."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.source.envoy_api import find_api


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """The message types of the Envoy in use."""
    return find_api(envoy=None, descriptors=None, cache_dir=None)
