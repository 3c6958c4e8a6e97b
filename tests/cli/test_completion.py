"""Tab in real shells, and what fsxds answers them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pexpect
import pytest

from fsxds.cli.commands import COMMANDS
from fsxds.cli.completion import COMPLETION_VARIABLE, SCRIPTS, message_types, rule_levels, values_of
from fsxds.cli.main import main
from fsxds.lint.rules import rules
from fsxds.settings.forms import LEVELS
from fsxds.settings.options import OPTIONS
from tests.support.patience import PATIENCE_S

TOP = Path(__file__).parents[2]
TO_LINE_START = "\x01"  # Ctrl-A

# How each is started without its user's settings, and how it takes the script.
SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(fsxds completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(fsxds completion zsh)"'),
    "fish": (["--no-config", "-i"], "fsxds completion fish | source"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tree, a settings file, and `fsxds` of this checkout in `bin`."""
    directory = tmp_path_factory.mktemp("completion")
    command = directory / "bin/fsxds"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(TOP))} exec {sys.executable} -m fsxds "$@"\n')
    command.chmod(0o755)
    (directory / "tree").mkdir()
    (directory / "tree/clusters.yaml").write_text("[]")
    (directory / "treason.yaml").write_text("")
    (directory / "fsxds.yaml").write_text("settle: 100ms")
    return directory


class Shell:
    """A shell on a terminal, which has been told to complete `fsxds`."""

    def __init__(self, name: str, home: Path) -> None:
        arguments, load = SHELLS[name]
        environment = {
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
        }
        self._process = pexpect.spawn(
            name, arguments, cwd=str(home), env=environment, dimensions=(50, 500), timeout=PATIENCE_S, encoding="utf-8"
        )
        self._process.sendline(f"{load}; echo lo''aded")
        self._process.expect("loaded")

    def completed(self, typed: str) -> str:
        """Return what a line has become after Tab."""
        self._process.send(f"{typed}\t{TO_LINE_START}echo 'li''ne:' \r")
        self._process.expect(r"line: ([^\r\n]*)")
        found = self._process.match
        assert isinstance(found, re.Match)
        return str(found[1]).strip()

    def close(self) -> None:
        """End it."""
        self._process.close(force=True)


@pytest.fixture(scope="module")
def shells(home: Path) -> Iterator[Callable[[str], Shell]]:
    """Return a shell by its name, opened once."""
    opened: dict[str, Shell] = {}

    def find(name: str) -> Shell:
        if shutil.which(name) is None:
            pytest.skip(f"there is no {name}; apt-get install {name}")
        if name not in opened:
            opened[name] = Shell(name, home)
        return opened[name]

    yield find
    for shell in opened.values():
        shell.close()


# A line, its completion, and whether the script of a shell has a part in it, beside the answer of fsxds.
LINES = [
    ("expl", "explain", True),
    ("explain unknown-fi", "explain unknown-field", False),
    ("show tree --ty", "show tree --type", False),
    ("show --type vh", "show --type vhds", False),
    ("watch localhost:18000 --type vh", "watch localhost:18000 --type vhds", False),
    ("dev --transport del", "dev --transport delta", False),
    ("bootstrap --transport fi", "bootstrap --transport files", False),
    ("check --format sa", "check --format sarif", False),
    ("check --format=sa", "check --format=sarif", True),
    ("convert --to textp", "convert --to textproto", False),
    ("schema --spelling ca", "schema --spelling camel", False),
    ("schema --any EnvoyMobileHttpC", "schema --any EnvoyMobileHttpC", False),
    ("schema --any OAuth", "schema --any OAuth2", False),
    ("serve --http 127.0.0.1:1", "serve --http 127.0.0.1:18001", True),
    ("serve --watch ino", "serve --watch inotify", False),
    ("serve tre", "serve tree/", True),
    ("serve tree --settings fs", "serve tree --settings fsxds.yaml", False),
    ("serve --settings=fs", "serve --settings=fsxds.yaml", True),
    ("convert tree/cl", "convert tree/clusters.yaml", True),
    ("check --rules unused-cl", "check --rules unused-cluster=", False),
    ("check --rules unused-cluster=of", "check --rules unused-cluster=off", True),
    ("check --rules unused-cluster=off,unknown-fi", "check --rules unused-cluster=off,unknown-field=", False),
    ("completion fi", "completion fish", False),
    ("explain no-such-r", "explain no-such-r", True),
    ("serve no-such-d", "serve no-such-d", False),
]


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        pytest.param(name, typed, expected, marks=() if name == "bash" or is_of_shell else pytest.mark.nightly)
        for name in sorted(SHELLS)
        for typed, expected, is_of_shell in LINES
    ],
)
def test_tab(name: str, typed: str, expected: str, shells: Callable[[str], Shell]) -> None:
    """A line goes on as far as it is certain."""
    # At the end of a word, zsh takes the slash of a directory off again.
    assert shells(name).completed(f"fsxds {typed}").rstrip("/") == f"fsxds {expected}".rstrip("/")


