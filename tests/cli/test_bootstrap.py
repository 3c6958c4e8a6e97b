"""What `fsxds bootstrap` prints for the words that it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, write_tree

CONFIG = Path(__file__).parents[2] / "config"
RUNTIME = "- {name: one, layer: {a: 1}}\n- {name: two, layer: {a: 2}}\n"


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what the command prints."""
    assert main(["bootstrap", *arguments]) == 0
    return capfd.readouterr().out


def values(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Return the values of what it prints."""
    return yaml.safe_load(printed(capfd, *arguments))


def refusal(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what it says when it is used in a wrong way."""
    assert main(["bootstrap", *arguments]) == 2
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("envoy-rest.yaml", ("--transport", "rest")),
        ("envoy-mirror.yaml", ("--transport", "files", "--mirror", "build/mirror")),
        ("envoy-ads.yaml", ("--transport", "ads")),
        ("envoy-delta.yaml", ("--transport", "delta")),
    ],
)
def test_sample_bootstraps_are_what_the_command_prints(
    file: str, arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """The bootstraps beside the sample tree have the same values."""
    expected = yaml.safe_load((CONFIG / file).read_text())

    assert expected == values(capfd, str(CONFIG / "xds"), *arguments, "--node", "sample", "--cluster", "sample")


def test_tree_tells_types_and_layers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With DIR, the bootstrap asks for the types that are there, and for each runtime layer."""
    bootstrap = values(capfd, str(write_tree(tmp_path, cds=CLUSTERS, rtds=RUNTIME)), "--transport", "ads")

    assert {"ads_config", "cds_config"} == set(bootstrap["dynamic_resources"])
    assert ["one", "two", "admin"] == [layer["name"] for layer in bootstrap["layered_runtime"]["layers"]]


def test_without_a_tree(capfd: pytest.CaptureFixture[str]) -> None:
    """Without DIR it asks for clusters and listeners."""
    assert {"cds_config", "lds_config"} == set(values(capfd)["dynamic_resources"])


@pytest.mark.parametrize(("transport", "port"), [("rest", 18001), ("ads", 18000), ("delta", 18000)])
def test_default_address(transport: str, port: int, capfd: pytest.CaptureFixture[str]) -> None:
    """REST is where `fsxds serve` listens by default."""
    (cluster,) = values(capfd, "--transport", transport)["static_resources"]["clusters"]
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]

    assert {"address": "127.0.0.1", "port_value": port} == endpoint["address"]["socket_address"]


def test_settings_tell_where_rest_listens(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of `fsxds serve` are the defaults."""
    monkeypatch.setenv("FSXDS_HTTP", "unix:/run/x.sock")
    monkeypatch.setenv("FSXDS_MIRROR", str(tmp_path))

    assert "/run/x.sock" in printed(capfd)
    assert f"path: {tmp_path}/cds.pb" in printed(capfd, "--transport", "files")


def test_json_is_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    """`--format json` has the values without the comments."""
    assert values(capfd, "--transport", "delta") == json.loads(
        printed(capfd, "--transport", "delta", "--format", "json")
    )


def test_usage_is_for_these_words(capfd: pytest.CaptureFixture[str]) -> None:
    """The head names the commands that go with the bootstrap."""
    text = printed(capfd, "--transport", "files", "--mirror", "/run/envoy files")

    assert "#   fsxds serve DIR --mirror '/run/envoy files' --mirror-config-sources\n" in text
    assert "#   fsxds serve DIR --http '[::1]:9'\n" in printed(capfd, "--address", "[::1]:9")


def test_files_beside_rest(capfd: pytest.CaptureFixture[str]) -> None:
    """With an address, the bootstrap of files can also reach fsxds, for resources that point there."""
    bootstrap = values(capfd, "--transport", "files", "--mirror", "/m", "--address", "127.0.0.1:18001")

    assert ["xds"] == [cluster["name"] for cluster in bootstrap["static_resources"]["clusters"]]


def test_wrong_words(capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be is refused in a line with the remedy."""
    assert "add --mirror DIR" in refusal(capfd, "--transport", "files")
    assert "Envoy cannot connect to port 0" in refusal(capfd, "--address", "127.0.0.1:0")
    assert "is no address" in refusal(capfd, "--address", "localhost")
    assert "is not one of" in refusal(capfd, "--transport", "grpc")


def test_the_drain_of_envoy_is_as_long_as_what_lingers(capfd: pytest.CaptureFixture[str]) -> None:
    """Both commands at the top have the time, that of fsxds only where it is not its default."""
    assert "#   fsxds serve DIR\n#   envoy -c bootstrap.yaml --drain-time-s 600\n" in printed(capfd)
    assert "#   fsxds serve DIR --linger 30.5s\n#   envoy -c bootstrap.yaml --drain-time-s 31\n" in printed(
        capfd, "--linger", "30.5s"
    )
