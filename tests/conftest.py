"""What all tests share: how random tests run, and the API of the Envoy in use, found once per test process."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.lint.linter import Linter
from fsxds.snapshots.parse import FileParser
from fsxds.source.envoy_api import find_api

# Tests run side by side, and their servers with them: each has a port of its own, as with --http 127.0.0.1:0.
os.environ.setdefault("FSXDS_ADMIN", "127.0.0.1:0")

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests start and send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes any example slow, so none has a deadline, and none is given up for the time that it took to make.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

# The same examples in every run: a failure is the change's, never the dice's.
settings.register_profile("fixed", _PATIENT, derandomize=True, database=None)
# New examples in every run, twenty times as many where a test has no number of its own: `--hypothesis-profile=explore`.
settings.register_profile("explore", _PATIENT, derandomize=False, max_examples=2000)
settings.load_profile("fixed")


def pytest_xdist_auto_num_workers() -> int:
    """Start two workers for each core: half of the tests wait, for an Envoy or for a file system."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every message type that this Envoy knows, wherever it lies."""
    found = find_api(envoy=None, descriptors=None, cache_dir=None)
    return Catalogue.of(found.serialized, "this Envoy", found.features)


@pytest.fixture(scope="session")
def converter(catalogue: Catalogue) -> Converter:
    """A converter for which unknown fields are errors."""
    return Converter(catalogue)


@pytest.fixture(scope="session")
def printer(catalogue: Catalogue) -> Printer:
    """A printer of the same types."""
    return Printer(catalogue)


@pytest.fixture(scope="session")
def parser(catalogue: Catalogue) -> FileParser:
    """A parser for which unknown fields are errors, with all checks."""
    return FileParser(catalogue, check=Linter())
