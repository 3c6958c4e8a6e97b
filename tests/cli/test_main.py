from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import click
import pytest

from fsxds import __version__
from fsxds.cli.commands import COMMANDS, FORMAT_NAMES, TASKS
from fsxds.cli.convert import BY_NAME
from fsxds.cli.main import COLLECT_AFTER, fsxds, main
from fsxds.settings.option import COMMON
from fsxds.settings.options import OPTIONS
from fsxds.settings.reading import GONE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "no/such"], "fsxds: no/such: there is no such directory; give the directory that holds"),
        (["serve", __file__], f"fsxds: {__file__}: is not a directory; give the directory that holds"),
        (["check"], "fsxds check: give a directory, files, or - for stdin (see fsxds check --help)"),
        (["serve"], "fsxds: no source to serve; give DIR, --upstream ADDRESS or both"),
        (["serve", ".", "--setle", "1s"], "fsxds serve: No such option"),
        (["serve", ".", "--on-nack", "hold"], f"fsxds serve: --on-nack is gone: {GONE['on_nack']}\n"),
        (
            ["serve", ".", "--on-nack=continue"],
            "fsxds serve: --on-nack is gone: a rejected resource is held back in any",
        ),
        (
            ["serve", ".", "--max-body", "1MiB"],
            "fsxds serve: --max-body is gone: write `max_body: SIZE` into the file that --settings names\n",
        ),
        (
            ["mirror", ".", "x", "--no-mirror-durable"],
            "fsxds mirror: --no-mirror-durable is gone: write `mirror_durable: ",
        ),
        (["serve", ".", "--settle", "soon"], "fsxds serve: Invalid value for '--settle': 'soon' is not a duration"),
        (["chek", "."], "fsxds: No such command 'chek'."),
        (["show", ".", "--settings", "none.yaml"], "fsxds: none.yaml: cannot be read: No such file or directory;"),
        (["watch", "127.0.0.1:1"], "fsxds watch: Missing option '--type'. Choose from: rtds, sds, cds, eds,"),
        (["check", "no\n\x1b[31msuch"], r"fsxds: no\n\x1b[31msuch: there is no such file or directory"),
        (["check", "a" * 300], f"fsxds: {'a' * 300}: there is no such file or directory; give a directory or files"),
        (["show", "a" * 300], f"fsxds: {'a' * 300}: there is no such directory; give the directory that holds"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Wrong use ends with status 2 and one line on stderr, whatever it is about."""
    status = main(arguments)
    out, err = capfd.readouterr()

    assert (2, "", 1) == (status, out, err.count("\n"))
    assert err.startswith(line)


def test_without_a_command_there_is_help(capfd: pytest.CaptureFixture[str]) -> None:
    """It is that of `fsxds --help`, on stderr, with the status of wrong use."""
    assert main(["--help"]) == 0
    help_text = capfd.readouterr().out

    assert main([]) == 2
    assert capfd.readouterr() == ("", help_text)


def test_commands_are_shown_by_task(capfd: pytest.CaptureFixture[str]) -> None:
    """`fsxds` prints each command once, beside its task, with its whole first sentence, on 30 lines of 80 characters at most."""
    main([])
    lines = capfd.readouterr().err.splitlines()
    listed = [found.groups() for line in lines if (found := re.fullmatch(r"(\w+)? +([a-z]+)  +([A-Z].*[.])", line))]

    assert [*TASKS] == [task for task, *_ in listed if task]
    assert [command.name for command in COMMANDS] == [name for _, name, _ in listed]
    assert not any(text.endswith("...") for *_, text in listed)
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80


def run_apart(arguments: list[str], stdout: int | IO[str] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run fsxds in a process, whose stdout takes nothing that UTF-8 cannot hold."""
    command, variables = [sys.executable, "-m", "fsxds", *arguments], {"PYTHONIOENCODING": "utf-8:strict"}
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | variables, text=True, check=False
    )


def test_a_name_that_is_no_text_is_escaped() -> None:
    """A node id from the shell may be any bytes; JSON has them escaped."""
    done = run_apart(["bootstrap", "--node", "\udcff", "--format", "json"])

    assert (0, "") == (done.returncode, done.stderr)
    assert json.loads(done.stdout)["node"]["id"] == "\udcff"


