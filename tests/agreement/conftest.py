"""The API of the Envoy that is asked."""

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.reload import find_catalogue
from fsxds.settings.options import Settings


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every type that this Envoy knows."""
    return find_catalogue(Settings())
