"""How long a version that a client rejected is kept from it."""

from __future__ import annotations

FIRST_S = 1.0
LONGEST_S = 60.0


def back_off_s(rejections: int) -> float:
    """Return the seconds to wait before a version is offered again that was rejected `rejections` times in a row.

    1, 2, 4, … and at most 60 seconds. A rejection may heal by itself (it came before what it needs), so a version is
    offered again; at once it would loop as fast as the client asks. Source: ENVOY.md A4.
    """
    return min(FIRST_S * 2.0 ** min(max(rejections, 1) - 1, 16), LONGEST_S)
