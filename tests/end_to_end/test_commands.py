"""The commands as users run them: processes, exit statuses, what is on the terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.support.fsxds_process import FsxdsProcess, run_fsxds, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.resources import direct_route, document, http_listener, refused_cluster, static_cluster
from tests.support.server import Server, events_in, write_file

SAMPLE = Path(__file__).parents[2] / "config" / "xds"


def fsxds(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_fsxds([*arguments])


def test_check_of_the_sample_tree_is_clean() -> None:
    """The tree that README starts with has no problem."""
    done = fsxds("check", str(SAMPLE))

    assert (0, "") == (done.returncode, done.stdout)


def test_check_names_every_mistake_by_line(tmp_path: Path) -> None:
    """All mistakes of a tree come in one go, at places that editors open, and the exit status is 1."""
    tree = tmp_path / "tree"
    shutil.copytree(SAMPLE, tree)
    clusters = (tree / "clusters.yaml").read_text()
    (tree / "clusters.yaml").write_text(clusters.replace("connect_timeout", "conect_timeout"))
    (tree / "routes.yaml").write_text("resources: [")
    done = fsxds("check", str(tree))

    line = 1 + clusters[: clusters.index("connect_timeout")].count("\n")
    assert 1 == done.returncode
    assert f"{tree}/clusters.yaml:{line}:3: error[unknown-field]: resources[0].conect_timeout: " in done.stdout
    assert 'did you mean "connect_timeout"?' in done.stdout
    assert f"{tree}/routes.yaml:1:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "nowhere"), "there is no such file or directory"),
        (("serve", str(SAMPLE), "--http", "127.0.0.1:99999"), "is no address"),
        (("serve", str(SAMPLE), "--mirror", str(SAMPLE / "out")), "inside of the tree"),
        (("mirror", str(SAMPLE), str(SAMPLE / "out")), "inside of the tree"),
        (("serve", str(SAMPLE), "--envoy", "/bin/sh"), "/bin/sh"),
        (("check", str(SAMPLE), "--watch", "never"), "--watch"),
        (("serve", str(SAMPLE), "--settle", "soon"), "--settle"),
        (("serve", str(SAMPLE), "--http", "off", "--grpc", "off"), "no transport to serve on"),
        (("dev", str(SAMPLE), "--http", "off"), "dev needs REST"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_use_is_told_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    """The exit status is 2, and there is no traceback."""
    done = fsxds(*arguments)
    told = [line for line in done.stderr.splitlines() if not line.startswith("{")]

    assert 2 == done.returncode
    assert len(told) == 1, done.stderr
    assert said in told[0]


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    """The line names the address and the remedy."""
    with Server(SAMPLE, tmp_path) as server:
        done = fsxds("serve", str(SAMPLE), "--http", f"127.0.0.1:{server.port}", "--grpc", "off")

    assert 2 == done.returncode
    assert f"127.0.0.1:{server.port} is taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_taken_ports_are_told_in_one_line() -> None:
    """Each with its flag; nothing was started that had to be torn down: no library complains, and nothing listened."""
    with taken_ports(3) as ports:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        flags = [text for pair in zip(("--http", "--grpc", "--admin"), addresses, strict=True) for text in pair]
        done = fsxds("serve", str(SAMPLE), *flags)
        one = fsxds("serve", str(SAMPLE), "--http", "127.0.0.1:0", "--grpc", addresses[1], "--admin", "127.0.0.1:0")

    told, *others = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert (done.returncode, others) == (2, [])
    assert all(f"{address} is taken" in told for address in addresses)
    assert "use --http HOST:PORT and --grpc HOST:PORT and --admin HOST:PORT, or port 0" in told
    for output in (done.stderr, one.stderr):
        assert not any(word in output for word in ("Traceback", "library_error", '"listening"', "loop is closed"))
    assert one.stderr.splitlines()[-1].endswith("use --grpc HOST:PORT, or port 0 for any free one")


def test_dev_chooses_free_ports_when_its_defaults_are_taken(tmp_path: Path) -> None:
    """And says where it listens; a port that was asked for is not replaced."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", document([static_cluster("a", 1)]))
    with taken_ports(3, first=18000), dev(tree, tmp_path, "rest", has_ports=True) as running:
        running.wait(lambda: running.events("envoy_started"), "Envoy")

        assert set(running.listens_at()) == {"REST", "gRPC", "admin"}
        assert not {f"127.0.0.1:{port}" for port in (18000, 18001, 18002)} & set(running.listens_at().values())
    with taken_ports(1) as (port,):
        done = fsxds("dev", str(tree), "--http", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port} is taken" in done.stderr


