"""Passes TCP connections on to a port of this machine, until they are cut."""

from __future__ import annotations

import queue
import socket
import socketserver
import threading
import time
from contextlib import suppress
from typing import Self


class Relay(socketserver.ThreadingTCPServer):
    """A context manager. While `is_cut`, connections are closed as soon as they are accepted.

    `pause_s`: before a connection is passed on. `latency_s`: before what came is passed on, each way.
    """

    daemon_threads = True

    def __init__(self, port: int, pause_s: float = 0.0, latency_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.target = port
        self.pause_s = pause_s
        self.latency_s = latency_s
        self.is_cut = False
        self.sockets: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self.shutdown()
        self.server_close()

    def cut(self) -> None:
        """Close all connections, and new ones."""
        self.is_cut = True
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Pass(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        if self.server.is_cut:
            return
        time.sleep(self.server.pause_s)
        with socket.create_connection(("127.0.0.1", self.server.target)) as target:
            self.server.sockets += [self.request, target]
            back = threading.Thread(target=_copy, args=(target, self.request, self.server.latency_s), daemon=True)
            back.start()
            _copy(self.request, target, self.server.latency_s)
            back.join()


def _copy(source: socket.socket, target: socket.socket, latency_s: float) -> None:
    due: queue.Queue[tuple[float, bytes]] = queue.Queue()
    sending = threading.Thread(target=_send_when_due, args=(due, target), daemon=True)
    sending.start()
    content = b" "
    while content:
        try:
            content = source.recv(65536)
        except OSError:
            content = b""
        due.put((time.monotonic() + latency_s, content))
    sending.join()
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _send_when_due(due: queue.Queue[tuple[float, bytes]], target: socket.socket) -> None:
    with suppress(OSError):
        while True:
            at_s, content = due.get()
            time.sleep(max(0.0, at_s - time.monotonic()))
            if not content:
                return
            target.sendall(content)
