"""Certificates and keys that are written in a resource: whether they can be read, and belong together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_TLS = "envoy.extensions.transport_sockets.tls.v3."
_RULE = "wrong-certificate"
_BLOCK = re.compile(
    rb"^-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n(.*?)^-----END \1-----[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
_KEY_LABEL = re.compile(rb"(-----(?:BEGIN|END)) (?:EC|RSA) PRIVATE KEY-----")
_CERTIFICATES = frozenset({b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"})
_SMALLEST_RSA = 2048
_MOST_REMEMBERED = 1000

Judge: TypeAlias = Callable[[bytes, bytes, "bytes | None"], "tuple[str, str, str] | None"]
"""Compares a chain, a key and its password; returns the field, the fact and the remedy."""

_judge: Judge | None
_is_certificate: Callable[[bytes], bool]
try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    def _judge_pair(chain: bytes, key: bytes, password: bytes | None) -> tuple[str, str, str] | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old forms that Envoy takes without a word
            try:
                public = x509.load_pem_x509_certificate(chain).public_key()
            except (ValueError, UnsupportedAlgorithm):
                return None  # parsed before; an oddity that Envoy may know
            weak = _weakness(public)
            if weak is not None:
                remedy = "make it with RSA of 2048 bits or more, or ECDSA P-256, P-384 or P-521"
                return "certificate_chain", weak, remedy
            try:
                private = _load_key(key, password)
            except (TypeError, ValueError, UnsupportedAlgorithm) as error:
                return _unreadable(error, has_password=password is not None)
        form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        if private.public_key().public_bytes(*form) == public.public_bytes(*form):
            return None
        remedy = "give the key that the certificate was made with; the leaf stands first in the chain"
        return "private_key", "does not belong to the first certificate of the chain", remedy

    def _load_key(key: bytes, password: bytes | None) -> Any:
        """Load a key; like Envoy's library, go by what is in it where the label says otherwise."""
        try:
            return load_pem_private_key(key, password)
        except ValueError:
            relabeled = _KEY_LABEL.sub(rb"\1 PRIVATE KEY-----", key)
            if relabeled == key:
                raise
            return load_pem_private_key(relabeled, password)

    def _unreadable(error: Exception, *, has_password: bool) -> tuple[str, str, str] | None:
        if isinstance(error, TypeError) and not has_password:
            return "private_key", "is encrypted, and there is no password", "add password, or store the key decrypted"
        if isinstance(error, ValueError):
            remedy = "write the whole key in PEM, with the right password if it has one"
            return "private_key", "cannot be read", remedy
        return None  # a password that is not needed, which Envoy does not mind, or an algorithm that it may know

    def _weakness(public: Any) -> str | None:
        if isinstance(public, rsa.RSAPublicKey) and public.key_size < _SMALLEST_RSA:
            return f"its key has {public.key_size} bits, and Envoy demands {_SMALLEST_RSA}"
        if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name not in {
            "secp256r1",
            "secp384r1",
            "secp521r1",
        }:
            return f"its key is on the curve {public.curve.name}, which Envoy does not know"
        return None

    def _parses(block: bytes) -> bool:
        try:
            x509.load_pem_x509_certificate(block)
        except ValueError:
            return False
        return True

    _judge, _is_certificate = _judge_pair, _parses
except ImportError:  # the extra "certificates" is not installed
    _judge, _is_certificate = None, bool


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over certificates; without `cryptography` they are content with the look of a text."""
    rules = CertificateRules(_judge)
    return {
        _TLS + "TlsCertificate": (rules.check_certificate,),
        _TLS + "CertificateValidationContext": (_check_trusted,),
    }


class CertificateRules:
    """Compares certificates with their keys, each pair once."""

    def __init__(self, judge: Judge | None) -> None:
        """Compare with `judge`; None where nothing can."""
        self._judge = judge
        self._known: dict[tuple[bytes, bytes, bytes | None], tuple[str, str, str] | None] = {}

    def check_certificate(self, certificate: Any, path: Path, walk: Walk) -> None:
        """Check that a certificate has its key, that both can be read and that they belong together."""
        if certificate.HasField("pkcs12"):
            if certificate.HasField("certificate_chain") or certificate.HasField("private_key"):
                message = "a PKCS #12 bundle holds the chain and the key: nothing may stand beside it"
                walk.tell((path, "pkcs12"), _RULE, message, "keep pkcs12, or the other two")
            return
        if not certificate.ListFields() and (path is None or path[1] != "tls_certificate"):
            return  # a client may have it so; of a server it is told there
        has_key = certificate.HasField("private_key") or certificate.HasField("private_key_provider")
        if not certificate.HasField("certificate_chain"):
            walk.tell(path, _RULE, "a certificate needs a certificate_chain", "add it")
            return
        if not has_key:
            walk.tell(path, _RULE, "a certificate needs its private_key", "add it")
            return
        if certificate.ocsp_staple.WhichOneof("specifier") == "inline_string":
            message = "an OCSP staple cannot be given as inline_string"
            walk.tell(((path, "ocsp_staple"), "inline_string"), _RULE, message, "write inline_bytes, in base64")
        self._check_pair(certificate, path, walk)

    def _check_pair(self, certificate: Any, path: Path, walk: Walk) -> None:
        chain, key = inline(certificate.certificate_chain), inline(certificate.private_key)
        if chain is not None and _tell_unreadable(chain, (path, "certificate_chain"), walk):
            return
        if key is None or certificate.HasField("private_key_provider"):
            return
        if b"-----BEGIN " not in key or b"PRIVATE KEY-----" not in key:
            message = "is not a private key in PEM"
            walk.tell((path, "private_key"), _RULE, message, "write the whole key, from BEGIN to END")
            return
        password = inline(certificate.password) if certificate.HasField("password") else None
        is_told_elsewhere = certificate.HasField("password") and password is None
        if chain is None or is_told_elsewhere or self._judge is None:
            return
        pair = chain, key, password
        if pair not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[pair] = self._judge(*pair)
        fault = self._known[pair]
        if fault is not None:
            field, message, remedy = fault
            rule = "key-mismatch" if message.startswith("does not belong") else _RULE
            walk.tell((path, field), rule, message, remedy)


def inline(source: Any) -> bytes | None:
    """Return what a DataSource holds itself, None when it names a place."""
    chosen = source.WhichOneof("specifier")
    if chosen == "inline_string":
        text: str = source.inline_string
        return text.encode()
    if chosen == "inline_bytes":
        body: bytes = source.inline_bytes
        return body
    return None


def _check_trusted(context: Any, path: Path, walk: Walk) -> None:
    if context.HasField("trusted_ca"):
        trusted = inline(context.trusted_ca)
        if trusted == b"":
            walk.tell((path, "trusted_ca"), _RULE, "is empty", "write the certificates in PEM")
        elif trusted is not None:
            _tell_unreadable(trusted, (path, "trusted_ca"), walk)


def _tell_unreadable(chain: bytes, path: Path, walk: Walk) -> bool:
    """Tell when a text holds no certificate, or one that cannot be read; return whether it was told."""
    blocks = [match for match in _BLOCK.finditer(chain) if match[1] in _CERTIFICATES]
    if not blocks:
        walk.tell(path, _RULE, "holds no certificate in PEM", "write the whole certificate, from BEGIN to END")
        return True
    for number, match in enumerate(blocks, 1):
        if match[1] != b"TRUSTED CERTIFICATE" and not _is_certificate(match[0] + b"\n"):
            message = f"certificate {number} of {len(blocks)} cannot be read"
            walk.tell(path, _RULE, message, "write the whole certificate, from BEGIN to END")
            return True
    return False
