"""Run all benchmarks and print what was reached, also where it falls short."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from fsxds.api.catalogue import Catalogue
from fsxds.server.loading_rules import find_catalogue
from fsxds.settings.options import Settings
from tests.bench import (
    checking,
    collections_of_endpoints,
    departing,
    faults,
    fleets,
    getting,
    growth,
    hostile,
    latency,
    loading,
    relays,
    rest_departing,
    serving,
    starts,
    streaming,
    views,
)
from tests.bench.figures import Figure, print_figures


def _api() -> Catalogue:
    return find_catalogue(Settings())


PARTS: Mapping[str, Callable[[argparse.Namespace], Iterable[Figure]]] = {
    "loading": lambda given: loading.measure(_api(), given.clusters),
    "checking": lambda given: chain(checking.measure(_api(), given.clusters), checking.measure_trees(_api())),
    "hostile": lambda _: hostile.measure(_api()),
    "serving": lambda given: serving.measure(given.polls),
    "getting": lambda given: getting.measure(given.gets),
    "streaming": lambda given: streaming.measure(given.streams),
    "departing": lambda given: chain(departing.measure(given.departures), rest_departing.measure(given.departures)),
    "faults": lambda given: faults.measure(given.chaos),
    "latency": lambda _: latency.measure(),
    "views": lambda _: views.measure(_api()),
    "relays": lambda _: relays.measure(),
    "fleets": lambda _: fleets.measure(),
    "collections": lambda _: collections_of_endpoints.measure(),
}
ROWS = {**growth.rows_for(growth.MANY), **starts.rows_for()}
LONG_ROWS = growth.rows_for(growth.MOST)


def main() -> None:
    """Measure, then print one table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--clusters", type=int, default=10_000, help="clusters to load in (a) and (b)")
    parser.add_argument("--polls", type=int, default=5000, help="polls to hold in (e)")
    parser.add_argument("--gets", type=int, default=10_000, help="GETs, and as many polls, to hold in (o)")
    parser.add_argument("--streams", type=int, default=2000, help="streams to open in (i)")
    parser.add_argument(
        "--only",
        choices=[*PARTS, *ROWS, *LONG_ROWS],
        metavar="NAME",
        action="append",
        help=f"measure this alone, and others given so: a part ({', '.join(PARTS)}), a row of (m) or (n) ({', '.join(ROWS)}), "
        f"or a row among 100 000 resources, which is measured only so ({', '.join(LONG_ROWS)})",
    )
    parser.add_argument(
        "--departures", type=int, default=10_000, help="clients of gRPC, and of REST, that go away in (j)"
    )
    parser.add_argument("--chaos", type=float, default=60.0, help="seconds of random exceptions in (k)")
    given = parser.parse_args()
    wanted = given.only or [*PARTS, *ROWS]
    figures: list[Figure] = []
    for name in dict.fromkeys(wanted):
        figures += PARTS[name](given) if name in PARTS else (ROWS | LONG_ROWS)[name]()
    print_figures(figures)


if __name__ == "__main__":
    main()
