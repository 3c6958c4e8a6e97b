"""Runs scenarios, and finds the shortest one that fails like a failing one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.simulation.scenario import Scenario
from tests.simulation.virtual_time import VirtualLoop
from tests.simulation.world import World

# Clusters, routes, listeners and short names have no more.
MOST_LETTERS_OF_NAMES = 3


def failure_of(scenario: Scenario) -> str:
    """Run a scenario; return what did not hold, empty where all did."""
    failures: list[str] = []

    def receive(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        failures.append(f"{type(error).__name__}: {error}" if error else str(context["message"]))

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(receive)
        await World(scenario).run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(work())
        except Exception as error:  # noqa: BLE001 - each is a finding
            failures.append(f"{type(error).__name__}: {error}")
    return failures[0] if failures else ""


def shortest(scenario: Scenario) -> Scenario:
    """Return the scenario without all that is not needed for it to fail likewise."""
    is_shorter, kind = True, _kind_of(failure_of(scenario))
    while is_shorter:
        is_shorter = False
        for index in reversed(range(len(scenario.happenings))):
            left = scenario.happenings[:index] + scenario.happenings[index + 1 :]
            if _kind_of(failure_of(shorter := replace(scenario, happenings=left))) == kind:
                scenario, is_shorter = shorter, True
        for name in tuple(scenario.fleet):
            fleet = {each: habits for each, habits in scenario.fleet.items() if each != name}
            shorter = replace(scenario, fleet=fleet, happenings=_without(scenario, name))
            if _kind_of(failure_of(shorter)) == kind:
                scenario, is_shorter = shorter, True
    return scenario


def _kind_of(failure: str) -> list[str]:
    """Return the words of a failure that are no names."""
    return [word for word in failure.split() if word.isalpha() and len(word) > MOST_LETTERS_OF_NAMES][:4]


def _without(scenario: Scenario, name: str) -> Any:
    return tuple(each for each in scenario.happenings if name not in each.arguments)


def report_of(scenario: Scenario) -> str:
    """Return the shortest history that fails like a scenario; empty where it does not fail."""
    if not failure_of(scenario):
        return ""
    least = shortest(scenario)
    lines = [f"seed {scenario.seed}: {failure_of(least)}", f"tree {dict(least.tree)}", f"rules {dict(least.rules)}"]
    lines += [f"client {name}: {habits}" for name, habits in least.fleet.items()]
    return "\n".join([*lines, *map(str, least.happenings)])
