"""`python -m tests.simulation --seconds 3600`: simulate seed after seed, until one fails or the time is over."""

from __future__ import annotations

import argparse
import sys
import time

from fsxds.publishing.node_channels import MOST_HELD
from tests.simulation.running import failure_of, report_of
from tests.simulation.scenario import scenario_of

# Seeds below are those of the test suite.
FIRST_SEED = 10_000
REPORT_EVERY_S = 60.0


def main() -> int:
    """Return 1 where a seed fails, after its shortest history was printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for so long; default 60")
    parser.add_argument("--seed", type=int, help=f"begin with this seed; default {FIRST_SEED}")
    parser.add_argument("--addresses", action="store_true", help="let listeners have addresses, which they exchange")
    parser.add_argument(
        "--restarts", action="store_true", help="change the tree also while the server is away, without state"
    )
    parser.add_argument("--most-held", type=int, default=MOST_HELD, help="of a view, so many channels for rejections")
    arguments = parser.parse_args()
    first = FIRST_SEED if arguments.seed is None else arguments.seed
    seed, ends_s = first, time.monotonic() + arguments.seconds
    report_s = time.monotonic() + REPORT_EVERY_S
    while time.monotonic() < ends_s:
        scenario = scenario_of(
            seed,
            has_addresses=arguments.addresses,
            restarts=arguments.restarts,
            most_held=arguments.most_held,
        )
        if failure_of(scenario):
            print(report_of(scenario))  # noqa: T201
            return 1
        seed += 1
        if time.monotonic() >= report_s:
            report_s += REPORT_EVERY_S
            print(f"{seed - first} seeds hold, up to {seed - 1}", flush=True)  # noqa: T201
    print(f"{seed - first} seeds hold, from {first} on")  # noqa: T201
    return 0


sys.exit(main())
