"""Edit a tree that an Envoy under load and a crowd of other clients follow, of which one in twenty is odd.

Prints how long each edit took until each of the others had it, and what failed. The exit status is 1 if a request through the
Envoy failed, if a client had a route to a cluster that it lacked, or if 1 % of the edits came later than a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2

from tests.end_to_end.traffic.kinds import FRONT, TYPE
from tests.end_to_end.traffic.running import TRANSPORTS, Run, running

CLUSTERS, LISTENERS = f"{TYPE}.config.cluster.v3.Cluster", f"{TYPE}.config.listener.v3.Listener"
ROUTES = f"{TYPE}.config.route.v3.RouteConfiguration"
PATHS = {CLUSTERS: "clusters", LISTENERS: "listeners", ROUTES: "routes"}
METHODS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
KINDS = ("static clusters, one file", "EDS clusters, one file", "static clusters, two files")

# Whatever is odd, by the share of the odd ones that is so.
MOODS = {"rejects": 3, "leaves": 3, "freezes": 1, "is silent": 1, "polls one type": 1, "comes once": 1}
ODD_ONE_OF = 20
# It rejects the clusters of these edits, of every five; and of the first state nothing.
REJECTS = {3}
REJECTS_ONE_OF = 5
AWAY_S, STAYS_S = 2.0, 8.0
# Each freeze costs the others a step's time limit once.
FROZEN_S, THAWED_S = 20.0, 100.0
LATE_S, LATE_SHARE = 1.0, 0.01


@dataclass
class Crowd:
    """What became of the edits.

    Attributes:
        address: of polls, or of streams.
        arrived_s: when each edit came to each client that is not odd.
        broken: what clients had that was not whole.
        answers: how many responses were taken.
        rejected: how many of these were rejected.
    """

    address: str
    arrived_s: dict[int, dict[str, float]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    answers: int = 0
    rejected: int = 0


class Member:
    """One client: it takes what it is sent, as its mood has it."""

    def __init__(self, crowd: Crowd, name: str, mood: str) -> None:
        self.crowd, self.name, self.mood = crowd, name, mood
        self.node = {"id": name, "cluster": "crowd"}
        self.clusters: set[str] = set()
        self.used: set[str] = set()
        self.versions: dict[str, str] = {}
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.has_clusters = asyncio.Event()
        self._newest = -1

    @property
    def types(self) -> tuple[str, ...]:
        """What it asks for."""
        return (CLUSTERS,) if self.mood == "polls one type" else (CLUSTERS, LISTENERS, ROUTES)

    def rejects(self, type_url: str, names: set[str]) -> str:
        """Return the cluster that it rejects of these; empty for none."""
        bad = (
            name for name in names - self.clusters if name[1:].isdigit() and int(name[1:]) % REJECTS_ONE_OF in REJECTS
        )
        return next(bad, "") if self.mood == "rejects" and type_url == CLUSTERS else ""

    def take(self, type_url: str, names: set[str], used: set[str], *, is_whole: bool, gone: set[str]) -> None:
        """Hold what came."""
        self.crowd.answers += 1
        if type_url == CLUSTERS:
            self.clusters = names if is_whole else (self.clusters | names) - gone
            self.has_clusters.set()
        if type_url == ROUTES:
            self.used = used
        if self.mood == "polls one type":
            return
        if lacking := self.used - self.clusters:
            self.crowd.broken.append(
                f"{time.strftime('%H:%M:%S')} {self.name} ({self.mood or 'good'}) has routes to {sorted(lacking)}, which it lacks"
            )
        newest = max((int(name[1:]) for name in self.used if name[1:].isdigit()), default=-1)
        if newest > self._newest and not self.mood:
            now_s = time.monotonic()
            for number in range(self._newest + 1, newest + 1):
                self.crowd.arrived_s.setdefault(number, {})[self.name] = now_s
        self._newest = max(newest, self._newest)

    async def live(self, wire: str, seed: int) -> None:
        """Come, and be as it is, until this is cancelled."""
        chosen, follow = random.Random(seed), _poll if wire == "rest" else _stream
        if self.mood == "comes once":
            for number in count():
                self.node["id"] = f"{self.name}-{number}"
                await _come_once(self, wire)
                await asyncio.sleep(0.2)
        if self.mood == "freezes":
            asyncio.get_running_loop().create_task(self._freeze(chosen))
        while True:
            stays_s = STAYS_S * (0.5 + chosen.random()) if self.mood == "leaves" else None
            with suppress(TimeoutError, aiohttp.ClientError, grpc.aio.AioRpcError):
                async with asyncio.timeout(stays_s):
                    await follow(self, wire)
            await asyncio.sleep(AWAY_S * chosen.random() if self.mood == "leaves" else 0.1)

    async def _freeze(self, chosen: random.Random) -> None:
        while True:
            await asyncio.sleep(THAWED_S * (0.5 + chosen.random()))
            self.thawed.clear()
            await asyncio.sleep(FROZEN_S * (0.5 + chosen.random()))
            self.thawed.set()


async def _poll(member: Member, _: str) -> None:
    """Poll each type, one after the other answer."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as tasks:
        for type_url in member.types:
            tasks.create_task(_poll_type(member, session, type_url))
            if type_url == CLUSTERS:
                await member.has_clusters.wait()


