"""A real Envoy that gets runtime, secrets, extension configs and scoped routes over streams."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.test_rest_named_types import (
    HEADERS_FILTER,
    SAMPLE_SECRETS,
    headers_config,
    scope,
    scoped_listener,
    tls_listener,
)
from tests.support.certificates import make_pair
from tests.support.grpc_envoy import DELTA_ADS, LDS, SOTW_ADS, VARIANTS, Fleet, StreamingEnvoy
from tests.support.resources import direct_route, http_listener, static_cluster
from tests.support.server import write_file


@pytest.fixture(params=VARIANTS, ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree of files for Envoys of one variant."""
    return Fleet(tmp_path, request.param)


on_ads = pytest.mark.parametrize("fleet", [SOTW_ADS, DELTA_ADS], ids=str, indirect=True)


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
    text = ssl.get_server_certificate(("127.0.0.1", envoy.listener_ports()[listener]), timeout=4)
    return digest(text)


def digest(chain: str) -> str:
    """Return the digest of a certificate in PEM."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(chain)).hexdigest()


def test_runtime_follows(fleet: Fleet) -> None:
    """Layers are there before Envoy is live, follow their file, each by itself, and go with it."""
    fleet.write("cds.yaml", static_cluster("a"))
    fleet.write("rtds.yaml", runtime("first", 1), runtime("second", 2))
    with fleet.running("first", "second") as (_, envoy):
        assert value_of(envoy) == "2"
        fleet.write("rtds.yaml", runtime("first", 1), runtime("second", 3))
        envoy.until(lambda: value_of(envoy) == "3", "the new value")
        taken = envoy.stat("runtime.update_success")

        # Two layers at the start and one change; what did not change is not told again.
        assert taken == 3
        assert envoy.stat("runtime.update_rejected") == 0


def test_a_secret_is_rotated(fleet: Fleet) -> None:
    """A listener shows the new certificate once the file has it, and no log ever has a part of a key."""
    old, new = make_pair("old"), make_pair("new")
    write_file(fleet.tree / "lds.yaml", fleet.variant.adapted(tls_listener("pair")))
    fleet.write("rds.yaml", direct_route("r1", "safe"))
    fleet.write("sds.yaml", secret("pair", *old))
    with fleet.running() as (server, envoy):
        assert certificate_of(envoy, "front") == digest(old.chain)
        fleet.write("sds.yaml", secret("pair", *new))
        envoy.until(lambda: certificate_of(envoy, "front") == digest(new.chain), "the new certificate")

        assert envoy.rejections() == {}
        log = server.log_file.read_text()
        assert not any(line in log for pair in (old, new) for line in pair.key.splitlines())


@on_ads
def test_a_secret_springs_up(fleet: Fleet) -> None:
    """A listener gets its certificate as soon as somebody writes it."""
    write_file(fleet.tree / "lds.yaml", fleet.variant.adapted(tls_listener("demo-certificate")))
    fleet.write("rds.yaml", direct_route("r1", "safe"))
    fleet.write("sds.yaml")
    with fleet.server() as server, StreamingEnvoy(fleet.bootstrap(server), wait="admin") as envoy:
        write_file(fleet.tree / "sds.yaml", SAMPLE_SECRETS.read_text())
        chain = yaml.safe_load(SAMPLE_SECRETS.read_text())["resources"][0]["tls_certificate"]["certificate_chain"]
        envoy.until(lambda: certificate_of(envoy, "front") == digest(chain["inline_string"]), "TLS")

        assert envoy.rejections() == {}


def test_extension_configs_follow(fleet: Fleet) -> None:
    """A filter's config is there when the listener is, and follows its file."""
    fleet.write("lds.yaml", http_listener("front", 0, "r1", HEADERS_FILTER))
    fleet.write("rds.yaml", direct_route("r1", "one"))
    write_file(fleet.tree / "ecds.yaml", headers_config("v1"))
    with fleet.running() as (_, envoy):
        assert envoy.ask("front").headers["x-version"] == "v1"
        write_file(fleet.tree / "ecds.yaml", headers_config("v2"))
        envoy.until(lambda: envoy.ask("front").headers["x-version"] == "v2", "the new config")

        assert envoy.rejections() == {}


@on_ads
def test_an_extension_config_springs_up(fleet: Fleet) -> None:
    """A filter that waits for its config, and Envoy's start with it, go on as soon as somebody writes it."""
    fleet.write("lds.yaml", http_listener("front", 0, "r1", HEADERS_FILTER))
    fleet.write("rds.yaml", direct_route("r1", "one"))
    with fleet.server() as server, StreamingEnvoy(fleet.bootstrap(server), wait="admin") as envoy:
        envoy.wait_stat(f"{LDS}.update_success", 1)
        write_file(fleet.tree / "ecds.yaml", headers_config("v1"))
        envoy.until(lambda: envoy.ask("front").headers["x-version"] == "v1", "the config")

        assert envoy.server_info()["state"] == "LIVE"


def test_scoped_routes_follow(fleet: Fleet) -> None:
    """Scopes and their route tables come, change and go."""
    write_file(fleet.tree / "lds.yaml", fleet.variant.adapted(scoped_listener()))
    fleet.write("rds.yaml", direct_route("r1", "one"), direct_route("r2", "two"))
    write_file(fleet.tree / "srds.yaml", scope("a", "r1"))
    with fleet.running() as (_, envoy):
        envoy.until(lambda: envoy.ask("front", x_scope="a").body == "one", "scope a")
        write_file(fleet.tree / "srds.yaml", scope("a", "r2") + scope("b", "r1"))
        envoy.until(lambda: envoy.ask("front", x_scope="a").body == "two", "scope a moved")
        envoy.until(lambda: envoy.ask("front", x_scope="b").body == "one", "scope b")
        write_file(fleet.tree / "srds.yaml", scope("b", "r1"))
        envoy.until(lambda: envoy.ask("front", x_scope="a").status == 404, "scope a gone")

        assert envoy.rejections() == {}
