"""Commands that run in the process of the tests make the catalogue of an API once, as a server does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.this_envoy import kept_catalogues


@pytest.fixture(autouse=True)
def catalogues_are_kept() -> Iterator[None]:
    """Give each command the catalogue of the first one that read the same API."""
    with kept_catalogues():
        yield
