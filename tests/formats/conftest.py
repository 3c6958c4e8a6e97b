"""The message types of xds-protos, which every machine that runs the tests has, read once per test process."""

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.source.envoy_api import read_xds_protos


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every type of the package xds-protos."""
    return Catalogue.of(read_xds_protos().SerializeToString(), "xds-protos")


@pytest.fixture(scope="session")
def printer(catalogue: Catalogue) -> Printer:
    """A printer of the same types."""
    return Printer(catalogue)
