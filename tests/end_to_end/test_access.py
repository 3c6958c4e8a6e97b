"""Who may ask for what, as operators run it: real servers, real Envoys, tokens and rules that change while they are at work."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.envoy import Envoy
from tests.support.fsxds_process import run_fsxds
from tests.support.own_address import own_address
from tests.support.server import Server, write_file

EDGE, BATCH, NEW, OPERATOR = (f"{name}-token-0123456789" for name in ("edge", "batch", "new", "operator"))
CLUSTERS = '[{"name": "a", "type": "STATIC", "connect_timeout": "1s"}]'
SECRETS = '[{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "s", '
SECRETS += '"generic_secret": {"secret": {"inline_string": "x"}}}]'
RULES = "access:\n- {token: edge, nodes: ['edge-*']}\n- {token: batch, nodes: ['batch-*']}\n"
RULES += "- {name: 'spiffe://acme/edge/*', nodes: ['edge-*']}\n- {token: operator, admin: true}\n"


@dataclass
class Site:
    """A tree, a settings file and a file of tokens."""

    folder: Path
    options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree, self.settings, self.tokens = (self.folder / name for name in ("tree", "fsxds.yaml", "tokens"))
        write_file(self.tree / "cds.json", CLUSTERS)
        self.write_tokens(f"edge: {EDGE}\nbatch: {BATCH}\noperator: {OPERATOR}\n")
        self.settings.write_text(RULES)

    def write_tokens(self, text: str) -> None:
        """Replace the file of tokens."""
        write_file(self.tokens, text)
        self.tokens.chmod(0o600)

    def server(self, *options: str, http: str = "127.0.0.1:0", grpc: str = "127.0.0.1:0") -> Server:
        """Return a server, to be started."""
        fixed = ["--settings", str(self.settings), "--tokens", str(self.tokens)]
        return Server(self.tree, self.folder, *fixed, *options, http=http, grpc=grpc)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def polled(server: Server, token: str, node: str = "edge-1", *, host: str = "127.0.0.1", what: str = "clusters") -> int:
    """Poll, and return the status."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    body = json.dumps({"node": {"id": node}}).encode()
    request = urllib.request.Request(f"http://{host}:{server.port}/v3/discovery:{what}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def reload(server: Server, settings: Path, text: str, event: str = "settings_reloaded") -> dict[str, Any]:
    """Write other settings, have them read, and return the line that answers it."""
    before = len(server.log_events(event))
    write_file(settings, text)
    os.kill(server.pid, signal.SIGHUP)
    server.wait(lambda: len(server.log_events(event)) > before, event)
    return server.log_events(event)[-1]


def test_tokens_rotate_without_a_restart(site: Site) -> None:
    """A new one is valid beside the old one, which ends when it is taken out; a bad file changes nothing."""
    with site.server() as server:
        assert [polled(server, token) for token in (EDGE, BATCH, NEW, "")] == [200, 403, 401, 401]
        assert polled(server, BATCH, "batch-1") == 200

        site.write_tokens(f"edge: {EDGE}\nedge: {NEW}\n")
        server.wait(lambda: polled(server, NEW) == 200, "the new token")
        assert [polled(server, EDGE), polled(server, BATCH, "batch-1")] == [200, 401]
        assert server.log_events("tokens_read")[-1]["unknown"] == ["batch", "operator"]

        write_file(site.tokens, f"edge {EDGE}")
        server.wait(lambda: server.log_events("tokens_kept"), "the report of the mistake")
        assert [polled(server, EDGE), polled(server, NEW)] == [200, 200]

        write_file(site.tokens, f"edge: {NEW}\n")
        site.tokens.chmod(0o604)
        server.wait(lambda: polled(server, EDGE) == 401, "the end of the old token")
        assert polled(server, NEW) == 200
        server.wait(lambda: server.log_events("tokens_exposed"), "the warning")
        log = server.log_file.read_text()

    assert not any(token in log for token in (EDGE, BATCH, NEW))


def test_a_denied_node_is_logged_once(site: Site) -> None:
    """Whatever node it says it is: the credentials are the same."""
    with site.server() as server:
        assert {polled(server, EDGE, f"batch-{number}") for number in range(20)} == {403}
        [line] = server.log_events("request_rejected")

    assert (line["status"], line["subject"]) == (403, "node batch-0")
    assert "the token edge may ask for" in line["reason"]


@pytest.mark.parametrize(
    ("options", "tokens", "words"),
    [
        ([], "", "tokens: has no token"),
        ([], "x", "the token is shorter than 16 characters"),
        (["--admin-token", "/none"], f"edge: {EDGE}", "/none: the tokens cannot be read: No such file or directory"),
    ],
)
def test_a_start_with_a_bad_file_fails(site: Site, options: list[str], tokens: str, words: str) -> None:
    """In one line, with status 2: nobody is let in, or kept out, by mistake."""
    site.write_tokens(tokens)
    server = site.server(*options).start(wait=False)

    assert server.wait_for_end() == 2
    assert words in server.log_file.read_text().splitlines()[-1]


VIEWS = "views: [{name: all, layers: [common]}]\n"


@pytest.mark.parametrize("settings", ["{}", VIEWS])
def test_secrets_in_clear_end_the_start(site: Site, settings: str) -> None:
    """Of any view, in one line with the remedy; with --insecure-secrets, and without secrets, it serves."""
    site.settings.write_text(settings)
    path = site.tree / "common" / "sds.json"
    with site.server(http="0.0.0.0:0"):
        pass
    write_file(path, SECRETS)
    server = site.server(http="0.0.0.0:0", grpc="[::]:0").start(wait=False)
    assert server.wait_for_end() == 2
    line = server.log_file.read_text().splitlines()[-1]
    assert "common/sds.json:1: is a secret, and other machines can reach REST at 0.0.0.0:" in line
    assert line.endswith("or unix:PATH, or allow it with --insecure-secrets")
    assert not server.ready_file.exists()
    with site.server("--insecure-secrets", http="0.0.0.0:0") as serving:
        assert polled(serving, EDGE, what="secrets") == 200
    with site.server(grpc=f"unix:{site.folder}/grpc.sock"):
        pass


@pytest.mark.skipif(own_address() is None, reason="this machine has a loopback address alone; give it another")
def test_secrets_that_come_later_are_withheld_in_clear(site: Site) -> None:
    """From those who ask over the network; this machine gets them by its loopback address."""
    site.settings.write_text("{}")
    address = str(own_address())
    with site.server(http="0.0.0.0:0") as server:
        write_file(site.tree / "sds.json", SECRETS)
        server.wait(lambda: polled(server, EDGE, what="secrets") == 200, "the secret")
        assert polled(server, EDGE, "edge-2", host=address) == 200
        assert polled(server, EDGE, "edge-2", host=address, what="secrets") == 403
        reload(server, site.settings, "insecure_secrets: true")
        assert polled(server, EDGE, "edge-2", host=address, what="secrets") == 200


def test_names_of_certificates_are_bound_to_nodes(site: Site) -> None:
    """Over REST and over gRPC, beside tokens."""
    authority = Authority()
    ca = authority.write(site.folder / "ca.crt")
    cert, key = authority.issue("localhost").write(site.folder, "tls")
    edge, other = (authority.issue(f"spiffe://acme/{name}/1").write(site.folder, name) for name in ("edge", "other"))
    token = site.folder / "one"
    token.write_text(BATCH)
    with site.server("--tls-cert", str(cert), "--tls-key", str(key), "--client-ca", str(ca)) as server:
        for wire, port in (("--rest", server.port), ("--delta", server.grpc_port)):
            asked = ["watch", f"localhost:{port}", wire, "--type", "cds", "--count", "1", "--ca", str(ca)]

            def watched(node: str, shown: tuple[Path, Path], *more: str, asked: list[str] = asked) -> tuple[int, str]:
                done = run_fsxds([*asked, "--node", node, "--cert", str(shown[0]), "--key", str(shown[1]), *more])
                return done.returncode, done.stdout + done.stderr

            assert watched("edge-1", edge)[0] == 0
            assert watched("batch-1", other, "--token", str(token))[0] == 0
            status, words = watched("batch-1", edge)
            assert (status != 0, "spiffe://acme/edge/1 may ask for" in words) == (True, True), words
            assert "spiffe://acme/other/1 has no access" in watched("edge-1", other)[1]


def test_operators_show_a_token(site: Site) -> None:
    """That of --admin-token, or one of a rule; a client's does not open the admin address."""
    files = {name: site.folder / name for name in ("admin", "operator", "edge")}
    for (name, path), token in zip(files.items(), (NEW, OPERATOR, EDGE), strict=True):
        path.write_text(token if name != "operator" else f"operator: {token}")
    with site.server("--admin-token", str(files["admin"])) as server:
        asked = ["rollout", "status", "--admin", server.admin]
        answers = [run_fsxds([*asked, "--admin-token", str(path)]) for path in files.values()]
        nobody = run_fsxds(asked)
        assert [answer.returncode for answer in answers] == [0, 0, 2]
        assert "these credentials do not open the admin address" in answers[2].stderr
        assert (nobody.returncode, "--admin-token FILE" in nobody.stderr) == (2, True), nobody.stderr
        write_file(files["admin"], "another-token-of-operators")
        server.wait(lambda: run_fsxds([*asked, "--admin-token", str(files["admin"])]).returncode == 0, "the new token")


@pytest.mark.parametrize("transport", ["delta", "ads", "rest"])
def test_an_envoy_that_is_denied_keeps_what_it_has(site: Site, transport: str) -> None:
    """It asks again at its own pace, and gets what is new as soon as it may."""
    open_settings = "{}" if transport == "rest" else RULES
    site.settings.write_text(open_settings)
    options = ["--settle", "10ms"]
    server = Server(site.tree, site.folder, "--settings", str(site.settings), *options)
    if transport != "rest":
        server = site.server(*options)
    with server, Envoy(bootstrap_of(site, server, transport)) as envoy:
        envoy.wait(lambda: envoy.cluster_names(dynamic_only=True) == {"a"}, 60.0, "its cluster")
        denied = "access: [{token: edge, nodes: [nobody]}]"
        reload(server, site.settings, denied)
        server.wait(lambda: server.log_events("request_rejected"), "the denial")
        write_file(site.tree / "more" / "cds.json", CLUSTERS.replace('"a"', '"b"'))
        # The line is written once in ten seconds, with how many there were in between.
        server.wait(lambda: len(server.log_events("request_rejected")) > 1, "the next denial that is logged")
        # Over REST Envoy has no back-off of its own (ENVOY.md E4): it would ask a hundred times.
        assert server.log_events("request_rejected")[-1]["repeats"] <= (20 if transport == "rest" else 60)
        assert envoy.cluster_names(dynamic_only=True) == {"a"}
        assert envoy.stat("cluster_manager.cluster_removed") == 0
        reload(server, site.settings, open_settings)
        envoy.wait(lambda: envoy.cluster_names(dynamic_only=True) == {"a", "b"}, 90.0, "the new cluster")


def bootstrap_of(site: Site, server: Server, transport: str) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that sends the token of the edge, where it can."""
    address = str(server.ready["http" if transport == "rest" else "grpc"])
    arguments = [str(site.tree), "--transport", transport, "--address", address, "--node", "edge-1"]
    done = run_fsxds(["bootstrap", *arguments, "--format", "json"])
    bootstrap: dict[str, Any] = json.loads(done.stdout)
    if transport != "rest":
        [service] = bootstrap["dynamic_resources"]["ads_config"]["grpc_services"]
        service["initial_metadata"] = [{"key": "authorization", "value": f"Bearer {EDGE}"}]
    return bootstrap
