"""How often what a client rejects is offered to it."""

from __future__ import annotations

import math
import time


def most_offers(since_s: float) -> int:
    """Return how often a version may have been offered since then, by `time.monotonic()`: at once, and 1, 3, 7, … s later."""
    return 1 + int(math.log2(time.monotonic() - since_s + 1.0))