async def _poll_type(member: Member, session: aiohttp.ClientSession, type_url: str) -> None:
    words, nonce, names = "", "", [FRONT] if type_url == ROUTES else []
    while True:
        await member.thawed.wait()
        asked = {"node": member.node, "resource_names": names, "version_info": member.versions.get(type_url, "")}
        asked["response_nonce"] = nonce
        if words:
            asked["error_detail"] = {"code": 3, "message": words}
        url = f"http://{member.crowd.address}/v3/discovery:{PATHS[type_url]}?timeout=30"
        async with session.post(url, json=asked) as response:
            if response.status != 200:
                await asyncio.sleep(0 if response.status == 304 else 0.5)
                continue
            content = json.loads(await response.read())
        await member.thawed.wait()
        if member.mood == "is silent":
            await asyncio.Event().wait()
        found, nonce = content["resources"], content["nonce"]
        found_names = {one["name"] for one in found}
        if bad := member.rejects(type_url, found_names):
            words = f"Error adding/updating cluster(s) {bad}: not here"
            member.crowd.rejected += 1
            continue
        words = ""
        used = {found_one for one in found for found_one in _clusters_of(one)} if type_url == ROUTES else set()
        member.versions[type_url] = content["version_info"]
        member.take(type_url, found_names, used, is_whole=True, gone=set())


def _clusters_of(route: Any) -> Iterator[str]:
    for host in route["virtual_hosts"]:
        for each in host["routes"]:
            yield each["route"]["cluster"]


async def _come_once(member: Member, wire: str) -> None:
    """Ask for clusters, take the answer, and never come again."""
    if wire == "rest":
        async with aiohttp.ClientSession() as session:
            url = f"http://{member.crowd.address}/v3/discovery:clusters?timeout=0"
            async with session.post(url, json={"node": member.node}) as response:
                await response.read()
        return
    async with _called(member, wire) as (call, request):
        await call.write(request(node=member.node, type_url=CLUSTERS))
        await call.read()


@asynccontextmanager
async def _called(member: Member, wire: str) -> AsyncIterator[tuple[Any, Any]]:
    words = ("DeltaDiscovery", "DeltaAggregatedResources")
    if wire == "ads":
        words = "Discovery", "StreamAggregatedResources"
    request, response = (getattr(discovery_pb2, f"{words[0]}{kind}") for kind in ("Request", "Response"))
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(member.crowd.address, options=options) as channel:
        call = channel.stream_stream(METHODS + words[1], request.SerializeToString, response.FromString)()
        yield call, request
        call.cancel()


async def _stream(member: Member, wire: str) -> None:
    """Follow an aggregated stream."""
    is_delta = wire == "delta"
    async with _called(member, wire) as (call, request):
        for type_url in member.types:
            names = [FRONT] if type_url == ROUTES else []
            more = {"resource_names_subscribe" if is_delta else "resource_names": names}
            await call.write(request(node=member.node, type_url=type_url, **more))
        if not is_delta:
            # What it holds is what it is sent now.
            member.clusters, member.used = set(), set()
        async for response in call:
            await member.thawed.wait()
            if member.mood == "is silent":
                continue
            await call.write(_taken(member, response, request, is_delta=is_delta))


def _taken(member: Member, response: Any, request: Any, *, is_delta: bool) -> Any:
    """Take a response; return the answer."""
    url = response.type_url
    bodies = [one.resource if is_delta else one for one in response.resources]
    routes = [route_pb2.RouteConfiguration.FromString(one.value) for one in bodies] if url == ROUTES else []
    names = {one.name for one in response.resources} if is_delta else {_name_of(url, one) for one in bodies}
    answer = request(type_url=url, response_nonce=response.nonce)
    if bad := member.rejects(url, names):
        answer.error_detail.message = f"Error adding/updating cluster(s) {bad}: not here"
        member.crowd.rejected += 1
    else:
        used = {each.route.cluster for one in routes for host in one.virtual_hosts for each in host.routes}
        gone = set(response.removed_resources) if is_delta else set()
        member.versions[url] = "" if is_delta else response.version_info
        member.take(url, names, used, is_whole=not is_delta, gone=gone)
    if not is_delta:
        answer.version_info = member.versions.get(url, "")
        answer.resource_names.extend([FRONT] if url == ROUTES else [])
    return answer


