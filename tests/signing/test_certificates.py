from __future__ import annotations

import contextlib
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import verification

from fsxds.signing.certificates import UNREADABLE, UntrustedError, verify_chain
from tests.support.signing import (
    AUTHORITY,
    CODE_SIGNING,
    NOW,
    SERVER_AUTH,
    Owner,
    Spec,
    authority,
    key_of,
    made,
    signer,
)

LEAF, MIDDLE = key_of("secp256r1", 10), key_of("secp256r1", 11)

# Fields of the certificate of a signer, with the rule that it breaks, and words of the fact.
SIGNERS = {
    "no purpose at all": (Spec(), None, ""),
    "codeSigning": (Spec(purposes=(CODE_SIGNING,)), None, ""),
    "codeSigning among others": (Spec(purposes=(SERVER_AUTH, CODE_SIGNING)), None, ""),
    "a server": (Spec(purposes=(SERVER_AUTH,)), "signer-purpose", "not made for signing"),
    "digitalSignature": (Spec(usage=("digital_signature",)), None, ""),
    "no digitalSignature": (Spec(usage=("key_agreement",)), "signer-purpose", "not made for signing"),
    "expired": (Spec(hours=(-3, -2)), "signer-expired", "expired on 2030-03-17 at 15:46 UTC"),
    "of the future": (Spec(hours=(1, 2)), "signer-expired", "is valid from 2030-03-17 at 18:46 UTC on"),
    "an alternative name": (Spec(extensions=((x509.SubjectAlternativeName([x509.DNSName("a")]), True),)), None, ""),
    "unknown, critical": (Spec(extensions=((x509.OCSPNoCheck(), True),)), "signer-untrusted", "does not understand"),
    "unknown, not critical": (Spec(extensions=((x509.OCSPNoCheck(), False),)), None, ""),
}

# Fields of the certificate of a CA between the two.
AUTHORITIES = {
    "a CA": (AUTHORITY, None, ""),
    "for codeSigning": (Spec(is_ca=True, purposes=(CODE_SIGNING,)), None, ""),
    "for servers": (Spec(is_ca=True, purposes=(SERVER_AUTH,)), "signer-untrusted", "other purposes than codeSigning"),
    "none": (Spec(is_ca=False), "signer-untrusted", "is not that of a CA"),
    "nothing said": (Spec(), "signer-untrusted", "is not that of a CA"),
    "may not sign certificates": (
        Spec(is_ca=True, usage=("digital_signature",)),
        "signer-untrusted",
        "is not that of a CA",
    ),
    "expired": (Spec(is_ca=True, hours=(-3, -2)), "signer-expired", "expired on"),
    "name constraints": (
        Spec(is_ca=True, extensions=((x509.NameConstraints([x509.DNSName("a")], None), False),)),
        "signer-untrusted",
        "does not understand",
    ),
}

# `cryptography` makes none: openssl req -x509 …; openssl x509 -req -sha1 -days 36500 …
WITH_SHA1 = b"""
-----BEGIN CERTIFICATE-----
MIIBeDCCAR2gAwIBAgIUVHiSSlrryyAAEgxeA17HGutdlc0wCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb2xkQ0EwIBcNMjYxMTIyMjI0MzA2WhgPMjEyNjEwMjkyMjQz
MDZaMBAxDjAMBgNVBAMMBW9sZENBMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
w3cGoEMm7PKgOygparMnV/FUrywEaD5QReeEEpmhBxgPc71RYBaLdxL12i30l0h9
Z1dmVLbNn0fnhcw0PB7a1KNTMFEwHQYDVR0OBBYEFDN1bburFSsgR6GUb5JAnQwI
T3sBMB8GA1UdIwQYMBaAFDN1bburFSsgR6GUb5JAnQwIT3sBMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhANhc5Vw2ePOQ1BbN9EcAax4CozC7sE1D
eZZ6LtNhzmyCAiEA1RHox6GNX5ZD2aWnVXewgw5g4Hr3zPDMJEy3nRNNb4s=
-----END CERTIFICATE-----
-----BEGIN CERTIFICATE-----
MIIBGzCBxAIUAxs3Vris7VKkz0ShbszYkEBymWAwCQYHKoZIzj0EATAQMQ4wDAYD
VQQDDAVvbGRDQTAgFw0yNjExMjIyMjQzMDZaGA8yMTI2MTAyOTIyNDMwNlowEjEQ
MA4GA1UEAwwHcmVsZWFzZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC/tMDUU
R90t/axW0JFmuivLO97PFJ/dVacAeeEFWIGb69uHJ2yGhlEc2kGYpvQ1dWcfH3zc
EZu4CbStz+DDEdUwCQYHKoZIzj0EAQNHADBEAiB1ao7CMorJYLmwh0v0zj2zNhkC
jP/0pF6K/iDxkxBahQIgYAxCUXbdpgLXFTnPHtoRJULRQK6oxRSVhwPnpuXH7W8=
-----END CERTIFICATE-----
"""


