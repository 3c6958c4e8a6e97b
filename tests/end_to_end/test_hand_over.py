"""A new fsxds takes over from an old one at the same addresses, and no client notices."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
import pytest

from tests.end_to_end.test_rest_envoy import bootstrap
from tests.support.envoy import Envoy
from tests.support.grpc_clients import method_path
from tests.support.grpc_envoy import DELTA_ADS, StreamingEnvoy
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.resources import direct_route, document, http_listener, static_cluster
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

# Of each client, between two changes of process.
ROUNDS = 12
HAND_OVERS = 2
PAUSE_S = 0.02
NAMES = ("http", "grpc", "admin")
SHARING = file_flags(reuse_port="true")
REQUEST = json.dumps({"node": {"id": "n"}})


class Clients:
    """Threads that connect again for each request, and count how that ends."""

    def __init__(self, *work: Callable[[], str]) -> None:
        self.ended: dict[str, Counter[str]] = {}
        self._is_over = threading.Event()
        self._threads = []
        for number, each in enumerate(work):
            counts = self.ended[f"{each.__name__} {number}"] = Counter()
            self._threads.append(threading.Thread(target=self._repeat, args=(each, counts)))

    def _repeat(self, work: Callable[[], str], counts: Counter[str]) -> None:
        while not self._is_over.wait(PAUSE_S):
            counts[work()] += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have them ask until the end."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join(PATIENCE_S)

    def go_on(self, server: Server) -> None:
        """Wait until each has had answers again."""
        wanted = {name: counts["answered"] + ROUNDS for name, counts in self.ended.items()}
        server.wait(lambda: all(self.ended[name]["answered"] >= most for name, most in wanted.items()), str(wanted))

    @property
    def total(self) -> Counter[str]:
        """How many requests ended in which way."""
        return sum(self.ended.values(), Counter())


def poll(port: int) -> Callable[[], str]:
    """Return what makes one poll over a connection of its own."""

    def polling() -> str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("POST", "/v3/discovery:clusters", REQUEST, {"content-type": "application/json"})
            with connection.getresponse() as response:
                return "answered" if response.status == 200 and response.read() else f"status {response.status}"
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    return polling


def fetch(port: int) -> Callable[[], str]:
    """Return what makes one call over a channel of its own, as who waits until it is ready."""

    def calling() -> str:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                channel.unary_unary(method_path("cds", "Fetch"))(b"", wait_for_ready=True, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
            return "answered"

    return calling


def held_poll(port: int, version: str) -> socket.socket:
    """Send a poll that is held."""
    return sent_poll(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S), version)


def unix_poll(path: Path, version: str) -> socket.socket:
    """Send a poll to a unix socket."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(path))
    return sent_poll(connection, version)


def sent_poll(connection: socket.socket, version: str) -> socket.socket:
    """Send a poll; it is held where this version is served."""
    body = json.dumps({"version_info": version, "node": {"id": "held"}})
    head = f"POST /v3/discovery:clusters HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    return connection


class Line:
    """Processes that follow one another at the same addresses."""

    def __init__(self, folder: Path, http: str = "", grpc_address: str = "") -> None:
        self.folder, self.count = folder, 0
        self.http = http or f"127.0.0.1:{free_port()}"
        self.grpc = grpc_address or f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"

    def next(self, *options: str) -> Server:
        """Return the next one, to be started."""
        self.count += 1
        workdir = self.folder / str(self.count)
        workdir.mkdir()
        options = options or SHARING
        return Server(self.folder / "tree", workdir, "--admin", self.admin, *options, http=self.http, grpc=self.grpc)


def port_of(address: str) -> int:
    """Return the port of HOST:PORT."""
    return int(address.rpartition(":")[2])


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """A tree with two types, and free addresses."""
    write_file(tmp_path / "tree" / "cds.yaml", document([static_cluster("web")]))
    return Line(tmp_path)


