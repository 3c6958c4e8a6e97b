"""Read docker/Dockerfile, and do what it says, as far as that goes without a container engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.this_envoy import this_envoy

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "docker/Dockerfile"


def instructions(stage: int) -> list[tuple[str, str]]:
    """Return the instructions of a stage, each with what follows it."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    parts = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line.strip()]
    starts = [index for index, (word, _) in enumerate(parts) if word == "FROM"]
    return parts[starts[stage] : [*starts, len(parts)][stage + 1]]


def arguments(stage: int, word: str) -> list[str]:
    """Return what follows each such instruction of a stage."""
    return [rest for name, rest in instructions(stage) if name == word]


def argument(stage: int, word: str) -> str:
    """Return what follows the one such instruction of a stage."""
    (found,) = arguments(stage, word)
    return found


def image_environment() -> dict[str, str]:
    """Return the variables that the image sets, beside PATH."""
    pairs = (pair.partition("=") for pair in shlex.split(argument(1, "ENV")))
    return {name: value for name, _, value in pairs if name != "PATH"}


def build(folder: Path) -> None:
    """Do what the first stage does, with `folder` as the root of its file system; packages of Debian are left out."""
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
                _copy(TOP / source, workdir / target / ("" if target.startswith("./fsxds") else Path(source).name))
        if word == "RUN" and "apt-get" not in rest:
            command = rest.replace("/opt/", f"{folder}/opt/")
            command = re.sub(r"(^|&& )python ", rf"\1{shlex.quote(sys.executable)} ", command)
            subprocess.run(command, shell=True, cwd=workdir, env=environment, check=True, capture_output=True)


def link(folder: Path) -> None:
    """Have the programs of this environment where the image has its own, and its descriptors beside them."""
    installed = folder / "opt/fsxds"
    installed.mkdir(parents=True)
    (installed / "bin").symlink_to(Path(sys.executable).parent)
    descriptors = Path(image_environment()["FSXDS_DESCRIPTORS"]).name
    (installed / descriptors).write_bytes(this_envoy().serialized)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def entrypoint() -> list[str]:
    """Return the words before those of a command; without tini where this machine has none."""
    found: list[str] = json.loads(argument(1, "ENTRYPOINT"))
    return found if shutil.which(found[0]) else found[2:]
