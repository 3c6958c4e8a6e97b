"""`fsxds watch` as users run it: against a real `fsxds serve`, and against servers that are not there."""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, write_tree
from tests.support.fsxds_process import start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import Server, write_file

CHANGED = CLUSTERS.replace("connect_timeout: 1s", "connect_timeout: 2s")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a cluster and a secret."""
    workdir = tmp_path_factory.mktemp("watched")
    with Server(write_tree(workdir, cds=CLUSTERS, sds=SECRETS), workdir) as server:
        yield server


def rest(server: Server) -> str:
    """Return the address of REST."""
    return f"127.0.0.1:{server.port}"


def test_first_state(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The list is on stdout, what is watched as whom on stderr; after the wanted number of updates it ends."""
    assert main(["watch", rest(server), "--rest", "--type", "cds", "--count", "1", "--node", "me"]) == 0
    out, err = capfd.readouterr()
    (heading, name) = out.splitlines()

    assert ("clusters: 1  version ", "  web") == (heading[9:30], name)
    assert f"watching clusters at http://{rest(server)} by REST as me\n" == err[9:]


def test_json(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Each update is one object; secrets are hidden."""
    arguments = ["--type", "sds", "--names", "web,x", "--count", "1", "--format", "json"]
    assert main(["watch", f"http://{rest(server)}", *arguments]) == 0
    content = json.loads(capfd.readouterr().out)

    assert ["sds", ["web"]] == [content["type"], [resource["name"] for resource in content["added"]]]
    assert "S3CR3T" not in json.dumps(content)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["x:1", "--type", "vhds"], "fsxds: --type vhds exists in Delta alone; add --delta"),
        (["x:1", "--type", "cds", "--rest", "--delta"], "fsxds: there is no --delta over REST"),
        (["http://x", "--type", "cds", "--ads"], "fsxds: http://x: streams have no URL; write HOST:PORT"),
        (["x", "--type", "cds"], "fsxds: 'x' is no address; write"),
        (["x:1"], "fsxds watch: Missing option '--type'"),
        (["x:1", "--type", "cds", "--count", "0"], "fsxds watch: Invalid value for '--count'"),
        (["http://[x", "--type", "cds"], "fsxds: http://[x is no URL"),
    ],
)
def test_wrong_use(arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Wrong use ends with status 2 and the remedy."""
    assert main(["watch", *arguments]) == 2

    assert f"\n{line}" in f"\n{capfd.readouterr().err}"


class Watching:
    """One `fsxds watch` process; its stdout is a file, or what is given. Use as a context manager."""

    def __init__(self, workdir: Path, *arguments: str, stdout: int | None = None) -> None:
        self.out, self.err = workdir / "out", workdir / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = start_fsxds(
                ["watch", *arguments],
                stdout=out if stdout is None else stdout,
                stderr=err,
                env={**os.environ, "TERM": "xterm"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def until(self, text: str, file: Path | None = None) -> str:
        """Wait until a text was printed, by default on stdout, and return all of it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in (seen := (file or self.out).read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                pytest.fail(f"waited in vain for {text!r}\n{seen}\n{self.err.read_text()}")
            time.sleep(0.02)
        return seen

    def interrupt(self) -> int:
        """Press Ctrl-C twice, and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


def test_changes_through_an_outage(tmp_path: Path) -> None:
    """A change is told when it is made; the server's end and return are told; Ctrl-C ends all without a word."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    with (
        Server(tree, tmp_path, http=f"unix:{tmp_path}/s") as server,
        Watching(tmp_path, f"unix:{tmp_path}/s", "--rest", "--type", "cds") as watching,
    ):
        watching.until("  web\n")
        write_file(tree / "cds.yaml", CHANGED)
        changed = watching.until("1s → 2s\n")
        server.stop()
        watching.until("trying again until a server is there\n", watching.err)
        server.start()
        watching.until("connected again\n", watching.err)
        status = watching.interrupt()

    assert 130 == status
    assert ["  ~ web", "      ~ connect_timeout: 1s → 2s"] == changed.splitlines()[-2:]
    assert "Traceback" not in watching.err.read_text()


def test_colours_on_a_terminal(server: Server, tmp_path: Path) -> None:
    """On a terminal the time is dim and the type bold."""
    ours, theirs = pty.openpty()
    arguments = ("--rest", "--type", "cds", "--count", "1")
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        Watching(tmp_path, rest(server), *arguments, stdout=theirs) as watching,
    ):
        assert 0 == watching.process.wait(PATIENCE_S)
        output = terminal.read(4096)
    os.close(theirs)

    assert output.startswith(b"\x1b[2m")
    assert b"\x1b[1mclusters\x1b[0m: 1" in output


def test_a_reader_that_goes(server: Server, tmp_path: Path) -> None:
    """`fsxds watch … | head -1` ends quietly when its reader does."""
    ours, theirs = os.pipe()
    os.close(ours)
    with Watching(tmp_path, rest(server), "--rest", "--type", "cds", stdout=theirs) as watching:
        os.close(theirs)

        assert 1 == watching.process.wait(PATIENCE_S)
    assert "Traceback" not in watching.err.read_text()


@pytest.mark.parametrize("flags", [(), ("--delta",), ("--ads",), ("--ads", "--delta")])
def test_streams(flags: tuple[str, ...], server: Server, tmp_path: Path) -> None:
    """Every variant of the streams tells the same; a name that is not there is told as such."""
    arguments = ["--type", "cds", "--names", "web,x", "--count", "1"]
    with Watching(tmp_path, f"127.0.0.1:{server.grpc_port}", *arguments, *flags) as watching:
        assert 0 == watching.process.wait(PATIENCE_S)

    assert ["  web", "  - x  does not exist"] == watching.out.read_text().splitlines()[1:]
    assert 1 == watching.err.read_text().count("\n")


def test_several_types(server: Server, tmp_path: Path) -> None:
    """By ADS several types come on one stream."""
    arguments = ["--ads", "--type", "cds", "--type", "sds", "--count", "2"]
    with Watching(tmp_path, f"127.0.0.1:{server.grpc_port}", *arguments) as watching:
        assert 0 == watching.process.wait(PATIENCE_S)
    headings = [line[9:].partition("  ")[0] for line in watching.out.read_text().splitlines() if line[0] != " "]

    assert ["clusters: 1", "secrets: 1"] == sorted(headings)
    assert " watching clusters, secrets at " in watching.err.read_text()


@pytest.mark.parametrize("flags", [(), ("--delta",)])
def test_a_stream_through_an_outage(flags: tuple[str, ...], tmp_path: Path) -> None:
    """A stream is opened again when its server is back; what the client holds is not told again, what changed is."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    address = f"unix:{tmp_path}/s"
    with (
        Server(tree, tmp_path, grpc=address) as server,
        Watching(tmp_path, address, "--ads", "--type", "cds", *flags) as watching,
    ):
        watching.until("  web\n")
        server.stop()
        watching.until("trying again until a server is there\n", watching.err)
        server.start()
        watching.until("connected again\n", watching.err)
        write_file(tree / "cds.yaml", CHANGED)
        watching.until("1s → 2s\n")
        status = watching.interrupt()

    assert 130 == status
    assert ["clusters: 1", "  web", "clusters: 1 changed", "  ~ web", "      ~ connect_timeout: 1s → 2s"] == [
        line[9:].partition("  ")[0] if line[0] != " " else line for line in watching.out.read_text().splitlines()
    ]