def _name_of(type_url: str, body: Any) -> str:
    """Return the name of a packed resource: the first field of clusters, listeners and routes."""
    return (
        str(route_pb2.RouteConfiguration.FromString(body.value).name) if type_url == ROUTES else _first_text(body.value)
    )


def _first_text(message: bytes) -> str:
    """Return the first field of a message, a text of less than 128 bytes."""
    assert message[0] == 10
    return message[2 : 2 + message[1]].decode()


@contextmanager
def gathered(crowd: Crowd, wire: str, clients: int) -> Iterator[None]:
    """Have so many clients follow, in a thread beside the block."""
    moods = [mood for mood, share in MOODS.items() for _ in range(share)]
    odd = [moods[number % len(moods)] for number in range(clients // ODD_ONE_OF)]
    is_over = threading.Event()

    async def gather() -> None:
        tasks = []
        for number in range(clients):
            mood = odd[number] if number < len(odd) else ""
            member = Member(crowd, f"{mood.replace(' ', '-') or 'good'}-{number}", mood)
            tasks.append(asyncio.create_task(member.live(wire, number)))
            await asyncio.sleep(0.01)
        await asyncio.to_thread(is_over.wait)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                crowd.broken.append(f"a client failed: {result!r}")

    thread = threading.Thread(target=asyncio.run, args=[gather()], name="crowd")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def measure(wire: str, given: argparse.Namespace, folder: Path) -> bool:
    """Edit for so long; print what came of it, and return whether all is as it should be."""
    options = ["--max-removal", "off", "--linger", "5s"]
    began_s: dict[int, float] = {}
    with running(folder, wire, 5, options) as run:
        address = f"127.0.0.1:{run.server.port}" if wire == "rest" else str(run.server.ready["grpc"])
        crowd = Crowd(address)
        with gathered(crowd, wire, given.clients):
            run.rest(5.0 + given.clients * 0.02)
            ends_s, numbers = time.monotonic() + given.seconds, count(1)
            while time.monotonic() < ends_s:
                number = next(numbers)
                began_s[number] = time.monotonic()
                run.change(KINDS[number % len(KINDS)], number)
                time.sleep(max(0.0, began_s[number] + given.every - time.monotonic()))
            run.rest(10.0)
    return _report(wire, run, crowd, began_s, given)


def _report(wire: str, run: Run, crowd: Crowd, began_s: dict[int, float], given: argparse.Namespace) -> bool:
    good = given.clients - given.clients // ODD_ONE_OF
    took = sorted(at_s - began_s[n] for n, each in crowd.arrived_s.items() if n in began_s for at_s in each.values())
    lacking = len(began_s) * good - len(took)
    late = lacking + sum(one > LATE_S for one in took)
    requests, failures = run.load.record.requests.total(), run.failures()
    ranks = {name: took[min(len(took) - 1, int(len(took) * share))] for name, share in (("p50", 0.5), ("p99", 0.99))}
    shown = ", ".join(f"{name} {value:.2f} s" for name, value in ranks.items())
    print(  # noqa: T201
        f"{wire}: {len(began_s)} edits, {given.clients} clients ({given.clients - good} odd): {shown}, most {took[-1]:.2f} s;"
        f" {lacking} never came; later than {LATE_S:g} s: {late} of {len(began_s) * good};"
        f" {crowd.answers} responses taken, {crowd.rejected} rejected; {len(failures)} of {requests} requests failed",
        flush=True,
    )
    for one in (*failures[:10], *crowd.broken[:10]):
        print(f"  {one}", flush=True)  # noqa: T201
    return not (failures or crowd.broken or late > LATE_SHARE * len(began_s) * good)


def main() -> int:
    """Return 1 where something was lost or late."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.crowd", description=__doc__)
    parser.add_argument("--transport", action="append", choices=[one for one in TRANSPORTS if one != "mirror"])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each transport; default 600")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between edits, at least; default 1")
    given = parser.parse_args()
    results = []
    for wire in given.transport or ("rest", "ads", "delta"):
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(wire, given, Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
