"""A real Envoy that gets runtime, secrets, extension configs and scoped routes over streams."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.test_rest_named_types import HEADERS_FILTER, headers_config, scope, scoped_listener, tls_listener
from tests.support.certificates import Pair, make_pair
from tests.support.grpc_envoy import DELTA_ADS, LDS, SOTW_ADS, VARIANTS, Fleet, StreamingEnvoy
from tests.support.resources import direct_route, http_listener, static_cluster
from tests.support.server import Server, write_file


@dataclass(frozen=True, slots=True)
class Running:
    """A tree with something of each type, the fsxds that serves it, and the Envoy that uses it."""

    fleet: Fleet
    server: Server
    envoy: StreamingEnvoy
    certificate: Pair


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all tests of a variant: each edits the file of its own type."""
    fleet, certificate = Fleet(tmp_path_factory.mktemp("named"), request.param), make_pair("old")
    fleet.write("cds.yaml", static_cluster("a"))
    fleet.write("rtds.yaml", runtime("first", 1), runtime("second", 2))
    filtered = http_listener("filtered", 0, "r1", HEADERS_FILTER)
    fleet.write("lds.yaml", named("tls", tls_listener("pair")), filtered, named("scoped", scoped_listener()))
    fleet.write("rds.yaml", direct_route("r1", "one"), direct_route("r2", "two"))
    fleet.write("sds.yaml", secret("pair", *certificate))
    write_file(fleet.tree / "ecds.yaml", headers_config("v1"))
    write_file(fleet.tree / "srds.yaml", scope("a", "r1"))
    with fleet.running("first", "second") as (server, envoy):
        yield Running(fleet, server, envoy, certificate)


@pytest.fixture(params=[SOTW_ADS, DELTA_ADS], ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree of its own, for one of the variants that carry everything."""
    return Fleet(tmp_path, request.param)


def named(name: str, listener: str) -> str:
    """Return a listener under another name, as a list item."""
    (renamed,) = yaml.safe_load(listener)
    renamed["name"] = name
    return yaml.safe_dump([renamed])


def runtime(name: str, value: int) -> str:
    """Return a runtime layer, as a list item."""
    return f'- "@type": type.googleapis.com/envoy.service.runtime.v3.Runtime\n  name: {name}\n  layer: {{k: {value}}}\n'


def secret(name: str, chain: str, key: str) -> str:
    """Return a certificate with its key, as a list item."""
    texts = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    value = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": name,
        "tls_certificate": texts,
    }
    return yaml.safe_dump([value])


def value_of(envoy: StreamingEnvoy) -> Any:
    """Return what Envoy holds for the key of these tests."""
    return envoy.get_json("/runtime")["entries"].get("k", {}).get("final_value")


def certificate_of(envoy: StreamingEnvoy, listener: str) -> str:
    """Return the digest of the certificate that a listener shows."""
    text = ssl.get_server_certificate(("127.0.0.1", envoy.listener_ports()[listener]), timeout=30)
    return digest(text)


def digest(chain: str) -> str:
    """Return the digest of a certificate in PEM."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(chain)).hexdigest()


def test_runtime_follows(running: Running) -> None:
    """Layers are there before Envoy is live, follow their file, and are told each by itself."""
    envoy = running.envoy
    assert value_of(envoy) == "2"
    taken = envoy.stat("runtime.update_success")
    running.fleet.write("rtds.yaml", runtime("first", 1), runtime("second", 3))
    envoy.until(lambda: value_of(envoy) == "3", "the new value")

    assert envoy.stat("runtime.update_success") == taken + 1
    assert envoy.rejections() == {}


def test_a_secret_is_rotated(running: Running) -> None:
    """A listener shows the new certificate once the file has it, and no log ever has a part of a key."""
    envoy, old, new = running.envoy, running.certificate, make_pair("new")
    assert certificate_of(envoy, "tls") == digest(old.chain)
    running.fleet.write("sds.yaml", secret("pair", *new))
    envoy.until(lambda: certificate_of(envoy, "tls") == digest(new.chain), "the new certificate")

    assert envoy.rejections() == {}
    log = running.server.log_file.read_text()
    assert not any(line in log for pair in (old, new) for line in pair.key.splitlines())


def test_extension_configs_follow(running: Running) -> None:
    """A filter's config is there when the listener is, and follows its file."""
    envoy = running.envoy
    assert envoy.ask("filtered").headers["x-version"] == "v1"
    write_file(running.fleet.tree / "ecds.yaml", headers_config("v2"))
    envoy.until(lambda: envoy.ask("filtered").headers["x-version"] == "v2", "the new config")

    assert envoy.rejections() == {}


def test_scoped_routes_follow(running: Running) -> None:
    """Scopes and their route tables come, change and go, also where one takes over the table of another."""
    envoy, path = running.envoy, running.fleet.tree / "srds.yaml"
    envoy.until(lambda: envoy.ask("scoped", x_scope="a").body == "one", "scope a")
    write_file(path, scope("a", "r2") + scope("b", "r1"))
    envoy.until(lambda: envoy.ask("scoped", x_scope="a").body == "two", "scope a moved")
    envoy.until(lambda: envoy.ask("scoped", x_scope="b").body == "one", "scope b")
    write_file(path, scope("b", "r1"))
    envoy.until(lambda: envoy.ask("scoped", x_scope="a").status == 404, "scope a gone")

    assert envoy.rejections() == {}


def test_a_secret_springs_up(fleet: Fleet) -> None:
    """A listener gets its certificate as soon as somebody writes it."""
    write_file(fleet.tree / "lds.yaml", fleet.variant.adapted(tls_listener("pair")))
    fleet.write("rds.yaml", direct_route("r1", "safe"))
    fleet.write("sds.yaml")
    certificate = make_pair("late")
    with fleet.server() as server, StreamingEnvoy(fleet.bootstrap(server), wait="admin") as envoy:
        fleet.write("sds.yaml", secret("pair", *certificate))
        envoy.until(lambda: certificate_of(envoy, "front") == digest(certificate.chain), "TLS")

        assert envoy.rejections() == {}


def test_an_extension_config_springs_up(fleet: Fleet) -> None:
    """A filter that waits for its config, and Envoy's start with it, go on as soon as somebody writes it."""
    fleet.write("lds.yaml", http_listener("front", 0, "r1", HEADERS_FILTER))
    fleet.write("rds.yaml", direct_route("r1", "one"))
    with fleet.server() as server, StreamingEnvoy(fleet.bootstrap(server), wait="admin") as envoy:
        envoy.wait_stat(f"{LDS}.update_success", 1)
        write_file(fleet.tree / "ecds.yaml", headers_config("v1"))
        envoy.until(lambda: envoy.ask("front").headers["x-version"] == "v1", "the config")

        assert envoy.server_info()["state"] == "LIVE"
