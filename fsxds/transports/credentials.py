"""Reads the files of tokens and TLS: at the start, with new settings, and on changes.

Handshakes use the files as last read; connections keep their parameters. An unusable pair changes nothing.

Rules: which TLS versions and ciphers, and when a changed certificate counts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Never

import grpc

from fsxds.events.event import Event, Observer
from fsxds.events.process_events import CertificatesKept, CertificatesReloaded, TokensExposed, TokensKept, TokensRead
from fsxds.model.errors import UsageError
from fsxds.runtime.access import Access, AccessInUse
from fsxds.runtime.views import Views
from fsxds.settings.access_rules import Tokens, read_tokens
from fsxds.settings.forms import Address, UnixAddress
from fsxds.settings.options import Settings
from fsxds.transports.grpc_streams.grpc_server import GrpcSecurity
from fsxds.transports.rest.http_server import ListenerOptions
from fsxds.transports.rest.tls_layer import HttpTls
from fsxds.transports.sockets import SocketAccess, is_local

# In seconds. Content is used once two looks found the same, as a file may be half written.
CHECK_INTERVAL_S = 1.0


def read_access(settings: Settings) -> Access:
    """Return the settings' access rules, with tokens. Raises UsageError."""
    return Access(
        rules=settings.access,
        tokens=None if settings.tokens is None else read_tokens(settings.tokens),
        admin_tokens=None if settings.admin_token is None else read_tokens(settings.admin_token),
        views=Views(settings.views, settings.variables),
        has_insecure_secrets=settings.insecure_secrets,
    )


