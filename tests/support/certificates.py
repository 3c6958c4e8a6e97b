"""Certificates that sign themselves, and those of an authority, with their keys, made on the spot."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, in PEM."""

    chain: str
    key: str

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `name.crt` and `name.key`, and return the paths."""
        chain, key = folder / f"{name}.crt", folder / f"{name}.key"
        chain.write_text(self.chain)
        key.write_text(self.key)
        return chain, key


def make_pair(name: str) -> Pair:
    """Make a pair for a host name."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _signed(_builder(name, name, key), key, key)


class Authority:
    """A CA that signs certificates of servers and clients. `chain` is its own, in PEM."""

    def __init__(self, name: str = "test CA") -> None:
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        is_ca = x509.BasicConstraints(ca=True, path_length=None)
        self.chain = _signed(
            _builder(name, name, self._key).add_extension(is_ca, critical=True), self._key, self._key
        ).chain

    def issue(self, *names: str, ended: bool = False) -> Pair:
        """Sign a certificate.

        Args:
            names: DNS names, IP addresses and URIs, the first of which is also the common name.
            ended: it expired an hour ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(names[0], self._name, key, days=0.95 if ended else 30)
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        return _signed(builder, key, self._key)

    def write(self, path: Path) -> Path:
        """Write its certificate, and return the path."""
        path.write_text(self.chain)
        return path


def _general_name(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: float = 30) -> x509.CertificateBuilder:
    start = dt.datetime.now(dt.UTC) - DAY
    builder = (
        x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(issuer)).public_key(key.public_key())
    )
    return (
        builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(start + days * DAY)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey) -> Pair:
    chain: bytes = builder.sign(by, hashes.SHA256()).public_bytes(Encoding.PEM)
    private: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(chain.decode(), private.decode())
