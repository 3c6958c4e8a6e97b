from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import CertificatesKept, CertificatesReloaded
from fsxds.model.errors import UsageError
from fsxds.settings.options import Settings
from fsxds.transports import credentials
from fsxds.transports.credentials import Tls, TlsFiles
from tests.support.certificates import Authority, Pair, make_pair

ENCRYPTED = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> TlsFiles:
    return TlsFiles(*authority.issue("localhost").write(tmp_path, "tls"), authority.write(tmp_path / "ca.crt"))


def shown_by(tls: Tls, authority: Authority, client: Pair | None = None, folder: Path | None = None) -> bytes:
    """Shake hands in memory, and return the certificate that the server shows; ssl.SSLError where one rejects the other."""
    context = ssl.create_default_context(cadata=authority.chain)
    if client is not None and folder is not None:
        context.load_cert_chain(*client.write(folder, "client"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    ours = tls.context(is_strict=True).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = theirs.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def of(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.chain)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(tls_key=Path("k")), "tls_key: there is no certificate; give --tls-cert FILE and --tls-key FILE"),
        (Settings(client_ca=Path("c")), "client_ca: there is no certificate; give --tls-cert FILE and --tls-key FILE"),
        (Settings(tls_cert=Path("c")), "tls_cert: there is no key to it; give --tls-key FILE"),
    ],
)
def test_half_of_the_files_is_a_mistake(settings: Settings, said: str) -> None:
    """Nobody serves plain text, or takes every client, because one of the options is forgotten."""
    with pytest.raises(UsageError, match=said):
        TlsFiles.of(settings)

    assert TlsFiles.of(Settings()) is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tls.crt", None, "tls.crt: cannot be read: No such file or directory; let the user of fsxds read it"),
        ("tls.crt", "\x30\x82", "tls.crt: has no certificate in PEM; give a file with"),
        ("tls.crt", "-----BEGIN CERTIFICATE-----\nMIIF\n-----END CERTIFICATE-----\n", "OpenSSL cannot use it"),
        ("tls.key", "", "tls.key: has no private key in PEM"),
        (
            "tls.key",
            ENCRYPTED,
            "tls.key: is encrypted, and fsxds does not ask for a password; decrypt it by openssl pkey",
        ),
        ("tls.key", "another", "tls.crt with .*tls.key: the key is not that of the certificate"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nMIIF\n-----END CERTIFICATE-----\n", "ca.crt: OpenSSL cannot use it"),
        ("ca.crt", "nothing", "ca.crt: has no certificate in PEM"),
    ],
)
def test_what_is_wrong_with_a_file(files: TlsFiles, tmp_path: Path, name: str, content: str | None, said: str) -> None:
    """The file, the fact and the remedy, and no password is asked for."""
    path = tmp_path / name
    if content is None:
        path.unlink()
    else:
        path.write_text(make_pair("localhost").key if content == "another" else content, encoding="latin-1")

    with pytest.raises(UsageError, match=said):
        Tls(files)


def test_an_encrypted_key_of_the_old_kind(files: TlsFiles) -> None:
    """It says so in a header of its own."""
    label, rest = files.key.read_text().split("\n", 1)
    files.key.write_text(f"{label}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{rest}")

    with pytest.raises(UsageError, match="is encrypted"):
        Tls(files)


def test_comments_around_certificates(files: TlsFiles, authority: Authority) -> None:
    """They may be in any language."""
    assert files.client_ca is not None
    files.client_ca.write_text(f"# Müller & Söhne 株式会社\n{authority.chain}", encoding="utf-8")

    Tls(files)


