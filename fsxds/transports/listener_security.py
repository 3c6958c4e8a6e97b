"""What each listener encrypts with, and who may connect to unix sockets, as the settings say."""

from __future__ import annotations

from functools import partial

from fsxds.events import Observer
from fsxds.settings.forms import Address, UnixAddress
from fsxds.settings.options import Settings
from fsxds.transports.grpc_streams.grpc_server import GrpcSecurity
from fsxds.transports.rest.http_server import ListenerOptions
from fsxds.transports.rest.tls_layer import HttpTls
from fsxds.transports.server_tls import Tls, TlsFiles
from fsxds.transports.sockets import SocketAccess, is_local


class ListenerSecurity:
    """The certificate of all listeners, and the owner of their sockets. `keep_current` has to run as a task.

    Raises:
        UsageError: the files of TLS cannot be used, or nobody has the name of the owner.
    """

    def __init__(self, settings: Settings, observer: Observer) -> None:
        files = TlsFiles.of(settings)
        self._tls = None if files is None else Tls(files)
        self._access = SocketAccess.of(settings.socket_mode, settings.socket_owner)
        self._is_shared = settings.reuse_port
        self._observer = observer

    async def keep_current(self) -> None:
        """Read the files of TLS again whenever they change, until cancelled; return at once where there are none."""
        if self._tls is not None:
            await self._tls.keep_current(self._observer)

    def look_now(self) -> None:
        """Have the files looked at without waiting."""
        if self._tls is not None:
            self._tls.look_now()

    def has_tls(self, address: Address, *, is_admin: bool = False) -> bool:
        """Whether TLS is spoken at an address: never at a unix socket, and by operators on other machines alone."""
        return self._tls_at(address, is_admin=is_admin) is not None

    def is_exposed(self, address: Address, *, is_admin: bool = False) -> bool:
        """Whether other machines can read what is served at an address."""
        return not is_local(address) and not self.has_tls(address, is_admin=is_admin)

    def http(self, option: str, address: Address, *, is_admin: bool = False) -> ListenerOptions:
        """Return the options of an HTTP listener; `option` names its address in errors."""
        tls = self._tls_at(address, is_admin=is_admin)
        # An operator may also show a token.
        http_tls = None if tls is None else HttpTls(partial(tls.context, is_strict=not is_admin), self._observer)
        name = "admin" if is_admin else "REST"
        return ListenerOptions(
            option, http_tls, self._access, is_shared=self._is_shared, observer=self._observer, name=name
        )

    def grpc(self, address: Address, settings: Settings) -> GrpcSecurity:
        """Return the options of a gRPC listener."""
        tls = self._tls_at(address)
        return GrpcSecurity(None if tls is None else tls.grpc_credentials(), self._access, settings)

    def _tls_at(self, address: Address, *, is_admin: bool = False) -> Tls | None:
        # REST and gRPC speak TLS on loopback too: their clients are configured for one or the other.
        if isinstance(address, UnixAddress) or (is_admin and is_local(address)):
            return None
        return self._tls