def fault_of(chain: list[x509.Certificate], *trusted: Owner) -> tuple[str, str] | None:
    """Return the rule and the fact of what is wrong; None where the signer is trusted."""
    try:
        verify_chain(chain, [one.certificate for one in trusted or (authority(),)], NOW)
    except UntrustedError as error:
        return error.rule, error.fact
    return None


def is_verified_by_library(chain: list[x509.Certificate], *trusted: Owner) -> bool:
    """What `cryptography` thinks of the way, whatever the signer is made for."""
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store([one.certificate for one in trusted or (authority(),)]))
        .time(NOW)
        .extension_policies(
            ca_policy=verification.ExtensionPolicy.permit_all().require_present(
                x509.BasicConstraints, verification.Criticality.AGNOSTIC, None
            ),
            ee_policy=verification.ExtensionPolicy.permit_all(),
        )
        .build_client_verifier()
    )
    with contextlib.suppress(verification.VerificationError):
        policy.verify(chain[0], chain[1:])
        return True
    return False


@pytest.mark.parametrize("case", SIGNERS)
def test_signers(case: str) -> None:
    """Who has a certificate of a CA that is trusted may sign, if that is made for it and valid."""
    spec, rule, words = SIGNERS[case]
    found = fault_of([authority().issue("release", LEAF, spec).certificate])

    assert (None if found is None else found[0]) == rule
    assert words in (found or ("", ""))[1]


@pytest.mark.parametrize("case", AUTHORITIES)
def test_authorities_between(case: str) -> None:
    """A CA between the two is one, by its own certificate."""
    spec, rule, words = AUTHORITIES[case]
    middle = authority().issue("middle", MIDDLE, spec)
    leaf = middle.issue("release", LEAF)
    found = fault_of([leaf.certificate, middle.certificate])

    assert (None if found is None else found[0]) == rule
    assert words in (found or ("", ""))[1]
    assert fault_of([leaf.certificate]) is not None


@pytest.mark.parametrize("algorithm", ["ed25519", "secp256r1", "secp384r1", "secp521r1", "rsa2048"])
def test_keys_that_may_sign(algorithm: str) -> None:
    """A signer and a CA have keys of any algorithm that is strong."""
    root = authority(f"CA {algorithm}", algorithm)
    leaf = root.issue("release", key_of(algorithm, 1))

    assert fault_of([leaf.certificate], root) is None


@pytest.mark.parametrize("algorithm", ["secp192r1", "rsa1024"])
def test_weak_keys(algorithm: str) -> None:
    """A weak key is none, be it the signer's or that of a CA."""
    root = authority(f"CA {algorithm}", algorithm)
    of_weak = root.issue("release", LEAF).certificate
    weak = authority().issue("release", key_of(algorithm, 1)).certificate

    assert [fault_of([of_weak], root), fault_of([weak])] == [
        ("signer-untrusted", f"the certificate CN={name} has a key that is too weak, or of another algorithm")
        for name in (f"CA {algorithm}", "release")
    ]


def test_hashes_that_can_be_forged() -> None:
    """A certificate that is signed with SHA-1 leads nowhere."""
    root, weak = x509.load_pem_x509_certificates(WITH_SHA1)

    assert weak.signature_algorithm_oid == x509.SignatureAlgorithmOID.ECDSA_WITH_SHA1
    assert fault_of([weak], Owner(LEAF, root)) == (
        "signer-untrusted",
        "the signer CN=release has no certificate of a CA that is trusted",
    )


