"""(k): exceptions that are thrown from within under load, and secrets that are shown."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure
from tests.end_to_end.chaos import CLIENTS_OF_EACH, run
from tests.end_to_end.test_canaries import hits_and_counts


def measure(chaos_s: float) -> Iterator[Figure]:
    """Throw random exceptions for so many seconds, and look for canaries at every exit."""
    with tempfile.TemporaryDirectory() as folder:
        # It raises when a client, or the mirror, does not end on the last version.
        outcome = asyncio.run(run(Path(folder), chaos_s, seed=random.randrange(10**6)))
    detail = (
        f"{sum(outcome.raised.values())} exceptions at {len(outcome.raised)} points in {chaos_s:.0f} s of {outcome.edits} edits; "
        f"{3 * CLIENTS_OF_EACH} clients and the mirror ended on the last version"
    )
    yield Figure("(k) exceptions survived: who is left behind", 0, 0, "clients", detail)
    hits, place_count, exit_count = hits_and_counts()
    detail = f"of {place_count} places where secrets stand, at {exit_count} exits"
    yield Figure("(k) canaries hit", len(hits), 0, "hits", detail)