@contextmanager
def taken_ports(count: int, first: int | None = None) -> Iterator[list[int]]:
    """Listen at some ports, from a certain one on if given: there, somebody else may listen already."""
    with ExitStack() as stack:
        ports = [free_port() if first is None else first + number for number in range(count)]
        for port in ports:
            with suppress(OSError) if first is not None else nullcontext():
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield ports


def test_the_ready_file_tells_what_is_served(tmp_path: Path) -> None:
    """It has the bound address, the mirror, the versions and the process id, and comes after the mirror's files."""
    out = tmp_path / "out"
    with Server(SAMPLE, tmp_path, "--mirror", str(out)) as server:
        ready = server.ready
        assert (out / "cds.pb").exists()
        body = json.dumps({}).encode()
        request = urllib.request.Request(
            f"http://{ready['http']}/v3/discovery:clusters", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.loads(response.read())

    assert {"http", "grpc", "admin", "mirror", "mirrors", "versions", "degraded", "pid"} == set(ready)
    assert (str(out), server.pid) == (ready["mirror"], ready["pid"])
    assert answer["version_info"] == ready["versions"]["cds"]
    assert answer["nonce"]
    assert "type.googleapis.com/envoy.config.cluster.v3.Cluster" == answer["type_url"]


def test_before_anything_is_good_nothing_is_served(tmp_path: Path) -> None:
    """A first poll of a type whose only file is broken is answered 503 with Retry-After, and no file is mirrored."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    write_file(tree / "cds.yaml", "resources: [")
    with Server(tree, tmp_path, "--mirror", str(out)) as server:
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v3/discovery:clusters", b"{}", {"content-type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)

        with refused.value as answer:
            assert (503, "1") == (answer.code, answer.headers["retry-after"])
        assert not (out / "cds.pb").exists()
        # Whoever balances load sends nobody there.
        assert not server.ready_file.exists()
        assert [line["reason"] for line in server.log_events("not_ready")] == [
            "1 of 1 views have no content; no file there is without a mistake"
        ]
        with pytest.raises(urllib.error.HTTPError) as unready:
            urllib.request.urlopen(f"http://{server.admin}/readyz", timeout=30)
        with unready.value as answer:
            assert (503, b"not ready: 1 of 1 views have no content") == (answer.code, answer.read()[:39])
        write_file(tree / "cds.yaml", "[]")

        server.wait(server.ready_file.exists, "something good")
        with urllib.request.urlopen(f"http://{server.admin}/readyz", timeout=30) as answer:
            assert answer.read() == b"ready\n"


def test_mirror_writes_once_and_again_nothing(tmp_path: Path) -> None:
    """A second run finds everything as it should be."""
    out = tmp_path / "out"
    first = fsxds("mirror", str(SAMPLE), str(out))
    inodes = {path: path.stat().st_ino for path in out.rglob("*.pb")}
    second = fsxds("mirror", str(SAMPLE), str(out))

    assert (0, 0) == (first.returncode, second.returncode), first.stderr + second.stderr
    assert inodes
    assert inodes == {path: path.stat().st_ino for path in out.rglob("*.pb")}
    assert 0o600 == (out / "sds" / "demo-certificate.pb").stat().st_mode & 0o777


def test_show_hides_secrets() -> None:
    """Every resource is shown with its place, and no part of a key is."""
    key = (SAMPLE / "secrets.yaml").read_text().partition("BEGIN PRIVATE KEY-----\n")[2].split()[0]
    for form in ("table", "json", "yaml"):
        done = fsxds("show", str(SAMPLE), "--format", form)

        assert 0 == done.returncode, done.stderr
        assert "demo-certificate" in done.stdout
        assert f"{SAMPLE}/routes.yaml:2" in done.stdout
        assert key not in done.stdout


class Dev:
    """A running `fsxds dev`."""

    def __init__(self, process: FsxdsProcess, log_file: Path) -> None:
        self.process = process
        self._log_file = log_file

    def events(self, event: str) -> list[dict[str, object]]:
        """Return the log lines of one event."""
        return [line for line in events_in(self._log_file.read_bytes()) if line["event"] == event]

    def listens_at(self) -> dict[object, object]:
        """Return the addresses where it listens, by their transports."""
        return {line["name"]: line["address"] for line in self.events("listening")}

    def wait(self, predicate: Callable[[], object], what: str) -> None:
        """Wait until `predicate` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not predicate():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"waited in vain for {what}\n{self._log_file.read_text()}")
            time.sleep(0.05)


