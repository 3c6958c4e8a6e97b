"""Servers under test, as processes of their own: fsxds, nginx, and a bare aiohttp server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

IDLE_PATIENCE_S = 120.0
# Without a tick of CPU for so long, a server is taken to have nothing more to do.
IDLE_S = 0.5
REST_S = 0.3
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int
    port: int
    grpc_port: int = 0

    def exact_cpu_s(self) -> float:
        """Return the CPU seconds that it, its threads and its child processes used so far, to the nanosecond.

        Of threads and children that ended it has nothing, so a difference is right where none did in between.
        """
        nanoseconds = 0
        for pid in (self.pid, *_descendants(self.pid)):
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                nanoseconds += int(thread.read_text().split()[0])
        return nanoseconds / 1e9

    def resting_cpu_s(self) -> float:
        """Return the same when it has nothing more to do: for so long it used less than a hundredth of a processor."""
        used_s = self.exact_cpu_s()
        while True:
            time.sleep(REST_S)
            before_s, used_s = used_s, self.exact_cpu_s()
            if used_s - before_s < REST_S / 100:
                return used_s

    def cpu_s(self, *, with_children: bool = False) -> float:
        """Return the CPU seconds it used so far, the kernel's included; if wanted, with those of its child processes."""
        pids = (self.pid, *_descendants(self.pid)) if with_children else (self.pid,)
        rows = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        # utime and stime, and the same of children that ended. Source: proc(5).
        return sum(int(ticks) for row in rows for ticks in row[11 : 15 if with_children else 13]) / TICKS_PER_S

    def memory_bytes(self) -> int:
        """Return its resident memory."""
        line = next(
            line for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if line.startswith("VmRSS")
        )
        return int(line.split()[1]) * 1024

    def connections_read(self) -> int:
        """Return how many connections it took from which it read all that came.

        Source: proc_net_tcp: local address, remote address, state (01: established), queues `tx:rx`.
        """
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(
            row[1].endswith(f":{self.port:04X}") and row[3] == "01" and row[4].endswith(":00000000") for row in rows
        )

    def wait_until_idle(self, connections: int) -> None:
        """Wait until it holds so many connections, read what came on each, and has nothing more to do.

        Raises:
            TimeoutError: that does not come to pass.
        """
        deadline_s = time.monotonic() + IDLE_PATIENCE_S
        used_s = -1.0
        while self.connections_read() < connections or self.cpu_s() > used_s:
            if time.monotonic() > deadline_s:
                message = f"{self.connections_read()} of {connections} connections are held, or the server never rests"
                raise TimeoutError(message)
            used_s = self.cpu_s()
            time.sleep(IDLE_S)


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did, as far as they run still."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listing.read_text().split()):
            found += [child, *_descendants(child)]
    return found


@contextmanager
def fsxds(tree: Path, *options: str) -> Iterator[Server]:
    """Serve `tree` by REST on a free port."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready.json")
        arguments = [
            "serve",
            str(tree),
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--ready-file",
            str(ready),
            *options,
        ]
        with _running([sys.executable, "-m", "fsxds", *arguments]) as pid:
            _wait_for(ready)
            addresses = json.loads(ready.read_text())
            yield Server(pid, *(int(addresses[name].rpartition(":")[2]) for name in ("http", "grpc")))


@contextmanager
def bare_aiohttp(body: bytes = b"", *, tree: Path | None = None) -> Iterator[Server]:
    """Hold every POST until `POST /wake`, then answer it with `body`; or until `tree` changes, with what it holds."""
    with tempfile.TemporaryDirectory() as folder:
        ready, content = Path(folder, "ready"), Path(folder, "body")
        content.write_bytes(body)
        arguments = [sys.executable, "-m", "tests.bench.bare_server", str(ready), str(tree or content)]
        with _running(arguments) as pid:
            _wait_for(ready)
            yield Server(pid, int(ready.read_text()))


@dataclass(frozen=True, slots=True)
class StreamServer(Server):
    """A server of `tests.bench.stream_server`."""

    process: subprocess.Popen[str] = field(kw_only=True)

    def publish(self) -> float:
        """Publish the next snapshot, and return when that was: a reading of the monotonic clock in seconds."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the process is started with both")
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def stream_server(name: str, count: int) -> Iterator[StreamServer]:
    """Serve `count` clusters, made in memory, by gRPC: `fsxds`, or `bare` for grpc.aio alone; or `members`, or `churn`."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready")
        arguments = [sys.executable, "-m", "tests.bench.stream_server", name, str(count), str(ready)]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                _wait_for(ready)
                yield StreamServer(process.pid, int(ready.read_text()), process=process)
            finally:
                process.terminate()


@contextmanager
def nginx(body: bytes, port: int) -> Iterator[Server]:
    """Serve `body` as a static file at `/body`. The caller checks that there is an nginx."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "body").write_bytes(body)
        Path(folder, "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log stderr crit;"
            "events { worker_connections 1024; }"
            f"http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;"
            f"  client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;"
            f"  uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;"
            f"  server {{ listen 127.0.0.1:{port}; root {folder}; }} }}"
        )
        executable = shutil.which("nginx") or "/usr/sbin/nginx"
        with _running([executable, "-c", f"{folder}/nginx.conf", "-p", folder]) as pid:
            time.sleep(0.5)
            yield Server(pid, port)


@contextmanager
def _running(arguments: list[str]) -> Iterator[int]:
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def _wait_for(path: Path, patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while not path.exists():
        if time.monotonic() > deadline:
            message = f"{path} did not appear"
            raise TimeoutError(message)
        time.sleep(0.02)
