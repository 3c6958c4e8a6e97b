"""Clients cheap enough not to be what is measured: raw sockets, HTTP/1.1 with content-length."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and when its last byte was there (monotonic clock)."""

    status: int
    body: bytes
    at_s: float
    head: bytes = b""

    def header(self, name: str) -> str:
        """Return the value of a header, named in lower case; empty for none."""
        lines = (line.partition(b": ") for line in self.head.split(b"\r\n"))
        return next((value.decode() for key, _, value in lines if key.lower() == name.encode()), "")


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return the bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    """Return the bytes of a GET."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *headers, "", ""]).encode()


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def ask(self, request: bytes) -> Answer:
        """Send one request and read its whole answer."""
        self.send(request)
        return self.read_answer()

    def send(self, request: bytes) -> None:
        """Send one request, whose answer is read by `read_answer`."""
        self._socket.sendall(request)

    def read_answer(self) -> Answer:
        """Read one answer."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        length = content_length(bytes(data[:end]))
        chunks, missing = [bytes(data[end + 4 :])], length - (len(data) - end - 4)
        while missing > 0:
            chunk = self._receive()
            chunks.append(chunk)
            missing -= len(chunk)
        return Answer(int(data[9:12]), b"".join(chunks), time.monotonic(), bytes(data[:end]))

    def _receive(self) -> bytes:
        size = self._socket.recv_into(self._buffer)
        if not size:
            message = "the server closed the connection"
            raise ConnectionError(message)
        return bytes(self._buffer[:size])


def content_length(head: bytes) -> int:
    """Return the length of the body, 0 where the head names none."""
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


def ask_often(port: int, request: bytes, times: int, connections: int = 4) -> None:
    """Send the same request `times` times over a few connections."""

    def run() -> None:
        connection = Connection(port)
        for _ in range(times // connections):
            connection.ask(request)

    threads = [threading.Thread(target=run) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class HeldPoll(asyncio.Protocol):
    """One poll that waits for its answer; notes when its first and last byte came."""

    def __init__(self, request: bytes, done: asyncio.Queue[tuple[float, float]]) -> None:
        self._request = request
        self._done = done
        self._data = bytearray()
        self._first_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the poll."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Collect the answer."""
        if not self._data:
            self._first_s = time.monotonic()
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end >= 0 and len(self._data) - end - 4 >= content_length(bytes(self._data[:end])):
            self._done.put_nowait((self._first_s, time.monotonic()))
