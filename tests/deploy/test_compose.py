"""compose.yaml, run without containers: its commands as processes, its paths in a folder, the real Envoy."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.dockerfile import TOP, argument, arguments, image_environment
from tests.support.envoy import Envoy
from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.server import write_file

DOCKER = TOP / "docker"
PROFILES = ["rest", "delta", "mirror"]


def services() -> dict[str, dict[str, Any]]:
    """Return the services by name, with anchors and merges resolved."""
    content: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    return content


def fsxds_of(profile: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the service of the fsxds of a profile."""
    (found,) = [
        (name, one) for name, one in services().items() if one["profiles"] == [profile] and name.startswith("fsxds")
    ]
    return found


def envoy_of(profile: str) -> dict[str, Any]:
    """Return the service of the Envoy of a profile."""
    (found,) = [one for name, one in services().items() if one["profiles"] == [profile] and name.startswith("envoy")]
    return found


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Host:
    """Where a profile runs: a folder stands for the volumes, and loopback ports for the names of the network."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.folder = folder
        self._profile = profile
        self.port = free_port()
        self._backends = {"backend-1": free_port(), "backend-2": free_port()}
        for name in ("config", "run/fsxds", "mirror", "state", "tmp"):
            (folder / name).mkdir(parents=True)
        self.ready_file = folder / "tmp/fsxds.ready"
        for source in (DOCKER / "xds").iterdir():
            (folder / "config" / source.name).write_text(self._local(source.read_text()))

    def _local(self, text: str) -> str:
        """Return a text with this host's places for those of the network and of the containers."""
        for name, port in self._backends.items():
            text = text.replace(f"address: {name}, port_value: 8080", f"address: 127.0.0.1, port_value: {port}")
        text = text.replace("address: 0.0.0.0, port_value: 10000", f"address: 127.0.0.1, port_value: {self.port}")
        return re.sub(r"(?<![\w.])/(config|run/fsxds|mirror|state|tmp)\b", rf"{self.folder}/\1", text)

    @contextmanager
    def backends(self) -> Iterator[None]:
        """Run both backends by the image's Python, which is this one."""
        running = []
        for name, port in self._backends.items():
            service = services()[name]
            words = service["entrypoint"][service["entrypoint"].index("python") + 1 :]
            (www,) = [volume.partition(":")[0] for volume in service["volumes"]]
            changed = {"8080": str(port), "/www": str(DOCKER / www)}
            command = [sys.executable, *(changed.get(word, word) for word in words), "--bind", "127.0.0.1"]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        try:
            yield
        finally:
            for process in running:
                process.kill()
                process.wait()

    def start_fsxds(self) -> FsxdsProcess:
        """Run the command of the service in the environment of the image, until it is ready."""
        self.ready_file.unlink(missing_ok=True)
        _, service = fsxds_of(self._profile)
        environment = {name: self._local(text) for name, text in image_environment().items()}
        # The image's descriptors are of the Envoy that is here.
        del environment["FSXDS_DESCRIPTORS"]
        environment["FSXDS_ADMIN"] = "127.0.0.1:0"
        words = [self._local(word) for word in service["command"]]
        with (self.folder / "log").open("ab") as log:
            process = start_fsxds(words, stdout=log, stderr=log, env=environment)
        wait_until(lambda: self.ready_file.exists() or process.poll() is not None)
        assert process.poll() is None, self.log()
        return process

    def log(self) -> str:
        """Return what all processes of fsxds logged."""
        return (self.folder / "log").read_text()

    def bootstrap(self) -> dict[str, Any]:
        """Return the bootstrap that the service of Envoy mounts."""
        (file,) = [one.partition(":")[0] for one in envoy_of(self._profile)["volumes"] if "envoy.yaml" in one]
        content: dict[str, Any] = yaml.safe_load(self._local((DOCKER / file).read_text()))
        return content

    def page(self) -> str:
        """Return what Envoy answers; empty while it does not listen."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == http.client.OK else ""
        except OSError:
            return ""
        finally:
            connection.close()

    def pages(self) -> set[str]:
        """Return what Envoy answers, asked several times in a row."""
        return {self.page() for _ in range(6)}


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_routes_to_its_backends_and_follows_edits(tmp_path: Path, profile: str) -> None:
    """Envoy reaches both backends; an edit that removes one arrives, also by a fsxds that was killed and came back."""
    host = Host(tmp_path, profile)
    with ExitStack() as stack:
        stack.enter_context(host.backends())
        process = host.start_fsxds()
        stack.callback(process.kill)
        stack.enter_context(Envoy(host.bootstrap()))
        wait_until(lambda: host.pages() == {"one\n", "two\n"})

        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        assert host.pages() == {"one\n", "two\n"}

        process = host.start_fsxds()
        stack.callback(process.kill)
        assert '"state_restored"' in host.log()
        clusters = host.folder / "config/clusters.yaml"
        lines = clusters.read_text().splitlines(keepends=True)
        write_file(clusters, "".join(lines[:-1]))
        wait_until(lambda: host.pages() == {"one\n"})

        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_envoy_waits_for_the_server_of_its_profile(profile: str) -> None:
    """Each profile starts fsxds, Envoy once that is healthy, and both backends."""
    name, _ = fsxds_of(profile)

    assert envoy_of(profile)["depends_on"] == {name: {"condition": "service_healthy"}}
    assert [name for name, one in services().items() if profile in one["profiles"] and "backend" in name] == [
        "backend-1",
        "backend-2",
    ]


def test_nothing_is_published_beyond_this_machine() -> None:
    """Ports are those of loopback, and fsxds listens at no port."""
    ports = [port for one in services().values() for port in one.get("ports", [])]
    commands = [word for profile in PROFILES for word in fsxds_of(profile)[1]["command"]]

    assert [] == [port for port in ports if not port.startswith("127.0.0.1:")]
    assert [] == [word for word in commands if re.search(r":\d", word)]


def test_containers_can_change_nothing_but_their_volumes() -> None:
    """Their root is read-only, and they have and gain no capability."""
    for name, one in services().items():
        assert (True, ["ALL"], ["no-new-privileges:true"]) == (
            one["read_only"],
            one["cap_drop"],
            one["security_opt"],
        ), name


def test_paths_of_the_compose_file_exist() -> None:
    """What is mounted and built from is there, and volumes are at directories that the image gives to its user."""
    owned = [word for run in arguments(1, "RUN") for word in run.split() if word.startswith("/")]
    volumes = yaml.safe_load((DOCKER / "compose.yaml").read_text())["volumes"]
    for service in services().values():
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            assert (target in owned) if source in volumes else (DOCKER / source).exists(), volume
        if build_section := service.get("build"):
            assert (DOCKER / build_section["context"] / build_section["dockerfile"]).is_file()


def test_each_server_has_a_state_directory_of_its_own() -> None:
    """It is in the volume `state`, and no two services share one: a process locks it."""
    directories = []
    for profile in PROFILES:
        _, service = fsxds_of(profile)
        directories.append(service["command"][service["command"].index("--state") + 1])
        assert "state:/state" in service["volumes"]

    assert len(PROFILES) == len(set(directories))
    assert [] == [directory for directory in directories if not directory.startswith("/state/")]


def test_envoy_may_use_what_fsxds_makes() -> None:
    """Sockets and mirrored secrets are for their owner, so both are the same user, and see them at the same path."""
    mounts = [volume.split(":")[:2] for one in services().values() for volume in one["volumes"]]

    assert {envoy_of(profile)["user"] for profile in PROFILES} == {argument(1, "USER")}
    assert {tuple(mount) for mount in mounts if mount[0] in {"mirror", "sockets"}} == {
        ("mirror", "/mirror"),
        ("sockets", "/run/fsxds"),
    }


def test_envoy_is_the_one_whose_api_the_image_has() -> None:
    """One release in the compose file and in the image."""
    release = str(image_environment()["FSXDS_DESCRIPTORS"]).removeprefix("/opt/fsxds/envoy-").removesuffix(".pb")

    assert {envoy_of(profile)["image"] for profile in PROFILES} == {f"envoyproxy/envoy:v{release}"}


def test_compose_file_is_of_the_form_that_compose_reads() -> None:
    """check-jsonschema has the schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(DOCKER / "compose.yaml")], check=False, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout
