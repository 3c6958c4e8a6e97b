"""Send SIGKILL at random moments of rollouts: `python -m tests.end_to_end.killing 100`.

A real `fsxds serve --state` serves a tree in which, with each change, a cluster appears and another one vanishes, which a route
and a listener use. Clients of Delta, SotW and REST follow, and take their time. At a random moment of the rollout the process
is killed, and started again. What is on the disk then must be one of the planned steps, and the rollout must complete; no client
of a stream may ever have a route or a listener that uses a cluster that it does not have.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

import fsxds
from fsxds.history.entries import read_object
from fsxds.history.rollout_rows import channel_text, decode_state
from fsxds.history.state_directory import DATABASE
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.rollout import Rollout, RolloutOptions, RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import snapshot_near
from fsxds.transports.grpc_streams.stream_requests import AGGREGATED
from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import write_file

STEP_TIMEOUT_S = 2.0
# A client that is away for longer than a step waits for it is not waited for, so none must be.
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 50),
)
LEAST_PAUSE_S = 0.05
# A rollout takes about 0.2 s with these pauses; what lingers is there for 5 s more than asked for.
LATEST_KILL_S = 0.6

CDS, RDS, LDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "rds", "lds"))
_USED = re.compile(rb"cluster-\d+-x")


def tree_of(number: int) -> str:
    """Return a tree in which a route uses one cluster, and a listener another one; no other number has these."""
    cluster = '- {{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: cluster-{}-x, type: STATIC, connect_timeout: 1s}}'
    return f"""\
resources:
{cluster.format(2 * number)}
{cluster.format(2 * number + 1)}
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: r
  virtual_hosts: [{{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: cluster-{2 * number}-x}}}}]}}]
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: l
  address: {{socket_address: {{address: 127.0.0.1, port_value: 9}}}}
  filter_chains:
  - filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: tcp
        cluster: cluster-{2 * number + 1}-x
