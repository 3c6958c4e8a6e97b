"""Whether a client has what it is served now: the states of `istioctl proxy-status`, and which of several counts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class SyncState(Enum):
    """How a client stands with a type, the worst first."""

    NACK = "NACK"
    """It rejected something, and has not accepted what was sent in its place."""
    STALE = "STALE"
    """It was sent something that it has not accepted yet, or is to be sent something newer."""
    NOT_SENT = "NOT SENT"
    """It asked for the type, and was sent nothing: there is nothing for it."""
    SYNCED = "SYNCED"
    """It accepted all that it is served."""


_ORDER = (SyncState.NACK, SyncState.STALE, SyncState.SYNCED)


def combined_state(states: Iterable[SyncState]) -> SyncState:
    """Return how a client stands that stands so with its types: the worst, where types without anything count last."""
    found = set(states)
    return next((state for state in _ORDER if state in found), SyncState.NOT_SENT)
