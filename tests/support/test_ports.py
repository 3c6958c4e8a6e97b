"""No two processes that run tests fight for a port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.support.ports import BLOCK, free_port, free_ports, is_free

CODE = "from tests.support.ports import free_ports; print(*free_ports({}), flush=True); input()"


def test_processes_share_no_port() -> None:
    """Neither those that live beside one another, nor more than a block of them."""
    command = [sys.executable, "-c", CODE.format(BLOCK + 1)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        ours = set(free_ports(BLOCK + 1))
        other.communicate("\n", timeout=60)

    assert (len(ours), len(theirs)) == (BLOCK + 1, BLOCK + 1)
    assert not ours & theirs


def test_a_port_in_use_is_not_free() -> None:
    """Whoever listens there, on whatever address."""
    port = free_port()
    before = is_free(port)
    with socket.create_server(("0.0.0.0", port)):
        assert (before, is_free(port)) == (True, False)
