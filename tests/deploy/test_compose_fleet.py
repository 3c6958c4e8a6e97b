"""compose-fleet.yaml, run without containers: its commands as processes, real members of etcd, nginx and Envoy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_compose import wait_until
from tests.end_to_end.replicas import NGINX, wait_for_listener
from tests.support.dockerfile import TOP, argument, arguments, image_environment
from tests.support.envoy import Envoy
from tests.support.etcd import ETCD, MISSING
from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.server import write_file

DOCKER = TOP / "docker"


def content() -> dict[str, Any]:
    """Return the file, with anchors and merges resolved."""
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose-fleet.yaml").read_text())
    return found


class Network:
    """Stands for the network and the volumes of the services: ports of this machine, and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: defaultdict[tuple[str, str], int] = defaultdict(free_port)
        self.services: dict[str, dict[str, Any]] = content()["services"]
        (folder / "config").mkdir()
        for source in (DOCKER / "xds").iterdir():
            (folder / "config" / source.name).write_text(self.local("envoy", source.read_text()))

    def local(self, service: str, text: str) -> str:
        """Return a text of a service with places of this machine in it."""
        names = "|".join(self.services)
        text = re.sub(r"address: 0\.0\.0\.0, port_value: (\d+)", rf"address: {service}, port_value: \1", text)
        text = re.sub(
            rf"address: ({names}), port_value: (\d+)",
            lambda found: f"address: 127.0.0.1, port_value: {self.ports[found[1], found[2]]}",
            text,
        )
        text = text.replace("0.0.0.0:", f"{service}:")
        text = re.sub(rf"\b({names}):(\d+)", lambda found: f"127.0.0.1:{self.ports[found[1], found[2]]}", text)
        return re.sub(
            r"(?<![\w.])/(config|data|state|tmp|www)\b",
            lambda found: f"{self.folder}/{'config' if found[1] == 'config' else f'{service}/{found[1]}'}",
            text,
        )

    def start_etcd(self, name: str) -> subprocess.Popen[bytes]:
        """Run a member with the variables of its service."""
        assert ETCD is not None
        (self.folder / name).mkdir()
        written = self.services[name]["environment"].items()
        environment = dict(os.environ) | {variable: self.local(name, text) for variable, text in written}
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([ETCD], env=environment, stdout=log, stderr=log)

    def start_fsxds(self, name: str) -> FsxdsProcess:
        """Run the command of a service in the environment of the image, until it is ready."""
        for folder in ("state", "tmp"):
            (self.folder / name / folder).mkdir(parents=True, exist_ok=True)
        environment = {variable: self.local(name, text) for variable, text in image_environment().items()}
        # The image's descriptors are of the Envoy that is here.
        del environment["FSXDS_DESCRIPTORS"]
        environment["FSXDS_ADMIN"] = "127.0.0.1:0"
        ready_file = self.folder / name / "tmp/fsxds.ready"
        ready_file.unlink(missing_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            words = [self.local(name, word) for word in self.services[name]["command"]]
            process = start_fsxds(words, stdout=log, stderr=log, env=environment)
        wait_until(lambda: ready_file.exists() or process.poll() is not None)
        assert process.poll() is None, (self.folder / f"{name}.log").read_text()
        return process

    def start_nginx(self) -> subprocess.Popen[bytes]:
        """Run the balancer with the configuration that it mounts."""
        assert NGINX is not None
        text = self.local("balancer", (DOCKER / "nginx.conf").read_text())
        for port in ("18000", "18001"):
            text = text.replace(f"listen {port}", f"listen 127.0.0.1:{self.ports['balancer', port]}")
        (self.folder / "balancer/tmp").mkdir(parents=True)
        (self.folder / "nginx.conf").write_text(text)
        with (self.folder / "nginx.log").open("wb") as log:
            argv = [NGINX, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
            return subprocess.Popen(argv, stderr=log)

    def start_backend(self, name: str) -> subprocess.Popen[bytes]:
        """Serve the page of a backend."""
        (source,) = [one.partition(":")[0] for one in self.services[name]["volumes"]]
        port = str(self.ports[name, "8080"])
        argv = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", str(DOCKER / source)]
        return subprocess.Popen(argv, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(ETCD is None, reason=MISSING)
@pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx-light")
def test_a_server_may_end_while_envoy_follows(tmp_path: Path) -> None:
    """Envoy reaches both backends by way of nginx; when the first server is killed, an edit arrives all the same."""
    network = Network(tmp_path)
    with ExitStack() as stack:

        def run(process: subprocess.Popen[bytes]) -> None:
            stack.callback(process.wait)
            stack.callback(process.kill)

        for name in ("etcd-1", "etcd-2", "etcd-3"):
            run(network.start_etcd(name))
        for name in ("backend-1", "backend-2"):
            run(network.start_backend(name))
        servers = [network.start_fsxds(name) for name in ("fsxds-1", "fsxds-2", "fsxds-3")]
        for server in servers:
            stack.callback(server.kill)
        run(network.start_nginx())
        wait_for_listener(network.ports["balancer", "18000"])
        bootstrap = yaml.safe_load(network.local("envoy", (DOCKER / "envoy-fleet.yaml").read_text()))
        envoy = stack.enter_context(Envoy(bootstrap))
        envoy.wait_live()
        pages = partial(pages_at, network.ports["envoy", "10000"])
        wait_until(lambda: pages() == {"one\n", "two\n"})

        servers[0].kill()
        clusters = network.folder / "config/clusters.yaml"
        lines = clusters.read_text().splitlines(keepends=True)
        write_file(clusters, "".join(lines[:-1]))
        wait_until(lambda: pages() == {"one\n"})


def pages_at(port: int) -> set[str]:
    """Return what Envoy answers, asked several times in a row; nothing while it does not listen."""
    found = set[str]()
    for _ in range(6):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as response:
                found.add(response.read().decode())
        except OSError:
            found.add("")
    return found


def test_the_file_is_of_the_form_that_compose_reads() -> None:
    """check-jsonschema has the schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(DOCKER / "compose-fleet.yaml")], check=False, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout


def test_services_share_nothing_but_what_they_name() -> None:
    """Roots are read-only, ports are those of loopback, each volume is of one service, and what is mounted is there."""
    found = content()
    owned = [word for run in arguments(1, "RUN") for word in run.split() if word.startswith("/")]
    volumes = [volume.split(":")[:2] for one in found["services"].values() for volume in one.get("volumes", [])]
    for name, one in found["services"].items():
        hardened = one["read_only"], one["cap_drop"], one["security_opt"]
        assert hardened == (True, ["ALL"], ["no-new-privileges:true"]), name
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
        assert {*one.get("depends_on", [])} <= {*found["services"]}
    named = [source for source, _ in volumes if source in found["volumes"]]
    assert sorted(named) == sorted(found["volumes"])
    assert all(target in {*owned, "/data"} for source, target in volumes if source in found["volumes"])
    assert all((DOCKER / source).exists() for source, _ in volumes if source not in found["volumes"])


def test_envoy_is_the_one_whose_api_the_image_has() -> None:
    """One release in the compose file and in the image; fsxds runs as the user of the image."""
    release = str(image_environment()["FSXDS_DESCRIPTORS"]).removeprefix("/opt/fsxds/envoy-").removesuffix(".pb")
    assert content()["services"]["envoy"]["image"] == f"envoyproxy/envoy:v{release}"
    assert not any("user" in one for name, one in content()["services"].items() if name.startswith("fsxds"))
    assert argument(1, "USER")
