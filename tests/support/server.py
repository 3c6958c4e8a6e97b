"""Run `fsxds serve` as users do: a process of its own, real files, real sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_address

# Stands for a port that no connection takes before the server, or another one in its place, listens there again.
ANY = "127.0.0.1:0"


class Server:
    """One `fsxds serve` process. Use as a context manager.

    `tree`: the directory that it serves; None for none, where it has upstreams.
    `fresh`: started by Python itself, with whatever `fsxds` it finds. `wrapped`: started so by a command such as `unshare -Ur`.
    `module`: what Python itself runs instead of `fsxds`, with its first arguments. `preloaded`: as `start_fsxds` has it.
    """

    def __init__(
        self,
        tree: Path | None,
        workdir: Path,
        *options: str,
        http: str = ANY,
        grpc: str = ANY,
        fresh: bool = False,
        wrapped: tuple[str, ...] = (),
        module: tuple[str, ...] = ("fsxds",),
        preloaded: tuple[str, ...] = (),
    ) -> None:
        self._fresh = fresh or bool(wrapped) or len(module) > 1
        self._command = [*wrapped, sys.executable, "-m", *module]
        self._start = partial(start_fsxds, preloaded=preloaded)
        self.ready_file = workdir / "ready.json"
        self.log_file = workdir / "fsxds.log"
        # Several of them run beside one another, and another process may take over the address of one.
        addresses = [free_address() if each == ANY else each for each in (http, grpc, ANY)]
        listeners = [word for pair in zip(("--http", "--grpc", "--admin"), addresses, strict=True) for word in pair]
        directory = [] if tree is None else [str(tree)]
        self._arguments = ["serve", *directory, *listeners, "--ready-file", str(self.ready_file), *options]
        self._process: FsxdsProcess | subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}
        # How much of the log is of earlier processes.
        self._logged_before = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> Self:
        """Start the process, and wait until it serves its first snapshot."""
        self.ready_file.unlink(missing_ok=True)
        self._ready = {}
        self._logged_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            if self._fresh:
                command = [*self._command, *self._arguments]
                self._process = subprocess.Popen(command, stdout=log, stderr=log)
            else:
                self._process = self._start(self._arguments, stdout=log, stderr=log)
        if wait:
            # With nothing good to serve it has loaded its files too, and is not ready.
            self.wait(lambda: self.ready_file.exists() or self._own_events("not_ready"), "the first load")
            assert self.ready
        return self

    def stop(self) -> int:
        """End the process by SIGTERM and return its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def kill(self) -> None:
        """End the process by SIGKILL, if it runs."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait_for_end(self) -> int:
        """Wait for the end of a process that somebody else ends, and return its exit status."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def ready(self) -> dict[str, Any]:
        """The content of the ready file, as it was read last; where there was none, the addresses in the log."""
        # It goes with the process.
        with suppress(FileNotFoundError):
            self._ready = json.loads(self.ready_file.read_text())
        return self._ready or {
            line["name"].lower().replace("rest", "http"): line["address"] for line in self._own_events("listening")
        }

    @property
    def port(self) -> int:
        """The port of REST that is really bound."""
        return int(self.ready["http"].rpartition(":")[2])

    @property
    def admin(self) -> str:
        """Where operators ask."""
        return str(self.ready["admin"])

    @property
    def grpc_port(self) -> int:
        """The port of gRPC that is really bound."""
        return int(self.ready["grpc"].rpartition(":")[2])

    def log_events(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of one event; where stderr is no terminal they are JSON."""
        return [line for line in events_in(self.log_file.read_bytes()) if line["event"] == event]

    def _own_events(self, event: str) -> list[dict[str, Any]]:
        """Return those of the process that was started last."""
        own = self.log_file.read_bytes()[self._logged_before :]
        return [line for line in events_in(own) if line["event"] == event]

    def wait(self, predicate: Callable[[], Any], what: str) -> Any:
        """Wait until `predicate` holds, while the process lives."""
        deadline = time.monotonic() + PATIENCE_S
        while not (result := predicate()):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                message = f"waited in vain for {what}\n{self.log_file.read_text()[-4000:]}"
                raise AssertionError(message)
            time.sleep(0.02)
        return result


def write_file(path: Path, text: str) -> None:
    """Write a file as careful editors do: beside it, then moved over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


def events_in(log: bytes) -> list[dict[str, Any]]:
    """Return the events of a log that may be written to meanwhile: its last line may be half written."""
    whole = log[: log.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.decode().splitlines() if line.startswith("{")]
