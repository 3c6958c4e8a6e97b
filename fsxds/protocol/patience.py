"""How long a poll is held when there is nothing new."""

from __future__ import annotations

# The shortest time that is worth holding a poll for, and the room left for the answer to arrive (ENVOY.md A3).
SHORTEST_TIMEOUT_S = 0.3
LEAST_MARGIN_S = 0.1
MARGIN_SHARE = 0.05


def patience_s(expected_timeout_ms: float | None, query_timeout_s: float | None, max_hold_s: float) -> float:
    """Return for how many seconds a poll may be held; 0.0 means answer at once.

    Args:
        expected_timeout_ms: the client's own deadline (`x-envoy-expected-rq-timeout-ms`); the answer must come before it
            by 100 ms or 5 %, whichever is more. Envoy closes the connection at its deadline and logs a failure.
        query_timeout_s: what the request asks for by `?timeout=`, where it bears no deadline.
        max_hold_s: the longest hold the operator allows.

    Source: ENVOY.md A3.
    """
    if expected_timeout_ms is not None:
        timeout_s = expected_timeout_ms / 1000
        if timeout_s < SHORTEST_TIMEOUT_S:
            return 0.0
        return min(timeout_s - max(LEAST_MARGIN_S, timeout_s * MARGIN_SHARE), max_hold_s)
    if query_timeout_s is not None:
        return max(0.0, min(query_timeout_s, max_hold_s))
    return max_hold_s
