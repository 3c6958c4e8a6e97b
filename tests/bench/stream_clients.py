"""gRPC clients that measure: many streams over a few connections, bytes in and out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

SERVICE = "/envoy.service.cluster.v3.ClusterDiscoveryService/"
MEMBERS = "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


@dataclass(slots=True)
class Stream:
    """One stream of clusters, in one of the two protocols."""

    call: Any
    is_delta: bool
    names: tuple[str, ...] = ()

    async def subscribe(self, node: str) -> bytes:
        """Ask for the names, or for everything, take the first response, and tell so."""
        request = self._request()
        request.node.id = node
        if self.is_delta:
            request.resource_names_subscribe.extend(self.names)
        await self.call.write(request.SerializeToString())
        return await self.take()

    async def take(self) -> bytes:
        """Read a response, and accept it; return its bytes."""
        body: bytes = await self.call.read()
        await self.accept(body)
        return body

    async def accept(self, body: bytes) -> None:
        """Send the ACK."""
        request = self._request()
        if self.is_delta:
            request.response_nonce = discovery_pb2.DeltaDiscoveryResponse.FromString(body).nonce
        else:
            response = discovery_pb2.DiscoveryResponse.FromString(body)
            request.version_info, request.response_nonce = response.version_info, response.nonce
        await self.call.write(request.SerializeToString())

    def _request(self) -> Any:
        if self.is_delta:
            return discovery_pb2.DeltaDiscoveryRequest()
        return discovery_pb2.DiscoveryRequest(resource_names=self.names)


class Channels:
    """Connections to one server, by its port or address, over which streams are spread. Use as an async context manager."""

    def __init__(self, server: int | str, connections: int) -> None:
        target = f"127.0.0.1:{server}" if isinstance(server, int) else server
        self._channels = [grpc.aio.insecure_channel(target, OPTIONS) for _ in range(connections)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def open(self, number: int, *, is_delta: bool, names: tuple[str, ...] = ()) -> Stream:
        """Open one stream."""
        channel = self._channels[number % len(self._channels)]
        method = "DeltaClusters" if is_delta else "StreamClusters"
        return Stream(channel.stream_stream(SERVICE + method)(), is_delta, names)

    def open_members(self, glob: str) -> Stream:
        """Open one Delta stream of a collection of endpoints."""
        return Stream(self._channels[0].stream_stream(MEMBERS)(), is_delta=True, names=(glob,))

    async def subscribe(self, count: int, *, is_delta: bool) -> list[Stream]:
        """Open streams that all hold the first response and said so; fifty at a time."""
        streams: list[Stream] = []
        for start in range(0, count, 50):
            batch = [self.open(number, is_delta=is_delta) for number in range(start, min(start + 50, count))]
            await asyncio.gather(*(stream.subscribe(f"node-{number}") for number, stream in enumerate(batch, start)))
            streams += batch
        return streams


async def time_of_last(streams: list[Stream], publish: Callable[[], float]) -> float:
    """Publish; return the seconds until the last stream had its last byte. The ACKs follow when all is over."""

    async def read(stream: Stream) -> tuple[float, bytes]:
        body: bytes = await stream.call.read()
        return time.monotonic(), body

    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(read(stream)) for stream in streams]
        await asyncio.sleep(0.2)
        began = await asyncio.to_thread(publish)
    taken = [task.result() for task in reading]
    for stream, (_, body) in zip(streams, taken, strict=True):
        await stream.accept(body)
    return max(at for at, _ in taken) - began
