"""Ports for what has to be told one before it listens, such as a server that keeps its own over a restart.

They are below those that the system gives to connections, and to servers that ask for any (`ip_local_port_range`): none of
these takes a port that was free a moment ago. Each process has blocks of ports for itself as long as it lives, so no other
worker of pytest and no other run of the tests on this machine takes one either.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import cycle

FIRST, LAST, BLOCK = 20_000, 32_000, 100


def _claim(block: int) -> bool:
    """Take a block for this process; False where another one has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0fsxds tests, ports from {block}")
    except OSError:
        claim.close()
        return False
    # It stays open until the process ends, whatever that end is.
    claim.detach()
    return True


def _own_ports() -> Iterator[int]:
    """Yield the ports of one free block after another; those of this process again when all blocks are taken."""
    own: list[int] = []
    for block in range(FIRST, LAST, BLOCK):
        if _claim(block):
            own += range(block, block + BLOCK)
            yield from range(block, block + BLOCK)
    yield from cycle(own)


def is_free(port: int) -> bool:
    """Return whether a server may listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_ports = _own_ports()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses, another one each time until all were used."""
    return next(port for port in _ports if is_free(port))


def free_ports(count: int) -> list[int]:
    """Return several of them."""
    return [free_port() for _ in range(count)]


def free_address() -> str:
    """Return an address at such a port."""
    return f"127.0.0.1:{free_port()}"
