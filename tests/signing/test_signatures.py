from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

from fsxds.model.errors import UsageError
from fsxds.signing.certificates import UntrustedError
from fsxds.signing.signatures import Signer, TrustAnchors
from fsxds.signing.tree_manifest import ManifestError
from tests.support.signing import (
    AUTHORITY,
    CODE_SIGNING,
    NOW_S,
    SERVER_AUTH,
    Spec,
    anchors,
    authority,
    key_of,
    signer,
)

ALGORITHMS = ("ed25519", "secp256r1", "secp384r1", "secp521r1", "rsa2048")
CONTENT = b'{"form": "fsxds-manifest-1"}\n'
HOUR_S = 3600.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_signed_is_verified(algorithm: str) -> None:
    """The signature is that of the bytes, and tells who signed them."""
    signature = signer(algorithm).signer().sign(CONTENT)

    assert anchors().verify(CONTENT, signature, NOW_S) == "CN=release"
    for other in (CONTENT + b" ", CONTENT[1:], b"", CONTENT.replace(b"1", b"2")):
        with pytest.raises(UntrustedError, match="does not match the manifest") as raised:
            anchors().verify(other, signature, NOW_S)
        assert raised.value.rule == "signature-wrong"


def test_certificates_between() -> None:
    """They stand beside the signature, in any order."""
    middle = authority().issue("middle", key_of("secp256r1", 20), AUTHORITY)
    upper = middle.issue("upper", key_of("secp256r1", 21), AUTHORITY)
    leaf = upper.issue("release", key_of("secp256r1", 22))

    for chain in ((middle, upper), (upper, middle)):
        assert anchors().verify(CONTENT, leaf.signer(*chain).sign(CONTENT), NOW_S) == "CN=release"
    with pytest.raises(UntrustedError, match="no certificate of a CA that is trusted"):
        anchors().verify(CONTENT, leaf.signer(upper).sign(CONTENT), NOW_S)


@pytest.mark.parametrize("now_s", [NOW_S - 2 * HOUR_S, NOW_S + 2 * HOUR_S])
def test_the_time_counts(now_s: float) -> None:
    """What was signed with a certificate that is not valid now is not trusted now."""
    signature = signer().signer().sign(CONTENT)

    with pytest.raises(UntrustedError) as raised:
        anchors().verify(CONTENT, signature, now_s)

    assert raised.value.rule == "signer-expired"


def test_each_byte_of_a_signature_counts() -> None:
    """With any other byte the file is none, or not trusted, unless it means the same."""
    signature = signer("ed25519").signer().sign(CONTENT)
    trusted = []
    for place in range(len(signature)):
        other = signature[:place] + bytes([signature[place] ^ 1]) + signature[place + 1 :]
        try:
            anchors().verify(CONTENT, other, NOW_S)
        except (ManifestError, UntrustedError):
            continue
        trusted.append(json.loads(other) | {"certificates": None})

    # The unused bits of base64, and spaces: all that verifies has this very signature.
    own = base64.b64decode(json.loads(signature)["signature"])
    assert {base64.b64decode(each["signature"]) for each in trusted} <= {own}
    assert len(trusted) < 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "x"}, "its form is not"),
        ({"signature": 1}, "it has no signature"),
        ({"signature": "*"}, "cannot be read"),
        ({"certificates": []}, "cannot be read"),
        ({"certificates": [signer().pem.decode()] * 6}, "it has no signature, or not one to 5 certificates"),
        ({"certificates": ["x"]}, "cannot be read"),
        ({"certificates": [None]}, "cannot be read"),
        ({"certificates": {}}, "it has no signature"),
    ],
)
def test_what_is_no_signature_file(changes: dict[str, object], words: str) -> None:
    """It is said what is wrong with it."""
    written = json.loads(signer().signer().sign(CONTENT)) | changes

    with pytest.raises(ManifestError, match=words):
        anchors().verify(CONTENT, json.dumps(written).encode(), NOW_S)


def test_a_signature_of_another_key() -> None:
    """A certificate that was taken from elsewhere signs nothing."""
    written = json.loads(signer("ed25519").signer().sign(CONTENT))
    written["certificates"] = json.loads(signer("rsa2048").signer().sign(CONTENT))["certificates"]

    with pytest.raises(UntrustedError) as raised:
        anchors().verify(CONTENT, json.dumps(written).encode(), NOW_S)

    assert raised.value.rule == "signature-wrong"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=["pkcs8", "traditional"])
def test_keys_with_and_without_a_password(algorithm: str, form: PrivateFormat) -> None:
    """A key is read in either form, encrypted or not."""
    owner = signer(algorithm)
    if algorithm == "ed25519" and form is PrivateFormat.TraditionalOpenSSL:
        pytest.skip("there is no such form of these keys")
    for password in (None, b"secret words"):
        read = Signer.of(owner.key_pem(password, form), owner.pem, password, NOW_S)
        assert anchors().verify(CONTENT, read.sign(CONTENT), NOW_S) == read.name == "CN=release"


def test_keys_that_cannot_sign() -> None:
    """Each mistake has its words, in which there is nothing of the key or its password."""
    owner, other = signer(), signer("secp384r1")
    encrypted = owner.key_pem(b"right")
    faults = {
        "is encrypted; give its password by --password-file": (encrypted, owner.pem, None),
        "cannot be read with this password": (encrypted, owner.pem, b"wrong"),
        "is not encrypted; leave out --password-file": (owner.key_pem(), owner.pem, b"right"),
        "--key: cannot be read": (b"nonsense", owner.pem, None),
        "--key: does not belong": (owner.key_pem(), other.pem, None),
        "--cert: has no certificate": (owner.key_pem(), owner.key_pem(), None),
        "--cert: has 6 certificates": (owner.key_pem(), owner.pem * 6, None),
    }
    for words, (key, chain, password) in faults.items():
        with pytest.raises(UsageError) as raised:
            Signer.of(key, chain, password, NOW_S)
        assert words in str(raised.value)
        assert "PRIVATE" not in str(raised.value)
        assert "wrong" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(purposes=(SERVER_AUTH,)), "not made for signing"),
        (Spec(purposes=(CODE_SIGNING,), hours=(-3, -2)), "expired on"),
        (Spec(hours=(2, 3)), "is valid from"),
    ],
)
def test_certificates_that_no_verifier_would_take(spec: Spec, words: str) -> None:
    """Nothing is signed that would be held back everywhere."""
    with pytest.raises(UsageError, match=words):
        authority().issue("release", key_of("secp256r1", 23), spec).signer()


def test_anchors_are_read_from_bundles() -> None:
    """A file may have several CAs, and words between them; one without any is a mistake."""
    bundle = b"# ours\n" + authority("other").pem + b"\n# theirs\n" + authority().pem
    signature = signer().signer().sign(CONTENT)

    assert TrustAnchors.of(bundle).verify(CONTENT, signature, NOW_S) == "CN=release"
    assert TrustAnchors.of(bundle) == TrustAnchors.of(bundle) != TrustAnchors.of(authority().pem)
    for empty in (b"", b"nonsense", signer().key_pem(), authority().pem[:-40]):
        with pytest.raises(UsageError, match="has no certificate in PEM"):
            TrustAnchors.of(empty)