class Credentials:
    """Follows access settings and token files; `keep_current` is a task. Raises UsageError."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self.access = AccessInUse(read_access(settings))
        self._observer = observer
        self._settings = settings
        # By file, its tokens or problem: as of the last look, and as last used or reported.
        self._seen: dict[Path, Tokens | str] = {}
        self._decided: dict[Path, Tokens | str] = {}
        self._begin(self.access.current)

    def change(self, settings: Settings, access: Access) -> None:
        """Switch settings; `access`: their `read_access`."""
        self._settings = settings
        self._begin(access)
        self.access.replace(access)

    async def keep_current(self) -> Never:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            settings = self._settings
            paths = [path for path in (settings.tokens, settings.admin_token) if path is not None]
            found = {path: await asyncio.to_thread(_look_at, path) for path in dict.fromkeys(paths)}
            if self._settings is settings:
                self._receive(found)

    def _begin(self, access: Access) -> None:
        self._seen.clear()
        self._decided.clear()
        for path, tokens in ((self._settings.tokens, access.tokens), (self._settings.admin_token, access.admin_tokens)):
            if path is not None and tokens is not None:
                self._decided[path] = tokens
                unknown = access.unknown_tokens if path == self._settings.tokens else ()
                self._report(path, tokens, unknown)

    def _receive(self, found: dict[Path, Tokens | str]) -> None:
        settled = {path: now for path, now in found.items() if self._seen.get(path) == now != self._decided.get(path)}
        self._seen = found
        self._decided |= settled
        for path, now in settled.items():
            if isinstance(now, str):
                self._observer(TokensKept(path, now))
                continue
            access = self.access.current
            if path == self._settings.tokens:
                access = replace(access, tokens=now)
            if path == self._settings.admin_token:
                access = replace(access, admin_tokens=now)
            self._report(path, now, access.unknown_tokens if path == self._settings.tokens else ())
            self.access.replace(access)

    def _report(self, path: Path, tokens: Tokens, unknown: tuple[str, ...]) -> None:
        self._observer(TokensRead(path, len(tokens.digests), unknown))
        if tokens.is_exposed:
            self._observer(TokensExposed(path))


def _look_at(path: Path) -> Tokens | str:
    try:
        return read_tokens(path)
    except UsageError as error:
        return str(error)


# Certificates are renewed days before they expire.
TLS_CHECK_INTERVAL_S = 2.0

# For TLS 1.2; forward secret and authenticated, like Mozilla's "intermediate" list without finite-field DHE.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

# The ends of the header lines of PEM objects.
CERTIFICATE, PRIVATE_KEY = b"CERTIFICATE-----", b"PRIVATE KEY-----"

# Device, inode, modification time and size of each file; None for a missing file.
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate chain, key, and CA of clients, in PEM.

    With `client_ca`, clients need a certificate that it signed.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, settings: Settings) -> TlsFiles | None:
        """Return the settings' TLS files. Raises UsageError."""
        cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.client_ca
        if cert is None and key is None and client_ca is None:
            return None
        if cert is None:
            given = "client_ca" if key is None else "tls_key"
            raise UsageError(f"{given}: there is no certificate; give --tls-cert FILE and --tls-key FILE")
        if key is None:
            raise UsageError("tls_cert: there is no key to it; give --tls-key FILE")
        return cls(cert, key, client_ca)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All paths."""
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


@dataclass(frozen=True, slots=True)
class Certificates:
    """TLS contexts of the files.

    With a CA of clients, `strict` requires a client certificate, `lenient` accepts one.
    """

    strict: ssl.SSLContext
    lenient: ssl.SSLContext
    of_grpc: grpc.ServerCertificateConfiguration

    @classmethod
    def read(cls, files: TlsFiles) -> Certificates:
        """Read the files. Raises UsageError."""
        cert, key = read_pem(files.cert, CERTIFICATE), read_pem(files.key, PRIVATE_KEY)
        client_ca = None if files.client_ca is None else read_pem(files.client_ca, CERTIFICATE)
        strict, lenient = (_context_of(files, client_ca, mode) for mode in (ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL))
        return cls(strict, lenient, grpc.ssl_server_certificate_configuration([(key, cert)], client_ca))


class Tls:
    """TLS with the files as last read; `keep_current` is a task. Raises UsageError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = _stamp_of(files.paths)
        # The stamp of the last look, and of the last reported problem.
        self._seen = self._reported = self._stamp
        self._current = Certificates.read(files)
        self._wanted = asyncio.Event()

    def context(self, *, is_strict: bool) -> ssl.SSLContext:
        """Return the next handshake's context; `is_strict` requires a client certificate if there is a CA."""
        return self._current.strict if is_strict else self._current.lenient

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for files as last read."""
        first = served = self._current.of_grpc

        def newer() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            if self._current.of_grpc is served:
                return None
            served = self._current.of_grpc
            return served

        # gRPC calls `newer` in a separate thread.
        asks_clients = self._files.client_ca is not None
        return grpc.dynamic_ssl_server_credentials(first, newer, require_client_authentication=asks_clients)

    def look_now(self) -> None:
        """Wake `keep_current`."""
        self._wanted.set()

    async def keep_current(self, observer: Observer) -> Never:
        """Read changed files until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TLS_CHECK_INTERVAL_S):
                    await self._wanted.wait()
            self._wanted.clear()
            if (event := await asyncio.to_thread(self.look)) is not None:
                observer(event)

    def look(self) -> Event | None:
        """Look at the files; return an event if they were reloaded or are unusable.

        An unusable pair is reported at the second look: certificate and key are seldom replaced at once.
        """
        stamp, seen = _stamp_of(self._files.paths), self._seen
        self._seen = stamp
        if stamp in {self._stamp, self._reported}:
            return None
        try:
            found = Certificates.read(self._files)
        except UsageError as error:
            if stamp != seen:
                return None
            self._reported = stamp
            return CertificatesKept(str(error))
        if _stamp_of(self._files.paths) != stamp:
            # They changed while being read.
            return None
        self._current, self._stamp = found, stamp
        return CertificatesReloaded(tuple(map(str, self._files.paths)))


