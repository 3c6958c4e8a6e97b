from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.lint.tls import CertificateChecks
from fsxds.model.values import Severity
from tests.lint.envoy_answers import TLS, Case, assert_accepted, assert_rejected, client_tls, rules_found, server_tls


def certify(key: Any) -> str:
    """Make a certificate that signs itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(5).not_valid_before(start).not_valid_after(start + dt.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def write(key: Any, password: bytes | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    """Write a key in PEM."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, form, encryption)
    return text.decode()


KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
RSA, WEAK = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 1024)
CURVE = ec.generate_private_key(ec.SECP256K1())
CHAIN, PRIVATE = certify(KEY), write(KEY)
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

PAIR = {"certificate_chain": {"inline_string": CHAIN}, "private_key": {"inline_string": PRIVATE}}
CA = {"trusted_ca": {"inline_string": CHAIN}}
NAMES = {"match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "a"}}]}
DIGEST = base64.b64encode(b"x" * 32).decode()


def server(**common: Any) -> Case:
    """A server with a certificate, and more of its common context."""
    return server_tls({"common_tls_context": {"tls_certificates": [PAIR], **common}})


def params(**fields: Any) -> Case:
    """A server with these parameters."""
    return server(tls_params=fields)


def validating(**fields: Any) -> Case:
    """A server that validates its clients so."""
    return server(validation_context=fields)


def ticket(size: int) -> Case:
    """A server with a key for session tickets."""
    key = {"inline_bytes": base64.b64encode(b"x" * size).decode()}
    return server_tls({"common_tls_context": {"tls_certificates": [PAIR]}, "session_ticket_keys": {"keys": [key]}})


def test_contexts_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Known ciphers and curves, names with a CA, keys of 80 bytes."""
    assert_accepted(
        catalogue,
        server(alpn_protocols=["h2,http/1.1", "x" * 255]),
        params(cipher_suites=["ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA"]),
        params(cipher_suites=["[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]"]),
        params(cipher_suites=["ALL"]),
        params(cipher_suites=["kECDHE+aRSA+AESGCM:CHACHA20:@STRENGTH"]),
        server(alpn_protocols=["h2", ""]),
        client_tls({"common_tls_context": {"alpn_protocols": [""]}}),
        params(cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-SHA256"]),
        params(ecdh_curves=["X25519", "P-256"]),
        params(ecdh_curves=["X25519:P-256", "secp384r1"]),
        params(ecdh_curves=[""]),
        validating(**CA, **NAMES, allow_expired_certificate=True),
        validating(verify_certificate_hash=["a" * 64, ":".join(["AB"] * 32)], verify_certificate_spki=[DIGEST]),
        ticket(80),
        client_tls({}),
        client_tls({"common_tls_context": {"tls_certificates": [{}]}}),
        client_tls({"auto_sni_san_validation": True, "common_tls_context": {"validation_context": CA}}),
    )


@pytest.mark.parametrize(
    "case",
    [
        server_tls({}),
        server(tls_certificate_sds_secret_configs=[{"name": "x", "sds_config": {"ads": {}}}]),
        client_tls({"common_tls_context": {"tls_certificates": [PAIR, PAIR]}}),
        client_tls({"auto_sni_san_validation": True}),
        server(alpn_protocols=["x" * 256]),
        client_tls({"common_tls_context": {"alpn_protocols": ["h2", ""]}}),
        params(cipher_suites=["ECDHE-RSA-AES128-GCM-SHA256", "a" * 12]),
        server(alpn_protocols=["x" * 255] * 300),
        params(cipher_suites=["TLS_AES_128_GCM_SHA256"]),
        params(cipher_suites=["DHE-RSA-AES128-GCM-SHA256"]),
        params(cipher_suites=["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-SHA384"]),
        params(ecdh_curves=["foo"]),
        params(ecdh_curves=["P-224"]),
        params(ecdh_curves=["P-256", "P-256"]),
        params(ecdh_curves=["P-256:prime256v1"]),
        params(ecdh_curves=["X25519:"]),
        validating(**NAMES),
        validating(match_subject_alt_names=[{"exact": "a"}]),
        validating(crl={"inline_string": "x"}),
        validating(allow_expired_certificate=True),
        validating(verify_certificate_hash=["z" * 64]),
        validating(verify_certificate_spki=["!" * 44]),
        validating(
            **CA, match_typed_subject_alt_names=[{"san_type": "OTHER_NAME", "oid": "x.y", "matcher": {"exact": "a"}}]
        ),
        server_tls({"common_tls_context": {"tls_certificates": [{}]}}),
        ticket(79),
    ],
)
def test_contexts_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """The parts of a context fit one another, and what it names is known."""
    assert_rejected(catalogue, "wrong-tls", case)


def test_versions_that_cannot_be(catalogue: Catalogue) -> None:
    """Envoy takes a minimum above the maximum; no handshake will succeed."""
    case = params(tls_minimum_protocol_version="TLSv1_3", tls_maximum_protocol_version="TLSv1_2")

    assert_accepted(catalogue, case)
    assert {"wrong-tls"} == rules_found(catalogue, case, Severity.WARNING)


def test_a_secret_has_a_content(catalogue: Catalogue) -> None:
    """An empty secret is worth a warning: Envoy takes it when it is discovered."""
    message = Converter(catalogue).convert({"name": "s"}, TLS + "Secret").message
    assert message is not None

    faults = make_field_rules(catalogue).check(message).faults

    assert [("empty-secret", Severity.WARNING)] == [(fault.rule, fault.severity) for fault in faults]


def test_a_secret_may_be_combined_with_a_trusted_authority(catalogue: Catalogue) -> None:
    """Names without an authority are rejected in a context, and worth a warning in a secret, which may be a part of one."""
    secret: Any = {"name": "s", "validation_context": NAMES}
    message = Converter(catalogue).convert(secret, TLS + "Secret").message
    assert message is not None

    faults = make_field_rules(catalogue).check(message).faults

    assert [("wrong-tls", Severity.WARNING)] == [(fault.rule, fault.severity) for fault in faults]


def pair(chain: str | None, key: str | None, **more: Any) -> Case:
    """A server with a certificate and a key."""
    fields: dict[str, Any] = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    fields = {name: value for name, value in fields.items() if value["inline_string"] is not None}
    return server_tls({"common_tls_context": {"tls_certificates": [{**fields, **more}]}})


def trusting(text: str) -> Case:
    """A server that trusts the certificates in a text."""
    fields = {"certificate_chain": {"inline_string": CHAIN}, "private_key": {"inline_string": PRIVATE}}
    trusted = {"trusted_ca": {"inline_string": text}}
    return server_tls({"common_tls_context": {"tls_certificates": [fields], "validation_context": trusted}})


def test_pairs_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Chains with other text around them, keys in either form, expired certificates."""
    as_bytes = {"certificate_chain": {"inline_bytes": base64.b64encode(CHAIN.encode()).decode()}}
    assert_accepted(
        catalogue,
        pair(CHAIN, PRIVATE),
        pair(certify(RSA), write(RSA, form=PrivateFormat.TraditionalOpenSSL)),
        pair(CHAIN, write(KEY, b"word"), password={"inline_string": "word"}),
        pair(CHAIN, PRIVATE, password={"inline_string": "needless"}),
        pair("text\n" + CHAIN + certify(OTHER) + "text\n", CHAIN + PRIVATE),
        pair(PRIVATE + CHAIN.replace("\n", "\r\n"), PRIVATE),
        pair(None, PRIVATE, **as_bytes),
        pair(CHAIN, PRIVATE.replace(" PRIVATE", " EC PRIVATE")),
        trusting(CHAIN + certify(OTHER) + "text"),
    )


@pytest.mark.parametrize(
    "case",
    [
        pair(CHAIN, None),
        pair(None, PRIVATE),
        pair("text", PRIVATE),
        pair(CHAIN, "text"),
        pair(PRIVATE, CHAIN),
        pair(CHAIN + BROKEN, PRIVATE),
        pair("  " + CHAIN.replace("\n", "\n  "), PRIVATE),
        pair(CHAIN, write(KEY, b"word")),
        pair(CHAIN, write(KEY, b"word"), password={"inline_string": "other"}),
        pair(certify(WEAK), write(WEAK)),
        pair(certify(CURVE), write(CURVE)),
        pair(CHAIN, PRIVATE, pkcs12={"inline_bytes": "AAAA"}),
        pair(CHAIN, PRIVATE, ocsp_staple={"inline_string": "text"}),
        trusting(""),
        trusting("text"),
        trusting(CHAIN + BROKEN),
    ],
)
def test_certificates_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Half a pair, what cannot be read, and what is too weak."""
    assert_rejected(catalogue, "wrong-certificate", case)


@pytest.mark.parametrize("chain", [certify(OTHER), certify(RSA), certify(OTHER) + CHAIN])
def test_keys_that_do_not_fit(catalogue: Catalogue, chain: str) -> None:
    """A key belongs to the first certificate of its chain."""
    assert_rejected(catalogue, "key-mismatch", pair(chain, PRIVATE))


def test_without_cryptography_pairs_are_not_compared(catalogue: Catalogue) -> None:
    """Without a judge only what has the wrong look is reported."""
    message_class: Any = catalogue.message_class("envoy.extensions.transport_sockets.tls.v3.TlsCertificate")
    message = message_class()
    message.certificate_chain.inline_string = certify(OTHER)
    message.private_key.inline_string = PRIVATE
    told: list[str] = []

    class _Walk:
        def error(self, path: Any, rule: str, *_: str) -> None:
            told.append(rule)

    walk: Any = _Walk()
    CertificateChecks(None).check_certificate(message, None, walk)

    assert [] == told


def test_no_secret_is_quoted(catalogue: Catalogue) -> None:
    """What is reported of a key does not hold a part of it."""
    from fsxds.api.converter import Converter
    from fsxds.lint.linter import make_field_rules
    from tests.lint.envoy_answers import TYPES

    case = pair(CHAIN, "-----BEGIN PRIVATE KEY-----\nsecretword\n-----END PRIVATE KEY-----\n")
    message = Converter(catalogue).convert(case.resource, TYPES[case.group]).message
    assert message is not None

    faults = make_field_rules(catalogue).check(message).faults

    assert ["wrong-certificate"] == [fault.rule for fault in faults]
    assert not any("secretword" in f"{fault.message}{fault.remedy}" for fault in faults)
