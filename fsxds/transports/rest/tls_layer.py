"""TLS between an HTTP connection's socket and its request handler.

asyncio's read buffer takes 256 KiB per connection, of thousands that hold polls.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from dataclasses import dataclass

from fsxds.events.client_events import HandshakeFailed
from fsxds.events.event import Observer

# A silent client is cut off.
HANDSHAKE_S = 10
# For a client to read the rest and to close.
TLS_CLOSE_S = 30
# A TLS record has at most 16 KiB.
RECORD_BYTES = 16 * 1024

# Clients' most frequent mistakes, by OpenSSL's names.
_REMEDIES = {
    "HTTP_REQUEST": "it speaks plain HTTP; give it an https:// URL, or an Envoy cluster a transport_socket",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; give an Envoy cluster a transport_socket",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate; give it one that the --client-ca signed",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate; give it the CA that signed --tls-cert",
    "UNSUPPORTED_PROTOCOL": "it offers TLS 1.1 at most; fsxds needs TLS 1.2",
}


@dataclass(frozen=True, slots=True)
class HttpTls:
    """TLS of a listener; `context` is for the next handshake."""

    context: Callable[[], ssl.SSLContext]
    observer: Observer


class TlsLayer(SSLProtocol):
    """TLS of one connection; `make` makes the inner protocol, `below` sends to the socket."""

    max_size = RECORD_BYTES

    def __init__(self, loop: asyncio.AbstractEventLoop, make: MakeConnection, tls: HttpTls) -> None:
        handshake = loop.create_future()
        handshake.add_done_callback(self._receive_handshake)
        self._observer = tls.observer
        self.below: asyncio.BaseTransport | None = None
        self._peer = ""
        super().__init__(
            loop,
            _Unconnected(make, self),
            tls.context(),
            handshake,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=TLS_CLOSE_S,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self.below = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else ""
        super().connection_made(transport)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        """A rejected client gets the alert with the reason first."""
        if handshake_exc is not None:
            self._process_outgoing()  # type: ignore[attr-defined]  # typeshed does not list it
        super()._on_handshake_complete(handshake_exc)

    def _receive_handshake(self, handshake: asyncio.Future[None]) -> None:
        # Not clients that go away or probe the port.
        if isinstance(error := handshake.exception(), ssl.SSLError):
            self._observer(HandshakeFailed(self._peer, _message_of(error)))


def unsent_bytes(transport: asyncio.BaseTransport | None) -> int:
    """Return how many bytes a transport has not sent."""
    try:
        return transport.get_write_buffer_size() if isinstance(transport, asyncio.Transport) else 0
    except (RuntimeError, AttributeError):
        return 0  # It is closed.


MakeConnection = Callable[[TlsLayer], asyncio.Protocol]


class _Unconnected(asyncio.Protocol):
    """During the handshake, strangers use no memory beyond TLS."""

    def __init__(self, make: MakeConnection, layer: TlsLayer) -> None:
        self._make = make
        self._layer = layer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = self._make(self._layer)
        transport.set_protocol(connection)
        connection.connection_made(transport)


def _message_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}; give it one that the --client-ca signed"
    reason = error.reason or "no reason"
    return _REMEDIES.get(reason, reason.replace("_", " ").lower())
