"""Three replicas behind nginx, each with its own copy of the tree: `python -m tests.end_to_end.replicas --lag 2`.

The tree changes commit by commit. Each copy gets a commit at its own moment, as git-sync brings it: a new directory, and a link
that is renamed to it. Replicas are killed and come back. Clients of REST and Delta follow through nginx, and real Envoys
beside them. Counted are: what a client was sent that it had already, and steps back to an earlier commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.model.resource_types import BY_SHORT_NAME
from tests.support.dockerfile import TOP
from tests.support.envoy import Envoy
from tests.support.etcd import Etcd, running_etcd
from tests.support.grpc_clients import DiscoveryClient, method_path
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.settings_files import file_flags

STREAM_MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"
"""Of Debian's package libnginx-mod-stream."""

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CDS = BY_SHORT_NAME["cds"].type_url
CLUSTERS = 20
# Each client has its own connection, and asks again soon.
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)


@dataclass(frozen=True)
class Plan:
    """What happens: commits, each at a copy up to `lag_s` later than at another; after every `kill_every`th a replica is killed.

    Where the replicas are a fleet, a member of their etcd is killed as well.
    """

    commits: int = 12
    lag_s: float = 0.5
    kill_every: int = 4
    clients: int = 10
    is_sticky: bool = True
    with_envoys: bool = True
    is_fleet: bool = False


@dataclass
class Counts:
    """What a client saw: answers with resources; those with what it had; steps back; connections that it lost."""

    answers: int = 0
    again: int = 0
    back: int = 0
    lost: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return Counts(*(one + two for one, two in pairs))


class Copy:
    """A replica's copy of the tree, laid out as git-sync does it."""

    def __init__(self, folder: Path) -> None:
        self.link = folder / "current"
        self._folder = folder
        folder.mkdir()

    def receive(self, commit: int) -> None:
        """Make a commit current, as a whole."""
        worktree = self._folder / ".worktrees" / str(commit)
        worktree.mkdir(parents=True)
        (worktree / "clusters.yaml").write_text(clusters_of(commit))
        new = self._folder / ".new"
        new.symlink_to(worktree)
        new.replace(self.link)


def clusters_of(commit: int) -> str:
    """Return the clusters at a commit: each names the last commit that changed it."""
    last = {
        number: max((n for n in range(commit + 1) if n % CLUSTERS == number), default=0) for number in range(CLUSTERS)
    }
    form = "- {{name: c{}, type: STATIC, connect_timeout: 1s, alt_stat_name: commit-{}}}\n"
    return "".join(form.format(number, last[number]) for number in range(CLUSTERS))


def commit_of(text: str) -> int:
    """Return the latest commit that a text of clusters names."""
    return max((int(number) for number in re.findall(r"commit-(\d+)", text)), default=-1)


@dataclass
class PollingClient:
    """Polls as Envoy does, and counts."""

    address: str
    node: str
    source: str
    counts: Counts = field(default_factory=Counts)
    commit: int = -1
    _version: str = ""
    _body: object = None

    async def run(self) -> None:
        """Poll until cancelled."""
        connector = aiohttp.TCPConnector(local_addr=(self.source, 0))
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                request = {"node": {"id": self.node, "cluster": "c"}, "version_info": self._version}
                headers = {"x-envoy-expected-rq-timeout-ms": "5000"}
                try:
                    url = f"http://{self.address}/v3/discovery:clusters"
                    async with session.post(url, json=request, headers=headers) as response:
                        if response.status == 200:
                            self._receive(await response.json(content_type=None))
                        elif response.status != 304:
                            self.counts.lost += 1
                except aiohttp.ClientError:
                    self.counts.lost += 1
                await asyncio.sleep(0.05)

    def _receive(self, answer: dict[str, Any]) -> None:
        commit = commit_of(json.dumps(answer["resources"]))
        self.counts.answers += 1
        self.counts.again += answer["version_info"] == self._version or answer["resources"] == self._body
        self.counts.back += commit < self.commit
        self._version, self._body, self.commit = answer["version_info"], answer["resources"], commit


