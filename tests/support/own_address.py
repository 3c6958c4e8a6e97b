"""The address by which other machines reach this one."""

from __future__ import annotations

import socket
from contextlib import suppress


def own_address() -> str | None:
    """Return an address of this machine that is no loopback one, None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Nothing is sent: it only says which address leads out.
        probe.connect(("192.0.2.200", 9))
        return str(probe.getsockname()[0])
    return None
