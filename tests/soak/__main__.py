"""Edit a served tree at random for an hour, under load, and see that nothing is missed or leaked: `python -m tests.soak`."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.soaking import Load, Soak, Soaked

# After each of so many parts of the time everything rests, and is counted.
PARTS = 60
# Caches fill, and pools of threads and connections get their size.
WARM_UP = 12
COMPARED = 6


def main(arguments: list[str] | None = None) -> int:
    """Run, print what came of it, and return the exit status: 1 when something leaked."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--polls", type=int, default=500)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--every", type=float, default=Load.every_s, help="seconds from one edit to the next")
    parser.add_argument("--no-envoys", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("FSXDS_ADMIN", "127.0.0.1:0")
    load = Load(chosen.polls, chosen.streams, not chosen.no_envoys, chosen.every)
    edits = max(round(chosen.seconds / load.every_s / PARTS), 1)
    started_s = time.monotonic()

    def report(counts: dict[str, int]) -> None:
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        print(f"{time.monotonic() - started_s:.0f} s: {words}", file=sys.stderr, flush=True)  # noqa: T201

    with tempfile.TemporaryDirectory() as folder:
        soak = asyncio.run(Soaked(Path(folder), load, chosen.seed).run(PARTS, edits, chosen.seconds / PARTS, report))
    print(summary(soak, load, chosen.seed, time.monotonic() - started_s))  # noqa: T201
    return 1 if soak.leaks(WARM_UP, COMPARED) else 0


def summary(soak: Soak, load: Load, seed: int, took_s: float) -> str:
    """Return what came of it in words."""
    growth = soak.growth(WARM_UP, COMPARED)
    after = soak.medians(slice(-COMPARED, None))
    rows = [f"  {name}: {after[name]:,.0f}, {growth[name]:+.2%} since the warm-up" for name in after]
    grown = ", ".join(f"{name} {count:+,}" for name, count in soak.grown_types(WARM_UP).items())
    clients = f"{load.polls} polls, {load.streams} streams{', 3 Envoys' if load.envoys else ''}"
    first = f"seed {seed}: {soak.edits} edits in {took_s:.0f} s, {soak.answers} answers to {clients}; all of them ended on the last"
    leaked = soak.leaks(WARM_UP, COMPARED)
    last = f"  leaked: {', '.join(leaked)}" if leaked else "  nothing leaked"
    return "\n".join((first, *rows, f"  types: {grown}", last))


if __name__ == "__main__":
    sys.exit(main())