@dataclass
class StreamingClient:
    """Follows by Delta, says at each new stream what it has, as Envoy does, and counts single resources."""

    address: str
    node: str
    source: str
    counts: Counts = field(default_factory=Counts)
    _versions: dict[str, str] = field(default_factory=dict)
    _commits: dict[str, int] = field(default_factory=dict)

    @property
    def commit(self) -> int:
        """The latest commit of which it has something."""
        return max(self._commits.values(), default=-1)

    async def run(self) -> None:
        """Open a stream whenever there is none, until cancelled."""
        while True:
            # A port to each client: nginx tells clients apart by their addresses.
            async with grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS) as channel:
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self._follow(DiscoveryClient(channel, method_path("", "Delta")))
            self.counts.lost += 1
            await asyncio.sleep(0.1)

    async def _follow(self, stream: DiscoveryClient) -> None:
        await stream.ask("cds", node=self.node, initial_resource_versions=self._versions)
        while True:
            answer = await stream.call.read()
            if answer is grpc.aio.EOF:
                return
            self._receive(answer)
            await stream.take(answer)

    def _receive(self, answer: discovery_pb2.DeltaDiscoveryResponse) -> None:
        self.counts.answers += 1
        for resource in answer.resources:
            cluster = cluster_pb2.Cluster()
            resource.resource.Unpack(cluster)
            commit = commit_of(cluster.alt_stat_name)
            self.counts.again += self._versions.get(resource.name) == resource.version
            self.counts.back += commit < self._commits.get(resource.name, -1)
            self._versions[resource.name], self._commits[resource.name] = resource.version, commit
        for name in answer.removed_resources:
            self._versions.pop(name, None)
            self._commits.pop(name, None)


Client = PollingClient | StreamingClient


class Replica:
    """One fsxds at ports of its own, which it has again after a restart."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        self.copy = Copy(folder / "tree")
        self._options = options
        self.rest, self.streams = free_port(), free_port()
        self._folder = folder
        self._server: Server | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        rest, streams = f"127.0.0.1:{self.rest}", f"127.0.0.1:{self.streams}"
        self._server = Server(self.copy.link, self._folder, *self._options, http=rest, grpc=streams).start()

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._server is not None
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.wait_for_end()

    def stop(self) -> None:
        """End it as an operator does."""
        if self._server is not None:
            self._server.stop()


@contextmanager
def balancing(
    folder: Path, replicas: Sequence[Replica], *, is_sticky: bool, is_tcp: bool = False
) -> Iterator[tuple[str, str]]:
    """Run nginx before the replicas; yield its addresses for REST and streams.

    It has docker/nginx.conf, or with `is_tcp` passes connections on without reading them (its module `stream`).
    """
    assert NGINX is not None
    if is_tcp:
        ports = {"18001": free_port(), "18000": free_port()}
        groups = [
            f"upstream u{port} {{ {'hash $remote_addr consistent;' if part == 'rest' else ''} "
            + " ".join(f"server 127.0.0.1:{getattr(one, part)} max_fails=0;" for one in replicas)
            + f" }} server {{ listen 127.0.0.1:{free}; proxy_pass u{port}; proxy_connect_timeout 2s; proxy_timeout 1d; }}"
            for (port, free), part in zip(ports.items(), ("rest", "streams"), strict=True)
        ]
        head = f"load_module {STREAM_MODULE};\ndaemon off;\npid {folder}/nginx.pid;\nevents {{}}\n"
        yield from _balanced(folder, f"{head}stream {{ {' '.join(groups)} }}\n", ports)
        return
    text = (TOP / "docker/nginx.conf").read_text()
    ports = {"18001": free_port(), "18000": free_port()}
    for number, replica in enumerate(replicas, 1):
        text = text.replace(f"fsxds-{number}:18001", f"127.0.0.1:{replica.rest}")
        text = text.replace(f"fsxds-{number}:18000", f"127.0.0.1:{replica.streams}")
    for port, free in ports.items():
        text = text.replace(f"listen {port}", f"listen 127.0.0.1:{free}")
    if not is_sticky:
        text = text.replace("hash $remote_addr consistent;", "")
    else:
        # Clients of one machine: those of REST have addresses of their own, those of streams only ports.
        text = text.replace("hash $remote_addr consistent;", "hash $remote_addr$key consistent;")
        text = text.replace(
            "http {", "http {\n  map $server_port $key { default ''; " + f"{ports['18000']} $remote_port; }}", 1
        )
    yield from _balanced(folder, text.replace("/tmp/", f"{folder}/"), ports)


def _balanced(folder: Path, text: str, ports: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    assert NGINX is not None
    config = folder / "nginx.conf"
    config.write_text(text)
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen([NGINX, "-c", str(config), "-p", str(folder)], stderr=log)
    try:
        for each in ports.values():
            wait_for_listener(each)
        yield f"127.0.0.1:{ports['18001']}", f"127.0.0.1:{ports['18000']}"
    finally:
        process.terminate()
        process.wait()


def wait_for_listener(port: int) -> None:
    """Wait until something accepts at a port of this machine."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass
class Run:
    """What came of a plan.

    Attributes:
        rest: the sums over the clients that poll.
        delta: the sums over those on streams.
        changes: how often each Envoy changed a cluster, by transport.
        kills: how often a replica was killed.
    """

    rest: Counts
    delta: Counts
    changes: dict[str, int]
    kills: int


async def run(plan: Plan, folder: Path) -> Run:
    """Carry a plan out."""
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder, 3)) if plan.is_fleet else None
        # Only by patience may a client go back: a machine that does much else besides may stop a server for seconds.
        options = () if etcd is None else ("--fleet", etcd.url, *file_flags(lag_patience="60s"))
        replicas = [Replica(folder / f"replica-{number}", *options) for number in range(3)]
        for replica in replicas:
            replica.copy.receive(0)
        for replica in replicas:
            stack.callback(replica.stop)
            await asyncio.to_thread(replica.start)
        rest, streams = stack.enter_context(balancing(folder, replicas, is_sticky=plan.is_sticky))
        envoys = start_envoys(stack, rest, streams) if plan.with_envoys else {}
        numbers = range(plan.clients)
        polling = [PollingClient(rest, f"rest-{number}", f"127.0.1.{number + 1}") for number in numbers]
        streaming = [StreamingClient(streams, f"delta-{number}", "") for number in numbers]
        clients: list[Client] = [*polling, *streaming]
        async with running(clients):
            await until(lambda: all(client.commit == 0 for client in clients))
            kills = await commit_all(plan, replicas, etcd)
            await until(lambda: {client.commit for client in clients} == {plan.commits})
            names = {f"commit-{plan.commits}"}
            for envoy in envoys.values():
                await until(lambda envoy=envoy: names <= stat_names(envoy))  # type: ignore[misc]
        changes = {name: envoy.stat("cluster_manager.cluster_modified") for name, envoy in envoys.items()}
    sums = [sum((client.counts for client in group), Counts()) for group in (polling, streaming)]
    return Run(sums[0], sums[1], changes, kills)