def _stamp_of(paths: Iterable[Path]) -> _Stamp:
    """Follows symbolic links, which may change too."""
    stamps: list[tuple[int, int, int, int] | None] = []
    for path in paths:
        try:
            found = path.stat()
            stamps.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def read_pem(path: Path, label: bytes) -> bytes:
    """Read a file with a `label` object. Raises UsageError, also for encrypted keys."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; let the user of fsxds read it") from error
    if label not in content:
        what = "certificate" if label == CERTIFICATE else "private key"
        raise UsageError(f"{path}: has no {what} in PEM; give a file with -----BEGIN … {label.decode()}")
    if label == PRIVATE_KEY and b"ENCRYPTED" in content:
        raise UsageError(f"{path}: is encrypted, and fsxds does not ask for a password; decrypt it by openssl pkey")
    return content


def _context_of(files: TlsFiles, client_ca: bytes | None, mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session skips the client certificate, which may have expired since.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    with explained_tls(f"{files.cert} with {files.key}"):
        # Or OpenSSL would ask the terminal for a password.
        context.load_cert_chain(files.cert, files.key, password=lambda: "")
    if client_ca is not None:
        with explained_tls(str(files.client_ca)):
            # Text around certificates is a comment, in which ssl accepts only ASCII.
            context.load_verify_locations(cadata=client_ca.decode("ascii", "ignore"))
        # As in gRPC, each certificate in the file is trusted, even if its issuer is not in the file.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = mode
    return context


@contextmanager
def explained_tls(what: str) -> Iterator[None]:
    """Turn errors of OpenSSL and files into a UsageError beginning with `what`."""
    try:
        yield
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            fact = (
                "the key is not that of the certificate; the server's own certificate has to be the first in its file"
            )
        else:
            fact = f"OpenSSL cannot use it: {(error.reason or str(error)).replace('_', ' ').lower()}"
        raise UsageError(f"{what}: {fact}") from error
    except OSError as error:
        raise UsageError(f"{what}: cannot be read: {error.strerror}") from error


class ListenerSecurity:
    """All listeners' certificate and socket owner; `keep_current` is a task.

    Raises:
        UsageError: the TLS files cannot be used, or the owner is unknown.
    """

    def __init__(self, settings: Settings, observer: Observer) -> None:
        files = TlsFiles.of(settings)
        self._tls = None if files is None else Tls(files)
        self._access = SocketAccess.of(settings.socket_mode, settings.socket_owner)
        self._is_shared = settings.reuse_port
        self._observer = observer

    async def keep_current(self) -> None:
        """Read changed TLS files until cancelled; return without TLS."""
        if self._tls is not None:
            await self._tls.keep_current(self._observer)

    def look_now(self) -> None:
        """Look at the files now."""
        if self._tls is not None:
            self._tls.look_now()

    def has_tls(self, address: Address, *, is_admin: bool = False) -> bool:
        """Whether an address uses TLS: neither unix sockets nor operators' loopback addresses."""
        return self._tls_at(address, is_admin=is_admin) is not None

    def is_exposed(self, address: Address, *, is_admin: bool = False) -> bool:
        """Whether other machines can connect in plain text."""
        return not is_local(address) and not self.has_tls(address, is_admin=is_admin)

    def http(self, option: str, address: Address, *, is_admin: bool = False) -> ListenerOptions:
        """Return an HTTP listener's options; `option` names it in errors."""
        tls = self._tls_at(address, is_admin=is_admin)
        # An operator may show a token instead.
        http_tls = None if tls is None else HttpTls(partial(tls.context, is_strict=not is_admin), self._observer)
        name = "admin" if is_admin else "REST"
        return ListenerOptions(
            option, http_tls, self._access, is_shared=self._is_shared, observer=self._observer, name=name
        )

    def grpc(self, address: Address, settings: Settings) -> GrpcSecurity:
        """Return a gRPC listener's options."""
        tls = self._tls_at(address)
        return GrpcSecurity(None if tls is None else tls.grpc_credentials(), self._access, settings)

    def _tls_at(self, address: Address, *, is_admin: bool = False) -> Tls | None:
        # REST and gRPC use TLS on loopback too: their clients are configured for either TLS or plain text.
        if isinstance(address, UnixAddress) or (is_admin and is_local(address)):
            return None
        return self._tls