def test_no_connection_is_refused_while_processes_follow_one_another(line: Line) -> None:
    """New connections of REST and gRPC find one of the two, those of the old one end well, and real Envoys are sent nothing again."""
    write_file(line.folder / "tree" / "rds.yaml", document([direct_route("routes", "hello")]))
    write_file(line.folder / "tree" / "lds.yaml", document([http_listener("front", 0, "routes")]))
    polls, calls = (poll(port_of(line.http)),) * 3, (fetch(port_of(line.grpc)),) * 2
    clients = Clients(*polls, *calls)
    with ExitStack() as stack:
        old = stack.enter_context(line.next())
        by_delta = stack.enter_context(StreamingEnvoy(DELTA_ADS.bootstrap(line.grpc)))
        by_rest = stack.enter_context(Envoy(bootstrap(port_of(line.http))))
        before = [envoy_state(envoy) for envoy in (by_delta, by_rest)]
        with clients.running():
            clients.go_on(old)
            for _ in range(HAND_OVERS):
                held = stack.enter_context(held_poll(port_of(line.http), old.ready["versions"]["cds"]))
                new = stack.enter_context(line.next())
                assert (new.ready["http"], new.ready["grpc"], new.ready["admin"]) == (line.http, line.grpc, line.admin)
                clients.go_on(old)
                assert old.is_running
                assert old.stop() == 0
                assert held.recv(12) == b"HTTP/1.1 304"
                clients.go_on(new)
                by_delta.until(by_delta.is_connected, "a stream to the new one")
                old = new
        assert [envoy_state(envoy) for envoy in (by_delta, by_rest)] == before
        write_file(line.folder / "tree" / "cds.yaml", document([static_cluster("web"), static_cluster("late")]))
        by_delta.until_clusters("web", "late")
        by_rest.wait(lambda: "late" in by_rest.cluster_names(dynamic_only=True), PATIENCE_S, "a change")
    lost = {how: count for how, count in clients.total.items() if how != "answered"}
    assert [how for how in lost if "refused" in how.lower()] == []
    # What the kernel has between a handshake and the queue is reset when a socket is closed: at most one in each hand-over.
    assert sum(lost.values()) <= HAND_OVERS, lost


def envoy_state(envoy: Envoy) -> dict[str, object]:
    """Return what an Envoy was sent."""
    stats = envoy.stats(r"\.(update_success|update_rejected)$")
    return {**stats, **envoy.version_texts()}


def test_who_does_not_share_is_told_that_the_address_is_taken(line: Line) -> None:
    """And so is who wants to share what somebody has alone; port 0 is shared with nobody."""
    alone = file_flags(reuse_port="false")
    for first, second in ((SHARING, alone), (alone, SHARING)):
        with line.next(*first) as server:
            rejected = line.next(*second).start(wait=False)
            assert rejected.wait_for_end() == 2
            assert "is taken" in rejected.log_file.read_text()
            assert server.is_running
    line.http = line.grpc = line.admin = "127.0.0.1:0"
    with line.next() as one, line.next() as other:
        assert len({one.ready[name] for name in NAMES} | {other.ready[name] for name in NAMES}) == 6


def test_a_unix_socket_is_replaced(line: Line) -> None:
    """A client finds the new one by the path of the old one, which neither takes it back nor removes it."""
    paths = [line.folder / "http", line.folder / "grpc"]
    line.http, line.grpc = (f"unix:{path}" for path in paths)
    with line.next() as old, closing(unix_poll(paths[0], old.ready["versions"]["cds"])) as held:
        before = [path.stat().st_ino for path in paths]
        with line.next() as new:
            after = [path.stat().st_ino for path in paths]
            assert set(before).isdisjoint(after)
            assert old.stop() == 0
            assert held.recv(12) == b"HTTP/1.1 304"
            assert [path.stat().st_ino for path in paths] == after
            assert old.log_events("component_degraded") == []
            with closing(unix_poll(paths[0], "")) as asking:
                assert asking.recv(12) == b"HTTP/1.1 200"
            with grpc.insecure_channel(line.grpc) as channel:
                channel.unary_unary(method_path("cds", "Fetch"))(b"", timeout=PATIENCE_S)
            assert new.stop() == 0
            assert not any(path.exists() for path in paths)


def test_who_has_nothing_to_serve_does_not_listen(line: Line) -> None:
    """Its first file with a mistake leaves all clients with the old one."""
    with line.next() as old:
        write_file(line.folder / "tree" / "cds.yaml", "[{name: web, mistake: 1}]")
        new = line.next().start(wait=False)
        try:
            new.wait(lambda: new.log_events("not_ready"), "the mistake")
            assert {poll(port_of(line.http))() for _ in range(30)} == {"answered"}
            assert new.log_events("listening") == []
            write_file(line.folder / "tree" / "cds.yaml", document([static_cluster("web")]))
            new.wait(lambda: new.log_events("listening"), "the address")
        finally:
            assert new.stop() == 0
        assert old.is_running
