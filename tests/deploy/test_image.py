"""The image, as far as it can be tried without a container engine: its own commands in an empty virtual environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.envoy import load_bootstrap, validate

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PATIENCE_S = 60.0


def instructions(stage: int) -> list[tuple[str, str]]:
    """Return the instructions of a stage of the Dockerfile, each with what follows it."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    parts = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line.strip()]
    starts = [index for index, (word, _) in enumerate(parts) if word == "FROM"]
    return parts[starts[stage] : [*starts, len(parts)][stage + 1]]


def argument(stage: int, word: str) -> str:
    """Return what follows the one such instruction of a stage."""
    (found,) = [rest for name, rest in instructions(stage) if name == word]
    return found


def build(folder: Path) -> None:
    """Do what the first stage does, with `folder` as the root of its file system."""
    workdir = folder / argument(0, "WORKDIR").strip("/")
    workdir.mkdir(parents=True)
    # The image's Python, and nothing of this environment's.
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    # Compiling all that is installed takes longer than installing it, and only a part is imported.
    environment["PIP_NO_COMPILE"] = "1"
    for word, rest in instructions(0):
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, workdir / target / ("" if target.startswith("./fsxds") else source))
        if word == "RUN":
            command = rest.replace("/opt/", f"{folder}/opt/")
            command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", command)
            subprocess.run(command, shell=True, cwd=workdir, env=environment, check=True, capture_output=True)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_commands_of_the_image_install_and_serve(tmp_path: Path) -> None:
    """What the image installs and starts serves a tree, is healthy, and ends at SIGTERM with status 0."""
    build(tmp_path)
    ready_file = tmp_path / "fsxds.ready"
    # Other places and a free port, because this is not a container.
    command = json.loads(argument(1, "ENTRYPOINT")) + json.loads(argument(1, "CMD"))
    places = {"/config": str(ROOT / "config/xds"), "0.0.0.0:18001": "127.0.0.1:0", "0.0.0.0:18000": "127.0.0.1:0"}
    path = f"{tmp_path}/opt/fsxds/bin:/usr/bin:/bin"
    environment = {"PATH": path, "FSXDS_READY_FILE": str(ready_file), "XDG_CACHE_HOME": str(tmp_path)}
    environment["FSXDS_ADMIN"] = "127.0.0.1:0"
    executable, *arguments = [places.get(word, word) for word in command]
    argv = [str(shutil.which(executable, path=path)), *arguments]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, env=environment, cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_for(ready_file, process)
        port = json.loads(ready_file.read_text())["http"].rpartition(":")[2]
        health = json.loads(argument(1, "HEALTHCHECK").partition("CMD ")[2])
        changed = [word.replace("/tmp/fsxds.ready", str(ready_file)).replace("18001", port) for word in health]

        assert subprocess.run(changed, env=environment, check=False).returncode == 0

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()


def test_image_does_not_run_as_root() -> None:
    """The last stage names a user by number, as Kubernetes wants it for runAsNonRoot."""
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", argument(1, "USER"))


def test_image_takes_only_what_the_first_stage_installed() -> None:
    """Compilers, caches and sources stay behind."""
    copied = [rest for word, rest in instructions(1) if word == "COPY"]

    assert copied == ["--from=build /opt/fsxds /opt/fsxds"]


def compose() -> dict[str, Any]:
    """Return the compose file with its anchors and merges resolved."""
    content: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return content


@pytest.mark.parametrize("profile", ["rest", "delta", "mirror"])
def test_profile_has_a_server_and_an_envoy_that_waits_for_it(profile: str) -> None:
    """Each profile starts fsxds, and Envoy once that is healthy."""
    services = {name: one for name, one in compose()["services"].items() if one["profiles"] == [profile]}
    (server,) = [name for name, one in services.items() if one["image"] == "fsxds"]
    (envoy,) = [one for one in services.values() if one["image"].startswith("envoyproxy/envoy:v1.40.")]

    assert envoy["depends_on"] == {server: {"condition": "service_healthy"}}


def test_paths_of_the_compose_file_exist() -> None:
    """What is mounted and built from is there."""
    for service in compose()["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source == "mirror" or (DOCKER / source).exists(), source
        if build_section := service.get("build"):
            assert (DOCKER / build_section["context"] / build_section["dockerfile"]).is_file()


def test_mirror_is_at_the_same_path_for_writer_and_reader() -> None:
    """The files name one another by their paths."""
    mounts = [volume for one in compose()["services"].values() for volume in one["volumes"] if "mirror:" in volume]

    assert {mount.split(":")[1] for mount in mounts} == {"/mirror"}


def test_envoy_may_read_the_secrets_that_fsxds_mirrors() -> None:
    """They are for their owner only, so both are the same user."""
    services = compose()["services"].values()

    assert {one["user"] for one in services if "user" in one} == {argument(1, "USER")}


@pytest.mark.parametrize("file", ["envoy-rest.yaml", "envoy-delta.yaml"])
def test_bootstrap_is_valid_and_names_the_service(file: str) -> None:
    """The real Envoy accepts it; the address in it is the service's, by IPv4."""
    bootstrap = load_bootstrap(DOCKER / file)
    (xds,) = [one for one in bootstrap["static_resources"]["clusters"] if one["name"] == "xds"]
    address = xds["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    is_accepted, text = validate(bootstrap)

    assert is_accepted, text
    assert address["address"] in compose()["services"]
    assert xds["dns_lookup_family"] == "V4_ONLY"


def test_mirror_bootstrap_is_valid(tmp_path: Path) -> None:
    """The real Envoy accepts it where its files exist."""
    text = (DOCKER / "envoy-mirror.yaml").read_text().replace("/mirror/", f"{tmp_path}/")
    for path in re.findall(rf"{tmp_path}/[a-z./]+", text):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).touch()
    is_accepted, reason = validate(yaml.safe_load(text))

    assert is_accepted, reason
