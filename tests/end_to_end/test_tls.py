"""TLS as operators run it: a real fsxds, real Envoys and clients, and certificates that are replaced while they are at work."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority, Pair
from tests.support.envoy import Envoy
from tests.support.fsxds_process import run_fsxds
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

SPIFFE = "spiffe://acme/edge/1"


def clusters(*names: str) -> str:
    return json.dumps([{"name": name, "type": "STATIC", "connect_timeout": "1s"} for name in names])


@dataclass
class Files:
    """Certificates in a folder, a tree, and the flags of a server with TLS."""

    folder: Path
    authority: Authority = field(default_factory=Authority)

    def __post_init__(self) -> None:
        self.ca = self.authority.write(self.folder / "ca.crt")
        self.cert, self.key = self.issue().write(self.folder, "tls")
        self.client = self.authority.issue(SPIFFE, "edge-1.acme").write(self.folder, "client")
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        self.publish("a")

    def issue(self) -> Pair:
        """Sign a certificate of the server."""
        return self.authority.issue("localhost", "127.0.0.1")

    def publish(self, *names: str) -> None:
        """Change the tree."""
        write_file(self.tree / "cds.json", clusters(*names))

    def replace(self, pair: Pair) -> Pair:
        """Replace certificate and key, as careful tools do."""
        write_file(self.cert, pair.chain)
        write_file(self.key, pair.key)
        return pair

    @property
    def flags(self) -> list[str]:
        """Of a server."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--client-ca", str(self.ca)]

    @property
    def client_flags(self) -> list[str]:
        """Of a client."""
        return ["--ca", str(self.ca), "--cert", str(self.client[0]), "--key", str(self.client[1])]

    @contextmanager
    def serving(self, *options: str, http: str = "127.0.0.1:0", grpc: str = "127.0.0.1:0") -> Iterator[Server]:
        """Run a server."""
        with Server(self.tree, self.folder, *self.flags, *options, http=http, grpc=grpc) as server:
            yield server

    def context(self) -> ssl.SSLContext:
        """Return what a client connects with."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(*self.client)
        return context

    def shown_at(self, port: int) -> bytes:
        """Return the certificate that a server shows to a new connection."""
        with (
            socket.create_connection(("127.0.0.1", port), 60) as plain,
            self.context().wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
        assert shown
        return shown


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.chain)


def bootstrap_of(files: Files, transport: str, address: str) -> dict[str, Any]:
    """Return what `fsxds bootstrap` prints for an Envoy that speaks TLS."""
    arguments = [str(files.tree), "--transport", transport, "--address", address, *files.client_flags]
    done = run_fsxds(["bootstrap", *arguments, "--node", "edge-1", "--format", "json"])
    assert done.returncode == 0, done.stderr
    bootstrap: dict[str, Any] = json.loads(done.stdout)
    return bootstrap


@pytest.mark.parametrize(("transport", "host"), [("rest", "127.0.0.1"), ("delta", "localhost")])
def test_envoy_over_mutual_tls(files: Files, transport: str, host: str) -> None:
    """The bootstrap works as it is printed; the certificate is replaced twice, once by a bad one, and no connection is lost."""
    with files.serving("--ads-config-sources") as server:
        port = server.port if transport == "rest" else server.grpc_port
        with Envoy(bootstrap_of(files, transport, f"{host}:{port}")) as envoy:
            envoy.wait(lambda: "a" in envoy.cluster_names(), 60, "the first cluster")
            connections = envoy.stat("cluster.xds.upstream_cx_total")

            after = files.replace(files.issue())
            server.wait(lambda: files.shown_at(port) == der(after), "the new certificate")
            files.publish("a", "b")
            envoy.wait(lambda: "b" in envoy.cluster_names(), 60, "a change after that")

            write_file(files.key, files.issue().key)
            server.wait(lambda: server.log_events("certificates_kept"), "the line about the bad key")
            assert files.shown_at(port) == der(after)
            files.publish("a", "b", "c")
            envoy.wait(lambda: "c" in envoy.cluster_names(), 60, "a change with a bad pair")
            assert connections == envoy.stat("cluster.xds.upstream_cx_total")
            assert envoy.stat("cluster.xds.upstream_cx_destroy") == 0
            assert envoy.stat("cluster.xds.ssl.connection_error") == 0

        (kept,) = server.log_events("certificates_kept")
        assert "the key is not that of the certificate" in kept["reason"]
        assert len(server.log_events("certificates_reloaded")) == 1


def test_rotation_under_load(files: Files) -> None:
    """New connections come all the time while the certificate is replaced eight times: not one of them fails."""
    failures, counts, ending = list[Exception](), [0, 0], threading.Event()

    def connect(index: int, port: int) -> None:
        while not ending.is_set():
            try:
                files.shown_at(port)
            except OSError as error:
                failures.append(error)
            counts[index] += 1

    with files.serving() as server:
        threads = [
            threading.Thread(target=connect, args=(index, port))
            for index, port in enumerate((server.port, server.grpc_port))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                after = files.replace(files.issue())
                # SIGHUP has the files looked at at once.
                server.wait(lambda: looked_at(server, files, der(after)), "the new certificate")  # noqa: B023, waited for
        finally:
            ending.set()
            for thread in threads:
                thread.join(60)

    assert failures == []
    assert min(counts) > 8


def looked_at(server: Server, files: Files, wanted: bytes) -> bool:
    """Have the files looked at; return whether both listeners show what is wanted."""
    os.kill(server.pid, signal.SIGHUP)
    return files.shown_at(server.port) == wanted == files.shown_at(server.grpc_port)


def test_operators_ask_by_tls(files: Files) -> None:
    """Where the admin address is no loopback one, it takes TLS alone; a client certificate is not asked of operators."""
    (files.folder / "admin").mkdir()
    certificate = ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
    token = files.folder / "admin-token"
    token.write_text("a-token-of-operators")
    with_token = ["--admin-token", str(token)]
    with Server(files.tree, files.folder / "admin", *certificate, *with_token, "--admin", "0.0.0.0:0") as server:
        port = server.admin.rpartition(":")[2]
        asked = ["rollout", "status", *with_token, "--admin", f"localhost:{port}"]
        trusted = run_fsxds([*asked, "--admin-ca", str(files.ca)])
        plain = run_fsxds(asked)
        stranger = run_fsxds([*asked, "--admin-ca", str(Authority().write(files.folder / "other.crt"))])
        misnamed = run_fsxds(["rollout", "status", "--admin", f"127.0.0.2:{port}", "--admin-ca", str(files.ca)])
        exposed = [each["name"] for each in server.log_events("plain_text_exposed")]

    assert (trusted.returncode, "whole tree" in trusted.stdout) == (0, True), trusted.stderr
    assert "if it uses TLS, give --admin-ca FILE" in plain.stderr
    assert "its certificate is not trusted: " in stranger.stderr
    assert "its certificate is not trusted: IP address mismatch" in misnamed.stderr
    assert [2, 2, 2] == [each.returncode for each in (plain, stranger, misnamed)]
    assert exposed == []


def test_plain_text_is_warned_of(files: Files) -> None:
    """Loudly, for each address that other machines reach; and a certificate ends it."""
    with Server(files.tree, files.folder, http="0.0.0.0:0", grpc="[::]:0") as server:
        lines = server.log_events("plain_text_exposed")

    assert [("warning", "REST"), ("warning", "gRPC")] == [(line["level"], line["name"]) for line in lines]
    assert "REST: NO TLS at 0.0.0.0:" in lines[0]["message"]
    files.folder.joinpath("fsxds.log").unlink()
    with files.serving(http="0.0.0.0:0", grpc="[::]:0") as server:
        assert server.log_events("plain_text_exposed") == []


@pytest.mark.parametrize("how", [["--rest"], ["--delta"], ["--ads"]])
def test_watch_and_diff_speak_tls(files: Files, how: list[str]) -> None:
    """They trust the CA that they are given, and show the certificate that they are given."""
    with files.serving() as server:
        port = server.port if how == ["--rest"] else server.grpc_port
        watch = ["watch", f"localhost:{port}", *how, "--type", "cds", "--count", "1"]
        done = run_fsxds([*watch, *files.client_flags])
        assert (done.returncode, "clusters: 1 " in done.stdout) == (0, True), done.stdout + done.stderr
        if how == ["--rest"]:
            url = f"https://localhost:{port}"
            same = run_fsxds(["diff", url, str(files.tree), *files.client_flags])
            unknown = run_fsxds(["diff", url, str(files.tree)])
            nobody = run_fsxds(["diff", url, str(files.tree), "--ca", str(files.ca)])
            assert (same.returncode, unknown.returncode, nobody.returncode) == (0, 2, 2), same.stderr
            assert "its certificate is not trusted" in unknown.stderr
            assert "it asks for a certificate of ours; give --cert and --key" in nobody.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tls-cert", "ca.crt"], "tls_cert: there is no key to it; give --tls-key FILE"),
        (["--tls-cert", "ca.crt", "--tls-key", "tls.key"], "the key is not that of the certificate"),
        (["--tls-cert", "tls.crt", "--tls-key", "no.key"], "no.key: cannot be read: No such file or directory"),
        (["--client-ca", "ca.crt"], "client_ca: there is no certificate; give --tls-cert FILE and --tls-key FILE"),
        (file_flags(socket_owner="no-such-user"), "there is no user 'no-such-user' here"),
        (file_flags(socket_mode="rw"), "'rw' is not three octal digits"),
    ],
)
def test_a_start_that_cannot_be(files: Files, flags: Sequence[str], said: str) -> None:
    """One line that says what to give, and exit status 2."""
    done = run_fsxds(["serve", str(files.tree), *flags], cwd=files.folder)

    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if not each.startswith("{")]
    assert said in line


def test_unix_sockets_have_a_mode_and_an_owner(files: Files) -> None:
    """They are of whom the settings say, before anybody can connect; they speak plain text, also beside a certificate."""
    paths = [files.folder / name for name in ("rest.sock", "grpc.sock")]
    rest, grpc = (f"unix:{path}" for path in paths)
    owner = f"{os.getuid()}:{os.getgid()}" if os.getuid() else "65534:65533"
    with files.serving(*file_flags(socket_mode="'600'", socket_owner=owner), http=rest, grpc=grpc):
        found = [path.stat() for path in paths]
        watched = [
            run_fsxds(["watch", address, *how, "--type", "cds", "--count", "1"])
            for address, how in ((rest, ["--rest"]), (grpc, ["--delta"]))
        ]

    assert [owner, owner] == [f"{each.st_uid}:{each.st_gid}" for each in found]
    assert [0o600, 0o600] == [stat.S_IMODE(each.st_mode) for each in found]
    assert [0, 0] == [each.returncode for each in watched], watched
