"""A gRPC server whose snapshots are made in memory: fsxds, or a bare grpc.aio handler of the same bytes.

Arguments: `fsxds` or `bare`, how many clusters, and the file to write the port to. A line on its input publishes the next
snapshot, in which one cluster is another; the moment of it comes out, a reading of the monotonic clock. With `members` it is
one endpoint in a collection of so many, with `churn` one of them goes and another one comes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.events.event import Event
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, version_of_body
from fsxds.publishing.channel_rollout import RemovedMembers
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.forms import TcpAddress
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from tests.bench.bare_server import announce
from tests.support.channels import OneChannel

CDS = BY_SHORT_NAME["cds"].type_url
LEDS = BY_SHORT_NAME["leds"].type_url
ENDPOINT_BYTES = 40
BODY_BYTES = 900  # of a cluster with TLS, health checks and breakers
ORIGIN = Origin(PurePosixPath("clusters.yaml"), 1)


def cluster(name: str, number: int) -> Resource:
    """Make a cluster whose bytes nobody opens here."""
    body = f"{name} {number} ".encode().ljust(BODY_BYTES, b"x")
    return Resource(CDS, name, body, version_of_body(CDS, body), ORIGIN)


class Tree:
    """Snapshots of `count` clusters; in each the next cluster is another than before."""

    def __init__(self, count: int) -> None:
        names = (f"cluster-{number:05}" for number in range(count))
        self._rows = Rows(CDS, {name: cluster(name, 0) for name in names})
        self._generation = 0

    def next(self) -> Snapshot:
        """Return the next snapshot."""
        self._generation += 1
        name = f"cluster-{self._generation % len(self._rows):05}"
        self._rows = self._rows.with_changes([cluster(name, self._generation)], ())
        # As loading does, which compares versions with those of before.
        assert self._rows.version
        rows = {row.type_url: Rows(row.type_url) for row in RESOURCE_TYPES}
        return Snapshot(self._generation, {**rows, CDS: self._rows})


class Members:
    """Snapshots of a collection of `count` endpoints; in each, one is another than before, or in the place of another."""

    def __init__(self, count: int, *, is_churn: bool) -> None:
        self._count, self._is_churn = count, is_churn
        self._rows = Rows(LEDS, {name: endpoint(name, 0) for name in map(member, range(count))})
        self._generation = 0

    def next(self) -> Snapshot:
        """Return the next snapshot."""
        self._generation += 1
        old = member(self._generation)
        new = member(self._generation + self._count) if self._is_churn else old
        self._rows = self._rows.with_changes([endpoint(new, self._generation)], {old} - {new})
        assert self._rows.version
        rows = {row.type_url: Rows(row.type_url) for row in RESOURCE_TYPES}
        return Snapshot(self._generation, {**rows, LEDS: self._rows})


def member(number: int) -> str:
    """Return the name of an endpoint."""
    return f"xdstp://fleet/envoy.config.endpoint.v3.LbEndpoint/web/{number:06}"


def endpoint(name: str, number: int) -> Resource:
    """Make an endpoint of the size of one with an address and a weight."""
    body = f"{number}".encode().ljust(ENDPOINT_BYTES, b"x")
    return Resource(LEDS, name, body, version_of_body(LEDS, body), ORIGIN)


class Bare:
    """Sends bytes that exist to every stream, as soon as there are others: what grpc.aio itself costs."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._news = asyncio.Event()

    def publish(self) -> None:
        """Send the bytes to everybody."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def talk(self, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """Answer the first request, and then each publication."""
        await context.read()
        while True:
            news = self._news
            await context.write(self._body)
            await news.wait()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a server registers."""
        methods = {
            name: grpc.stream_stream_rpc_method_handler(self.talk) for name in ("StreamClusters", "DeltaClusters")
        }
        return grpc.method_handlers_generic_handler("envoy.service.cluster.v3.ClusterDiscoveryService", methods)


async def obey(publish: Any) -> None:
    """Publish at each line of the input."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        began = publish()
        sys.stdout.write(f"{began}\n")
        sys.stdout.flush()


async def serve_bare(body: bytes, ready: Path) -> None:
    """Serve bytes."""
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    bare = Bare(body)
    server.add_generic_rpc_handlers((bare.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(ready, port)

    def publish() -> float:
        began = time.monotonic()
        bare.publish()
        return began

    await obey(publish)
    await server.stop(0)


def ignore(_: Event) -> None:
    """Receive an event, and do nothing."""


async def serve_fsxds(tree: Tree | Members, ready: Path) -> None:
    """Serve snapshots as `fsxds serve` does."""
    channels = OneChannel()
    services = GrpcServices(StreamContext(Exchange.of_streams(channels), ignore, Clients()), unready=Latest(""))

    removed = RemovedMembers({})

    def publish(snapshot: Snapshot) -> float:
        began = time.monotonic()
        tombstones = removed.receive_change((), channels.store.current, snapshot)
        channels.store.publish(replace(snapshot, tombstones=tombstones))
        return began

    async with listening_grpc(services, TcpAddress("127.0.0.1", 0), Supervisor(ignore), grace_s=1) as bound:
        publish(tree.next())
        announce(ready, bound.port)  # type: ignore[union-attr]
        await obey(lambda: publish(tree.next()))


def main() -> None:
    """Serve until the input ends."""
    name, count, ready = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    # As `fsxds serve` does: a collection of everything, which lives long, would count as a push.
    gc.set_threshold(50_000, 20, 20)
    if name == "bare":
        asyncio.run(serve_bare(whole_response(Tree(count).next()), ready))
    else:
        tree = Tree(count) if name == "fsxds" else Members(count, is_churn=name == "churn")
        asyncio.run(serve_fsxds(tree, ready))


def whole_response(snapshot: Snapshot) -> bytes:
    """Return the bytes of a response with all clusters."""
    response = discovery_pb2.DiscoveryResponse(version_info="1" * 32, type_url=CDS, nonce="1")
    for resource in snapshot.resources(CDS).values():
        response.resources.add(type_url=CDS, value=resource.body)
    body: bytes = response.SerializeToString()
    return body


if __name__ == "__main__":
    main()
