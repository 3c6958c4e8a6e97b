"""A real Envoy that gets secrets, extension configs and scoped routes by REST."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.end_to_end.test_rest_envoy import bootstrap, rest_source, running, wait_until
from tests.support.envoy import Envoy
from tests.support.resources import REST, direct_route, document, http_listener, static_cluster
from tests.support.server import Server, write_file

SAMPLE_SECRETS = Path(__file__).parents[2] / "config" / "xds" / "secrets.yaml"

HEADERS_FILTER = f"""\
        - name: headers
          config_discovery:
            type_urls: [type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation]
            config_source:
{"".join("        " + line for line in REST.splitlines(keepends=True))}"""


def headers_config(value: str) -> str:
    """Return an extension config that adds `x-version` to responses."""
    return f"""\
- name: headers
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
    mutations:
      response_mutations: [{{append: {{header: {{key: x-version, value: {value}}}}}}}]
"""


def tls_listener(secret: str) -> str:
    """Return a listener that speaks TLS with a certificate that comes by SDS."""
    listener = yaml.safe_load(http_listener("front", 0, "r1"))[0]
    listener["filter_chains"][0]["transport_socket"] = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [{"name": secret, "sds_config": rest_source()}]
            },
        },
    }
    return yaml.safe_dump([listener])


def scoped_listener() -> str:
    """Return a listener whose route table is chosen by the header `x-scope`."""
    listener: dict[str, Any] = yaml.safe_load(http_listener("front", 0, "unused"))[0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["rds"]
    manager["scoped_routes"] = {
        "name": "scopes",
        "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "x-scope", "index": 0}}]},
        "rds_config_source": rest_source(),
        "scoped_rds": {"scoped_rds_config_source": rest_source()},
    }
    return yaml.safe_dump([listener])


def scope(name: str, route: str) -> str:
    """Return a scope that is chosen by `x-scope: name`."""
    return (
        f"- name: scope-{name}\n  route_configuration_name: {route}\n  key: {{fragments: [{{string_key: {name}}}]}}\n"
    )


def fetch_with(port: int, **headers: str) -> Any:
    """Return Envoy's response to a request with these headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", headers=named), timeout=30)


def test_extension_configs_follow(tmp_path: Path) -> None:
    """A filter's config is held back until its file is there, and follows it."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", document([static_cluster("a")]))
    write_file(tree / "lds.yaml", document([http_listener("front", 0, "r1", HEADERS_FILTER)]))
    write_file(tree / "rds.yaml", document([direct_route("r1", "one")]))
    write_file(tree / "ecds.yaml", headers_config("v1"))
    with running(tree, tmp_path) as (_, envoy):
        port = envoy.listener_ports()["front"]
        assert fetch_with(port).headers["x-version"] == "v1"
        write_file(tree / "ecds.yaml", headers_config("v2"))
        wait_until(envoy, lambda: fetch_with(port).headers["x-version"] == "v2", "the new config")

        assert envoy.stat("extension_config_discovery.http_filter.headers.update_rejected") == 0


def test_scoped_routes_follow(tmp_path: Path) -> None:
    """Scopes are served whole, their route tables by name."""
    tree = tmp_path / "tree"
    write_file(tree / "lds.yaml", scoped_listener())
    write_file(tree / "rds.yaml", document([direct_route("r1", "one"), direct_route("r2", "two")]))
    write_file(tree / "srds.yaml", scope("a", "r1"))
    with running(tree, tmp_path) as (_, envoy):
        port = envoy.listener_ports()["front"]
        wait_until(envoy, lambda: fetch_with(port, x_scope="a").read() == b"one", "scope a")
        write_file(tree / "srds.yaml", scope("a", "r2") + scope("b", "r1"))
        wait_until(envoy, lambda: fetch_with(port, x_scope="a").read() == b"two", "scope a moved")
        wait_until(envoy, lambda: fetch_with(port, x_scope="b").read() == b"one", "scope b")

        assert envoy.stat("http.front.scoped_rds.scopes.update_rejected") == 0


def test_secrets_spring_up_and_nothing_of_them_is_logged(tmp_path: Path) -> None:
    """A TLS listener is held until its certificate is there, serves then, and the log holds no part of the key."""
    tree = tmp_path / "tree"
    write_file(tree / "lds.yaml", tls_listener("demo-certificate"))
    write_file(tree / "rds.yaml", document([direct_route("r1", "safe")]))
    write_file(tree / "sds.yaml", "resources: []\n")
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with Server(tree, tmp_path) as server, Envoy(bootstrap(server.port), wait="admin") as envoy:
        server.wait(lambda: "no-secret" in server.log_file.read_text(), "the missing secret")
        assert {} == envoy.listener_ports()
        write_file(tree / "sds.yaml", SAMPLE_SECRETS.read_text())
        wait_until(envoy, lambda: "front" in envoy.listener_ports(), "the listener")
        port = envoy.listener_ports()["front"]

        def answer() -> bytes:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=30, context=trusting) as response:
                return bytes(response.read())

        wait_until(envoy, lambda: answer() == b"safe", "TLS")
        write_file(tree / "sds.yaml", SAMPLE_SECRETS.read_text().replace("name: demo-certificate", "nam: demo"))
        server.wait(lambda: "sds.yaml" in server.log_file.read_text(), "the problem")

        key = SAMPLE_SECRETS.read_text().partition("BEGIN PRIVATE KEY-----\n")[2].split()[0]
        assert answer() == b"safe"
        assert key not in server.log_file.read_text()
