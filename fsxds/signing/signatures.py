"""Signs manifests and verifies signatures.

A signature is detached: the manifest is signed byte for byte. It is one JSON object in a separate file:

| key | value |
| --- | --- |
| `form` | `fsxds-signature-1` |
| `certificates` | in PEM: the signer's, then intermediate ones up to a trusted CA |
| `signature` | in base64: Ed25519; ECDSA with SHA-256, SHA-384 or SHA-512, by the curve's size; or RSA-PSS with SHA-256 |

The key determines the algorithm: an attacker cannot choose another.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import warnings
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.utils import CryptographyDeprecationWarning

from fsxds.model.errors import UsageError
from fsxds.signing.certificates import (
    MOST_CERTIFICATES,
    UNREADABLE,
    UntrustedError,
    name_of,
    verify_chain,
    verify_signer,
)
from fsxds.signing.tree_manifest import ManifestError, read_object

FORM = "fsxds-signature-1"

_PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
_HASHES: dict[str, type[hashes.SHA256 | hashes.SHA384 | hashes.SHA512]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}


@dataclass(frozen=True, slots=True)
class TrustAnchors:
    """Certificates that signers have to lead to. Equal objects trust the same."""

    certificates: tuple[x509.Certificate, ...] = field(repr=False)

    @classmethod
    def of(cls, pem: bytes) -> TrustAnchors:
        """Read certificates in PEM. Raises UsageError if there is none, or one cannot be read."""
        return cls(_certificates(pem, "has no certificate in PEM that can be read"))

    def verify(self, manifest: bytes, signature: bytes, now_s: float) -> str:
        """Verify a signature; return the trusted signer's name. `now_s` is since 1970.

        Raises:
            ManifestError: the signature file is malformed.
            UntrustedError: the signature is wrong, or not of a trusted signer.
        """
        chain, signed = _read(signature)
        try:
            key = chain[0].public_key()
        except UNREADABLE as error:
            raise ManifestError("the key of the signer cannot be read") from error
        # The signer's identity first: the content of other signers is not evaluated.
        verify_chain(chain, self.certificates, dt.datetime.fromtimestamp(now_s, dt.UTC))
        try:
            _verify(key, signed, manifest)
        except InvalidSignature as error:
            fact = "the signature does not match the manifest"
            remedy = "restore it with its signature, or sign the tree again by `fsxds sign`"
            raise UntrustedError("signature-wrong", fact, remedy) from error
        return name_of(chain[0])


class Signer:
    """Signs with a private key and its certificate."""

    def __init__(self, key: _PrivateKey, chain: tuple[x509.Certificate, ...]) -> None:
        self._key, self._chain = key, chain

    @classmethod
    def of(cls, key: bytes, chain: bytes, password: bytes | None, now_s: float) -> Signer:
        """Read a key (PKCS#8, or an older form) and its certificate, both in PEM.

        `chain` has the certificate, valid at `now_s` (since 1970), then CA certificates. The key may be encrypted.

        Raises UsageError: they cannot be read, do not belong together, or may not sign; its text has nothing of the
        key.
        """
        certificates = _certificates(
            chain, "--cert: has no certificate in PEM that can be read; give one, with its chain"
        )
        if len(certificates) > MOST_CERTIFICATES:
            fact = f"--cert: has {len(certificates)} certificates, and verifiers read {MOST_CERTIFICATES}"
            raise UsageError(f"{fact}; leave out the CA, and certificates that are not between it and the signer")
        private = _load_key(key, password)
        if _public_bytes(private.public_key()) != _public_bytes(certificates[0].public_key()):
            raise UsageError(
                "--key: does not belong to the first certificate of --cert; give the key that it was made with"
            )
        try:
            verify_signer(certificates[0], dt.datetime.fromtimestamp(now_s, dt.UTC))
        except UntrustedError as error:
            raise UsageError(f"--cert: {error}") from error
        return cls(private, certificates)

    @property
    def name(self) -> str:
        """The signer's name."""
        return name_of(self._chain[0])

    def sign(self, manifest: bytes) -> bytes:
        """Return the signature file of a manifest."""
        written = {
            "form": FORM,
            "certificates": [one.public_bytes(Encoding.PEM).decode() for one in self._chain],
            "signature": base64.b64encode(_sign(self._key, manifest)).decode(),
        }
        return f"{json.dumps(written, indent=1)}\n".encode()


def _certificates(pem: bytes, words: str) -> tuple[x509.Certificate, ...]:
    """Raise UsageError with `words` if there is none, or one cannot be read."""
    with warnings.catch_warnings():
        # About old forms that are in many bundles.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return tuple(x509.load_pem_x509_certificates(pem))
        except UNREADABLE as error:
            raise UsageError(words) from error


def _load_key(pem: bytes, password: bytes | None) -> _PrivateKey:
    try:
        key = load_pem_private_key(pem, password)
    except TypeError as error:
        remedy = "give its password by --password-file" if password is None else "leave out --password-file"
        fact = "is encrypted" if password is None else "is not encrypted"
        raise UsageError(f"--key: {fact}; {remedy}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        fact = "cannot be read" if password is None else "cannot be read with this password"
        raise UsageError(f"--key: {fact}; give a private key in PEM (PKCS#8)") from error
    if not isinstance(key, _PrivateKey):
        raise UsageError("--key: is of another algorithm; use Ed25519, ECDSA or RSA")
    return key


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _read(signature: bytes) -> tuple[tuple[x509.Certificate, ...], bytes]:
    written = read_object(signature)
    if written.get("form") != FORM:
        raise ManifestError(f"its form is not {FORM}")
    texts, signed = written.get("certificates"), written.get("signature")
    words = f"it has no signature, or not one to {MOST_CERTIFICATES} certificates"
    if not isinstance(texts, list) or not isinstance(signed, str):
        raise ManifestError(words)
    try:
        chain = _certificates("\n".join(map(str, texts)).encode(), "a certificate in it cannot be read")
        content = base64.b64decode(signed, validate=True)
    except (UsageError, ValueError) as error:
        raise ManifestError("a certificate or the signature in it cannot be read") from error
    if len(chain) > MOST_CERTIFICATES:
        raise ManifestError(words)
    return chain, content


def _sign(key: _PrivateKey, content: bytes) -> bytes:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(content)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, _PSS, hashes.SHA256())
    return key.sign(content, ec.ECDSA(_HASHES[key.curve.name]()))


def _verify(key: PublicKeyTypes, signature: bytes, content: bytes) -> None:
    """Raise InvalidSignature; the key's strength was checked before."""
    if isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, content)
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, content, _PSS, hashes.SHA256())
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, content, ec.ECDSA(_HASHES[key.curve.name]()))
    else:
        raise InvalidSignature
