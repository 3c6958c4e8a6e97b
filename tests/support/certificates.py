"""Certificates that sign themselves, with their keys, made on the spot."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """A certificate and its key, in PEM."""

    chain: str
    key: str


def make_pair(name: str) -> Pair:
    """Make a pair for a host name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + dt.timedelta(days=30))
    chain: bytes = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    private: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(chain.decode(), private.decode())
