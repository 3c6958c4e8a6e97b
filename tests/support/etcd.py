"""Run members of a real etcd on loopback."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

ETCD = shutil.which("etcd")
MISSING = "needs etcd: apt-get install etcd-server"


@dataclass
class Etcd:
    """Members, each with its ports (for clients, for members, for its health) and its process."""

    folder: Path
    ports: tuple[tuple[int, int, int], ...]
    options: tuple[str, ...] = ()
    scheme: str = "http"
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where the members are asked."""
        return tuple(f"127.0.0.1:{port}" for port, *_ in self.ports)

    @property
    def url(self) -> str:
        """`etcd://127.0.0.1:2379,…`."""
        return f"etcd://{','.join(self.targets)}"

    def start(self, number: int) -> None:
        """Start a member, or start it again with what it has on disk."""
        assert ETCD is not None
        client, peer, _ = (f"://127.0.0.1:{port}" for port in self.ports[number])
        client = self.scheme + client
        cluster = ",".join(f"m{each}=http://127.0.0.1:{port}" for each, (_, port, _) in enumerate(self.ports))
        argv = [
            *(ETCD, "--name", f"m{number}", "--data-dir", str(self.folder / f"m{number}")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", f"http{peer}", "--initial-advertise-peer-urls", f"http{peer}"),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new", "--logger", "zap"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self.ports[number][2]}"),
            *self.options,
        ]
        log = (self.folder / f"log{number}").open("ab")
        self.processes[number] = subprocess.Popen(argv, stdout=log, stderr=log)
        log.close()

    def signal(self, number: int, sent: signal.Signals) -> None:
        """Send a signal to a member; one that is killed is waited for."""
        self.processes[number].send_signal(sent)
        if sent in {signal.SIGKILL, signal.SIGTERM}:
            self.processes[number].wait(PATIENCE_S)

    def await_ready(self) -> None:
        """Wait until each member that runs knows a leader."""
        ends_s = time.monotonic() + PATIENCE_S
        for number, process in self.processes.items():
            while process.poll() is None and not self._is_healthy(number):
                assert time.monotonic() < ends_s
                time.sleep(0.02)

    def _is_healthy(self, number: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[number][2]}/health", timeout=1) as response:
                return b"true" in response.read()
        except OSError:
            return False


@contextmanager
def running_etcd(folder: Path, count: int = 1, options: Sequence[str] = (), scheme: str = "http") -> Iterator[Etcd]:
    """Run members in a folder, and kill those that are left."""
    etcd = Etcd(folder, tuple((free_port(), free_port(), free_port()) for _ in range(count)), tuple(options), scheme)
    try:
        for number in range(count):
            etcd.start(number)
        etcd.await_ready()
        yield etcd
    finally:
        for process in etcd.processes.values():
            process.kill()
            process.wait()
