"""An imported bootstrap does the same: requests through Envoy, before and after, by every transport."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.test_sample_tree import free_ports
from tests.support.certificates import make_pair
from tests.support.envoy import Envoy
from tests.support.fsxds_process import run_fsxds
from tests.support.server import Server

TYPE = "type.googleapis.com/envoy"

BOOTSTRAP = """\
# A front proxy.
node: {id: front-1, cluster: front}
!ignore parts:
- &hcm
  "@type": TYPE.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
  stat_prefix: front
  route_config:
    name: all
    virtual_hosts:
    - name: all
      domains: ["*"]
      routes:
      - match: {prefix: /direct}
        direct_response: {status: 200, body: {inline_string: "from envoy\\n"}}
      - match: {prefix: /}
        route: {cluster: upstream}
  http_filters:
  - name: lua
    typed_config:
      "@type": TYPE.extensions.filters.http.lua.v3.Lua
      default_source_code:
        inline_string: |
          -- says who it was
          function envoy_on_response(handle)
            handle:headers():add("x-lua", "a: #1")
          end
  - {name: router, typed_config: {"@type": TYPE.extensions.filters.http.router.v3.Router}}
static_resources:
  secrets:
  - name: server
    tls_certificate:
      certificate_chain: {filename: PATH/chain.pem}
      private_key: {filename: PATH/key.pem}
  - name: upstream-ca
    validation_context: {trusted_ca: {filename: PATH/chain.pem}}
  listeners:
  # Without a name.
  - address: {socket_address: {address: 127.0.0.1, port_value: PLAIN}}
    filter_chains: [{filters: [{name: hcm, typed_config: *hcm}]}]
  - name: secure
    address: {socket_address: {address: 127.0.0.1, port_value: SECURE}}
    filter_chains:
    - filters: [{name: hcm, typed_config: *hcm}]
      transport_socket:
        name: tls
        typed_config:
          "@type": TYPE.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context: {tls_certificate_sds_secret_configs: [{name: server}]}
  clusters:
  - name: upstream   # speaks TLS
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: upstream
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: UPSTREAM}}}}]}]
    transport_socket:
      name: tls
      typed_config:
        "@type": TYPE.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {validation_context_sds_secret_config: {name: upstream-ca}}
"""


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers with the path that it was asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        body = f"upstream: {self.path}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def upstream(folder: Path) -> Iterator[int]:
    """Run an HTTPS server, and yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain.pem", folder / "key.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answers(plain: str, secure: str) -> list[tuple[int, str, str | None]]:
    """Return what Envoy answers on both listeners: status, body, and the header of its Lua."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = []
    for url in (f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"):
        for path in ("/direct", "/a/b?c=d"):
            with urllib.request.urlopen(url + path, context=context, timeout=30) as response:
                found.append((response.status, response.read().decode(), response.headers["x-lua"]))
    return found


def without_ignored(text: str) -> Any:
    """Return the values of a bootstrap, as Envoy reads them."""

    class Loader(yaml.SafeLoader):
        """Takes a key that is tagged `!ignore` for text."""

    Loader.add_constructor("!ignore", lambda loader, node: f"ignored {loader.construct_scalar(node)}")  # type: ignore[arg-type]
    values = yaml.load(text, Loader)
    return {key: value for key, value in values.items() if not key.startswith("ignored ")}


@pytest.mark.parametrize("transport", ["rest", "ads", "delta", "files"])
def test_requests_are_answered_as_before(transport: str, tmp_path: Path) -> None:
    """HTTP and HTTPS requests to an HTTPS upstream get the same answers from the bootstrap and from its import."""
    pair = make_pair("localhost")
    (tmp_path / "chain.pem").write_text(pair.chain)
    (tmp_path / "key.pem").write_text(pair.key)
    plain, secure, xds = free_ports(3)
    with upstream(tmp_path) as port:
        text = BOOTSTRAP.replace("TYPE", TYPE).replace("PATH", str(tmp_path)).replace("UPSTREAM", str(port))
        file = tmp_path / "envoy.yaml"
        file.write_text(text.replace("PLAIN", plain).replace("SECURE", secure))
        with Envoy(without_ignored(file.read_text())):
            before = answers(plain, secure)

        address, mirror = f"127.0.0.1:{xds}", tmp_path / "mirror"
        where = ["--mirror", str(mirror)] if transport == "files" else ["--address", address]
        done = run_fsxds(
            ["import", str(file), str(tmp_path / "xds"), "--transport", transport, "--format", "json", *where]
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = json.loads(done.stdout)
        assert [] == said["problems"] + said["kept"]
        left = without_ignored((tmp_path / "bootstrap.yaml").read_text())
        assert "front-1" == left["node"]["id"]
        options = ["--mirror", str(mirror), "--mirror-config-sources"] if transport == "files" else []
        http = address if transport == "rest" else "127.0.0.1:0"
        grpc = address if transport in {"ads", "delta"} else "127.0.0.1:0"
        with Server(tmp_path / "xds", tmp_path, *options, http=http, grpc=grpc), Envoy(left):
            after = answers(plain, secure)

    assert [200] * 4 == [status for status, _, _ in before]
    assert before == after
