"""Durations that Envoy cannot use."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

# Envoy counts nanoseconds in 63 bits; found by asking it: 9223372035s is taken, 9223372036s is not.
LONGEST_S = 9_223_372_035


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over durations."""
    return {"google.protobuf.Duration": (_check_duration,)}


def _is_unread(path: Path) -> bool:
    """Tell whether a duration stands in the settings of another policy's policy, which are not all read."""
    while path is not None:
        path, step = path
        if step == "endpoint_picking_policy":
            return True
    return False


def _check_duration(duration: Any, path: Path, walk: Walk) -> None:
    seconds = duration.seconds
    if (0 <= seconds <= LONGEST_S and duration.nanos >= 0) or _is_unread(path):
        return
    if seconds < 0 or duration.nanos < 0:
        walk.tell(path, "wrong-duration", "must not be negative", 'write a duration from "0s" on')
    else:
        message = f"must be at most {LONGEST_S}s (292 years), is {seconds}s"
        walk.tell(path, "wrong-duration", message, "write a shorter duration, or leave it out where that means none")
