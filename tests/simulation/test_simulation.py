"""Simulated fleets lose nothing, wait for nobody too long, and get back what they reject no sooner than they are to."""

from __future__ import annotations

import pytest

from tests.simulation.running import failure_of, report_of
from tests.simulation.scenario import scenario_of

DAY, NIGHT = 500, 2000
SEEDS_WITH_ADDRESSES = 200
SEEDS_WITH_SHARED = 400
# So many seeds are one test.
AT_ONCE = 25
# A poller gets a whole state again for what it is not offered.
OPEN_WITH_SHARED = frozenset({24})
# As without any address: a poller whose listeners name a route configuration no more catches up for ever (90, 177, 181), and
# a client that was away for long after a restart gets a route before its cluster (70).
OPEN_WITH_ADDRESSES = frozenset({70, 90, 177, 181})


@pytest.mark.parametrize(
    "first",
    [
        *range(0, DAY, AT_ONCE),
        *(pytest.param(first, marks=pytest.mark.nightly) for first in range(DAY, NIGHT, AT_ONCE)),
    ],
)
def test_whatever_happens_the_rules_hold(first: int) -> None:
    """The shortest history that fails is printed. `python -m tests.simulation` tries other seeds."""
    failing = [seed for seed in range(first, first + AT_ONCE) if failure_of(scenario_of(seed))]

    assert not failing, report_of(scenario_of(failing[0]))


@pytest.mark.parametrize("first", range(0, SEEDS_WITH_ADDRESSES, AT_ONCE))
def test_listeners_that_exchange_addresses_never_have_the_same(first: int) -> None:
    """Nor is anything else of the rules broken."""
    seeds = (seed for seed in range(first, first + AT_ONCE) if seed not in OPEN_WITH_ADDRESSES)
    scenarios = (scenario_of(seed, has_addresses=True) for seed in seeds)
    failing = [scenario for scenario in scenarios if failure_of(scenario)]

    assert not failing, report_of(failing[0])


@pytest.mark.parametrize("first", range(0, SEEDS_WITH_SHARED, AT_ONCE))
def test_who_shares_a_channel_for_what_is_rejected_loses_nothing_else(first: int) -> None:
    """One other channel is for nodes with the same rejections."""
    seeds = (seed for seed in range(first, first + AT_ONCE) if seed not in OPEN_WITH_SHARED)
    failing = [one for one in (scenario_of(seed, most_held=1) for seed in seeds) if failure_of(one)]

    assert not failing, report_of(failing[0])


def test_a_seed_is_one_history() -> None:
    """A failure comes again."""
    assert scenario_of(7) == scenario_of(7)
    assert scenario_of(7) != scenario_of(8)
