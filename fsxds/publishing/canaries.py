"""Canaries: nodes that get a change first, and when the others follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import inf

from fsxds.publishing.channel_rollout import ChannelRollout


def is_in_share(node_id: str, share: float) -> bool:
    """Whether a node is one of the share of all, from 0 to 1: always the same ones, and of a larger share all of a smaller."""
    digest = hashlib.sha256(node_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


class CanaryGate:
    """Holds the others back until all canaries have taken a change, and have had it for a while.

    A canary that rejects the change keeps it closed until the tree changes, or somebody promotes the change.

    Attributes:
        bake_s: for how long canaries have a change before it opens.
    """

    def __init__(self, bake_s: float) -> None:
        self.bake_s = bake_s
        # Since when all canaries have what the tree asks for; None while some do not.
        self._complete_since_s: float | None = -inf
        self._is_promoted = False

    @property
    def opens_at_s(self) -> float | None:
        """When it opens, where nothing else happens; None while canaries are waited for."""
        return None if self._complete_since_s is None else self._complete_since_s + self.bake_s

    def look(self, canaries: Iterable[ChannelRollout], now_s: float) -> None:
        """Look at the canaries: to be called whenever one of them is to change, or has changed."""
        if not all(one.has_completed for one in canaries):
            self._complete_since_s = None
        elif self._complete_since_s is None:
            self._complete_since_s = now_s

    def close(self) -> None:
        """Note that the tree has changed: what was promoted before does not count for this."""
        self._is_promoted = False

    def promote(self) -> None:
        """Open now, for what the tree asks for."""
        self._is_promoted = True

    def is_open(self, now_s: float) -> bool:
        """Whether the others may have what the tree asks for."""
        return self._is_promoted or (self.opens_at_s is not None and now_s >= self.opens_at_s)
