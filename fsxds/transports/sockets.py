"""The servers' sockets: binding, removal, and draining."""

from __future__ import annotations

import asyncio
import errno
import grp
import os
import pwd
import socket
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Never

from fsxds.model.errors import UsageError
from fsxds.settings.forms import Address, SocketOwner, TcpAddress, UnixAddress

# Between two looks at a unix socket's file.
LOST_AFTER_S = 1.0
# Work without progress is abandoned. Counted in looks, because a busy event loop looks less often.
STALLED_AFTER_S = 1.5
CHECK_INTERVAL_S = 0.02

# Who may connect may read secrets; Envoy runs as the same user or in the same group.
SOCKET_MODE = 0o660


@dataclass(frozen=True, slots=True)
class SocketAccess:
    """Mode and owner of a unix socket; -1: the process's id."""

    mode: int = SOCKET_MODE
    user_id: int = -1
    group_id: int = -1

    @classmethod
    def of(cls, mode: int, owner: SocketOwner | None) -> SocketAccess:
        """Look up the owner. Raises UsageError."""
        if owner is None:
            return cls(mode)
        user_id = _id_of(owner.user, lambda name: pwd.getpwnam(name).pw_uid, "user")
        return cls(mode, user_id, _id_of(owner.group, lambda name: grp.getgrnam(name).gr_gid, "group"))

    def give(self, path: Path) -> None:
        """Apply mode and owner. Raises OSError."""
        if (self.user_id, self.group_id) != (-1, -1):
            os.chown(path, self.user_id, self.group_id)
        path.chmod(self.mode)


OWN_ALONE = SocketAccess()


def _id_of(written: str, find: Callable[[str], int], what: str) -> int:
    if not written:
        return -1
    if written.isascii() and written.isdigit():
        return int(written)
    try:
        return find(written)
    except KeyError as error:
        raise UsageError(
            f"socket_owner: there is no {what} {written!r} here; give one of /etc/passwd, or its number"
        ) from error


async def unbindable(addresses: Mapping[str, Address], *, is_shared: bool = False) -> dict[str, OSError]:
    """Return unbindable addresses' errors by option.

    Binds all together, to detect duplicates, and releases them.
    """
    reasons: dict[str, OSError] = {}
    bound: list[socket.socket] = []
    try:
        for option, address in addresses.items():
            try:
                if isinstance(address, TcpAddress):
                    bound += await bind_tcp(address, is_shared=is_shared)
                else:
                    make_way(address.path, is_shared=is_shared)
                    bound.append(bind_unix(beside(address.path)))
                    beside(address.path).unlink()
            except OSError as error:
                reasons[option] = error
    finally:
        close_all(bound)
    return reasons


async def reject_unbindable(addresses: Mapping[str, Address], *, is_shared: bool = False) -> None:
    """Raise one UsageError for all unbindable addresses."""
    reasons = await unbindable(addresses, is_shared=is_shared)
    if reasons:
        options = " and ".join(f"--{option} HOST:PORT" for option in reasons)
        facts = "; ".join(_fact(addresses[option], error) for option, error in reasons.items())
        raise UsageError(f"{facts}; use {options}, or port 0 for any free one")


@contextmanager
def explained(address: Address, option: str) -> Iterator[None]:
    """Turn an OSError into a UsageError with the option."""
    try:
        yield
    except OSError as error:
        raise unavailable(address, error, f"use --{option} HOST:PORT, or port 0 for any free one") from error


def unavailable(address: Address, error: OSError, remedy: str) -> UsageError:
    """Return an unbindable address's error."""
    return UsageError(f"{_fact(address, error)}; {remedy}")


