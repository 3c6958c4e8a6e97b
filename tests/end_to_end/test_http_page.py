"""The page on HTTP, as a reader would type its commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import TOP
from tests.support.server import Server

PAGE = (TOP / "config/http/README.md").read_text(encoding="utf-8")
# A block of commands, and the block of what they print.
EXAMPLES = re.findall(r"^```sh\n(curl .*?)^```\n\n```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(TOP / "config" / "xds", tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize(("commands", "printed"), EXAMPLES)
def test_commands_print_what_the_page_says(commands: str, printed: str, server: Server, tmp_path: Path) -> None:
    """`…` stands for anything."""
    script = commands.replace("localhost:18001", f"localhost:{server.port}")
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = done.stdout.replace(f"localhost:{server.port}", "localhost:18001")

    assert re.fullmatch(re.escape(printed.strip()).replace("…", ".*"), shown.strip(), re.DOTALL), shown


def test_every_command_is_run() -> None:
    """Each block of commands says what they print."""
    assert len(EXAMPLES) == len(re.findall(r"^```sh\ncurl", PAGE, re.MULTILINE)) >= 7
