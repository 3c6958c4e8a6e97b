"""Do faults to real fsxds processes, and count what came of each: `python -m tests.faults`."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.faults import FAULTS, Fault


@dataclass(frozen=True)
class Outcome:
    """What came of a fault: how often it was done where, and the error that ended it, or why it was not done."""

    fault: Fault
    counts: Counter[str]
    took_s: float
    error: str = ""
    skipped: str = ""

    @property
    def row(self) -> str:
        """The row of the table."""
        what = f"| {self.fault.name} | {self.fault.what} | {self.fault.how} |"
        if self.skipped:
            return f"{what} not done: {self.skipped} | |"
        return f"{what} {described(self.counts)} | {'1' if self.error else '0'} |"


def described(counts: Counter[str]) -> str:
    """Return counts in words: `500: 300 writing the mirror, 200 writing the state`."""
    places = ", ".join(f"{count} {place}" for place, count in sorted(counts.items()) if place)
    return f"{counts.total()}{f': {places}' if places else ''}"


async def do(fault: Fault, times: int, seed: int, *, is_shown: bool = True) -> Outcome:
    """Do a fault so often, in a folder of its own, in batches between which progress is shown."""
    if why := fault.needs():
        return Outcome(fault, Counter(), 0.0, skipped=why)
    counts: Counter[str] = Counter()
    started_s = time.monotonic()
    while (done := counts.total()) < times:
        batch = min(fault.batch, times - done)
        folder = Path(tempfile.mkdtemp(prefix=f"fault-{fault.name}-"))
        try:
            found = await fault.do(folder / "site", random.Random(f"{seed}-{fault.name}-{done}"), batch)
        # The other faults are done all the same.
        except Exception:  # noqa: BLE001
            return Outcome(fault, counts, time.monotonic() - started_s, traceback.format_exc())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts += found or Counter({"": batch})
        if is_shown:
            passed_s = time.monotonic() - started_s
            show(f"{fault.name}: {counts.total()} of {times}, {passed_s:.0f} s")
    return Outcome(fault, counts, time.monotonic() - started_s)


def show(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, and return the exit status: 1 when a fault did harm."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", choices=[each.name for each in FAULTS], metavar="NAME", default=[])
    parser.add_argument("--times", type=int, help="how often each is done, instead of as often as the table says")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--list", action="store_true", help="name the faults, and end")
    chosen = parser.parse_args(arguments)
    faults = [each for each in FAULTS if not chosen.only or each.name in chosen.only]
    if chosen.list:
        print("\n".join(f"{each.name:20} {each.times:4} times: {each.what}" for each in faults))  # noqa: T201
        return 0
    os.environ.setdefault("FSXDS_ADMIN", "127.0.0.1:0")
    outcomes = []
    for fault in faults:
        outcome = asyncio.run(do(fault, chosen.times or fault.times, chosen.seed))
        outcomes.append(outcome)
        show(outcome.error or outcome.skipped or f"{fault.name}: done in {outcome.took_s:.0f} s")
    print(f"\nseed {chosen.seed}\n")  # noqa: T201
    print("| fault | what is done | how | times | harm |\n| --- | --- | --- | --- | --- |")  # noqa: T201
    print("\n".join(outcome.row for outcome in outcomes))  # noqa: T201
    return 1 if any(outcome.error for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
