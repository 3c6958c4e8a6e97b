"""Where a server listens: addresses as values, and the sockets behind them."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsxds.errors import UsageError

# Whoever may read the socket may read the secrets; Envoy runs as the same user or in the same group.
SOCKET_MODE = 0o660

_TCP = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port; an empty host means all interfaces, port 0 any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """`127.0.0.1:18001`, `[::1]:18001`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a unix socket."""

    path: Path

    def __str__(self) -> str:
        """`unix:/run/fsxds.sock`."""
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read `127.0.0.1:18001`, `[::1]:18001`, `:18001` or `unix:/run/fsxds.sock`.

    Raises:
        UsageError: when it is none of these.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return UnixAddress(Path(text.removeprefix("unix:")))
    match = _TCP.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"{text!r} is no address; write 127.0.0.1:18001, [::1]:18001, :18001 or unix:/run/fsxds.sock")
    return TcpAddress(match["host"].strip("[]"), int(match["port"]))


def unavailable(address: Address, error: OSError, remedy: str) -> UsageError:
    """Word why an address cannot be had, as the error to raise."""
    if isinstance(error, socket.gaierror):
        return UsageError(f"{address}: there is no such host: {error.strerror}; {remedy}")
    fact = "is taken" if error.errno == errno.EADDRINUSE else "cannot be listened at"
    return UsageError(f"{address} {fact}: {_words_of(error)}; {remedy}")


def _words_of(error: OSError) -> str:
    # create_server() adds the address to the text, which the reader has seen already.
    return str(error) if error.errno is None else os.strerror(error.errno)


async def bind_tcp(address: TcpAddress) -> list[socket.socket]:
    """Listen at every IP address of a host, all at the same port. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, where in dict.fromkeys((family, where) for family, *_, where in found):
            port = listeners[0].getsockname()[1] if listeners else address.port
            listeners.extend(_bind_one(family, (str(where[0]), port)))
    except OSError:
        close_all(listeners)
        raise
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    return listeners


def _bind_one(family: int, where: tuple[str, int]) -> Iterator[socket.socket]:
    try:
        yield socket.create_server(where, family=family)
    except OSError as error:
        # `localhost` names ::1 also where IPv6 is switched off.
        if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            raise


def bind_unix(path: Path) -> socket.socket:
    """Bind a unix socket, in place of one that nobody listens at any more. Raises OSError."""
    remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Before anybody can connect: that takes listen().
        path.chmod(SOCKET_MODE)
    except OSError:
        listener.close()
        raise
    return listener


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one that took its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_own(path: Path, identity: tuple[int, int] | None) -> None:
    """Remove a socket, unless another process has put its own in this place."""
    if identity is not None and identity_of(path) == identity:
        path.unlink(missing_ok=True)


def remove_stale(path: Path) -> None:
    """Remove a unix socket that nobody listens at; anything else stays where it is."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def close_all(listeners: list[socket.socket]) -> None:
    """Close sockets."""
    for listener in listeners:
        listener.close()
