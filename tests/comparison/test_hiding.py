from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrecy import SECRET_FIELDS, Secrecy
from fsxds.comparison.hiding import Hiding, is_secret_header, is_secret_text


@pytest.mark.parametrize(
    ("message_type", "name"),
    [
        ("envoy.extensions.transport_sockets.tls.v3.TlsCertificate", "password"),
        ("envoy.extensions.filters.http.basic_auth.v3.BasicAuth", "users"),
        ("envoy.extensions.transport_sockets.tls.v3.GenericSecret", "secret"),
    ],
)
def test_fields_with_secrets(catalogue: Catalogue, message_type: str, name: str) -> None:
    """Fields are known by their options, their names and their messages."""
    descriptor = catalogue.descriptor(message_type)
    assert descriptor is not None

    assert Hiding(Secrecy(catalogue)).covers(name, descriptor.fields_by_name[name], "")


def test_inline_content(catalogue: Catalogue) -> None:
    """Inline content is a secret, but where it is a page or code."""
    hiding = Hiding(Secrecy(catalogue))

    assert [True, True, False, False] == [
        hiding.covers("inline_string", None, holder) for holder in ("", "local_jwks", "body", "default_source_code")
    ]


def test_unknown_fields(catalogue: Catalogue) -> None:
    """A field without a descriptor is known by its name."""
    hiding = Hiding(Secrecy(catalogue))

    assert all(hiding.covers(name, None, "") for name in SECRET_FIELDS)
    assert not hiding.covers("cluster", None, "")


def test_places_are_open(catalogue: Catalogue) -> None:
    """Where a secret comes from may be seen, what it is may not."""
    hiding = Hiding(Secrecy(catalogue))

    assert [True, True, False] == [hiding.opens(name) for name in ("filename", "environment_variable", "inline_string")]


def test_looks_of_secrets() -> None:
    """PEM blocks, and headers with telling names, are secrets by their look."""
    assert is_secret_text("x\n-----BEGIN RSA PRIVATE KEY-----\n")
    assert not is_secret_text("BEGIN")
    assert not is_secret_text(1)
    assert is_secret_header({"key": "X-Api-Key", "value": "1"})
    assert is_secret_header({"name": "cookie", "exact": "1"})
    assert not is_secret_header({"key": "x-forwarded-for", "value": "1"})
    assert not is_secret_header({"value": "1"})
