"""How the process ends, and what it writes where: garbage, departures, stdout, secrets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.editor.client import TOP
from tests.editor.trees import FILES, write
from tests.support.fsxds_process import run_fsxds
from tests.support.patience import PATIENCE_S

HUSH = "hunter2"
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": None}}


def framed(message: object) -> bytes:
    """Return a message as it is sent."""
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def notified(method: str, params: object) -> bytes:
    """Return a notification as it is sent."""
    return framed({"jsonrpc": "2.0", "method": method, "params": params})


def run(directory: Path, sent: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the server on an input that ends."""
    done = run_fsxds(["lsp", str(directory), *arguments], content=sent, cwd=TOP, timeout=PATIENCE_S)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())


def messages(output: bytes) -> list[dict[str, object]]:
    """Return the messages in an output, which must be nothing else."""
    found = []
    while output:
        head, _, output = output.partition(b"\r\n\r\n")
        (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
        size = int(length.rpartition(b" ")[2])
        found.append(json.loads(output[:size]))
        output = output[size:]
    return found


GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x00\xff" * 1000,
    b"x" * 1_000_000,
    b"Content-Length: 5\r\n\r\n{abcd",
    b"Content-Length: 2\r\n\r\n[]",
    b"Content-Length: 4\r\n\r\nnull",
    b"Content-Length: 0\r\n\r\n",
    b"Content-Length: -1\r\n\r\n",
    b'Content-Length: 20\r\n\r\n"' + b"\xff" * 18 + b'"',
    framed({"jsonrpc": "1.0", "id": 1, "method": "initialize"}),
    framed({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": [1]}),
    framed({"jsonrpc": "2.0", "id": 2, "method": "textDocument/hover", "params": {"textDocument": {}}}),
    framed({"jsonrpc": "2.0", "id": 3, "result": 1}),
    framed({"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": HUSH}}),
    framed({"jsonrpc": "2.0", "id": {}, "method": "textDocument/hover"}),
    notified("textDocument/didChange", {"textDocument": {"uri": "file:///x", "version": 1}, "contentChanges": [{"text": HUSH}]}),
    notified("textDocument/didChange", {"textDocument": {"uri": "x:y", "version": 1}, "contentChanges": [{"text": HUSH}]}),
    notified("textDocument/didOpen", {"textDocument": {"uri": 5, "text": HUSH}}),
    notified("textDocument/didClose", {"textDocument": {"uri": "file:///never/opened.yaml"}}),
    notified("workspace/didChangeWatchedFiles", {"changes": [{"uri": "\x00", "type": 1}]}),
    notified("$/cancelRequest", {"id": 77}),
    notified("no/such/method", {"text": HUSH}),
)  # fmt: skip


def test_garbage(tmp_path: Path) -> None:
    """What is no message, or a wrong one, is left; the request behind it is answered, and nothing is repeated."""
    write(tmp_path, FILES)
    asked = {
        number: framed({"jsonrpc": "2.0", "id": number, "method": "no/such", "params": {}})
        for number in range(100, 100 + len(GARBAGE))
    }
    sent = b"".join(garbage + b"\r\n" + request for garbage, request in zip(GARBAGE, asked.values(), strict=True))
    done = run(tmp_path, framed(INITIALIZE) + notified("initialized", {}) + sent)

    assert done.returncode == 0, done.stderr
    assert asked.keys() <= {one.get("id") for one in messages(done.stdout)}
    assert HUSH.encode() not in done.stdout + done.stderr


@pytest.mark.parametrize("head", [b"Content-Length: 99999999999999\r\n\r\n", b"Content-Length: 50000\r\n\r\n"])
def test_messages_that_never_end(tmp_path: Path, head: bytes) -> None:
    """A message that is longer than any, or is cut off by the end of the input, is the end."""
    done = run(tmp_path, framed(INITIALIZE) + head + framed(INITIALIZE))

    assert done.returncode == 0, done.stderr
    assert len(messages(done.stdout)) == 1


def test_the_usual_end(tmp_path: Path) -> None:
    """After `shutdown` and `exit` the status is 0, after `exit` alone it is 1, as the protocol demands."""
    shutdown = framed({"jsonrpc": "2.0", "id": 2, "method": "shutdown"})
    leave = notified("exit", None)

    assert run(tmp_path, framed(INITIALIZE) + shutdown + leave).returncode == 0
    assert run(tmp_path, framed(INITIALIZE) + leave).returncode == 1


def test_requests_before_the_tree_is_known(tmp_path: Path) -> None:
    """A request before `initialize` is answered with an error."""
    params = {"textDocument": {"uri": (tmp_path / "cds.yaml").as_uri()}, "position": {"line": 0, "character": 0}}
    early = framed({"jsonrpc": "2.0", "id": 7, "method": "textDocument/hover", "params": params})
    done = run(tmp_path, early + framed(INITIALIZE))

    assert done.returncode == 0
    assert [one["id"] for one in messages(done.stdout) if "id" in one] == [7, 1]


def test_stdout_is_for_the_protocol(tmp_path: Path) -> None:
    """What a tree makes fsxds complain about is on stderr or in messages; secrets are in neither."""
    write(
        tmp_path,
        {**FILES, "sds.yaml": f"- name: a\n  tls_certificate: {{private_key: {{inline_string: {HUSH}, x: 1}}}}\n"},
    )
    opened = {"uri": (tmp_path / "sds.yaml").as_uri(), "languageId": "yaml", "version": 1, "text": f"- nme: {HUSH}\n"}
    asked = {"textDocument": {"uri": opened["uri"]}, "position": {"line": 0, "character": 3}}
    hover = framed({"jsonrpc": "2.0", "id": 5, "method": "textDocument/hover", "params": asked})
    sent = framed(INITIALIZE) + notified("initialized", {})
    sent += notified("textDocument/didOpen", {"textDocument": opened}) + hover
    command = [sys.executable, "-m", "fsxds", "lsp", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TOP, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(sent)
        process.stdin.flush()
        output = b""
        while b'"id": 5' not in output or b"unknown-field" not in output:
            output += os.read(process.stdout.fileno(), 65536)
        process.stdin.close()
        output += process.stdout.read()
        complaints = process.stderr.read()

    assert process.returncode == 0
    assert messages(output)
    assert HUSH.encode() not in output + complaints


async def test_the_client_is_killed(tmp_path: Path) -> None:
    """When the client dies, whatever it asked, the process ends."""
    write(tmp_path, FILES)
    client = f"""
import subprocess, sys, time
server = subprocess.Popen([sys.executable, "-m", "fsxds", "lsp", {str(tmp_path)!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.stdin.write({framed(INITIALIZE)!r} + {notified("initialized", {})!r})
server.stdin.flush()
server.stdout.read(20)
print(server.pid, flush=True)
time.sleep(600)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", client, stdout=asyncio.subprocess.PIPE, cwd=TOP
    )
    assert process.stdout is not None
    server = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    descriptor = os.pidfd_open(server)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


def test_no_folder(tmp_path: Path) -> None:
    """Without a folder and without DIR, the user is told what to do, and nothing fails."""
    asked = {"textDocument": {"uri": "file:///x/cds.yaml"}, "position": {"line": 0, "character": 0}}
    hover = framed({"jsonrpc": "2.0", "id": 5, "method": "textDocument/hover", "params": asked})
    sent = framed(INITIALIZE) + notified("initialized", {}) + hover
    done = run_fsxds(["lsp"], content=sent, cwd=TOP, timeout=PATIENCE_S, env={**os.environ, "HOME": str(tmp_path)})

    assert done.returncode == 0
    assert "name the tree" in done.stdout


def test_wrong_settings(tmp_path: Path) -> None:
    """A directory that is none, and settings that are wrong, are a line on stderr, and nothing on stdout."""
    done = run(tmp_path, b"", "--rules", "no-such-rule=off")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"no-such-rule" in done.stderr