def test_a_changed_pair_is_read_again(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    """New handshakes get it, whoever asks for TLS as it is now; what was asked for before stays as it was."""
    tls, client = Tls(files), authority.issue("client")
    before = tls.context(is_strict=True)
    after = authority.issue("localhost")
    after.write(tmp_path, "tls")

    assert tls.look() == CertificatesReloaded(tuple(map(str, files.paths)))
    assert tls.look() is None
    assert of(after) == shown_by(tls, authority, client, tmp_path)
    assert before is not tls.context(is_strict=True)


def test_half_a_change_is_not_reported(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    """The certificate is written, the key follows after a look: the pair in use stays until both are there."""
    tls, client, first, after = Tls(files), authority.issue("c"), files.cert.read_text(), authority.issue("localhost")
    files.cert.write_text(after.chain)

    assert tls.look() is None
    assert ssl.PEM_cert_to_DER_cert(first) == shown_by(tls, authority, client, tmp_path)
    files.key.write_text(after.key)
    assert isinstance(tls.look(), CertificatesReloaded)
    assert of(after) == shown_by(tls, authority, client, tmp_path)


def test_a_bad_pair_keeps_the_old_one(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    """It is reported once, when it is still bad at the second look, and so is the next bad one; a good one ends it."""
    tls, first = Tls(files), files.cert.read_text()
    files.key.write_text(make_pair("x").key)

    assert [None, CertificatesKept, None, None] == [each and type(each) for each in (tls.look() for _ in range(4))]
    files.key.unlink()
    kept = [tls.look() for _ in range(3)]
    assert kept == [
        None,
        CertificatesKept(f"{files.key}: cannot be read: No such file or directory; let the user of fsxds read it"),
        None,
    ]
    assert ssl.PEM_cert_to_DER_cert(first) == shown_by(tls, authority, authority.issue("c"), tmp_path)
    authority.issue("localhost").write(tmp_path, "tls")
    assert isinstance(tls.look(), CertificatesReloaded)


def test_a_key_that_may_not_be_read(files: TlsFiles) -> None:
    """The one before stays."""
    tls, user_id = Tls(files), os.geteuid()
    files.key.chmod(0)
    if user_id == 0:
        # Root may read every file.
        os.seteuid(65534)
    try:
        found = [tls.look(), tls.look()]
    finally:
        os.seteuid(user_id)

    assert isinstance(found[1], CertificatesKept)
    assert "cannot be read: Permission denied; let the user of fsxds read it" in found[1].reason


def test_a_volume_of_kubernetes(tmp_path: Path, authority: Authority) -> None:
    """The kubelet writes a new folder beside, and turns the link `..data` to it; the files keep their paths."""
    for number in (1, 2):
        (folder := tmp_path / f"..{number}").mkdir()
        authority.issue("localhost").write(folder, "tls")
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    tls = Tls(TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")

    assert isinstance(tls.look(), CertificatesReloaded)
    assert ssl.PEM_cert_to_DER_cert((tmp_path / "..2" / "tls.crt").read_text()) == shown_by(tls, authority)


@pytest.mark.parametrize("name", ["stranger", "ended", "none"])
def test_clients_that_are_rejected(files: TlsFiles, authority: Authority, tmp_path: Path, name: str) -> None:
    """Those of another CA, those whose certificate has expired, and those without one."""
    clients = {"stranger": Authority().issue("c"), "ended": authority.issue("c", ended=True), "none": None}

    with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
        shown_by(Tls(files), authority, clients[name], tmp_path)


def test_an_intermediate_alone_is_a_ca(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    """As with gRPC, what is in the file is trusted, whoever signed it: here a client's own certificate."""
    assert files.client_ca is not None
    client = authority.issue("c")
    files.client_ca.write_text(client.chain)

    assert shown_by(Tls(files), authority, client, tmp_path)


def test_what_is_old_is_not_spoken(files: TlsFiles) -> None:
    """TLS 1.2 at least, ephemeral keys, authenticated ciphers; and no session outlives the certificate of its client."""
    context = Tls(files).context(is_strict=True)
    ciphers = [each["name"] for each in context.get_ciphers()]

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert all(name.startswith(("TLS_", "ECDHE-")) and ("GCM" in name or "CHACHA20" in name) for name in ciphers)
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET


async def test_files_are_looked_at(
    files: TlsFiles, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few seconds, and at once when somebody says so."""
    tls, received, heard = Tls(files), list[Event](), asyncio.Event()

    def receive(event: Event) -> None:
        received.append(event)
        heard.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        monkeypatch.setattr(credentials, "CHECK_INTERVAL_S", 0.01)
        looking = tasks.create_task(tls.keep_current(receive))
        authority.issue("localhost").write(tmp_path, "tls")
        await heard.wait()
        monkeypatch.setattr(credentials, "CHECK_INTERVAL_S", 600)
        await asyncio.sleep(0.05)
        heard.clear()
        authority.issue("localhost").write(tmp_path, "tls")
        tls.look_now()
        await heard.wait()
        looking.cancel()

    assert [CertificatesReloaded] * 2 == [type(event) for event in received]