def _fact(address: Address, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"{address}: there is no such host: {error.strerror}"
    fact = "is taken" if error.errno == errno.EADDRINUSE else "cannot be listened at"
    # create_server() adds the address to the text, which the message names already.
    reason = str(error) if error.errno is None else os.strerror(error.errno)
    return f"{address} {fact}: {reason}"


def is_local(address: Address) -> bool:
    """Whether only this machine reaches an address; no host names but `localhost`."""
    return isinstance(address, UnixAddress) or address.host == "localhost" or is_loopback(address.host)


def is_loopback(address: str) -> bool:
    """Whether only this machine can use an IP address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # An IPv4 client of an IPv6 socket.
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


async def bind_tcp(address: TcpAddress, *, is_shared: bool = False) -> list[socket.socket]:
    """Bind all IP addresses of a host at one port. Raises OSError.

    `is_shared`: for processes of the same user, unless the port is 0. Shared sockets do not listen yet: the kernel
    would hand them connections even if they are only closed again.
    """
    is_shared = is_shared and bool(address.port)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    for family, (host, *_) in dict.fromkeys((family, where) for family, *_, where in found):
        where = str(host), listeners[0].getsockname()[1] if listeners else address.port
        try:
            listeners.append(_bind_shared(family, where) if is_shared else socket.create_server(where, family=family))
        except OSError as error:
            # `localhost` includes ::1 even if IPv6 is switched off.
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                close_all(listeners)
                raise
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    return listeners


def bound_address(listeners: list[socket.socket]) -> TcpAddress:
    """Return the sockets' address; of several, one that other machines reach, as who may ask depends on it."""
    bound = [TcpAddress(*listener.getsockname()[:2]) for listener in listeners]
    return next((address for address in bound if not is_local(address)), bound[0])


def _bind_shared(family: int, where: tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
    except OSError:
        listener.close()
        raise
    return listener


def replace_unix(path: Path, access: SocketAccess = OWN_ALONE) -> socket.socket:
    """Listen in place of any process's unix socket, without a gap. Raises OSError."""
    make_way(path, is_shared=True)
    temporary = beside(path)
    listener = bind_unix(temporary, access)
    try:
        listener.listen()
        temporary.replace(path)
    except OSError:
        listener.close()
        raise
    return listener


def beside(path: Path) -> Path:
    """Return this process's temporary name beside `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def make_way(path: Path, *, is_shared: bool) -> None:
    """Remove a stale unix socket. Raises OSError for other files and sockets in use.

    `is_shared`: another process's socket may be replaced.
    """
    if is_shared and path.is_socket():
        return
    remove_stale(path)
    if path.exists():
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def bind_unix(path: Path, access: SocketAccess = OWN_ALONE) -> socket.socket:
    """Bind a unix socket, also over a stale one. Raises OSError."""
    remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # No client can connect before listen().
        access.give(path)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def listened_at(address: Address) -> Iterator[None]:
    """Remove a unix socket's file at the end, unless replaced."""
    identity = _identity_of(address)
    try:
        yield
    finally:
        if isinstance(address, UnixAddress) and identity is not None and _identity_of(address) == identity:
            address.path.unlink(missing_ok=True)


async def until_lost(address: Address) -> None:
    """Return when a unix socket's file is lost, never for TCP."""
    identity = _identity_of(address)
    while isinstance(address, TcpAddress) or identity == _identity_of(address):  # noqa: ASYNC110, a file has no event
        await asyncio.sleep(LOST_AFTER_S)


async def until_removed(address: Address) -> None:
    """Return when a unix socket's file was removed, not replaced."""
    while isinstance(address, TcpAddress) or address.path.exists():  # noqa: ASYNC110, a file has no event
        await asyncio.sleep(LOST_AFTER_S)


def _identity_of(address: Address) -> tuple[int, int] | None:
    if isinstance(address, TcpAddress):
        return None
    try:
        found = address.path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_stale(path: Path) -> None:
    """Remove a stale unix socket; leave other files."""
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


async def drain(work: Coroutine[object, object, object], progress: Callable[[], object], limit_s: float) -> bool:
    """Run `work` until done, stalled, or timed out, and cancelled; return whether it is done.

    `progress` returns a value that differs after each step.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work)
        ends_at_s = loop.time() + limit_s
        last, looks = progress(), 0
        while not working.done() and loop.time() < ends_at_s and looks * CHECK_INTERVAL_S < STALLED_AFTER_S:
            await asyncio.sleep(CHECK_INTERVAL_S)
            before, last = last, progress()
            looks = looks + 1 if before == last else 0
        is_done = working.done()
        working.cancel()
    return is_done


class Listener:
    """A server at an address, bound again by restarts.

    `is_shared`: another process may listen too, or replace the unix socket. `address` is bound once `is_up`.
    """

    def __init__(
        self,
        address: Address,
        listen: Callable[[Address], AbstractAsyncContextManager[Address]],
        *,
        is_shared: bool = False,
    ) -> None:
        self.address = self._wanted = address
        self.is_up = asyncio.Event()
        self._listen = listen
        self._is_shared = is_shared

    async def serve(self) -> Never:
        """Listen until cancelled, or raise UsageError when unreachable."""
        async with self._listen(self._wanted) as self.address:
            if isinstance(self._wanted, TcpAddress) and isinstance(self.address, TcpAddress):
                # A restart takes the same port, at each address of the host.
                self._wanted = TcpAddress(self._wanted.host, self.address.port)
            self.is_up.set()
            if self._is_shared:
                await until_removed(self.address)
                raise UsageError(f"{self.address}: the socket was removed")
            await until_lost(self.address)
            raise UsageError(f"{self.address}: the socket was removed or replaced")
