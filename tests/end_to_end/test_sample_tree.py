"""The sample tree, its bootstraps and its settings file work as they stand, with a real Envoy."""

from __future__ import annotations

import re
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fsxds.settings.options import BY_NAME
from fsxds.settings.reading import read_settings
from tests.support.envoy import Envoy, validate
from tests.support.fsxds_process import run_fsxds
from tests.support.ports import free_port
from tests.support.server import Server, write_file

CONFIG = Path(__file__).parents[2] / "config"
PORTS = ("10000", "10001", "10443")
TRANSPORTS = ("rest", "mirror")


@dataclass(frozen=True, slots=True)
class Running:
    """A copy of the sample tree on ports of its own, and the Envoy that serves it."""

    tree: Path
    ports: dict[str, str]
    envoy: Envoy

    def get(self, path: str, port: str = "10000") -> str:
        """Return what Envoy answers on what was `port` in the original."""
        context = ssl.create_default_context(cadata=demo_certificate()) if port == "10443" else None
        scheme = "https" if context else "http"
        with urllib.request.urlopen(f"{scheme}://localhost:{self.ports[port]}{path}", context=context) as response:
            return str(response.read().decode())

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file of the tree."""
        text = (self.tree / file).read_text()
        assert old in text
        write_file(self.tree / file, text.replace(old, new))


def demo_certificate() -> str:
    secrets = yaml.safe_load((CONFIG / "xds/secrets.yaml").read_text())["resources"]
    return str(secrets[0]["tls_certificate"]["certificate_chain"]["inline_string"])


def free_ports(count: int) -> list[str]:
    """Return ports that nobody uses, as they are written."""
    return [str(free_port()) for _ in range(count)]


def copy_with_ports(folder: Path, ports: dict[str, str]) -> Path:
    """Copy the tree, with other ports, because tests run side by side."""
    tree = folder / "xds"
    shutil.copytree(CONFIG / "xds", tree)
    for path in [path for path in tree.rglob("*") if path.is_file()]:
        path.write_text(re.sub("|".join(ports), lambda match: ports[match[0]], path.read_text()))
    return tree


def bootstrap(transport: str, xds_port: int, mirror: Path) -> object:
    """Return the sample's bootstrap with the addresses of this test."""
    text = (CONFIG / f"envoy-{transport}.yaml").read_text()
    return yaml.safe_load(
        text.replace("port_value: 18001", f"port_value: {xds_port}").replace("build/mirror", str(mirror))
    )


@contextmanager
def running(transport: str, folder: Path) -> Iterator[Running]:
    """Run fsxds and Envoy as the comments in the sample tell."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    tree, mirror = copy_with_ports(folder, ports), folder / "mirror"
    options = ["--mirror", str(mirror), "--mirror-config-sources"] if transport == "mirror" else []
    with Server(tree, folder, *options) as server:
        started = bootstrap(transport, server.port, mirror)
        assert isinstance(started, dict)
        with Envoy(started) as envoy:
            yield Running(tree, ports, envoy)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sample_serves_traffic(transport: str, tmp_path: Path) -> None:
    """Plain and over TLS, through routes, endpoints, secrets and the runtime switch."""
    with running(transport, tmp_path) as sample:
        assert sample.get("/") == "hello from fsxds\n"
        assert sample.get("/", port="10443") == "hello from fsxds\n"
        assert sample.get("/secure") == "hello from fsxds\n"
        assert sample.get("/new") == "the new page\n"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_sample_follows_edits(transport: str, tmp_path: Path) -> None:
    """An edit of each format reaches Envoy: YAML routes, JSON endpoints, the runtime layer in text format."""
    with running(transport, tmp_path) as sample:
        ports = sample.ports
        sample.edit("routes.yaml", "the new page", "the newer page")
        sample.envoy.wait(lambda: sample.get("/new") == "the newer page\n", what="the edited route")
        sample.edit("endpoints/backend.json", ports["10001"], ports["10443"])
        moved = {f"127.0.0.1:{ports['10443']}"}
        sample.envoy.wait(lambda: sample.envoy.endpoints("backend") == moved, what="the moved endpoint")
        sample.edit("runtime.textproto", "number_value: 100", "number_value: 0")
        sample.envoy.wait(lambda: runtime_value(sample.envoy) == "0", what="the runtime layer")


def runtime_value(envoy: Envoy) -> str:
    return str(envoy.get_json("/runtime")["entries"]["features.new_page"]["final_value"])


def test_sample_as_it_stands_is_clean() -> None:
    """`fsxds check` finds no problem in the files that people copy."""
    done = run_fsxds(["check", str(CONFIG / "xds")])

    assert done.returncode == 0, done.stdout + done.stderr


def test_sample_has_each_format_and_each_type_that_the_readme_names() -> None:
    """YAML, JSON and text format."""
    suffixes = {path.suffix for path in (CONFIG / "xds").rglob("*") if path.is_file()}

    assert suffixes == {".yaml", ".json", ".textproto"}


def test_rest_bootstrap_as_it_stands_is_valid() -> None:
    """The real Envoy accepts it without a change."""
    is_accepted, text = validate(yaml.safe_load((CONFIG / "envoy-rest.yaml").read_text()))

    assert is_accepted, text


def test_settings_file_is_valid_and_names_real_options() -> None:
    """Its values are read, and what is commented out would be."""
    path = CONFIG / "fsxds.yaml"
    commented = re.findall(r"^# ([a-z_]+): \S+$", path.read_text(), flags=re.MULTILINE)

    assert read_settings({"settings": path}, {}).settle_s == 0.05
    assert set(commented) <= set(BY_NAME)
