"""Start `fsxds` as a process of its own, without waiting for a second each time until Python has imported it all.

One process per test worker imports every command, reads the API of the Envoy in use, and does nothing else: no threads, no
event loop, no gRPC. For each start it forks a copy, which goes on exactly as `python -m fsxds` does, with its own arguments,
environment, directory and files. The tests start some eight hundred of them; the real start is tested in
`tests/cli/test_main.py` and `tests/deploy/test_image.py`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsxds.api.catalogue import Features

LONGEST_MESSAGE = 1 << 20
# In the environment of the tests: each copy takes its modules apart when it ends.
WHOLE_ENDS = "FSXDS_TEST_WHOLE_ENDS"


@dataclass
class FsxdsProcess:
    """A running `fsxds`; as `subprocess.Popen`, as far as tests need it."""

    pid: int
    returncode: int | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def poll(self) -> int | None:
        """Return the exit status, minus the signal's number where one ended it; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; subprocess.TimeoutExpired when it does not come in time."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(["fsxds"], timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Note the end."""
        self.returncode = status
        self._ended.set()


class _Starter:
    """Talks to the process that forks; one message in, and one back with the pid, or with a status that nobody asked for."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [sys.executable, "-m", "tests.support.fsxds_process", str(theirs.fileno())]
        top = Path(__file__).parents[2]
        # It lives as long as this one: it ends when its socket does.
        self._process = subprocess.Popen(arguments, pass_fds=[theirs.fileno()], cwd=top, env=env)
        atexit.register(self._stop)
        theirs.close()
        self._socket = ours
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._started: list[FsxdsProcess] = []
        self._running: dict[int, FsxdsProcess] = {}
        threading.Thread(target=self._listen, daemon=True, name="fsxds starter").start()

    def start(self, message: Mapping[str, object], files: list[int]) -> FsxdsProcess:
        """Have one started."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(message).encode()], files)
            with self._changed:
                assert self._changed.wait_for(lambda: self._started, 60)
                return self._started.pop()

    def _listen(self) -> None:
        while content := self._socket.recv(LONGEST_MESSAGE):
            told = json.loads(content)
            if "status" in told:
                self._running.pop(told["pid"]).end(told["status"])
                continue
            process = self._running[told["pid"]] = FsxdsProcess(told["pid"])
            with self._changed:
                self._started.append(process)
                self._changed.notify()

    def _stop(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


@cache
def starter_of(*preloaded: str) -> _Starter:
    """Return the process that forks; each copy of it has these libraries in front of all others (`LD_PRELOAD`)."""
    return _Starter({**os.environ, "LD_PRELOAD": " ".join(preloaded)} if preloaded else None)


def start_fsxds(
    arguments: list[str],
    *,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    preloaded: tuple[str, ...] = (),
    has_own_session: bool = False,
) -> FsxdsProcess:
    """Start `fsxds ARGUMENTS`; None stands for nothing to read, and for this process's own output, directory and environment.

    Args:
        arguments: those of the command.
        stdin: what it reads.
        stdout: where it prints.
        stderr: where it logs.
        cwd: its directory.
        env: its environment.
        preloaded: libraries that are in front of all others.
        has_own_session: whether it leads a process group, which `os.killpg` reaches as Ctrl-C of a terminal does.
    """
    with Path(os.devnull).open("rb") as nothing:
        given = [nothing if stdin is None else stdin, sys.__stdout__ if stdout is None else stdout]
        given.append(sys.__stderr__ if stderr is None else stderr)
        files = [one if isinstance(one, int) else one.fileno() for one in given if one is not None]
        environment = dict(os.environ if env is None else env)
        message = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": environment, "own": has_own_session}
        return starter_of(*preloaded).start(message, files)


def run_fsxds(
    arguments: list[str],
    *,
    content: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run `fsxds ARGUMENTS` with `content` as its input, and return its status and what it printed."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(content)
        stdin.seek(0)
        process = start_fsxds(arguments, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(["fsxds", *arguments], status, *texts)


def _fork_for_all(channel: socket.socket) -> list[str] | None:
    """Fork for each message; return the arguments in the new process, and None at the end in this one."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([channel.fileno(), waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            _report_ends(channel)
        if channel.fileno() not in ready:
            continue
        content, files, _, _ = socket.recv_fds(channel, LONGEST_MESSAGE, 3)
        if not content:
            return None
        if pid := os.fork():
            channel.send(json.dumps({"pid": pid}).encode())
            for file in files:
                os.close(file)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Whoever runs the tests in the background of a script ignores Ctrl-C, and what the tests start shall not.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for file in (waking, woken, channel.detach()):
            os.close(file)
        return _become(json.loads(content), files)


def _report_ends(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        channel.send(json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _become(message: dict[str, Any], files: list[int]) -> list[str]:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # The one of this process knows whether the previous file was seekable, and a terminal.
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, closefd=False)
    if message["own"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(message["env"])
    os.chdir(message["cwd"])
    random.seed()
    arguments: list[str] = message["arguments"]
    return arguments


def _read_api() -> None:
    """Read the API of the Envoy in use, with all that parsing makes of it, for all copies: each finds that it has an equal one."""
    from fsxds.api.catalogue import Catalogue
    from fsxds.api.descriptors import parse_set
    from fsxds.lint.linter import Linter
    from fsxds.snapshots.parse import FileParser
    from fsxds.source.envoy_api import find_api

    make = Catalogue.of
    known = find_api(envoy=None, descriptors=None, cache_dir=None)
    FileParser(known, check=Linter())

    def form(serialized: bytes) -> bytes:
        """Serialize again: the order of options depends on which extensions were imported where the bytes were made."""
        return parse_set(serialized).SerializeToString(deterministic=True)

    known_form = form(known.serialized)

    def of(serialized: bytes, description: str, features: Features | None = None) -> Catalogue:
        is_alike = (description, features) == (known.description, known.features)
        return known if is_alike and form(serialized) == known_form else make(serialized, description, features)

    Catalogue.of = of  # type: ignore[method-assign]


def _end(end: SystemExit) -> None:
    """End as Python does, except that no module is taken apart: that copies 60 MB of this process, for 0.1 s of CPU.

    Objects that nothing reaches still complain when they are collected. `tests/cli/test_main.py` ends a real process, and
    copies end as that does by `--nightly`.
    """
    if not isinstance(end.code, int | None):
        raise end
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise end from None
    os._exit(end.code or 0)


def main() -> None:
    """Import everything, and fork; each copy goes on as `python -m fsxds`."""
    from fsxds import cli

    ends_whole = WHOLE_ENDS in os.environ
    for module in pkgutil.iter_modules(cli.__path__, "fsxds.cli."):
        importlib.import_module(module.name)
    importlib.import_module("fsxds.server.app")
    _read_api()
    # Else the collector of each copy walks through all of this, and so copies the pages that it lies on.
    gc.collect()
    gc.freeze()
    arguments = _fork_for_all(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv = ["fsxds", *arguments]
        try:
            runpy.run_module("fsxds", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if ends_whole:
                raise
            _end(end)


if __name__ == "__main__":
    main()
