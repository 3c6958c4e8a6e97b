"""A client that is no Envoy: grpcio's own `xds:///` resolver in a process of its own, and backends that it may find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PATIENCE_S

METHOD = "/echo.Echo/Who"
# What the resolver tells its log goes there, or hides among the answers.
LOG_LEVEL = "ERROR"


class XdsCaller:
    """A process that calls `xds:///<target>` whenever it is told to. Use as a context manager.

    `target` may be a whole URI, such as `xds://authority/target`. `more` is of the bootstrap, such as `authorities`.
    """

    def __init__(self, target: str, xds_server: str, folder: Path, more: Mapping[str, Any] | None = None) -> None:
        bootstrap = {
            "xds_servers": [
                {"server_uri": xds_server, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
            ],
            "node": {"id": "caller-1", "cluster": "callers"},
            **(more or {}),
        }
        path = folder / "grpc-bootstrap.json"
        path.write_text(json.dumps(bootstrap))
        self._log = folder / "caller.log"
        self._environment = {**os.environ, "GRPC_XDS_BOOTSTRAP": str(path), "GRPC_VERBOSITY": LOG_LEVEL}
        uri = target if "://" in target else f"xds:///{target}"
        self._command = [sys.executable, "-m", "tests.support.xds_resolver", uri]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=Path(__file__).parents[2],
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process is not None
        self._process.communicate(timeout=PATIENCE_S)

    def call(self) -> str:
        """Make one call; return who answered, or `error:` and why nobody did."""
        self.begin_call()
        return self.end_call()

    def begin_call(self) -> None:
        """Let it call, without waiting for the answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("call\n")
        self._process.stdin.flush()

    def end_call(self) -> str:
        """Wait for the answer of the call; see `call`."""
        assert self._process is not None
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        return answer or f"error: {self._log.read_text()}"


@contextmanager
def backends(*names: str) -> Iterator[list[int]]:
    """Run gRPC servers that tell their names; yield their ports."""
    import grpc

    def who(name: str) -> Any:
        handler = grpc.unary_unary_rpc_method_handler(lambda *_: name.encode())
        return grpc.method_handlers_generic_handler("echo.Echo", {"Who": handler})

    servers = []
    try:
        ports = []
        for name in names:
            server = grpc.server(ThreadPoolExecutor(2), handlers=(who(name),))
            servers.append(server)
            ports.append(server.add_insecure_port("127.0.0.1:0"))
            server.start()
        yield ports
    finally:
        for server in servers:
            server.stop(0).wait()


def main() -> None:
    """Call once for each line of the standard input."""
    import grpc

    with grpc.insecure_channel(sys.argv[1]) as channel:
        who = channel.unary_unary(METHOD)
        for _ in sys.stdin:
            try:
                answer = who(b"", timeout=PATIENCE_S).decode()
            except grpc.RpcError as error:
                answer = f"error: {error.code().name} {error.details()}".replace("\n", " ")
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
