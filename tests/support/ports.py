"""Ports for what has to be told one before it listens, such as a server that keeps its own over a restart."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from itertools import chain

# Below those that the system gives to whoever asks for any, and to connections (`ip_local_port_range`): a port that was
# free a moment ago is not taken by one of them meanwhile. Each worker of pytest has some of its own.
FIRST, LAST, WORKERS = 20_000, 32_000, 16
_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % WORKERS
_own = range(FIRST + _worker * (LAST - FIRST) // WORKERS, FIRST + (_worker + 1) * (LAST - FIRST) // WORKERS)
# Other runs of the tests on this machine begin elsewhere.
_start = os.getpid() % len(_own)
_next: Iterator[int] = chain(_own[_start:], _own[:_start])


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses, another one each time until all were used."""
    global _next  # noqa: PLW0603, one row of ports for the process
    for port in _next:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    _next = iter(_own)
    return free_port()


def free_ports(count: int) -> list[int]:
    """Return several of them."""
    return [free_port() for _ in range(count)]


def free_address() -> str:
    """Return an address at such a port."""
    return f"127.0.0.1:{free_port()}"
