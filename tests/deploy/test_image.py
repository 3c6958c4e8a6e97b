"""The image, as far as it can be tried without a container engine: its commands, on the environment of the tests.

With `--nightly`, on an empty environment, in which its first stage installs fsxds.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.dockerfile import DOCKERFILE, TOP, argument, arguments, build, entrypoint, image_environment, link
from tests.support.patience import PATIENCE_S


def locked_versions(lock: str) -> dict[str, str]:
    """Return the versions in a lock by the names; each has a digest."""
    text = (TOP / "docker" / lock).read_text().replace("\\\n", "")
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [row for row in rows if not re.search(r"==\S+ .*--hash=sha256:[0-9a-f]{64}", row)] == []
    pins = [re.match(r"([\w.-]+)==(\S+)", row) for row in rows]
    return {canonicalize_name(pin[1]): pin[2] for pin in pins if pin is not None}


class Image:
    """What the Dockerfile installs, or links to what is installed here, in a folder that stands for `/`."""

    def __init__(self, root: Path, install: Callable[[Path], None]) -> None:
        self.root = root
        (root / "tmp").mkdir()
        install(root)
        self.path = f"{root}/opt/fsxds/bin:{os.environ['PATH']}"

    @property
    def log(self) -> str:
        """What was printed so far."""
        return (self.root / "log").read_text()

    @property
    def environment(self) -> dict[str, str]:
        """The image's variables, with its places in the folder, and a free port for the admin address."""
        variables = {
            name: re.sub(r"^/(?=opt|tmp)", f"{self.root}/", text) for name, text in image_environment().items()
        }
        return variables | {"PATH": self.path, "FSXDS_ADMIN": "127.0.0.1:0"}

    @contextmanager
    def running(self, tree: Path, *prefix: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the image's entry point and command; at places and ports that are free here, for this is no container."""
        ready_file = Path(self.environment["FSXDS_READY_FILE"])
        ready_file.unlink(missing_ok=True)
        places = {"/config": str(tree), "0.0.0.0:18001": "0.0.0.0:0", "0.0.0.0:18000": "0.0.0.0:0"}
        words = [*prefix, *entrypoint(), *(places.get(word, word) for word in json.loads(argument(1, "CMD")))]
        command = [shutil.which(words[0], path=self.path) or words[0], *words[1:]]
        with (self.root / "log").open("wb") as log:
            process = subprocess.Popen(command, env=self.environment, cwd=self.root, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """Wait for the ready file, and return what is in it."""
        ready_file = Path(self.environment["FSXDS_READY_FILE"])
        deadline = time.monotonic() + PATIENCE_S
        while not ready_file.exists():
            assert process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
        content: dict[str, str] = json.loads(ready_file.read_text())
        return content


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, *, nightly: bool) -> Image:
    """What the Dockerfile installs; it is done once."""
    return Image(tmp_path_factory.mktemp("image"), build if nightly else link)


def test_commands_of_the_image_install_and_serve(image: Image) -> None:
    """What the image installs and starts serves a tree, is healthy, and ends at SIGTERM with status 0."""
    with image.running(TOP / "docker/xds") as process:
        port = image.wait_until_ready(process)["admin"].rpartition(":")[2]
        health = json.loads(argument(1, "HEALTHCHECK").partition("CMD ")[2])
        changed = [word.replace("18002", port) for word in health]

        assert subprocess.run(changed, env=image.environment, check=False).returncode == 0

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0

    # And not healthy without it.
    assert subprocess.run(changed, env=image.environment, check=False, capture_output=True).returncode == 1


def test_image_does_not_serve_secrets_in_clear(image: Image) -> None:
    """Its command ends at once, with the reason and the remedies in one line, where the tree has secrets."""
    with image.running(TOP / "config/xds") as process:
        assert 2 == process.wait(PATIENCE_S)

    (line,) = [one for one in image.log.splitlines() if one.startswith("fsxds: ")]
    assert "--tls-cert" in line


@pytest.mark.nightly
def test_image_knows_the_api_of_an_envoy_that_it_does_not_have(image: Image) -> None:
    """A field that is newer than the package xds-protos is known; there is no Envoy in what the image takes."""
    tree = image.root / "tree"
    tree.mkdir()
    newer = "per_connection_buffer_high_watermark_timeout: 1s"
    (tree / "clusters.yaml").write_text(f"resources: [{{name: a, type: STATIC, connect_timeout: 1s, {newer}}}]\n")
    command = [str(image.root / "opt/fsxds/bin/fsxds"), "check", str(tree)]
    without = {name: text for name, text in image.environment.items() if name != "FSXDS_DESCRIPTORS"}
    done = [
        subprocess.run(command, env=one, check=False, capture_output=True, text=True)
        for one in (image.environment, without)
    ]

    assert [0, 1] == [one.returncode for one in done], done
    assert [] == list((image.root / "opt/fsxds").rglob("_bin/envoy"))


@pytest.mark.skipif(not shutil.which("tini"), reason="needs tini: apt-get install tini")
@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], check=False, capture_output=True).returncode != 0,
    reason="needs the right to make a PID namespace",
)
def test_image_ends_at_a_signal_that_comes_while_it_starts(image: Image) -> None:
    """As process 1 Python would lose it; tini, which is process 1, hands it on."""
    with image.running(TOP / "docker/xds", "unshare", "--pid", "--fork", "--kill-child") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + PATIENCE_S
        # tini starts within a millisecond or two, fsxds takes hundreds of them.
        while not (pids := children.read_text().split()) or Path(f"/proc/{pids[0]}/comm").read_text() != "tini\n":
            assert time.monotonic() < deadline
        while not Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text():
            assert time.monotonic() < deadline
        os.kill(int(pids[0]), signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_image_does_not_run_as_root() -> None:
    """The last stage names a user by number, as Kubernetes wants it for runAsNonRoot."""
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", argument(1, "USER"))


def test_image_takes_only_what_the_first_stage_installed() -> None:
    """Compilers, caches, sources and the Envoy stay behind."""
    assert arguments(1, "COPY") == [
        "--from=build /usr/bin/tini-static /usr/bin/tini",
        "--from=build /opt/fsxds /opt/fsxds",
    ]


def test_locks_have_all_that_fsxds_asks_for_and_nothing_else() -> None:
    """Of each dependency, also of dependencies, one version within all bounds, with digests, for both architectures."""
    locked = locked_versions("requirements.lock")
    wanted: dict[str, SpecifierSet] = {}
    for machine, version in itertools.product(("x86_64", "aarch64"), ("3.11", "3.13")):
        environment = {"platform_machine": machine, "python_version": version, "python_full_version": f"{version}.0"}
        open_requirements = [Requirement("fsxds[fast,certificates]")]
        seen = set()
        while open_requirements:
            one = open_requirements.pop()
            name = canonicalize_name(one.name)
            wanted[name] = wanted.get(name, SpecifierSet()) & one.specifier
            for text in importlib.metadata.requires(name) or () if (name, str(one.extras)) not in seen else ():
                needed = Requirement(text)
                extras = one.extras or {""}
                if needed.marker is None or any(needed.marker.evaluate({**environment, "extra": e}) for e in extras):
                    open_requirements.append(needed)
            seen.add((name, str(one.extras)))
    del wanted["fsxds"]

    assert locked.keys() == wanted.keys()
    assert {} == {name: version for name, version in locked.items() if version not in wanted[name]}


def test_all_that_is_downloaded_has_a_digest() -> None:
    """Pip installs from a lock, of which it checks each file, or from what is there; and nothing of others is built."""
    commands = [each for line in arguments(0, "RUN") for each in line.split(" && ") if " -m pip " in each]
    installs = [each for each in commands if " install " in each or " wheel " in each]

    assert len(installs) == 4
    for each in installs:
        assert "--no-index" in each or "--require-hashes --only-binary :all:" in each, each


def test_base_is_one_build_of_one_release_of_python() -> None:
    """Both stages name the same digest, and for readers the release down to the patch and Debian's; its labels do, too."""
    bases = [argument(0, "FROM").partition(" ")[0], argument(1, "FROM")]
    name, _, digest = bases[0].partition("@")

    assert bases[0] == bases[1]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", name)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert {f'base.name="docker.io/library/{name}"', f'base.digest="{digest}"'} <= {
        each.rpartition("org.opencontainers.image.")[2] for each in argument(1, "LABEL").split()
    }


def test_image_speaks_for_the_envoy_that_is_tested() -> None:
    """The descriptors are of the release that the extra `envoy` installs, and their file says so."""
    locked = {f"{name}=={version}" for name, version in locked_versions("build.lock").items()}
    extra = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]["envoy"]

    assert locked >= set(extra)
    assert image_environment()["FSXDS_DESCRIPTORS"] == f"/opt/fsxds/envoy-{extra[0].partition('==')[2]}.pb"


def test_hadolint_finds_nothing() -> None:
    """The Dockerfile is written as its linter asks for."""
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert hadolint is not None
    done = subprocess.run([hadolint, str(DOCKERFILE)], check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stdout)
