"""What README tells people to type works."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from pathlib import Path

import click
import pytest
import yaml

from fsxds.commands.main import fsxds, main
from tests.support.server import Server

TOP = Path(__file__).parent.parent
README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
LINES = [line for block in BLOCKS for line in block.splitlines()]
COMMANDS = [command for line in LINES for command in re.findall(r"(?:^|/)fsxds ([a-z].*?)(?: > \S+)?$", line)]
CURLS = re.findall(r"^curl -s localhost:18001(\S+) .* -d '(.*)'$", "\n".join(LINES), re.MULTILINE)


@pytest.mark.parametrize("written", COMMANDS)
def test_commands_are_understood(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command line in README names a command, a directory that exists, and options that there are."""
    monkeypatch.chdir(TOP)
    name, *arguments = shlex.split(written)
    command = fsxds.get_command(click.Context(fsxds), name)

    assert command is not None
    assert command.make_context(name, arguments).params


def test_polls_are_answered(tmp_path: Path) -> None:
    """The polls in README get resources from the sample tree."""
    assert len(CURLS) == 3
    with Server(TOP / "config" / "xds", tmp_path) as server:
        for path, body in CURLS:
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}{path}", body.encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.loads(response.read())
                assert answer.get("resources") or answer["config"]


def test_files_that_are_named_exist() -> None:
    """Links lead to files of the checkout."""
    links = re.findall(r"\]\(([^)#:]+)\)", README)

    assert links
    assert [] == [link for link in links if not (TOP / link).exists()]


@pytest.mark.parametrize("names", [[], ["config/xds/routes.yaml", "config/xds/clusters.yaml"]])
def test_hook_passes_on_the_sample_tree(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pre-commit hook does what it says, with the names of changed files and without any."""
    (text,) = re.findall(r"^```yaml\n(repos:\n.*?)^```", README, re.DOTALL | re.MULTILINE)
    (hook,) = yaml.safe_load(text)["repos"][0]["hooks"]
    monkeypatch.chdir(TOP)

    assert hook["always_run"]
    assert main([*shlex.split(hook["entry"])[1:], *names]) == 0