def test_strangers() -> None:
    """Another CA of the same name is another CA; so is one whose certificates were taken, with another key."""
    key = key_of("secp256r1", 12)
    other = Owner(key, made("CA", key, AUTHORITY))
    leaf = other.issue("release", LEAF).certificate
    alone = made("release", LEAF, Spec())

    for chain in ([leaf], [leaf, other.certificate], [alone], [alone, authority().certificate]):
        assert fault_of(chain) == (
            "signer-untrusted",
            "the signer CN=release has no certificate of a CA that is trusted",
        )


def test_a_signer_signs_no_certificates() -> None:
    """Who may sign trees is no CA."""
    leaf = signer().issue("mallory", LEAF).certificate
    found = fault_of([leaf, signer().certificate])

    assert found == ("signer-untrusted", "the certificate CN=release is not that of a CA, and signed another one")


def test_path_length() -> None:
    """A CA says how many others may stand between it and a signer."""
    near = authority().issue("near", MIDDLE, Spec(is_ca=True, path_length=0))
    far = near.issue("far", key_of("secp256r1", 13), AUTHORITY)
    good = near.issue("release", LEAF).certificate
    bad = far.issue("release", LEAF).certificate

    assert fault_of([good, near.certificate]) is None
    assert fault_of([bad, near.certificate, far.certificate]) == (
        "signer-untrusted",
        "the certificate CN=near may not be so far from a signer: its path length is shorter",
    )


def test_a_certificate_that_is_trusted_itself() -> None:
    """Where the file has the signer's own certificate, there needs to be no CA; it is still to be valid."""
    alone, ended = (Owner(LEAF, made("me", LEAF, Spec(hours=hours))) for hours in ((-1, 1), (-3, -2)))

    assert fault_of([alone.certificate], alone) is None
    assert (fault_of([ended.certificate], ended) or ("",))[0] == "signer-expired"


def test_the_good_one_of_two_ways() -> None:
    """Of a CA that was renewed, one certificate has ended; the other one leads on."""
    old = authority().issue("middle", MIDDLE, Spec(is_ca=True, hours=(-3, -2)))
    new = authority().issue("middle", MIDDLE, AUTHORITY)
    leaf = new.issue("release", LEAF).certificate

    assert fault_of([leaf, old.certificate, new.certificate]) is None
    assert fault_of([leaf, new.certificate, old.certificate]) is None


def test_circles_end() -> None:
    """Certificates that sign one another lead nowhere, and it does not take long to see."""
    names = ("a", "b", "c", "d")
    circle = [
        made(
            "x", key_of("secp256r1", number), AUTHORITY, authority("x").certificate.subject, key_of("secp256r1", number)
        )
        for number, _ in enumerate(names)
    ]
    leaf = Owner(key_of("secp256r1", 0), circle[0]).issue("release", LEAF).certificate

    assert (fault_of([leaf, *circle]) or ("",))[0] == "signer-untrusted"


def test_the_library_agrees() -> None:
    """For keys that it takes, `cryptography` trusts the ways that are trusted here, and rejects those that are rejected."""
    cases = []
    for spec, rule, _ in AUTHORITIES.values():
        middle = authority().issue("middle", MIDDLE, spec)
        cases.append(([middle.issue("release", LEAF).certificate, middle.certificate], rule))
    for spec, rule, _ in SIGNERS.values():
        cases.append(([authority().issue("release", LEAF, spec).certificate], rule))
    verdicts = [(fault_of(chain) is None, is_verified_by_library(chain)) for chain, _ in cases]

    # What is trusted here, it trusts as well.
    assert all(by_library for here, by_library in verdicts if here)
    # It does not ask for what a CA is, as this policy has it, nor for purposes.
    assert sum(not by_library for here, by_library in verdicts if not here) >= 4


def test_bytes_of_certificates_that_changed() -> None:
    """Whatever a certificate became, it is trusted, or it is not; nothing else happens."""
    der = signer().certificate.public_bytes(Encoding.DER)
    read = 0
    warnings.simplefilter("ignore", CryptographyDeprecationWarning)
    for place in range(len(der)):
        other = der[:place] + bytes([der[place] ^ 1 << place % 8]) + der[place + 1 :]
        with contextlib.suppress(*UNREADABLE):
            changed = x509.load_der_x509_certificate(other)
            read += 1
            assert (fault_of([changed]) or ("",))[0] == "signer-untrusted"
            fault_of([changed], Owner(LEAF, changed))

    assert read > len(der) / 10
