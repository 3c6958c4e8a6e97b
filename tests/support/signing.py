"""Certificates of signers with every key and every fault, and trees that are signed with them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from fsxds.model.values import MANIFEST, MANIFEST_SIGNATURE, ManifestFiles, SourceFile, SourceTree
from fsxds.signing.signatures import Signer, TrustAnchors
from fsxds.signing.tree_manifest import TreeManifest, write_manifest
from tests.support.trees import tree_of

Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

NOW_S = 1_900_000_000.0
NOW = dt.datetime.fromtimestamp(NOW_S, dt.UTC)
HOUR = dt.timedelta(hours=1)
CODE_SIGNING, SERVER_AUTH = ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.SERVER_AUTH


@cache
def key_of(algorithm: str, number: int = 0) -> Key:  # noqa: ARG001 - each is made once
    """Return a key of `ed25519`, a curve, or `rsa<bits>`; each number is another one."""
    match algorithm:
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "secp192r1":
            return ec.generate_private_key(ec.SECP192R1())
        case "secp256r1":
            return ec.generate_private_key(ec.SECP256R1())
        case "secp384r1":
            return ec.generate_private_key(ec.SECP384R1())
        case "secp521r1":
            return ec.generate_private_key(ec.SECP521R1())
    return rsa.generate_private_key(65537, int(algorithm.removeprefix("rsa")))


@dataclass(frozen=True)
class Spec:
    """What is in a certificate; None for what is left out.

    `hours` are those before and after now in which it is valid.
    """

    is_ca: bool | None = None
    path_length: int | None = None
    purposes: tuple[ObjectIdentifier, ...] | None = None
    usage: tuple[str, ...] | None = None
    hours: tuple[int, int] = (-1, 1)
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = ()


@dataclass(frozen=True)
class Owner:
    """Who has a key and a certificate."""

    key: Key
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: bytes | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
        """Return the key, encrypted where there is a password."""
        encryption: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        return self.key.private_bytes(Encoding.PEM, form, encryption)

    def issue(self, name: str, key: Key, spec: Spec = Spec()) -> Owner:
        """Sign the certificate of another."""
        return Owner(key, made(name, key, spec, self.certificate.subject, self.key))

    def signer(self, *chain: Owner) -> Signer:
        """Return who signs as this one."""
        return Signer.of(self.key_pem(), b"".join((self.pem, *(one.pem for one in chain))), None, NOW_S)

    def write(self, folder: Path, name: str, *chain: Owner) -> tuple[Path, Path]:
        """Write `name.key` and `name.crt`, and return the paths."""
        key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
        key.write_bytes(self.key_pem())
        certificate.write_bytes(b"".join((self.pem, *(one.pem for one in chain))))
        return key, certificate


def made(name: str, key: Key, spec: Spec, issuer: x509.Name | None = None, by: Key | None = None) -> x509.Certificate:
    """Make a certificate, which signs itself where nobody else does."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(name))
        .issuer_name(name_of(name) if issuer is None else issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + spec.hours[0] * HOUR)
        .not_valid_after(NOW + spec.hours[1] * HOUR)
    )
    if spec.is_ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(spec.is_ca, spec.path_length), critical=True)
    if spec.purposes is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(spec.purposes), critical=False)
    if spec.usage is not None:
        names = (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        )
        builder = builder.add_extension(x509.KeyUsage(*(one in spec.usage for one in names)), critical=True)
    for extension, is_critical in spec.extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    signing = by or key
    return builder.sign(signing, None if isinstance(signing, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def name_of(text: str) -> x509.Name:
    """Return a subject."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


AUTHORITY = Spec(is_ca=True)


@cache
def authority(name: str = "CA", algorithm: str = "secp256r1") -> Owner:
    """Return a CA."""
    key = key_of(algorithm, hash(name))
    return Owner(key, made(name, key, AUTHORITY))


@cache
def signer(algorithm: str = "secp256r1") -> Owner:
    """Return who may sign, by the CA."""
    return authority().issue("release", key_of(algorithm, 1), Spec(purposes=(CODE_SIGNING,)))


def lasting_signer(folder: Path, number: int = 0) -> tuple[Path, Path, Path]:
    """Write a key, its certificate and the CA of this number, all of them valid now and for years, and return their paths."""
    hours = int((dt.datetime.now(dt.UTC) - NOW) / HOUR)
    years = hours - 24, hours + 24 * 3650
    key = key_of("secp256r1", 100 + number)
    root = Owner(key, made("lasting CA", key, Spec(is_ca=True, hours=years)))
    owner = root.issue("release", key_of("secp256r1", 200 + number), Spec(purposes=(CODE_SIGNING,), hours=years))
    (folder / "ca.crt").write_bytes(root.pem)
    return *owner.write(folder, "release"), folder / "ca.crt"


def anchors(*trusted: Owner) -> TrustAnchors:
    """Return who is trusted; by default the CA."""
    return TrustAnchors(tuple(one.certificate for one in trusted or (authority(),)))


def signed_tree(files: dict[str, str], serial: int = 1, by: Signer | None = None) -> SourceTree:
    """Return a tree with its manifest."""
    tree = tree_of(files)
    return with_manifest(tree, TreeManifest.of(serial, "", tree.files, ()), by)


def with_manifest(tree: SourceTree, manifest: TreeManifest, by: Signer | None = None) -> SourceTree:
    """Return a tree with this manifest, signed by who may."""
    content = write_manifest(manifest)
    return with_signed(tree, content, (by or signer().signer()).sign(content))


def with_signed(tree: SourceTree, manifest: bytes, signature: bytes) -> SourceTree:
    """Return a tree with these two files."""
    files = (
        SourceFile.of(PurePosixPath(MANIFEST), manifest),
        SourceFile.of(PurePosixPath(MANIFEST_SIGNATURE), signature),
    )
    return replace(tree, signed=ManifestFiles(*files))
