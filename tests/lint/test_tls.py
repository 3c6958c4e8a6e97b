from __future__ import annotations

import base64
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.values import Severity
from tests.lint.envoy_answers import TLS, Case, assert_accepted, assert_rejected, client_tls, rules_found, server_tls
from tests.lint.test_tls_certificates import CHAIN, PRIVATE

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


def test_contexts_that_envoy_takes(catalogue: Catalogue) -> None:
    """Known ciphers and curves, names with a CA, keys of 80 bytes."""
    assert_accepted(
        catalogue,
        server(alpn_protocols=["h2,http/1.1", "x" * 255]),
        params(cipher_suites=["ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA"]),
        params(cipher_suites=["[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]"]),
        params(cipher_suites=["ALL"]),
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