@contextmanager
def dev(tree: Path, tmp_path: Path, transport: str, *flags: str, has_ports: bool = False) -> Iterator[Dev]:
    """Run `fsxds dev` on a tree."""
    log_file = tmp_path / "dev.log"
    addresses = [] if has_ports else ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    arguments = ["dev", str(tree), *addresses, "--transport", transport, *flags]
    with log_file.open("wb") as log:
        process = start_fsxds(arguments, stdout=log, stderr=log, has_own_session=True)
    try:
        yield Dev(process, log_file)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("transport", ["rest", "mirror", "ads", "auto"])
def test_dev_tells_envoys_verdict_on_each_edit(tmp_path: Path, transport: str) -> None:
    """Envoy takes the tree, a good edit, and refuses a bad one with its file; Ctrl-C ends both."""
    tree, port = tmp_path / "tree", free_port()
    write_file(tree / "cds.yaml", document([static_cluster("web")]))
    write_file(tree / "lds.yaml", document([http_listener("front", port, "r1")]))
    write_file(tree / "rds.yaml", document([direct_route("r1", "one")]))
    if transport == "auto":
        source = {"ads": {}, "resource_api_version": "V3"}
        streamed = {"name": "streamed", "type": "EDS", "eds_cluster_config": {"eds_config": source}}
        write_file(tree / "edge.clusters.json", json.dumps([streamed]))
        write_file(tree / "eds.json", json.dumps([{"cluster_name": "streamed"}]))
    with dev(tree, tmp_path, transport) as running:
        running.wait(lambda: running.events("envoy_acked"), "the first verdict")
        (chosen,) = running.events("transport_chosen")
        if transport == "auto":
            assert chosen["message"] == "transport: delta, because edge.clusters.json:1 asks for ADS"
        else:
            assert chosen["transport"] == transport
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
            assert b"one" == response.read()
        taken = len(running.events("envoy_acked"))
        write_file(tree / "rds.yaml", document([direct_route("r1", "two")]))
        running.wait(lambda: len(running.events("envoy_acked")) > taken, "the second verdict")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
            assert b"two" == response.read()
        write_file(tree / "cds.yaml", document([refused_cluster("web")]))
        running.wait(lambda: running.events("envoy_nacked"), "the refusal")
        assert "cds.yaml:2" in str(running.events("envoy_nacked")[0]["places"])

        os.killpg(running.process.pid, signal.SIGINT)

        assert 130 == running.process.wait(PATIENCE_S)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=30)


def test_dev_says_what_hurts_and_what_envoy_pending_for(tmp_path: Path) -> None:
    """A tree that the chosen transport cannot bring is told before Envoy gets it, with what Envoy then waits for."""
    source = {"ads": {}, "resource_api_version": "V3"}
    cluster = {"name": "streamed", "type": "EDS", "eds_cluster_config": {"eds_config": source}}
    write_file(tmp_path / "tree" / "cds.json", json.dumps([cluster]))
    with dev(tmp_path / "tree", tmp_path, "rest") as running:
        running.wait(lambda: running.events("envoy_pending"), "what is waited for")
        (fault,) = running.events("problem_found")
        (waits, *_) = running.events("envoy_pending")

    assert (fault["rule"], fault["path"]) == ("no-ads", "cds.json")
    assert str(fault["message"]).endswith("; give --transport delta or mirror")
    assert "it waits for cluster streamed" in str(waits["message"])


@pytest.mark.parametrize("transport", ["rest", "mirror", "delta"])
def test_dev_serves_the_view_of_its_node(tmp_path: Path, transport: str) -> None:
    """The Envoy of `dev` is the node that the flags describe, and gets what such a node sees."""
    tree, settings = tmp_path / "tree", tmp_path / "fsxds.yaml"
    write_file(tree / "common" / "cds.yaml", document([static_cluster("web")]))
    write_file(tree / "nodes" / "a" / "lds.yaml", document([http_listener("front", free_port(), "r1")]))
    write_file(tree / "nodes" / "a" / "rds.yaml", document([direct_route("r1", "one")]))
    settings.write_text("views: [{name: v, match: {metadata: {tier: gold}}, layers: [common, 'nodes/{node.id}']}]")
    flags = ("--settings", str(settings), "--node-id", "a", "--node-metadata", "tier=gold")

    with dev(tree, tmp_path, transport, *flags) as running:
        running.wait(lambda: running.events("envoy_acked"), "the view")
        assert "lds" in running.events("envoy_acked")[0]["types"]  # type: ignore[operator]
    with dev(tree, tmp_path, transport, *flags[:2]) as running:
        assert 2 == running.process.wait(PATIENCE_S)
    assert "no view is for this node" in (tmp_path / "dev.log").read_text()
