"""Run all benchmarks and print what was reached, also where it falls short."""

from __future__ import annotations

import argparse

from fsxds.reload import find_catalogue
from fsxds.settings.options import Settings
from tests.bench import checking, departing, faults, hostile, latency, loading, rest_departing, serving, streaming
from tests.bench.figures import Figure, print_figures


def main() -> None:
    """Measure, then print one table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--clusters", type=int, default=10_000, help="clusters to load in (a) and (b)")
    parser.add_argument("--polls", type=int, default=5000, help="polls to hold in (e)")
    parser.add_argument("--streams", type=int, default=2000, help="streams to open in (i)")
    parser.add_argument(
        "--only",
        choices=["loading", "checking", "hostile", "serving", "streaming", "departing", "faults", "latency"],
        help="measure one part",
    )
    parser.add_argument(
        "--departures", type=int, default=10_000, help="clients of gRPC, and of REST, that go away in (j)"
    )
    parser.add_argument("--chaos", type=float, default=60.0, help="seconds of random exceptions in (k)")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    if arguments.only in {None, "loading"}:
        figures += loading.measure(find_catalogue(Settings()), arguments.clusters)
    if arguments.only in {None, "checking"}:
        figures += checking.measure(find_catalogue(Settings()), arguments.clusters)
        figures += checking.measure_trees(find_catalogue(Settings()))
    if arguments.only in {None, "hostile"}:
        figures += hostile.measure(find_catalogue(Settings()))
    if arguments.only in {None, "serving"}:
        figures += serving.measure(arguments.polls)
    if arguments.only in {None, "streaming"}:
        figures += streaming.measure(arguments.streams)
    if arguments.only in {None, "departing"}:
        figures += departing.measure(arguments.departures)
        figures += rest_departing.measure(arguments.departures)
    if arguments.only in {None, "faults"}:
        figures += faults.measure(arguments.chaos)
    if arguments.only in {None, "latency"}:
        figures += latency.measure()
    print_figures(figures)


if __name__ == "__main__":
    main()