"""


@dataclass
class StreamFollower:
    """A client of a stream of all types, which connects again when it ends, and remembers what it holds.

    Attributes:
        is_delta: whether it speaks Delta.
        node: its id; empty for the name of the protocol.
        held: the resources by their types and names.
        broken: when it held something that uses a cluster which it did not hold.
    """

    is_delta: bool
    rng: random.Random
    held: dict[str, dict[str, bytes]] = field(default_factory=lambda: {CDS: {}, RDS: {}, LDS: {}})
    versions: dict[str, dict[str, str]] = field(default_factory=lambda: {CDS: {}, RDS: {}, LDS: {}})
    broken: list[str] = field(default_factory=list)
    responses: int = 0
    node: str = ""

    async def follow(self, address: str) -> None:
        """Follow until cancelled."""
        while True:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
                    await self.follow_on(channel)
            await asyncio.sleep(0.02)

    async def follow_on(self, channel: grpc.aio.Channel, observe: Callable[[str], object] = str) -> None:
        """Follow one stream to its end; `observe` receives the type of each response."""
        word, response = (
            ("Delta", discovery_pb2.DeltaDiscoveryResponse)
            if self.is_delta
            else ("Stream", discovery_pb2.DiscoveryResponse)
        )
        path = f"/{AGGREGATED}/{word}AggregatedResources"
        call = channel.stream_stream(path, response_deserializer=response.FromString)()
        for type_url in self.held:
            await call.write(self._first_request(type_url).SerializeToString())
        while (received := await call.read()) is not grpc.aio.EOF:
            self._take(received)
            observe(received.type_url)
            await asyncio.sleep(self.rng.random() * LEAST_PAUSE_S)
            await call.write(self._ack(received).SerializeToString())

    def _first_request(self, type_url: str) -> Any:
        names = ["r"] if type_url == RDS else []
        node = {"id": self.node or ("delta" if self.is_delta else "sotw")}
        if self.is_delta:
            known = self.versions[type_url]
            return discovery_pb2.DeltaDiscoveryRequest(
                node=node, type_url=type_url, resource_names_subscribe=names, initial_resource_versions=known
            )
        version = self.versions[type_url].get("", "")
        return discovery_pb2.DiscoveryRequest(node=node, type_url=type_url, resource_names=names, version_info=version)

    def _take(self, received: Any) -> None:
        self.responses += 1
        held, versions = self.held[received.type_url], self.versions[received.type_url]
        if self.is_delta:
            for resource in received.resources:
                held[resource.name], versions[resource.name] = resource.resource.value, resource.version
            for name in received.removed_resources:
                held.pop(name, None)
                versions.pop(name, None)
        else:
            if received.type_url in {CDS, LDS}:
                held.clear()
            held.update((_name(body.value), body.value) for body in received.resources)
            versions[""] = received.version_info
        self._check(received.type_url)

    def _ack(self, received: Any) -> Any:
        if self.is_delta:
            return discovery_pb2.DeltaDiscoveryRequest(type_url=received.type_url, response_nonce=received.nonce)
        names = ["r"] if received.type_url == RDS else []
        return discovery_pb2.DiscoveryRequest(
            type_url=received.type_url,
            response_nonce=received.nonce,
            version_info=received.version_info,
            resource_names=names,
        )

    def _check(self, type_url: str) -> None:
        used = {
            each.decode() for users in (RDS, LDS) for body in self.held[users].values() for each in _USED.findall(body)
        }
        if missing := used - self.held[CDS].keys():
            self.broken.append(f"{type_url}: {sorted(missing)} used, {sorted(self.held[CDS])} held")

    def holds(self, target: Snapshot) -> bool:
        """Whether it holds what a tree asks for."""
        return all(
            {name: row.body for name, row in target.resources(fsxds_type).items()} == self.held[fsxds_type]
            for fsxds_type in (CDS, RDS, LDS)
        )


def _name(body: bytes) -> str:
    """Return the name of a resource: the first field of all that are here."""
    return body[2 : 2 + body[1]].decode()


@dataclass
class RestFollower:
    """A node that polls three types, each on its own, and polls again when a poll fails.

    Attributes:
        versions: what it holds, by the words of the paths.
        answers: how many responses had something new, by type.
    """

    rng: random.Random
    versions: dict[str, str] = field(default_factory=lambda: {"clusters": "", "routes": "", "listeners": ""})
    answers: Counter[str] = field(default_factory=Counter)

    async def follow(self, path: Path, word: str) -> None:
        """Poll one type until cancelled."""
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
            while True:
                try:
                    await self._poll(session, word)
                except (aiohttp.ClientError, OSError, TimeoutError):
                    await asyncio.sleep(0.02)

    async def _poll(self, session: aiohttp.ClientSession, word: str) -> None:
        names = ["r"] if word == "routes" else []
        request = {"node": {"id": "rest"}, "version_info": self.versions[word], "resource_names": names}
        async with session.post(
            f"http://fsxds/v3/discovery:{word}", json=request, params={"timeout": "20"}
        ) as response:
            if response.status == 200:
                self.versions[word] = (await response.json())["version_info"]
                self.answers[word] += 1
            elif response.status != 304:
                await asyncio.sleep(0.02)
        await asyncio.sleep(self.rng.random() * LEAST_PAUSE_S)

    def holds(self, target: Snapshot) -> bool:
        """Whether it holds what a tree asks for."""
        versions = {"clusters": target.resources(CDS).version, "listeners": target.resources(LDS).version}
        return all(self.versions[word] == version for word, version in versions.items())


class Killing:
    """A server that is killed now and then, in a folder."""

    def __init__(self, folder: Path, linger_s: float) -> None:
        self.folder = folder
        self.options = RolloutOptions(linger_s=linger_s, step_timeout_s=STEP_TIMEOUT_S)
        self.state = folder / "state"
        self.log = folder / "fsxds.log"
        self.process: FsxdsProcess | None = None

    @property
    def grpc(self) -> str:
        """The address of streams."""
        return f"unix:{self.folder / 'grpc.sock'}"

    @property
    def http(self) -> Path:
        """The socket of polls."""
        return self.folder / "http.sock"

    def edit(self, number: int) -> None:
        """Write a tree."""
        write_file(self.folder / "tree" / "all.yaml", tree_of(number))

    async def target(self) -> Snapshot:
        """Return what the tree asks for."""
        return (await asyncio.to_thread(fsxds.load, self.folder / "tree")).snapshot

    def start(self) -> None:
        """Start the server."""
        places = ["--http", f"unix:{self.http}", "--grpc", self.grpc, "--admin", "off", "--state", str(self.state)]
        times = ["--linger", f"{self.options.linger_s}s", "--step-timeout", f"{STEP_TIMEOUT_S}s", "--settle", "10ms"]
        flags = [*places, *times, "--max-removal", "off", "--log-format", "json"]
        with self.log.open("ab") as log:
            self.process = start_fsxds(["serve", str(self.folder / "tree"), *flags], stdout=log, stderr=log)

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def on_disk(self) -> RolloutState | None:
        """Return the place of the rollout that is on the disk; None for none."""
        if not (self.state / DATABASE).exists():
            return None
        uri = f"{(self.state / DATABASE).as_uri()}?mode=rw"
        with (
            closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection,
            suppress(sqlite3.OperationalError),
        ):
            connection.execute("BEGIN")
            query = "SELECT facts FROM rollouts WHERE channel = ?"
            row = connection.execute(query, (channel_text(ChannelKey()),)).fetchone()
            restore = partial(snapshot_near, read=partial(read_object, connection))
            return None if row is None else decode_state(row[0], restore, time.time())
        return None

    def has_completed(self, target: Snapshot) -> bool:
        """Whether a target is on the disk, and nothing lingers."""
        found = self.on_disk()
        return (
            found is not None
            and found.good is not None
            and found.served.versions == target.versions == found.good.versions
        )


def planned_steps(
    options: RolloutOptions, before: RolloutState | None, target: Snapshot
) -> list[dict[TypeUrl, Version]]:
    """Return the versions of what is served on the way to a target, what is served before included."""
    rollout = Rollout(options, before)
    served: list[dict[TypeUrl, Version]] = []
    now_s = 0.0
    rollout.receive_target(target, now_s)
    while True:
        if rollout.served is not None and (not served or served[-1] != rollout.served.versions):
            served.append(dict(rollout.served.versions))
        if rollout.step is not None:
            rollout.receive_waiting(set(), now_s)
        elif rollout.timer_at_s is None:
            return served
        else:
            now_s = max(now_s, rollout.timer_at_s)
            rollout.receive_timer(now_s)


@dataclass
class Followers:
    """All clients of one server."""

    streams: tuple[StreamFollower, ...]
    rest: RestFollower

    @classmethod
    def of(cls, rng: random.Random) -> Followers:
        """Return clients of each sort, which take their time in different ways."""
        streams = tuple(StreamFollower(is_delta, random.Random(rng.random())) for is_delta in (True, False))
        return cls(streams, RestFollower(random.Random(rng.random())))

    def hold(self, target: Snapshot) -> bool:
        """Whether all of them hold what a tree asks for."""
        return self.rest.holds(target) and all(each.holds(target) for each in self.streams)

    @property
    def broken(self) -> list[str]:
        """When streams held something that uses a cluster which they did not hold."""
        return [f"{'Delta' if each.is_delta else 'SotW'} {one}" for each in self.streams for one in each.broken]

    @asynccontextmanager
    async def following(self, killing: Killing) -> AsyncIterator[None]:
        """Follow a server in the background."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.follow(killing.grpc)) for each in self.streams]
            running += [tasks.create_task(self.rest.follow(killing.http, word)) for word in self.rest.versions]
            yield
            for task in running:
                task.cancel()


