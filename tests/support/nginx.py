"""Run nginx with one of the samples of `docker/`, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.dockerfile import TOP
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "needs nginx: apt-get install nginx-light"


@dataclass(frozen=True)
class Nginx:
    """A running nginx: its address, its own count of open requests, and where it logs what it did."""

    address: tuple[str, int]
    status_address: tuple[str, int]
    log: Path

    @property
    def url(self) -> str:
        """`http://127.0.0.1:41234`."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def lines(self) -> list[str]:
        """What it logged: one line per request that ended."""
        return self.log.read_text().splitlines()


def config_text(sample: str, folder: Path, replacements: dict[str, str]) -> str:
    """Return a sample of `docker/`, to run in a folder; each text that is replaced is there."""
    text = (TOP / "docker" / sample).read_text()
    for old, new in {"/tmp/": f"{folder}/", **replacements}.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def running_nginx(sample: str, folder: Path, replacements: dict[str, str]) -> Iterator[Nginx]:
    """Run nginx in a folder with a sample of `docker/`, in which texts are replaced, and end it."""
    assert NGINX is not None
    port, status_port = free_port(), free_port()
    log = folder / "access.log"
    text = config_text(sample, folder, {"listen 8080;": f"listen 127.0.0.1:{port} backlog=4096;", **replacements})
    status = f"server {{ listen 127.0.0.1:{status_port}; access_log off; location / {{ stub_status; }} }}\n"
    text = text.replace("/dev/stdout", str(log)).replace("  server {", f"  {status}  server {{", 1)
    # Else its workers are nobody, who may not enter the folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(user + text)
    with (folder / "nginx.log").open("wb") as errors:
        process = subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=errors)
    try:
        _wait_for_listener(port)
        yield Nginx(("127.0.0.1", port), ("127.0.0.1", status_port), log)
    finally:
        process.terminate()
        process.wait()


def _wait_for_listener(port: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
