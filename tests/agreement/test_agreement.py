"""What the real Envoy rejects, fsxds tells first; what it takes, fsxds takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import RESOURCE_TYPES
from tests.agreement import envoy_bootstrap
from tests.agreement.cases import Case, make_cases, text_of
from tests.agreement.comparing import Opinion, compare, file_text
from tests.agreement.envoy_judge import EnvoyJudge
from tests.agreement.extension_mutations import ALL
from tests.agreement.fsxds_judge import FsxdsJudge
from tests.agreement.report import alarm_cause, disagreements, miss_cause
from tests.agreement.seeds import seeds
from tests.agreement.with_envoy import overruled

# Few, of fixed seeds: `python -m tests.agreement` draws fresh ones, as many as one likes.
DAY, NIGHT = 200, 1200
SEED = 1
# Without an Envoy at hand, some of what it does cannot be known; `check` asks one where it is.
MOST_MISSED = 0.02
# Each takes Envoy 60 ms.
MOST_OVERRULED = 60


@pytest.fixture(scope="module")
def cases(catalogue: Catalogue, size: Callable[[int, int], int]) -> list[Case]:
    """The cases that are asked about."""
    return make_cases(catalogue, size(DAY, NIGHT), SEED)


def _shown(opinions: list[Opinion]) -> str:
    alarms = disagreements((one for one in opinions if one.is_false_alarm), alarm_cause)
    misses = disagreements((one for one in opinions if one.is_missed), miss_cause)
    return "\n".join(["# False alarms", *alarms, "", "# Missed", *misses])


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_envoy_and_fsxds_agree(catalogue: Catalogue, cases: list[Case], suffix: str) -> None:
    """Of resources with something changed, fsxds refuses none that Envoy takes, and takes few that Envoy refuses."""
    opinions = compare([case for case in cases if case.suffix == suffix], catalogue)
    some = [one for one in opinions if not one.envoy.accepted][:MOST_OVERRULED]
    rejected = sum(not one.envoy.accepted for one in opinions)
    missed = sum(one.is_missed for one in opinions)

    assert [] == [one.case.name for one in opinions if one.is_false_alarm], _shown(opinions)
    assert missed <= MOST_MISSED * rejected, _shown(opinions)
    assert [] == [one.case.name for one in overruled(some, catalogue)], (
        "an error is a note though Envoy rejects the resource"
    )
    assert rejected > len(opinions) / 3, "the mutations hurt too little to prove anything"


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_both_take_what_the_cases_start_from(catalogue: Catalogue, suffix: str) -> None:
    """Every seed is right for Envoy and for fsxds."""
    fsxds = FsxdsJudge(catalogue)
    refused: list[tuple[str, object]] = []
    with EnvoyJudge(seeds(), suffix) as envoy:
        for seed in seeds():
            verdict = envoy.judge(seed, text_of(envoy_bootstrap.document(seed, seed.resource), suffix))
            refused += [(seed.name, verdict.words)] if not verdict.accepted else []
            case = Case(seed, "", "", "", "", seed.resource, suffix)
            refused += [(seed.name, error) for error in fsxds.judge(f"{seed.type_name}{suffix}", file_text(case))]

    assert [] == refused


def test_the_cases_are_many_and_of_every_sort(cases: list[Case]) -> None:
    """There are many different cases, of every type and every class of mutation."""
    assert len({case.key for case in cases}) == len(cases) >= DAY - 10
    # The endpoints of LEDS stand in the seeds of EDS; collections hold listeners, and Envoy knows them in files alone.
    assert {row.short_name for row in RESOURCE_TYPES} == {case.seed.type_name for case in cases} | {"leds", "lcds"}
    assert {mutation.name for mutation in ALL} == {case.mutation for case in cases}


def test_the_same_number_makes_the_same_cases(catalogue: Catalogue) -> None:
    """Cases can be made again, and another number makes others."""
    first, again, other = (
        [case.key for case in make_cases(catalogue, 300, number)] for number in (SEED, SEED, SEED + 1)
    )

    assert first == again
    assert first != other
