"""A limit on lines that others cause: the same one at most every ten seconds, and few altogether."""

from __future__ import annotations

from collections import OrderedDict

REFUSAL_PAUSE_S = 10.0
MOST_REFUSALS = 100


class RefusalLimit:
    """Lets one refusal per peer and message through in ten seconds, and few altogether."""

    def __init__(self, most: int = MOST_REFUSALS) -> None:
        self._most = most
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()  # when it was told last, oldest first
        self._untold = 0

    def admit(self, peer: str, message: str, now_s: float) -> int | None:
        """Return how many refusals went untold before this one, or None when this one is not to be told either."""
        while self._seen and next(iter(self._seen.values())) <= now_s - REFUSAL_PAUSE_S:
            self._seen.popitem(last=False)
        if (peer, message) in self._seen or len(self._seen) >= self._most:
            self._untold += 1
            return None
        self._seen[peer, message] = now_s
        untold, self._untold = self._untold, 0
        return untold
