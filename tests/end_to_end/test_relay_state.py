"""`--state DIR` of a relay: what its upstream held is served after a restart, however either of them ended."""

from __future__ import annotations

import asyncio
import random
import re
import resource
import sqlite3
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.history.state_directory import DATABASE
from tests.end_to_end.killing import CDS, LDS, RDS, StreamFollower, tree_of
from tests.end_to_end.test_state import new_resources, poll
from tests.support.ports import free_address
from tests.support.scripted_streams import Request, ScriptedStreams, packed
from tests.support.server import Server, write_file

FLAGS = ("--linger", "0s", "--step-timeout", "200ms", "--settle", "10ms", "--log-format", "json")
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
        self.address = address = free_address()
        (folder / "top").mkdir()
        self.top = Server(folder / "tree", folder / "top", *FLAGS, "--log-level", "debug", grpc=address)
        self.relay = self.relay_of(address)

    def relay_of(self, upstream: str, *, is_kept: bool = True) -> Server:
        """Return a relay with a mirror, and a state directory if it is kept."""
        folder = self.folder / "relay"
        folder.mkdir(exist_ok=True)
        kept = ("--state", str(folder / "state")) if is_kept else ()
        return Server(None, folder, "--upstream", upstream, "--mirror", str(folder / "mirror"), *kept, *FLAGS)

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
        self.until_mirrored(clusters)

    def until_mirrored(self, clusters: AbstractSet[str]) -> None:
        """Wait until the mirror has clusters, and maybe others."""
        self.relay.wait(lambda: self.mirrored() >= clusters, f"{clusters} in the mirror")

    def kept(self) -> set[str]:
        """Return the names of the resources that the relay has on the disk as those of its upstream."""
        return kept_in(self.folder / "relay" / "state")

    def mirrored(self) -> set[str]:
        """Return the names of the clusters in the mirror of the relay."""
        text = "".join(path.read_text() for path in (self.folder / "relay" / "mirror").glob("cds.*"))
        return {f"cluster-{number}-x" for number in range(10) if f"cluster-{number}-x" in text}

    def held(self) -> dict[str, dict[str, bytes]]:
        """Return what a new client of a stream is sent, by type and name."""
        follower = StreamFollower(is_delta=True, rng=random.Random(1))
        asyncio.run(new_resources(self.relay, follower, 3))
        return follower.held

    def assert_complete(self) -> None:
        """Assert that a new client is sent each cluster that the routes and listeners use which it is sent."""
        held = self.held()
        used = set(re.findall(r"cluster-\d+-x", b"".join((*held[RDS].values(), *held[LDS].values())).decode("latin-1")))
        assert len(used) == 2
        assert used <= held[CDS].keys()


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


def test_relay_that_restarts_names_what_it_holds(tmp_path: Path) -> None:
    """Any server is told its own versions, in one request for each type; what it says is gone is gone, and all else stays."""
    versions = {"a": "7", "b": "anything"}

    def answer(request: Request) -> dict[str, Any] | None:
        if request.response_nonce or request.initial_resource_versions:
            return None
        if request.type_url != CDS:
            return {}
        named = {name: packed(Cluster(name=name, connect_timeout={"seconds": 1})) for name in versions}
        return {
            "resources": [
                discovery_pb2.Resource(name=name, version=version, resource=named[name])
                for name, version in versions.items()
            ]
        }

    with ScriptedStreams(answer) as top:
        relay = Server(
            None, tmp_path, "--upstream", f"127.0.0.1:{top.port}", "--state", str(tmp_path / "state"), *FLAGS
        )
        with relay:
            relay.wait(lambda: kept_in(tmp_path / "state") == {"a", "b"}, "both clusters on the disk")
            relay.kill()
            top.requests.clear()
            relay.start()
            relay.wait(lambda: requests_for(CDS, top), "a request")
            (request,) = requests_for(CDS, top)
            assert dict(request.initial_resource_versions) == versions
            before = poll(relay, "clusters")
            top.send(CDS, removed_resources=["b"])
            relay.wait(lambda: poll(relay, "clusters")[1] not in {before[1], ""}, "the removal")
            relay.wait(lambda: kept_in(tmp_path / "state") == {"a"}, "the removal on the disk")
            assert relay.log_events("upstream_rejected") == []


def requests_for(type_url: str, top: ScriptedStreams) -> list[Request]:
    """Return what a server was asked for a type, but for ACKs."""
    return [each for each in top.requests if each.type_url == type_url and not each.response_nonce]


