from __future__ import annotations

import asyncio
import errno
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.transports.sockets import (
    SOCKET_MODE,
    Listener,
    bind_tcp,
    bind_unix,
    bound_address,
    close_all,
    is_local,
    remove_stale,
    unavailable,
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "x"), "[::1]:80 is taken: Address already in use; do this"),
        (OSError(errno.EACCES, "x"), "[::1]:80 cannot be listened at: Permission denied; do this"),
        (OSError("too long"), "[::1]:80 cannot be listened at: too long; do this"),
        (
            socket.gaierror(-2, "Name or service not known"),
            "[::1]:80: there is no such host: Name or service not known; do this",
        ),
    ],
)
def test_why_an_address_cannot_be_had(error: OSError, said: str) -> None:
    """The address, the fact and the remedy, in one line."""
    assert str(unavailable(TcpAddress("::1", 80), error, "do this")) == said


async def test_a_host_name_is_bound_at_one_port() -> None:
    """All of its addresses share it, so that there is one to tell."""
    listeners = await bind_tcp(TcpAddress("localhost", 0))
    try:
        assert len({listener.getsockname()[1] for listener in listeners}) == 1
        with pytest.raises(OSError, match="in use"):
            await bind_tcp(TcpAddress("localhost", listeners[0].getsockname()[1]))
    finally:
        close_all(listeners)


async def test_the_address_of_several_is_one_that_other_machines_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name may have a loopback address, and another one behind it."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    found.append((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::", 0)))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    listeners = await bind_tcp(TcpAddress("machine", 0))
    try:
        assert bound_address(listeners) == TcpAddress("::", listeners[0].getsockname()[1])
        assert bound_address(listeners[:1]) == TcpAddress("127.0.0.1", listeners[0].getsockname()[1])
    finally:
        close_all(listeners)


async def test_a_restart_listens_at_all_addresses_of_a_host_again() -> None:
    """At the port that it had, which may have been any free one."""
    asked: list[Address] = []

    @asynccontextmanager
    async def listen(address: Address) -> AsyncIterator[Address]:
        asked.append(address)
        yield TcpAddress("127.0.0.1", 4711)

    listener = Listener(TcpAddress("localhost", 0), listen)
    for _ in range(2):
        listener.is_up.clear()
        task = asyncio.create_task(listener.serve())
        await listener.is_up.wait()
        task.cancel()

    assert asked == [TcpAddress("localhost", 0), TcpAddress("localhost", 4711)]
    assert listener.address == TcpAddress("127.0.0.1", 4711)


def test_a_unix_socket_has_its_mode_before_anybody_listens(tmp_path: Path) -> None:
    """Whoever may read it may read the secrets."""
    path = tmp_path / "x.sock"
    listener = bind_unix(path)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == SOCKET_MODE
    finally:
        listener.close()


def test_what_is_stale(tmp_path: Path) -> None:
    """A socket that nobody listens at is removed, nothing else is."""
    stale, lively, file = tmp_path / "stale", tmp_path / "lively", tmp_path / "file"
    file.write_text("mine")
    bind_unix(stale).close()
    with bind_unix(lively) as listener:
        listener.listen()
        for path in (stale, lively, file, tmp_path / "absent"):
            remove_stale(path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "lively"]


@pytest.mark.parametrize(
    ("host", "exposed"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("10.0.0.1", True)],
)
def test_exposed_addresses(host: str, *, exposed: bool) -> None:
    """What other machines can reach is known by the address that was bound."""
    assert is_local(TcpAddress(host, 1)) is not exposed
    assert is_local(UnixAddress(Path("/run/admin.sock")))
