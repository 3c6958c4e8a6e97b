"""How a process ends: with complete answers, within seconds, and with its ready file."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.server import Server, write_file

POLLS = 300
CLUSTERS = "[{name: web, type: STATIC, connect_timeout: 1s}]"


def held_poll(server: Server, version: str) -> socket.socket:
    """Send a poll that is held, for it has the version that is served."""
    body = json.dumps({"version_info": version, "node": {"id": "n"}}).encode()
    head = f"POST /v3/discovery:clusters HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    connection.sendall(head.encode() + body)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Read to the end, which the server makes."""
    with connection.makefile("rb") as reader:
        return reader.read()


def test_held_polls_are_answered_before_the_end(tmp_path: Path) -> None:
    """Each gets a whole 304; the exit status is 0, and the ready file is gone."""
    write_file(tmp_path / "tree" / "cds.yaml", CLUSTERS)
    with ExitStack() as connections, Server(tmp_path / "tree", tmp_path) as server:
        polls = [connections.enter_context(held_poll(server, server.ready["versions"]["cds"])) for _ in range(POLLS)]
        # All are in hand when one that came after them is answered.
        with held_poll(server, "other") as last:
            assert last.recv(12) == b"HTTP/1.1 200"
        status = server.stop()
        answers = [answer(poll) for poll in polls]

    assert status == 0
    assert {head[:12] for head in answers} == {b"HTTP/1.1 304"}
    assert all(head.endswith(b"\r\n\r\n") for head in answers)
    assert not server.ready_file.exists()
    assert [line["reason"] for line in server.log_events("stopping")] == ["SIGTERM"]


def test_a_large_load_does_not_keep_the_process(tmp_path: Path) -> None:
    """What threads and the parser are at work on is abandoned: it is not served before the end."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", CLUSTERS)
    with Server(tree, tmp_path) as server:
        rows = "".join(f"- {{name: c-{number}, type: STATIC, connect_timeout: 1s}}\n" for number in range(60_000))
        write_file(tree / "more.clusters.yaml", rows)
        # Somewhere on the way: being read, parsed apart, or merged.
        time.sleep(0.6)
        assert server.stop() == 0

    assert len(server.log_events("snapshot_published")) == 1
    assert server.log_events("internal_error") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """While a client that does not read is waited for; the status is the one that shells know."""
    tree = tmp_path / "tree"
    row = "- {name: c-%d, type: STATIC, connect_timeout: 1s, alt_stat_name: %s}\n"
    write_file(tree / "cds.yaml", "".join(row % (number, "x" * 20_000) for number in range(500)))
    with Server(tree, tmp_path) as server, held_poll(server, "other") as reader:
        assert reader.recv(12) == b"HTTP/1.1 200"
        process = server._process
        assert process is not None
        process.send_signal(number)
        server.wait(lambda: server.log_events("stopping"), "the first signal")
        process.send_signal(number)

        assert process.wait(PATIENCE_S) == 128 + number
        assert not server.ready_file.exists()


def test_ctrl_c_is_no_error(tmp_path: Path) -> None:
    """The status is that of Ctrl-C, and there is no traceback; SIGHUP before it ends nothing."""
    write_file(tmp_path / "tree" / "cds.yaml", CLUSTERS)
    with Server(tmp_path / "tree", tmp_path) as server:
        assert server._process is not None
        server._process.send_signal(signal.SIGHUP)
        server.wait(lambda: server.log_events("settings_reloaded"), "the answer to SIGHUP")
        server._process.send_signal(signal.SIGINT)

        assert server._process.wait(PATIENCE_S) == 130
    assert "Traceback" not in server.log_file.read_text()
    assert not server.ready_file.exists()


def test_a_stale_ready_file_goes_with_the_next_start(tmp_path: Path) -> None:
    """A killed process leaves it behind, with its pid; the next one removes it before it serves."""
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", CLUSTERS)
    with Server(tree, tmp_path) as server:
        assert server._process is not None
        server._process.kill()
        server._process.wait(PATIENCE_S)
        assert json.loads(server.ready_file.read_text())["pid"] == server.pid
    with Server(tree, tmp_path) as again:
        assert again.ready["pid"] == again.pid != server.pid


def test_a_removed_socket_is_bound_again(tmp_path: Path) -> None:
    """Somebody removed the file of a unix socket: the listener starts again, and the process does not end."""
    write_file(tmp_path / "tree" / "cds.yaml", CLUSTERS)
    path = tmp_path / "s"
    with Server(tmp_path / "tree", tmp_path, http=f"unix:{path}") as server:
        path.unlink()
        server.wait(lambda: server.log_events("component_degraded"), "its failure")
        server.wait(lambda: server.log_events("not_ready"), "readiness")
        assert [line["reason"] for line in server.log_events("not_ready")] == ["REST listener: degraded"]
        server.wait(lambda: not server.ready_file.exists(), "the end of the ready file")

        def is_listened_at() -> bool:
            with socket.socket(socket.AF_UNIX) as client:
                return path.exists() and not client.connect_ex(str(path))

        assert server.wait(is_listened_at, "the socket")
        server.wait(server.ready_file.exists, "the ready file, when it has run well for a while")


def test_rest_can_be_off(tmp_path: Path) -> None:
    """As gRPC can; nothing listens there, and the ready file says so."""
    write_file(tmp_path / "tree" / "cds.yaml", CLUSTERS)
    with Server(tmp_path / "tree", tmp_path, http="off") as server:
        assert server.ready["http"] is None
        assert server.ready["grpc"]
        assert [line["name"] for line in server.log_events("listening")] == ["gRPC", "admin"]