async def until_complete(killing: Killing, followers: Followers, target: Snapshot) -> None:
    """Wait until all clients hold what a tree asks for, and the rollout is over."""
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + PATIENCE_S
    while not (followers.hold(target) and await asyncio.to_thread(killing.has_completed, target)):
        assert loop.time() < ends_at_s, f"the rollout does not complete\n{killing.log.read_text()[-5000:]}"
        await asyncio.sleep(0.02)


async def run(folder: Path, rounds: int, seed: int, linger_s: float = 0.0) -> Counter[str]:
    """Edit, kill and start again so often; return at which of the planned steps the process was killed how often."""
    rng = random.Random(seed)
    killing, followers = Killing(folder, linger_s), Followers.of(rng)
    counts: Counter[str] = Counter()
    killing.edit(0)
    killing.start()
    target = await killing.target()
    async with followers.following(killing):
        for number in range(1, rounds + 1):
            await until_complete(killing, followers, target)
            before = killing.on_disk()
            killing.edit(number)
            await asyncio.sleep(rng.random() * LATEST_KILL_S)
            killing.kill()
            target = await killing.target()
            found, planned = killing.on_disk(), planned_steps(killing.options, before, target)
            assert found is not None
            versions = dict(found.served.versions)
            assert versions in planned, f"round {number}: what is on the disk was not planned"
            counts[f"{planned.index(versions)} of {len(planned) - 1}"] += 1
            killing.start()
        await until_complete(killing, followers, target)
    killing.kill()
    assert followers.broken == []
    return counts


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.killing")
    parser.add_argument("rounds", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--linger", type=float, default=0.0, help="seconds; each round takes 5 s more then")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = asyncio.run(run(Path(folder), chosen.rounds, chosen.seed, chosen.linger))
    steps = ", ".join(f"{count} at step {step}" for step, count in sorted(counts.items()))
    print(f"seed {chosen.seed}: killed {chosen.rounds} times, {steps}; every rollout completed")  # noqa: T201


if __name__ == "__main__":
    main()
