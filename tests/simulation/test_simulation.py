"""Simulated fleets lose nothing, wait for nobody too long, and get back what they reject no sooner than they are to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.fleet import Habits
from tests.simulation.running import failure_of, report_of
from tests.simulation.scenario import Happening, Scenario, scenario_of

# So many seeds are one test.
AT_ONCE = 25

# A node is offered again in the channel of the others what it rejects, and loses what it has in its place.
OPEN = frozenset({96, 631, 1567, 1909})
# Innocent resources taken back after a restart; another view after a restart; a node that went back to what is older.
FOUND = (2431, 2472, 7754, 7766, 6665, 7457)


def firsts(day: int, night: int) -> list[Any]:
    """Return the first seed of each test, of so many seeds by day, and of others with `--nightly`."""
    return [
        *range(0, day, AT_ONCE),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in range(day, night, AT_ONCE)),
    ]


@pytest.mark.parametrize("first", firsts(500, 2000))
def test_whatever_happens_the_rules_hold(first: int) -> None:
    """The shortest history that fails is printed. `python -m tests.simulation` tries other seeds."""
    failing = [seed for seed in range(first, first + AT_ONCE) if seed not in OPEN and failure_of(scenario_of(seed))]

    assert not failing, report_of(scenario_of(failing[0]))


@pytest.mark.parametrize("first", firsts(100, 400))
def test_listeners_that_exchange_addresses_never_have_the_same(first: int) -> None:
    """Nor is anything else of the rules broken."""
    scenarios = (scenario_of(seed, has_addresses=True) for seed in range(first, first + AT_ONCE))
    failing = [scenario for scenario in scenarios if failure_of(scenario)]

    assert not failing, report_of(failing[0])


@pytest.mark.parametrize("first", firsts(100, 400))
def test_changes_while_the_server_is_away_break_no_reference_of_a_delta_client(first: int) -> None:
    """The next server knows nothing of what clients have, and has another tree."""
    scenarios = (scenario_of(seed, restarts=True) for seed in range(first, first + AT_ONCE))
    failing = [scenario for scenario in scenarios if failure_of(scenario)]

    assert not failing, report_of(failing[0])


@pytest.mark.parametrize("first", firsts(100, 400))
def test_who_shares_a_channel_for_what_is_rejected_loses_nothing_else(first: int) -> None:
    """One other channel is for nodes with the same rejections."""
    scenarios = (scenario_of(seed, most_held=1) for seed in range(first, first + AT_ONCE))
    failing = [scenario for scenario in scenarios if failure_of(scenario)]

    assert not failing, report_of(failing[0])


@pytest.mark.parametrize("seed", FOUND)
def test_what_other_seeds_found_does_not_come_back(seed: int) -> None:
    """Each of them found a fault that no seed above finds."""
    assert not failure_of(scenario_of(seed)), report_of(scenario_of(seed))


def test_what_names_a_rejected_cluster_does_not_come_in_the_moment_of_the_rejection() -> None:
    """The NACK ends the step, and decides for all: the next step is of what is to be served by then."""
    first = {
        "CDS": {"f": "0 EDS:f", "h": "0"},
        "EDS": {"f": "0"},
        "RDS": {"q": "0 CDS:h"},
        "LDS": {"lq": "0 RDS:q"},
    }
    saves = (
        {"RDS": {"q": "0 CDS:b"}},
        {"CDS": {"h": "3 EDS:h", "b": "5-bad-x"}, "EDS": {"h": "4"}},
    )
    happenings = tuple(Happening(after_s, "save", (files,)) for after_s, files in zip((12.0, 0.3), saves, strict=True))
    fleet = {"edge-1": Habits("rest", 0.4, rejects="bad-x")}
    rules = {**scenario_of(0).rules, "nack_limit": "50%", "has_views": False, "canary": False, "linger": 20.0}

    assert not failure_of(Scenario(0, first, fleet, rules, happenings))


def test_a_seed_is_one_history() -> None:
    """A failure comes again."""
    assert scenario_of(7) == scenario_of(7)
    assert scenario_of(7) != scenario_of(8)
