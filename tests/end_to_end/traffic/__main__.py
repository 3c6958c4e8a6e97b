"""Count the requests that fail while a tree changes in all ways, with and without rollouts.

Each transport has an fsxds, an Envoy and a load of its own. It goes through each kind of change in turn. Before each kind is one
more change, after which the clients make new connections, so that what fails then belongs to the kind. With `--shuffled`, kinds
come in any order, and connections stay.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

from fsxds.settings.options import Settings
from tests.end_to_end.traffic.company import COMPANY
from tests.end_to_end.traffic.kinds import KINDS
from tests.end_to_end.traffic.load import Failure
from tests.end_to_end.traffic.running import MIRROR_WITH_ADMIN, PATIENCE_S, TRANSPORTS, Above, Demand, Run, running

QUIET, BETWEEN = "quiet", "from one kind to the next"
HAS_ROLLOUT = any(field.name == "rollout" for field in fields(Settings))
MODES: tuple[str | None, ...] = ("off", "on") if HAS_ROLLOUT else (None,)


@dataclass(frozen=True, slots=True)
class Column:
    """One run: a transport, Envoy's drain time, and whether changes are rolled out in steps (None: fsxds decides)."""

    transport: str
    drain_s: int
    rollout: str | None

    @property
    def title(self) -> str:
        """Its head."""
        return f"{self.transport} drain {self.drain_s} {self.rollout or ''}".strip()

    def options(self) -> list[str]:
        """Return the options of fsxds."""
        if self.rollout is None:
            return []
        # Half of a small tree changes at once: nobody shall have to approve that.
        return ["--rollout", self.rollout, "--linger", f"{self.drain_s}s", "--max-removal", "off"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run, by change."""

    requests: Mapping[str, int]
    failures: Mapping[str, int]
    repeated: int
    took_s: Mapping[str, Sequence[float]]
    late: Sequence[str]

    def joined_with(self, other: Outcome) -> Outcome:
        """Return what came of two runs, which have no change in common but quiet times."""
        return Outcome(
            Counter(self.requests) + Counter(other.requests),
            Counter(self.failures) + Counter(other.failures),
            self.repeated + other.repeated,
            {**self.took_s, **other.took_s},
            [*self.late, *other.late],
        )


def changes(given: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Yield the kind of each change, and whether it only leads to the next kind."""
    names: list[str] = [name for name in given.kind or KINDS if name in KINDS]
    share, more = divmod(given.changes, len(names))
    ordered = [name for place, name in enumerate(names) for _ in range(share + (place < more))]
    if given.shuffled:
        random.Random(given.seed).shuffle(ordered)
    for before, name in pairwise(["", *ordered]):
        if name != before and not given.shuffled:
            yield name, True
        yield name, False


def measure(column: Column, given: argparse.Namespace, folder: Path) -> Outcome:
    """Make all changes, and print what failed."""
    began_s, edits = time.monotonic(), 0
    demand = Demand(given.rate, given.slow, given.workers)
    state = ["--state", str(folder / "state")] if given.kill else []
    above = Above(given.relays, given.restart)
    with running(folder, column.transport, column.drain_s, [*column.options(), *state], demand, above=above) as run:
        run.apart_s = given.apart
        run.rest(given.quiet)
        for name, is_between in changes(given):
            edits += 1
            run.change(name, edits, BETWEEN if is_between else None, every_s=given.every)
            if given.kill and not edits % given.kill:
                run.kill_server()
            if is_between:
                run.end_connections()
        run.rest(5.0 if given.every else 1.0)
    print(f"\n{column.title}: {edits} changes in {time.monotonic() - began_s:.0f} s")  # noqa: T201
    return outcome_of(run)


def measure_company(column: Column, name: str, given: argparse.Namespace, folder: Path) -> Outcome:
    """Make changes of a kind in company, and print what failed."""
    company = COMPANY[name]
    # Whoever is waited for in vain is waited for as long as the Envoy has time for a change.
    options = [*column.options(), "--step-timeout", f"{PATIENCE_S:g}s", *company.options(folder)]
    demand = Demand(given.rate, given.slow, given.workers)
    with running(folder, column.transport, column.drain_s, options, demand, first=company.tree) as run:
        for number in range(1, given.company + 1):
            run.load.record.begin(name)
            try:
                company.change(run, name, number)
            except AssertionError as error:
                run.late.append(f"{name}, change {number}: {error}")
            # What goes last goes now.
            time.sleep(1.0)
        run.rest(1.0)
    print(f"\n{column.title}: {name}")  # noqa: T201
    return outcome_of(run)


def outcome_of(run: Run) -> Outcome:
    """Return what came of a run, and print what failed."""
    print_details(run)
    record = run.load.record
    failures = Counter(failure.change for failure in record.failures)
    return Outcome(record.requests, failures, record.repeated.total(), run.took_s, run.late)


def print_details(run: Run) -> None:
    """Print what failed, and how."""
    flags = run.flags()
    groups: dict[str, list[Failure]] = {}
    for failure in run.load.record.failures:
        connection = "kept" if failure.is_reused else "new"
        told = flags.get(failure.request, "not in the access log")
        groups.setdefault(f"{failure.change}: {failure.reason}, {connection} connection: {told}", []).append(failure)
    for group, failures in sorted(groups.items(), key=lambda item: item[1][0].at_s):
        since = sorted(failure.since_edit_s for failure in failures)
        print(f"  {len(failures):5} {group}; {since[0]:.3f} to {since[-1]:.3f} s after the edit began")  # noqa: T201
    for late in run.late:
        print(f"  not taken in time: {late}")  # noqa: T201


def print_table(outcomes: Mapping[Column, Outcome]) -> None:
    """Print failures and requests by kind of change."""
    rows = [
        row for row in (QUIET, *KINDS, BETWEEN, *COMPANY) if any(one.requests.get(row) for one in outcomes.values())
    ]
    cells = [["failed / requests", *(column.title for column in outcomes)]]
    cells += [
        [row, *(f"{one.failures.get(row, 0)} / {one.requests.get(row, 0)}" for one in outcomes.values())]
        for row in rows
    ]
    totals = [f"{sum(one.failures.values())} / {sum(one.requests.values())}" for one in outcomes.values()]
    cells.append(["all", *totals])
    cells.append(["sent again, not failed", *(str(one.repeated) for one in outcomes.values())])
    print()  # noqa: T201
    cells.insert(1, ["---"] * len(cells[0]))
    for line in cells:
        print("| " + " | ".join(line) + " |")  # noqa: T201


def print_times(outcomes: Mapping[Column, Outcome]) -> None:
    """Print how long edits took until Envoy had them, by kind of change: the median, and the longest."""
    print("\n| seconds until Envoy has it: median, most | " + " | ".join(one.title for one in outcomes) + " |")  # noqa: T201
    print("| --- " * (len(outcomes) + 1) + "|")  # noqa: T201
    for row in (*KINDS, *COMPANY):
        times = [one.took_s.get(row, ()) for one in outcomes.values()]
        cells = [f"{statistics.median(each):.2f}, {max(each):.2f}" if each else "" for each in times]
        if any(cells):
            print(f"| {row} | {' | '.join(cells)} |")  # noqa: T201


def main() -> None:
    """Run, and end with status 1 if, with rollouts, a request failed, or a change in company was late."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.traffic", description=__doc__)
    parser.add_argument("--transport", action="append", choices=[*TRANSPORTS, MIRROR_WITH_ADMIN])
    parser.add_argument(
        "--drain", action="append", type=int, help="Envoy's drain time in seconds; 1 and 600 by default"
    )
    parser.add_argument("--rollout", action="append", choices=["on", "off"], help="off and on by default")
    parser.add_argument("--kind", action="append", choices=[*KINDS, *COMPANY])
    parser.add_argument("--changes", type=int, default=208, help="in each run")
    parser.add_argument("--company", type=int, default=3, help="so many changes of each kind in company; 0 for none")
    parser.add_argument("--rate", type=float, default=240.0, help="requests a second")
    parser.add_argument("--kill", type=int, help="kill fsxds after so many changes, and start it again on its --state")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that one of eight requests takes")
    parser.add_argument("--workers", type=int, default=1, help="threads of Envoy")
    parser.add_argument("--quiet", type=float, default=5.0, help="seconds without changes at the start")
    parser.add_argument("--shuffled", action="store_true", help="the kinds in any order, on connections that stay")
    parser.add_argument("--every", type=float, help="seconds between changes, without waiting for Envoy to take them")
    parser.add_argument("--apart", type=float, help="seconds between the saves of a change that is saved in parts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--relays", type=int, default=0, help="so many in a row, between the tree and the Envoy")
    parser.add_argument(
        "--restart",
        type=int,
        default=0,
        help="so many servers have the tree; with each change the one that runs is killed, and the next one started",
    )
    given = parser.parse_args()
    if given.kill and given.relays:
        parser.error("--kill and --relays do not go together: servers would share a state directory")
    columns = [
        Column(transport, drain_s, rollout)
        for transport in given.transport or TRANSPORTS
        for drain_s in given.drain or (1, 600)
        for rollout in given.rollout or MODES
    ]
    if given.restart > 1 and not given.relays:
        parser.error("without --relays one server restarts: the Envoy knows no other")
    is_plain = not (given.kill or given.relays or given.restart or given.every or given.shuffled)
    company = [name for name in given.kind or COMPANY if name in COMPANY and is_plain and given.company]
    outcomes: dict[Column, Outcome] = {}
    for column in columns:
        for name in (None, *(company if column.rollout != "off" else ())):
            if name is None and given.kind and not KINDS.keys() & given.kind:
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = (
                    measure(column, given, Path(folder))
                    if name is None
                    else measure_company(column, name, given, Path(folder))
                )
            outcomes[column] = outcomes[column].joined_with(found) if column in outcomes else found
    print_table(outcomes)
    print_times(outcomes)
    sys.exit(any(one.failures or one.late for column, one in outcomes.items() if column.rollout == "on"))


if __name__ == "__main__":
    main()
