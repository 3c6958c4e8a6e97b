"""Nothing secret leaves a server that runs: each output of a real one, and of the commands that ask it, is searched.

Canaries are secrets in the tree (whole, inline, in headers, URIs, broken files and variables), tokens of clients and of
operators, tokens that are not known, and what a client quotes when it rejects something.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.events.process_events import InternalError
from fsxds.observe.internal_errors import InternalErrors
from tests.support.canaries import Canaries
from tests.support.fsxds_process import run_fsxds
from tests.support.grpc_clients import method_path
from tests.support.server import Server, write_file

SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."
CLUSTER = {"type": "STATIC", "connect_timeout": "1s"}
JSON = {"content-type": "application/json"}


class Site:
    """A server in whose tree, settings, tokens and requests canaries are.

    Attributes:
        canaries: all of them.
        shown: what each output showed, by its name.
    """

    def __init__(self, folder: Path) -> None:
        self.canaries, self.folder, self.tree = Canaries(7), folder, folder / "tree"
        self.shown: dict[str, str] = {}
        self.shown_secrets = ""
        at = self.canaries.at
        self.tokens = {
            name: f"{at(f'token {name}')}-{name}-0123456789" for name in ("edge", "operator", "wrong", "query")
        }
        for name in ("edge", "operator"):
            path = folder / name
            path.write_text(f"{name}: {self.tokens[name]}\n")
            path.chmod(0o600)
        variable = at("variable")
        self.settings = folder / "fsxds.yaml"
        self.settings.write_text(f"settle: 10ms\naccess: [{{token: edge}}]\nvariables: {{DB: {variable}}}\n")
        self.write("sds.json", [self._secret("generic"), self._secret("changed")])
        self.write("cds.json", [{"name": "a", **CLUSTER}, self._cluster()])
        self.write("inline.cds.json", [self._inline()])
        self.write("rds.json", [self._route()])
        self._write_broken()
        fixed = [*("--settings", str(self.settings), "--tokens", str(folder / "edge"), "--log-level", "debug")]
        fixed += ["--admin-token", str(folder / "operator"), "--state", str(folder / "state"), "--log-format", "json"]
        self.server = Server(self.tree, folder, *fixed)

    @property
    def first_secret(self) -> str:
        """What the secret `generic` was at the start."""
        return next(each.text for each in self.canaries.all if each.place == "secret generic")

    def write(self, path: str, resources: list[Any]) -> None:
        """Write a file of resources."""
        write_file(self.tree / path, json.dumps(resources))

    def edit(self) -> None:
        """Change a secret and a header, so that there is a difference."""
        self.write("sds.json", [self._secret("generic"), self._secret("changed")])
        self.write("rds.json", [self._route()])

    def _secret(self, name: str) -> object:
        text = self.canaries.at(f"secret {name}")
        return {"@type": f"{SECRET}Secret", "name": name, "generic_secret": {"secret": {"inline_string": text}}}

    def _cluster(self) -> object:
        credential = {"filter_metadata": {"a": {"api_key": self.canaries.at("metadata")}}}
        return {"name": "metadata", **CLUSTER, "metadata": credential}

    def _inline(self) -> object:
        key = {"private_key": {"inline_string": self.canaries.at("inline key")}}
        context = {"@type": f"{SECRET}UpstreamTlsContext", "common_tls_context": {"tls_certificates": [key]}}
        return {"name": "inline", **CLUSTER, "transport_socket": {"name": "tls", "typed_config": context}}

    def _route(self) -> object:
        header = {"key": "authorization", "value": f"Bearer {self.canaries.at('header')}"}
        redirect = {"path_redirect": f"/x?access_token={self.canaries.at('uri')}"}
        route = {"match": {"prefix": "/"}, "redirect": redirect}
        host = {"name": "h", "domains": ["*"], "routes": [route], "request_headers_to_add": [{"header": header}]}
        return {
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "r",
            "virtual_hosts": [host],
        }

    def _write_broken(self) -> None:
        at = self.canaries.at
        write_file(
            self.tree / "broken" / "field.sds.yaml",
            f"- name: b\n  generic_secret: {{secrt: {{inline_string: {at('field')}}}}}\n",
        )
        write_file(self.tree / "broken" / "syntax.sds.yaml", f"- name: c\n  private_key: [{at('syntax')}\n  x: {{\n")
        write_file(
            self.tree / "broken" / "value.cds.yaml", f"- name: d\n  connect_timeout: redis://:{at('value')}@a:1\n"
        )
        write_file(self.tree / "broken" / "reference.lds.yaml", f"- name: e\n  password: {at('unknown field')}\n")

    def asked(self, url: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> str:
        """Return the status, headers and body of an answer, with what it was asked for noted."""
        request = urllib.request.Request(url, body, dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = f"{response.status}\n{response.headers}\n{response.read().decode(errors='replace')}"
        except urllib.error.HTTPError as error:
            text = f"{error.code}\n{error.headers}\n{error.read().decode(errors='replace')}"
        return text

    def look(self, name: str, text: str) -> str:
        """Note what an output shows."""
        assert text.strip(), name
        self.shown[name] = self.shown.get(name, "") + text
        return text

    def bearer(self, name: str) -> dict[str, str]:
        """Return the header with a token."""
        return {"authorization": f"Bearer {self.tokens[name]}"}

    def run(self, *arguments: str) -> None:
        """Note what a command prints."""
        done = run_fsxds([*arguments])
        self.look(" ".join(arguments[:2]), f"{done.returncode}\n{done.stdout}{done.stderr}")

    @property
    def hits(self) -> list[str]:
        """What is shown, and where."""
        return [
            f"{name}: {each.place}"
            for name, text in self.shown.items()
            for each in self.canaries.all
            if each.is_in(text)
        ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.server:
        yield site


def test_no_output_of_a_server_has_a_secret(site: Site) -> None:
    """Neither its answers and its log at the level of debug, nor what commands print of it, nor its ready file."""
    poll_all(site)
    reject_over_grpc(site)
    site.edit()
    server = site.server
    server.wait(
        lambda: len(server.log_events("rollout_completed")) > 1 or server.log_events("nack_received"), "the edit"
    )
    ask_for_status(site)
    ask_admin(site)
    run_commands(site)
    site.settings.write_text(site.settings.read_text() + f"acess: {site.canaries.at('settings')}\n")
    os.kill(server.pid, signal.SIGHUP)
    server.wait(lambda: server.log_events("settings_kept"), "the rejected settings")
    write_file(site.folder / "edge", f"edge: {site.tokens['edge']} {site.tokens['wrong']}\n")
    server.wait(lambda: server.log_events("tokens_kept"), "the rejected tokens")
    site.look("ready file", server.ready_file.read_text())
    server.stop()
    site.look("log", server.log_file.read_text())

    assert [] == site.hits
    assert len(site.shown) >= 30
    assert '"metadata"' in site.shown["admin /api/graph: operator"]
    # They are there, and the server knew them all: a poll with the right token gets the secrets.
    assert site.first_secret in site.shown_secrets


def poll_all(site: Site) -> None:
    """Ask for what is served, as it should be and as it should not."""
    base = f"http://127.0.0.1:{site.server.port}"
    polls = f"{base}/v3/discovery:clusters"
    node = b'{"node": {"id": "edge-1"}}'
    secrets = site.asked(f"{base}/v3/discovery:secrets", node, {**JSON, **site.bearer("edge")})
    site.shown_secrets = secrets
    for name, url, body, headers in (
        ("poll: unknown token", polls, node, {**JSON, **site.bearer("wrong")}),
        ("poll: token of operators", polls, node, {**JSON, **site.bearer("operator")}),
        ("poll: wrong type", polls, node, site.bearer("edge")),
        ("poll: no JSON", polls, b'{"node": ', {**JSON, **site.bearer("edge")}),
        (
            "poll: wrong path",
            f"{base}/v3/x?access_token={site.tokens['query']}",
            node,
            {**JSON, **site.bearer("wrong")},
        ),
        ("poll: wrong version", polls, b'{"version_info": 5}', {**JSON, **site.bearer("edge")}),
    ):
        assert not site.look(name, site.asked(url, body, headers)).startswith("200")


def reject_over_grpc(site: Site) -> None:
    """Have a stream reject a secret in words that quote it, and be rejected itself."""
    target = f"127.0.0.1:{site.server.grpc_port}"
    with grpc.insecure_channel(target) as channel:
        for token in ("wrong", "edge"):
            metadata = [("authorization", f"Bearer {site.tokens[token]}")]
            stream = channel.stream_stream(method_path("SDS", "Stream"))
            request: Any = discovery_pb2.DiscoveryRequest(type_url=f"{SECRET}Secret")
            request.node.id = "edge-1"
            try:
                answers = stream(iter([request.SerializeToString()]), metadata=metadata, timeout=60)
                response: Any = discovery_pb2.DiscoveryResponse.FromString(next(answers))
            except grpc.RpcError as error:
                site.look(f"stream: {token} token", f"{error.code()} {error.details()}")
                continue
            request.response_nonce = response.nonce
            request.error_detail.message = (
                f'no such: generic_secret {{ secret {{ inline_string: "{site.first_secret}" }} }}'
            )
            first = discovery_pb2.DiscoveryRequest(type_url=f"{SECRET}Secret", node=request.node).SerializeToString()
            again = stream(iter([first, request.SerializeToString()]), metadata=metadata, timeout=60)
            next(again)


def ask_for_status(site: Site) -> None:
    """Ask about clients, over REST and gRPC."""
    url = f"http://127.0.0.1:{site.server.port}/v3/discovery:client_status"
    assert site.look("client status", site.asked(url, b"{}", {**JSON, **site.bearer("edge")})).startswith("200")
    assert site.look("client status: unknown", site.asked(url, b"{}", {**JSON, **site.bearer("wrong")})).startswith(
        "401"
    )
    with grpc.insecure_channel(f"127.0.0.1:{site.server.grpc_port}") as channel:
        call = channel.unary_unary("/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus")
        metadata = [("authorization", f"Bearer {site.tokens['edge']}")]
        site.look("client status: gRPC", call(b"", metadata=metadata, timeout=60).decode("latin-1"))


PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/api/status", "/api/clients", "/api/clients/edge-1", "/api/files"),
    *(
        "/api/graph",
        "/api/graph?search=a",
        "/api/diff?from=1",
        "/api/rollout",
        "/api/history",
        "/api/history/1",
        "/api/x",
    ),
)


def ask_admin(site: Site) -> None:
    """Ask for every path, with the token of operators, a wrong one, and none; and decide something."""
    base = f"http://{site.server.admin}"
    for path in PATHS:
        for name in ("operator", "wrong"):
            site.look(f"admin {path}: {name}", site.asked(f"{base}{path}", None, site.bearer(name)))
    assert site.shown["admin /api/status: operator"].startswith("200")
    assert site.shown["admin /api/diff?from=1: operator"].startswith("200")
    for path, words in (("resume", {}), ("rollout/abort", {}), ("rollback", {"number": "1"}), ("rollback", {"x": "1"})):
        body = json.dumps(words).encode()
        site.look(f"admin {path}", site.asked(f"{base}/api/{path}", body, {**JSON, **site.bearer("operator")}))
    host, _, port = site.server.admin.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        head = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {site.tokens['operator']}\r\n\r\n"
        connection.sendall(head.encode())
        site.edit()
        events = b""
        while b"event: changed" not in events:
            part = connection.recv(65536)
            assert part, events
            events += part
        site.look("admin events", events.decode())


def run_commands(site: Site) -> None:
    """Run the commands that read the tree, and those that ask the server."""
    tree, other = str(site.tree), site.folder / "other"
    write_file(other / "cds.json", "[]")
    site.run("check", "--format=sarif", tree, "--no-envoy")
    site.run("show", "--format=yaml", tree)
    site.run("diff", "--format=markdown", str(other), tree)
    operator = ["--admin", site.server.admin, "--admin-token", str(site.folder / "operator")]
    site.run("rollout", "status", *operator, "--format", "json")
    site.run("history", "@1", *operator)
    address, token = f"127.0.0.1:{site.server.grpc_port}", ["--token", str(site.folder / "edge")]
    site.run("watch", address, "--type", "sds", "--count", "1", *token, "--node", "edge-1", "--format", "json")
    wrong = site.folder / "wrong"
    wrong.write_text(site.tokens["wrong"])
    site.run("rollout", "status", "--admin", site.server.admin, "--admin-token", str(wrong))
    wrong.write_text(f"{site.tokens['wrong']} x")
    site.run("watch", f"127.0.0.1:{site.server.port}", "--type", "cds", "--token", str(wrong))


def test_files_with_secrets_are_their_users_alone(site: Site) -> None:
    """The state directory has what was served, as is documented, so nobody else may read it."""
    state = site.folder / "state"

    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in state.rglob("*") if path.is_file()} == {0}


def test_tracebacks_have_no_secret() -> None:
    """What an exception repeats of the data that it met is hidden, in its text and in its traceback."""
    canary = Canaries(8).at("exception")
    texts = (f"Bearer {canary}", f"token='{canary}'", f"cannot read b'{canary}'", f'password: "{canary}"')
    for text in texts:
        try:
            fail(text)
        except ValueError as error:
            lines = list(InternalErrors().lines(InternalError("REST request", error), 0.0))

        assert lines
        assert not any(canary in str(line) for line in lines), text


def fail(text: str) -> None:
    """Raise an exception with this text."""
    raise ValueError(text)
