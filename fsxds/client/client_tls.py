"""TLS of a client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc

from fsxds.model.errors import UsageError
from fsxds.transports.credentials import CERTIFICATE, PRIVATE_KEY, explained_tls, read_pem


@dataclass(frozen=True, slots=True)
class ClientTls:
    """A client's TLS files, in PEM.

    Attributes:
        ca: None for the CAs of this machine.
        cert: with its chain, or None.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def of(cls, ca: Path | None, cert: Path | None, key: Path | None) -> ClientTls | None:
        """Return None without files. Raises UsageError if `cert` or `key` is missing."""
        if (cert is None) != (key is None):
            raise UsageError("--cert and --key belong together; give both, or neither")
        return None if ca is None and cert is None else cls(ca, cert, key)

    def ssl_context(self) -> ssl.SSLContext:
        """Return HTTP's context. Raises UsageError for unusable files."""
        ca = None if self.ca is None else read_pem(self.ca, CERTIFICATE)
        with explained_tls(str(self.ca)):
            context = ssl.create_default_context(cadata=ca and ca.decode("ascii", "ignore"))
        if self.cert is not None and self.key is not None:
            read_pem(self.cert, CERTIFICATE)
            read_pem(self.key, PRIVATE_KEY)
            with explained_tls(f"{self.cert} with {self.key}"):
                context.load_cert_chain(self.cert, self.key, password=lambda: "")
        return context

    def grpc_credentials(self) -> grpc.ChannelCredentials:
        """Return gRPC's credentials. Raises UsageError for unusable files."""
        # gRPC does not explain errors in files.
        self.ssl_context()
        ca, key, cert = (None if path is None else path.read_bytes() for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


def tls_error_message(error: BaseException) -> str:
    """Return why TLS failed, or ""."""
    reason: BaseException | None = error
    # Some of aiohttp's errors are SSLErrors by name, without the attributes of one.
    while reason is not None and (isinstance(reason, aiohttp.ClientError) or not isinstance(reason, ssl.SSLError)):
        reason = reason.__cause__ or reason.__context__
    if reason is None:
        return ""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}; give the CA that signed it"
    return _REMEDIES.get(reason.reason or "", (reason.reason or str(reason)).replace("_", " ").lower())


_NEEDS_OURS = "it asks for a certificate of ours; give --cert and --key"
_REMEDIES = {
    "WRONG_VERSION_NUMBER": "it speaks plain text; ask without TLS",
    "RECORD_LAYER_FAILURE": "it speaks plain text; ask without TLS",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NEEDS_OURS,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _NEEDS_OURS,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired; give --cert another one",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate; give one that its --client-ca signed",
}