async def commit_all(plan: Plan, replicas: list[Replica], etcd: Etcd | None = None) -> int:
    """Give every commit to every copy, and kill replicas in between; return how often."""
    kills = 0
    dice = random.Random(7)
    for commit in range(1, plan.commits + 1):
        async with asyncio.TaskGroup() as tasks:
            for replica in replicas:
                tasks.create_task(receive_later(replica, commit, dice.uniform(0, plan.lag_s)))
            if plan.kill_every and commit % plan.kill_every == 0:
                victim = replicas[(commit // plan.kill_every) % len(replicas)]
                await asyncio.to_thread(victim.kill)
                kills += 1
                if etcd is not None:
                    await asyncio.to_thread(etcd.signal, commit % 3, signal.SIGKILL)
                await asyncio.sleep(plan.lag_s / 2)
                if etcd is not None:
                    etcd.start(commit % 3)
                await asyncio.to_thread(victim.start)
        await asyncio.sleep(0.3)
    return kills


async def receive_later(replica: Replica, commit: int, pause_s: float) -> None:
    """Bring a commit to a copy after a pause."""
    await asyncio.sleep(pause_s)
    replica.copy.receive(commit)


def start_envoys(stack: ExitStack, rest: str, streams: str) -> dict[str, Envoy]:
    """Start an Envoy that polls, and one on a stream of Delta ADS."""
    node = {"cluster": "envoys"}
    polls = {"api_type": "REST", "transport_api_version": "V3", "cluster_names": ["xds"]}
    polls |= {"refresh_delay": "0.05s", "request_timeout": "5s"}
    by_rest = {
        "node": {"id": "envoy-rest", **node},
        "static_resources": {"clusters": [xds_cluster(rest)]},
        "dynamic_resources": {"cds_config": {"resource_api_version": "V3", "api_config_source": polls}},
    }
    stream = {"api_type": "DELTA_GRPC", "transport_api_version": "V3"}
    by_delta = {
        "node": {"id": "envoy-delta", **node},
        "static_resources": {"clusters": [xds_cluster(streams, is_http2=True)]},
        "dynamic_resources": {
            "ads_config": {**stream, "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
            "cds_config": {"resource_api_version": "V3", "ads": {}},
        },
    }
    return {name: stack.enter_context(Envoy(one)) for name, one in (("REST", by_rest), ("Delta", by_delta))}


def xds_cluster(address: str, *, is_http2: bool = False) -> dict[str, Any]:
    """Return the static cluster of a bootstrap."""
    host, _, port = address.partition(":")
    endpoint = {"address": {"socket_address": {"address": host, "port_value": int(port)}}}
    cluster: dict[str, Any] = {"name": "xds", "type": "STATIC", "connect_timeout": "1s"}
    cluster["load_assignment"] = {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}
    if is_http2:
        name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        options = {"@type": f"type.googleapis.com/{name}", "explicit_http_config": {"http2_protocol_options": {}}}
        cluster["typed_extension_protocol_options"] = {name: options}
    return cluster


def stat_names(envoy: Envoy) -> set[str]:
    """Return the names that the clusters have in statistics, which are those of commits."""
    return {
        str(one["cluster"]["alt_stat_name"])
        for one in envoy.config_section("ClustersConfigDump").get("dynamic_active_clusters", [])
    }


@asynccontextmanager
async def running(clients: list[Client]) -> AsyncIterator[None]:
    """Run clients as long as the context lasts."""
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(client.run()) for client in clients]
        try:
            yield
        finally:
            for task in following:
                task.cancel()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(is_so):
        assert time.monotonic() < deadline, "a client does not follow"
        await asyncio.sleep(0.05)


def main() -> None:
    """Run a plan, and print its counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.replicas")
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--lag", type=float, default=1.0)
    parser.add_argument("--kill-every", type=int, default=5)
    parser.add_argument("--alternate", action="store_true", help="nginx sends each request to the next replica")
    parser.add_argument("--fleet", action="store_true", help="they are a fleet on three members of etcd")
    given = parser.parse_args()
    plan = Plan(given.commits, given.lag, given.kill_every, given.clients, not given.alternate, is_fleet=given.fleet)
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(run(plan, Path(folder)))
    sys.stdout.write(f"{plan}\nREST:  {done.rest}\nDelta: {done.delta}\nEnvoys: {done.changes}, kills: {done.kills}\n")


if __name__ == "__main__":
    main()
