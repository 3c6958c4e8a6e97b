"""A relay whose upstream comes back with another tree: its clients see one change, in which nothing goes that is still used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.route.v3 import route_pb2
from google.protobuf.message import Message

from fsxds.upstream.upstream import QUIET_S
from tests.end_to_end.test_relay_demand import stream_of, until
from tests.support.grpc_clients import DiscoveryClient
from tests.support.scripted_streams import Request, ScriptedStreams, packed, resource
from tests.support.server import Server
from tests.upstream.made import CDS, RDS, cluster, routes

Tree = Mapping[str, Mapping[str, Message]]


def tree_of(name: str) -> Tree:
    """Return a cluster, and the routes `main` to it."""
    return {CDS: {name: cluster(name)}, RDS: {"main": routes("main", name)}}


class Upstream(ScriptedStreams):
    """Says of each type all that it has, on each stream once.

    Attributes:
        has: what it has.
        routes_wait: it says nothing of routes before the ACK of clusters.
    """

    def __init__(self, *, delta: bool) -> None:
        super().__init__(self._answer_first, delta=delta)
        self._delta = delta
        self._gone: tuple[str, ...] = ()
        self.has = tree_of("old")
        self.routes_wait = False

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Take aggregated streams of one kind alone."""
        method = "DeltaAggregatedResources" if self._delta else "StreamAggregatedResources"
        return super().service(details) if details.method.endswith(method) else None

    def come_back(self, has: Tree, *, routes_wait: bool = False) -> None:
        """End the stream, and have another tree on the next one."""
        self._gone = tuple(self.has[CDS].keys() - has[CDS].keys())
        self.has, self.routes_wait = has, routes_wait
        self.end_streams()

    def _answer_first(self, request: Request) -> dict[str, Any] | None:
        if request.response_nonce:
            if request.type_url == CDS and self.routes_wait:
                self.routes_wait = False
                self.send(RDS, **self._fields(RDS))
            return None
        is_silent = request.type_url == RDS and (self.routes_wait or RDS not in self.has)
        return None if is_silent else self._fields(request.type_url)

    def _fields(self, type_url: str) -> dict[str, Any]:
        found = self.has.get(type_url, {})
        if not self._delta:
            return {"version_info": str(len(self.requests)), "resources": [packed(each) for each in found.values()]}
        removed = self._gone if type_url == CDS else ()
        return {"resources": [resource(*each) for each in found.items()], "removed_resources": removed}


class Client:
    """Takes all that it is sent.

    Attributes:
        clusters: those that it has.
        used: the cluster to which its routes lead.
        missed: the clusters that went while its routes led to them.
    """

    def __init__(self, stream: DiscoveryClient) -> None:
        self._stream = stream
        self.clusters: set[str] = set()
        self.used = ""
        self.missed: set[str] = set()

    async def follow(self) -> None:
        """Do so until cancelled."""
        await self._stream.ask("CDS", node="client", resource_names_subscribe=["*"])
        await self._stream.ask("RDS", resource_names_subscribe=["main"])
        while True:
            answer = await self._stream.answer()
            if answer.type_url == CDS:
                self.clusters |= {each.name for each in answer.resources}
                self.clusters -= set(answer.removed_resources)
                self.missed |= {self.used} & set(answer.removed_resources)
            for each in answer.resources if answer.type_url == RDS else ():
                found = route_pb2.RouteConfiguration.FromString(each.resource.value)
                self.used = found.virtual_hosts[0].routes[0].route.cluster
            await self._stream.take(answer)


@asynccontextmanager
async def following(folder: Path, upstream: Upstream) -> AsyncIterator[Client]:
    """Run a relay, and a client of it that has what the upstream has."""
    flags = ("--upstream", f"127.0.0.1:{upstream.port}", "--max-removal", "off")
    with Server(None, folder, *flags, "--linger", "0s") as relay:
        async with stream_of(relay) as stream, asyncio.TaskGroup() as tasks:
            client = Client(stream)
            running = tasks.create_task(client.follow())
            await until(lambda: (client.clusters, client.used) == ({"old"}, "old"), "the first tree")
            yield client
            running.cancel()


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
@pytest.mark.parametrize("routes_wait", [True, False], ids=["ack-first", "at-once"])
async def test_another_tree_is_one_change(tmp_path: Path, *, delta: bool, routes_wait: bool) -> None:
    """The cluster of the old routes goes after the client has the new ones, also where the upstream waits for an ACK before these."""
    with Upstream(delta=delta) as upstream:
        async with following(tmp_path, upstream) as client:
            upstream.come_back(tree_of("new"), routes_wait=routes_wait)
            await until(lambda: (client.clusters, client.used) == ({"new"}, "new"), "the other tree")

    assert client.missed == set()


async def test_a_type_that_never_answers_holds_up_the_others_for_a_moment(tmp_path: Path) -> None:
    """Delta is silent about what did not change: what changed is there after `QUIET_S`, and not before."""
    with Upstream(delta=True) as upstream:
        async with following(tmp_path, upstream) as client:
            began_s = time.monotonic()
            upstream.come_back({CDS: {name: cluster(name) for name in ("old", "new")}})
            await until(lambda: client.clusters == {"old", "new"}, "the change")

    assert time.monotonic() - began_s > QUIET_S