def test_json_is_valid_in_any_encoding() -> None:
    """Its escapes are not those of other texts."""
    command = [sys.executable, "-m", "fsxds", "bootstrap", "--node", "\u00e9\U0001f600", "--format", "json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, stdout=subprocess.PIPE, check=True)

    assert json.loads(done.stdout)["node"]["id"] == "\u00e9\U0001f600"


@pytest.mark.parametrize("arguments", [["--version"], ["explain"], ["schema", "--settings"]])
def test_a_stdout_on_a_full_disk_is_reported(arguments: list[str]) -> None:
    """The status is not 1, by which check and diff report problems and differences."""
    with Path("/dev/full").open("w") as full:
        done = run_apart(arguments, full)

    assert (2, "fsxds: stdout cannot be written: No space left on device\n") == (done.returncode, done.stderr)


def test_a_reader_that_went_away_ends_the_command_in_silence() -> None:
    """As with `fsxds explain | head -1`, whether the output fits into the pipe or not."""
    for arguments in (["--version"], ["explain"], ["schema", "--settings"]):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            done = run_apart(arguments, closed)
        assert (1, "") == (done.returncode, done.stderr)


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    """`fsxds --version` names the version."""
    assert main(["--version"]) == 0
    assert f"fsxds {__version__}\n" == capfd.readouterr().out


def test_python_m_fsxds() -> None:
    """`python -m fsxds` is `fsxds`, and its exit status is the command's."""
    arguments = [sys.executable, "-m", "fsxds", "check", "no/such"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("fsxds: no/such: ")


@pytest.mark.parametrize("name", ["serve", "check", "mirror", "show", "dev"])
def test_help_tells_all_of_an_option(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`--help-all` has each option of a command with its variable and default, and examples."""
    assert main([name, "--help-all"]) == 0
    out = capfd.readouterr().out
    words = " ".join(out.split())
    # Long words are cut where lines end.
    letters = "".join(out.split())

    for row in OPTIONS:
        assert (name in row.commands and row.has_flag) == (f" {row.variable}]" in words or f"[{row.variable}]" in words)
        if name in row.commands and row.has_flag and row.default:
            assert f"[default{''.join(row.default.split())};{row.variable}]" in letters
    assert f" fsxds {name} config/xds" in words.partition("Examples:")[2]


@pytest.mark.parametrize("name", COMMON)
def test_help_shows_common_flags(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`--help` of a command with many options shows the common ones, which are at most fifteen, and names `--help-all`."""
    assert main([name, "--help"]) == 0
    words = " ".join(capfd.readouterr().out.split())
    rows = [row for row in OPTIONS if name in row.commands and row.has_flag]

    assert {row.name for row in rows if f"{row.variable}]" in words} == COMMON[name]
    assert len(COMMON[name]) <= 15
    assert "--help-all Show every flag, by topic." in words


def test_examples_of_serve(capfd: pytest.CaptureFixture[str]) -> None:
    """`serve --help` has one example for each way to run: a directory, a mirror, a relay and a fleet."""
    assert main(["serve", "--help"]) == 0
    shown = re.findall(r"^ +fsxds serve( config/xds)?(?: (--\w+).*)?$", capfd.readouterr().out, re.MULTILINE)

    assert [(" config/xds", ""), (" config/xds", "--mirror"), ("", "--upstream"), (" config/xds", "--fleet")] == shown


def test_help_of_a_few_flags_is_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """A command with few flags shows all of them by `--help`, and takes `--help-all` as the same."""
    assert main(["status", "--help"]) == 0
    shown = capfd.readouterr().out
    assert main(["status", "--help-all"]) == 0

    assert shown == capfd.readouterr().out
    assert "--help-all" not in shown


def test_ctrl_c_is_quiet(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command with status 130 and without a traceback."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(fsxds.commands, "wait", click.Command("wait", callback=interrupted))

    assert main(["wait"]) == 130
    assert capfd.readouterr().err == ""


HEAVY = {
    *("aiohttp", "asyncio", "google", "grpc", "jsonschema", "rich", "watchdog", "yaml"),
    *("fsxds.api", "fsxds.formats", "fsxds.protocol", "fsxds.snapshots", "fsxds.transports", "fsxds.lint"),
}
WRITE_IMPORTS = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "


def imports_of(arguments: list[str], **variables: str) -> tuple[str, set[str]]:
    """Return what a command line prints, and the modules that it imports."""
    code = f"{WRITE_IMPORTS}from fsxds.cli.main import main; sys.exit(main({arguments}))"
    environment = os.environ | variables
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout, {*done.stderr.split()}


def test_a_server_that_python_takes_apart_ends_in_silence(tmp_path: Path) -> None:
    """With every listener, SIGTERM ends a server with status 0, and Python reports nothing while it takes all modules apart."""
    tree, ready, log = tmp_path / "tree", tmp_path / "ready", tmp_path / "log"
    tree.mkdir()
    (tree / "clusters.yaml").write_text("resources: []\n")
    listeners = [part for name in ("http", "grpc", "admin") for part in (f"--{name}", "127.0.0.1:0")]
    written = ["--mirror", f"{tmp_path}/mirror", "--state", f"{tmp_path}/state", "--ready-file", str(ready)]
    python = [sys.executable, "-W", "default::ResourceWarning", "-m", "fsxds"]
    arguments = [*python, "serve", str(tree), *listeners, *written, "--log-format", "json"]
    with log.open("wb") as output, subprocess.Popen(arguments, stdout=output, stderr=output) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()

    assert process.returncode == 0
    assert [line for line in log.read_text().splitlines() if not line.startswith("{")] == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["serve", "--help-all"], *([name, "--help"] for name in fsxds.commands)]
)
def test_help_imports_little(arguments: list[str]) -> None:
    """Help does not wait for what only the work of a command needs."""
    out, imported = imports_of(arguments)

    assert out.startswith("Usage: ")
    assert HEAVY.isdisjoint(imported)


def test_the_garbage_collector_seldom_runs_during_imports() -> None:
    """A command raises the threshold before it imports its work."""
    write = "import atexit, gc, sys; atexit.register(lambda: print(gc.get_threshold()[0], file=sys.stderr)); "
    code = f"{write}sys.argv[1:] = ['--version']; from fsxds.cli.main import run_process; run_process()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == f"{COLLECT_AFTER}\n"


def test_a_json_log_does_without_rich() -> None:
    """Colours are for terminals."""
    code = (
        "import sys; from fsxds.observe.log import open_log; open_log('json', 'info').__enter__(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "rich.console" not in done.stdout.split()


def test_completion_imports_little() -> None:
    """Shell completion does not wait for it either."""
    variables = {"_FSXDS_COMPLETE": "bash_complete", "COMP_WORDS": "fsxds check --sev", "COMP_CWORD": "2"}
    out, imported = imports_of([], **variables)

    assert "plain,--severity\n" == out
    assert HEAVY.isdisjoint(imported)


def test_formats_have_their_names() -> None:
    """`fsxds convert` takes each format that there is, by the name that its help has."""
    assert {*FORMAT_NAMES} == {*BY_NAME}