def kept_in(state: Path) -> set[str]:
    """Return the names of the resources that a relay has on the disk as those of its upstream."""
    if not (state / DATABASE).exists():
        return set()
    with closing(sqlite3.connect(state / DATABASE, timeout=60)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM held_resources")}


def test_what_was_kept_of_an_upstream_goes_when_there_is_none_any_more(relayed: Relayed) -> None:
    """The last one, too: it may have had secrets."""
    relayed.start()
    relayed.relay.stop()
    assert relayed.kept()
    folder = relayed.folder / "relay"
    with Server(relayed.folder / "tree", folder, "--state", str(folder / "state"), *FLAGS) as alone:
        alone.wait(lambda: not relayed.kept(), "the end of what was kept")
        (ignored,) = [one for one in alone.log_events("state_ignored") if "upstream" in one["subject"]]

    assert ignored["reason"] == "it is no upstream any more; its stored resources were removed"


def test_relay_without_a_state_directory(relayed: Relayed) -> None:
    """After a restart it has nothing, and takes nothing from clients: it waits for its upstream, and nobody fetches again then."""
    relayed.relay = relayed.relay_of(relayed.address, is_kept=False)
    relayed.top.start()
    relayed.relay.start()
    relayed.relay.wait(lambda: relayed.mirrored() == {"cluster-0-x", "cluster-1-x"}, "the tree in the mirror")
    follower = StreamFollower(is_delta=True, rng=random.Random(1))
    asyncio.run(new_resources(relayed.relay, follower, 3))
    held, version = follower.held, poll(relayed.relay, "clusters")[1]
    relayed.top.kill()
    relayed.relay.kill()

    # It is not ready without its upstream.
    relayed.relay.start(wait=False)
    relayed.relay.wait(lambda: len(relayed.relay._own_events("listening")) == 3, "its addresses")

    assert asyncio.run(new_resources(relayed.relay, follower, 0)) == []
    assert follower.held == held
    assert poll(relayed.relay, "clusters", version)[0] in {304, 503}
    assert poll(relayed.relay, "clusters")[0] in {304, 503}
    assert relayed.mirrored() == {"cluster-0-x", "cluster-1-x"}
    relayed.top.start()
    relayed.relay.wait(lambda: poll(relayed.relay, "clusters") == (200, version), "the upstream")
    assert asyncio.run(new_resources(relayed.relay, follower, 0)) == []


def test_killed_while_its_upstream_changes(relayed: Relayed) -> None:
    """A relay that is killed at any moment serves alone all clusters that it had on the disk and that its routes use, and goes on."""
    rng = random.Random(7)
    relayed.start()
    for number in range(1, 4):
        relayed.edit(number)
        time.sleep(rng.random() * 0.3)
        relayed.relay.kill()
        on_disk = relayed.kept()
        relayed.top.kill()
        relayed.relay.start()
        clusters = on_disk - OTHERS
        assert on_disk >= OTHERS
        # What it served when it was killed stays, too, until the upstream is there again.
        relayed.until_mirrored(clusters)
        # The upstream had not moved all of it, perhaps, so these may be older ones.
        relayed.assert_complete()
        relayed.top.start()
        relayed.until_served(number)


def test_full_disk(relayed: Relayed) -> None:
    """While the state directory cannot be written, everything is served as ever; with room, what is held then is kept."""
    relayed.start()
    limit = resource.prlimit(relayed.relay.pid, resource.RLIMIT_FSIZE)
    size_bytes = (relayed.folder / "relay" / "state" / DATABASE).stat().st_size
    # Far below what is there, as a database may have room for an edit, and above the log.
    resource.prlimit(relayed.relay.pid, resource.RLIMIT_FSIZE, (size_bytes // 4, limit[1]))
    relayed.edit(1)
    relayed.relay.wait(lambda: relayed.mirrored() == {"cluster-2-x", "cluster-3-x"}, "the edit")
    relayed.relay.wait(lambda: relayed.relay.log_events("state_failed"), "the full disk")
    resource.prlimit(relayed.relay.pid, resource.RLIMIT_FSIZE, limit)
    relayed.relay.wait(lambda: relayed.relay.log_events("state_recovered"), "room")
    relayed.until_served(1)


def test_damaged_database(relayed: Relayed) -> None:
    """A database that is none is set aside, and the upstream is asked for everything again."""
    relayed.start()
    relayed.relay.kill()
    (relayed.folder / "relay" / "state" / DATABASE).write_bytes(b"nonsense" * 1000)
    relayed.relay.start()
    relayed.until_served(0)
    assert len(relayed.relay.log_events("state_ignored")) == 1
