"""What examines bootstraps and trees that are written down in tests."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from tests.tools.doctor.examples import Doctor


@pytest.fixture(scope="session")
def doctor(catalogue: Catalogue) -> Doctor:
    """Examines what is written down in tests."""
    return Doctor(catalogue)
