"""A REST xDS server that answers as a test says, whatever the protocol wants: to see what an Envoy makes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll as it arrived."""

    path: str
    headers: Mapping[str, str]
    size_bytes: int
    body: Mapping[str, Any]


Answer = Callable[[Poll], bytes | None]
"""Returns the body of a 200, or None for 304. It may take its time."""


class ScriptedRest:
    """Runs in a thread of its own, as a context manager. `polls` has what arrived so far."""

    def __init__(self, answer: Answer) -> None:
        self.polls: list[Poll] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(answer))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port of 127.0.0.1."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self, answer: Answer) -> type[BaseHTTPRequestHandler]:
        polls = self.polls

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                poll = Poll(self.path, dict(self.headers), len(body), json.loads(body))
                polls.append(poll)
                content = answer(poll)
                try:
                    self.send_response(304 if content is None else 200)
                    self.send_header("content-length", str(len(content or b"")))
                    self.end_headers()
                    self.wfile.write(content or b"")
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
