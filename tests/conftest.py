"""What all tests share: how random tests run, and the API of the Envoy in use, found once per test process."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.lint.linter import Linter
from fsxds.snapshots.parse import FileParser
from tests.support.fsxds_process import WHOLE_ENDS
from tests.support.this_envoy import this_envoy

# Tests run side by side, and their servers with them: each has a port of its own, as with --http 127.0.0.1:0.
os.environ.setdefault("FSXDS_ADMIN", "127.0.0.1:0")

# What servers keep of their user is of this run alone.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="fsxds-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Thousands of tests are collected, and nothing of them is garbage. Afterwards the collector runs less often than by default.
gc.disable()
_YOUNGEST = 20_000

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests start and send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes any example slow, so none has a deadline, and none is given up for the time that it took to make.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

# The same examples in every run: a failure is the change's, never the dice's.
settings.register_profile("fixed", _PATIENT, derandomize=True, database=None, max_examples=30)
settings.register_profile("nightly", settings.get_profile("fixed"), max_examples=300)
# New examples in every run: `--hypothesis-profile=explore`.
settings.register_profile("explore", _PATIENT, derandomize=False, max_examples=2000)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes tests long."""
    parser.addoption("--nightly", action="store_true", help="run the long forms of tests, ten times as many examples")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples before the tests are imported: what has settings of its own copies it then."""
    config.addinivalue_line("markers", "nightly: a long test, which only `--nightly` runs")
    if config.getoption("nightly"):
        settings.load_profile("nightly")
        os.environ[WHOLE_ENDS] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to `--nightly`."""
    if not config.getoption("nightly"):
        long = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def pytest_collection_finish() -> None:
    """Hide thousands of collected tests from the collector: many tests call it, and it would look at all of them each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST, *gc.get_threshold()[1:])
    gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start two workers for each core: half of the tests wait, for an Envoy or for a file system.

    Each begins with a part of all files, in order, so that most of what a file or a package shares is made once.
    """
    if config.option.dist == "no":
        config.option.dist = "worksteal"
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(scope="session")
def nightly(pytestconfig: pytest.Config) -> bool:
    """Whether long forms of tests run."""
    return bool(pytestconfig.getoption("nightly"))


@pytest.fixture(scope="session")
def size(*, nightly: bool) -> Callable[[int, int], int]:
    """Return the first of two sizes of a test by day, and the second with `--nightly`."""
    return lambda day, night: night if nightly else day


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Every message type that this Envoy knows, wherever it lies."""
    return this_envoy()


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
