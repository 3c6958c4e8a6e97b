"""One way in which all random tests run."""

import os

from hypothesis import HealthCheck, settings

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
