"""What examines bootstraps and trees that are written down in tests."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from tests.tools.doctor.patients import Surgery


@pytest.fixture(scope="session")
def surgery(catalogue: Catalogue) -> Surgery:
    """Examines what is written down in tests."""
    return Surgery(catalogue)
