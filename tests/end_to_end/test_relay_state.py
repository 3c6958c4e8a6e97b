"""`--state DIR` of a relay: what its upstream held is served after a restart, however either of them ended."""

from __future__ import annotations

import asyncio
import random
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fsxds.history.state_directory import DATABASE
from tests.end_to_end.killing import StreamFollower, tree_of
from tests.end_to_end.test_state import new_resources, poll
from tests.support.server import Server, write_file

FLAGS = ("--linger", "0s", "--settle", "10ms", "--log-format", "json")
# What refers to the route: else a relay asks for it only when a client does.
LISTENER = """\
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: h
  address: {socket_address: {address: 127.0.0.1, port_value: 8}}
  filter_chains:
  - filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: http
        rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}
        http_filters:
        - name: router
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
"""
OTHERS = {"r", "l", "h"}


class Relayed:
    """A server with a tree, whose address stays, and a relay without one."""

    def __init__(self, folder: Path) -> None:
        """Prepare both; nothing runs yet."""
        self.folder = folder
        self.edit(0)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.address = address
        (folder / "top").mkdir()
        self.top = Server(folder / "tree", folder / "top", *FLAGS, "--log-level", "debug", grpc=address)
        self.relay = self.relay_of(address)

    def relay_of(self, *upstreams: str, name: str = "relay") -> Server:
        """Return a relay with a state directory and a mirror; all those of one name have the same."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        flags = [flag for each in upstreams for flag in ("--upstream", each)]
        kept = ("--state", str(folder / "state"), "--mirror", str(folder / "mirror"))
        return Server(None, folder, *flags, *kept, *FLAGS)

    def edit(self, number: int) -> None:
        """Change the tree of the upstream."""
        write_file(self.folder / "tree" / "all.yaml", tree_of(number) + LISTENER)

    def start(self) -> None:
        """Start both, and wait until the relay serves all of the tree and has it on the disk."""
        self.top.start()
        self.relay.start()
        self.until_served(0)

    def until_served(self, number: int) -> None:
        """Wait until the relay serves what an edit brought, and has that alone on the disk."""
        clusters = {f"cluster-{2 * number}-x", f"cluster-{2 * number + 1}-x"}
        self.relay.wait(lambda: self.kept() == clusters | OTHERS, f"edit {number} on the disk")
        self.relay.wait(lambda: self.mirrored() >= clusters, f"edit {number} in the mirror")

    def kept(self) -> set[str]:
        """Return the names of the resources that the relay has on the disk as those of its upstream."""
        path = self.folder / "relay" / "state" / DATABASE
        if not path.exists():
            return set()
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM held_resources")}

    def mirrored(self) -> set[str]:
        """Return the names of the clusters in the mirror of the relay."""
        text = "".join(path.read_text() for path in (self.folder / "relay" / "mirror").glob("cds.*"))
        return {f"cluster-{number}-x" for number in range(10) if f"cluster-{number}-x" in text}

    def held(self) -> dict[str, dict[str, bytes]]:
        """Return what a new client of a stream is sent, by type and name."""
        follower = StreamFollower(is_delta=True, rng=random.Random(1))
        asyncio.run(new_resources(self.relay, follower, 3))
        return follower.held


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Relayed]:
    """Return a server and its relay, which are started by whoever wants them."""
    relayed = Relayed(tmp_path)
    yield relayed
    for server in (relayed.top, relayed.relay):
        if server._process is not None:
            server.stop()


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_relay_serves_while_its_upstream_is_away(relayed: Relayed, end: str) -> None:
    """A relay that restarts alone serves all wires as before, so that nobody fetches again; with its upstream, it goes on."""
    relayed.start()
    follower = StreamFollower(is_delta=True, rng=random.Random(1))
    asyncio.run(new_resources(relayed.relay, follower, 3))
    versions = {word: poll(relayed.relay, word)[1] for word in ("clusters", "listeners")}
    relayed.top.kill()
    relayed.relay.kill() if end == "killed" else relayed.relay.stop()
    for path in (relayed.folder / "relay" / "mirror").glob("cds.*"):
        path.unlink()

    relayed.relay.start()

    assert {word: poll(relayed.relay, word, version)[0] for word, version in versions.items()} == dict.fromkeys(
        versions, 304
    )
    assert {word: poll(relayed.relay, word) for word in versions} == {
        word: (200, version) for word, version in versions.items()
    }
    assert asyncio.run(new_resources(relayed.relay, follower, 0)) == []
    assert relayed.held() == follower.held
    relayed.relay.wait(lambda: relayed.mirrored() == {"cluster-0-x", "cluster-1-x"}, "the mirror")
    (line,) = relayed.relay.log_events("upstreams_restored")
    assert (line["count"], line["upstreams"]) == (5, [relayed.address])
    relayed.edit(1)
    relayed.top.start()
    relayed.until_served(1)
