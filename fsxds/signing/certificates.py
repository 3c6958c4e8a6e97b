"""Verifies that a signer's certificate leads to a trusted one.

`cryptography` verifies chains of servers and clients, without Ed25519, and no other purpose. Here it checks signatures,
and this module the fields. Name constraints, and critical extensions that it does not understand, are rejected.
Revocation is not checked: a new CA, or a new manifest, replaces a leaked key.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from fsxds.model.errors import FsxdsError

# The signer's certificate and four of CAs between it and a trusted one. Further ones of the same name multiply the
# paths to try.
MOST_CERTIFICATES = 5
_MOST_WAYS = 10

_SMALLEST_RSA = 2048
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_KEYS = "use Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of 2048 bits or more"

Value = TypeVar("Value", bound=x509.ExtensionType)

_PURPOSES = {ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
# May be critical, because they are checked here, or are irrelevant for signing.
_UNDERSTOOD = {
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
}

# The exceptions of `cryptography` for a malformed certificate, or a part of it that is read later.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_OTHER_SIGNER = "sign the tree with a certificate of that CA, or name the CA of the signer by --verify-with"


def verify_chain(chain: Sequence[x509.Certificate], trusted: Collection[x509.Certificate], now: dt.datetime) -> None:
    """Verify that a signer's certificate leads to a trusted one at `now`.

    `chain` is the signer's certificate, then intermediate ones, in any order. A trusted signer needs no path. Raises
    UntrustedError.
    """
    signer, *others = chain
    found = [_fault_of(way, now) for way in islice(_ways((signer,), others, trusted), _MOST_WAYS)]
    if None in found:
        return
    fact = f"the signer {name_of(signer)} has no certificate of a CA that is trusted"
    raise next(filter(None, found), UntrustedError("signer-untrusted", fact, _OTHER_SIGNER))


def verify_signer(certificate: x509.Certificate, now: dt.datetime) -> None:
    """Raise UntrustedError if the certificate itself may not sign."""
    fault = _fault_of((certificate,), now)
    if fault is not None:
        raise fault


def name_of(certificate: x509.Certificate) -> str:
    """Return a certificate's subject, for people."""
    try:
        return certificate.subject.rfc4514_string() or f"with the serial number {certificate.serial_number:x}"
    except UNREADABLE:
        return "with an unreadable name"


def _ways(
    way: tuple[x509.Certificate, ...], others: Sequence[x509.Certificate], trusted: Collection[x509.Certificate]
) -> Iterator[tuple[x509.Certificate, ...]]:
    if way[-1] in trusted:
        yield way
        return
    for issuer in (*trusted, *others):
        if issuer not in way and _is_signed_by(way[-1], issuer):
            yield from _ways((*way, issuer), others, trusted)


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        # It rejects signatures with MD5 or SHA-1.
        certificate.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _fault_of(way: tuple[x509.Certificate, ...], now: dt.datetime) -> UntrustedError | None:
    """Return None for a valid path; each certificate signed the one before."""
    for place, certificate in enumerate(way):
        try:
            _check_validity(certificate, now)
            _check_key(certificate.public_key(), certificate)
            _check_extensions(certificate)
            if place == 0:
                _check_signer(certificate)
            else:
                _check_authority(certificate, place - 1)
        except UntrustedError as error:
            return error
        except UNREADABLE:
            return _untrusted(certificate, "cannot be read as a whole", "make it anew")
    return None


def _untrusted(certificate: x509.Certificate, fact: str, remedy: str) -> UntrustedError:
    return UntrustedError("signer-untrusted", f"the certificate {name_of(certificate)} {fact}", remedy)


def _check_validity(certificate: x509.Certificate, now: dt.datetime) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        fact = f"the certificate {name_of(certificate)} expired on {end:%Y-%m-%d at %H:%M} UTC"
        raise UntrustedError("signer-expired", fact, "sign the tree again with one that is valid")
    if now < start:
        fact = f"the certificate {name_of(certificate)} is valid from {start:%Y-%m-%d at %H:%M} UTC on"
        raise UntrustedError(
            "signer-expired", fact, "set the clock of this machine, or sign with one that is valid now"
        )


def _check_key(key: CertificatePublicKeyTypes, certificate: x509.Certificate) -> None:
    is_good = (
        isinstance(key, ed25519.Ed25519PublicKey)
        or (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES))
        or (isinstance(key, rsa.RSAPublicKey) and key.key_size >= _SMALLEST_RSA)
    )
    if not is_good:
        raise _untrusted(certificate, "has a key that is too weak, or of another algorithm", _KEYS)


def _check_extensions(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if extension.oid == ExtensionOID.NAME_CONSTRAINTS or (extension.critical and extension.oid not in _UNDERSTOOD):
            fact = f"has the extension {extension.oid.dotted_string}, which fsxds does not understand"
            raise _untrusted(certificate, fact, "use a CA and certificates without it")


def _check_signer(certificate: x509.Certificate) -> None:
    usage = _extension(certificate, x509.KeyUsage)
    if (usage is not None and not usage.digital_signature) or not _may_sign_code(certificate):
        fact = f"the certificate {name_of(certificate)} is not made for signing: its key usage has no codeSigning"
        remedy = (
            "sign with a certificate whose extended key usage is codeSigning or absent, and whose key usage allows "
        )
        raise UntrustedError("signer-purpose", fact, f"{remedy}digitalSignature")


def _check_authority(certificate: x509.Certificate, between: int) -> None:
    """`between` is the number of certificates between the CA's and the signer's."""
    constraints, usage = _extension(certificate, x509.BasicConstraints), _extension(certificate, x509.KeyUsage)
    is_authority = constraints is not None and constraints.ca and (usage is None or usage.key_cert_sign)
    if not is_authority:
        raise _untrusted(certificate, "is not that of a CA, and signed another one", _OTHER_SIGNER)
    if constraints is not None and constraints.path_length is not None and constraints.path_length < between:
        raise _untrusted(certificate, "may not be so far from a signer: its path length is shorter", _OTHER_SIGNER)
    if not _may_sign_code(certificate):
        raise _untrusted(certificate, "is that of a CA for other purposes than codeSigning", _OTHER_SIGNER)


def _may_sign_code(certificate: x509.Certificate) -> bool:
    usage = _extension(certificate, x509.ExtendedKeyUsage)
    return usage is None or not _PURPOSES.isdisjoint(usage)


def _extension(certificate: x509.Certificate, wanted: type[Value]) -> Value | None:
    try:
        return certificate.extensions.get_extension_for_class(wanted).value
    except x509.ExtensionNotFound:
        return None


class UntrustedError(FsxdsError):
    """A manifest is not signed correctly: the broken `rule`, and text for people."""

    def __init__(self, rule: str, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}; {remedy}")
        self.rule, self.fact, self.remedy = rule, fact, remedy