def answer(home: Path, line: str) -> list[str]:
    """Return the values that bash is given for a line."""
    environment = {
        "PATH": os.environ["PATH"],
        COMPLETION_VARIABLE: "bash_complete",
        "COMP_CWORD": "-1",
        "COMP_WORDS": line,
    }
    done = subprocess.run([home / "bin/fsxds"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [row.partition(",")[2] for row in done.stdout.splitlines()]


def test_every_command_and_flag_is_completed(home: Path) -> None:
    """Nothing that `--help` shows is missing."""
    names = [str(command.name) for command in COMMANDS]
    flags = {
        flag for row in COMMANDS[names.index("serve")].params if isinstance(row, click.Option) for flag in row.opts
    }

    assert names == answer(home, "fsxds ''")
    assert {*flags, "--help"} <= set(answer(home, "fsxds serve --"))


@pytest.mark.parametrize("line", ["fsxds serve /no/such --", "fsxds check --format wrong --", "fsxds show --type x ''"])
def test_mistakes_before_the_cursor(line: str, home: Path) -> None:
    """They are for later: there is an answer, and no complaint on the terminal."""
    assert len(answer(home, line)) > 0


@pytest.mark.parametrize(
    "line", ["fsxds serve 'unfinished", 'fsxds "', "fsxds \\", "", "fsxds nonsense ''", "fsxds \x00"[:6]]
)
def test_lines_that_are_none(line: str, home: Path) -> None:
    """An open quote, or an unknown command, is no reason to fail."""
    answer(home, line)


@pytest.mark.parametrize("row", [row for row in OPTIONS if row.form.choices], ids=lambda row: row.name)
def test_words_of_options(row: object) -> None:
    """Those of the table of settings."""
    option = next(one for one in OPTIONS if one is row)

    assert [*option.form.choices] == [item.value for item in values_of(option, "")]


@pytest.mark.parametrize(
    ("name", "incomplete", "expected"),
    [
        ("settle", "", ["50ms"]),
        ("grpc", "", ["127.0.0.1:18000", "off"]),
        ("exclude", "", []),
        ("static_clusters", "", []),
        ("bootstrap", "fs", ["fs"]),
        ("with_envoy", "/usr", ["/usr"]),
        ("watch", "x", []),
    ],
)
def test_values_of_options(name: str, incomplete: str, expected: list[str]) -> None:
    """A default shows the form; paths are left to the shell; what is free has no proposal."""
    option = next(row for row in OPTIONS if row.name == name)

    assert expected == [item.value for item in values_of(option, incomplete)]


def test_levels_of_rules() -> None:
    """Names of rules first, and levels where the name is certain."""
    assert [item.value for item in rule_levels("")] == [f"{rule}=" for rule in rules()]
    assert [item.value for item in rule_levels("unknown-tag=")] == [f"unknown-tag={level}" for level in LEVELS]
    assert [item.value for item in rule_levels("a=off,unknown-tag=o")] == ["a=off,unknown-tag=off"]
    assert rule_levels("no-such") == []


def test_message_types() -> None:
    """Last parts, and full names where dots are written."""
    nothing = click.Context(COMMANDS[0]), COMMANDS[0].params[0]

    assert "Router" in {item.value for item in message_types(*nothing, "Rou")}
    full = {item.value for item in message_types(*nothing, "envoy.extensions.filters.http.router")}
    assert full == {"envoy.extensions.filters.http.router.v3.Router"}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The command prints the script of a shell, which asks by the variable that click reads."""
    assert main(["completion", name]) == 0
    script = capfd.readouterr().out
    assert f"{COMPLETION_VARIABLE}={name}_complete" in script
    assert (script.count("compset"), script.count('-i "$IPREFIX"')) == ((1, 1) if name == "zsh" else (0, 0))


def test_other_shells(capfd: pytest.CaptureFixture[str]) -> None:
    """They are wrong use."""
    assert main(["completion", "tcsh"]) == 2
    assert "is not one of" in capfd.readouterr().err


def test_completion_imports_little() -> None:
    """No API, no parser and no server: each Tab starts a process."""
    code = "import sys, fsxds.cli.main, fsxds.lint.rules as r; r.rules(); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    slow = {
        "google.protobuf",
        "grpc",
        "aiohttp",
        "yaml",
        "rich",
        "jsonschema",
        "asyncio",
        "fsxds.snapshots",
        "fsxds.api",
    }

    assert set() == slow & set(done.stdout.split())
