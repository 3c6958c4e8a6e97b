from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest

from fsxds.client.client_tls import ClientTls, tls_error_message
from fsxds.model.errors import UsageError
from tests.support.certificates import Authority, make_pair


def test_half_a_pair_is_a_mistake() -> None:
    """A certificate without its key proves nothing."""
    with pytest.raises(UsageError, match="--cert and --key belong together; give both, or neither"):
        ClientTls.of(None, Path("c"), None)

    assert ClientTls.of(None, None, None) is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("ca.crt", None, "ca.crt: cannot be read: No such file"),
        ("ca.crt", "x", "ca.crt: has no certificate in PEM"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nMIIF\n-----END CERTIFICATE-----\n", "ca.crt: OpenSSL cannot use it"),
        ("me.key", "x", "me.key: has no private key in PEM"),
        ("me.key", "another", "me.crt with .*me.key: the key is not that of the certificate"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, name: str, content: str | None, said: str) -> None:
    """The file, the fact and the remedy, over HTTP and for streams alike."""
    authority = Authority()
    tls = ClientTls(authority.write(tmp_path / "ca.crt"), *authority.issue("me").write(tmp_path, "me"))
    tls.ssl_context()
    tls.grpc_credentials()
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(make_pair("x").key if content == "another" else content)

    for make in (tls.ssl_context, tls.grpc_credentials):
        with pytest.raises(UsageError, match=said):
            make()


def test_servers_are_verified() -> None:
    """Their names too, and nothing older than TLS 1.2 is spoken."""
    context = ClientTls().ssl_context()

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_other_errors_have_no_words_of_tls() -> None:
    """Nobody is sent to look at certificates where the connection broke."""
    assert tls_error_message(aiohttp.ServerDisconnectedError()) == ""
