"""A gRPC server that says what a test tells it to say, and keeps what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.model.resource_types import BY_SHORT_NAME

CDS = BY_SHORT_NAME["cds"].type_url
EDS = BY_SHORT_NAME["eds"].type_url


def cluster(name: str, timeout_s: int = 1) -> Any:
    """Return a cluster as an Any."""
    message = cluster_pb2.Cluster(name=name)
    message.connect_timeout.FromSeconds(timeout_s)
    return packed(CDS, message.SerializeToString())


def packed(type_url: str, value: bytes) -> Any:
    """Return an Any."""
    response = discovery_pb2.DiscoveryResponse()
    holder = response.resources.add()
    holder.type_url, holder.value = type_url, value
    return holder


def sotw(version: str, *resources: Any, type_url: str = CDS) -> bytes:
    """Return a DiscoveryResponse whose nonce is `n` and the version."""
    response = discovery_pb2.DiscoveryResponse(version_info=version, nonce=f"n{version}", type_url=type_url)
    response.resources.extend(resources)
    serialized: bytes = response.SerializeToString()
    return serialized


def wrapped(resource: Any, name: str, version: str = "", *, ttl_s: int = 0, aliases: tuple[str, ...] = ()) -> Any:
    """Return a Resource around an Any, or around nothing."""
    wrapper = discovery_pb2.Resource(name=name, version=version, aliases=aliases, resource=resource)
    if ttl_s:
        wrapper.ttl.FromSeconds(ttl_s)
    return wrapper


def delta(version: str, *resources: Any, removed: tuple[str, ...] = (), type_url: str = CDS) -> bytes:
    """Return a DeltaDiscoveryResponse whose nonce is `n` and the version."""
    response = discovery_pb2.DeltaDiscoveryResponse(
        system_version_info=version, nonce=f"n{version}", type_url=type_url, removed_resources=removed
    )
    response.resources.extend(resources)
    serialized: bytes = response.SerializeToString()
    return serialized


class Script:
    """The server's side of the streams of one method.

    Attributes:
        target: where it listens.
        streams: how many streams were opened.
    """

    def __init__(self, method: str) -> None:
        self.target = ""
        self.streams = 0
        self._method = method
        self._ended = asyncio.Event()
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._responses: asyncio.Queue[bytes | grpc.StatusCode | None] = asyncio.Queue()
        word = "Delta" if "/Delta" in method else ""
        self._request_class = getattr(discovery_pb2, f"{word}DiscoveryRequest")

    def say(self, *responses: bytes | grpc.StatusCode | None) -> None:
        """Send these one after the other; a status code ends the stream with it, None without an error."""
        for response in responses:
            self._responses.put_nowait(response)

    async def requested(self) -> Any:
        """Wait for the next request."""
        async with asyncio.timeout(60):
            return await self._requests.get()

    def has_heard_all(self) -> bool:
        """Tell whether no request waits to be looked at."""
        return self._requests.empty()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a server registers."""
        _, service, method = self._method.split("/")
        return grpc.method_handlers_generic_handler(
            service, {method: grpc.stream_stream_rpc_method_handler(self._talk)}
        )

    async def stream_ended(self) -> None:
        """Wait until the stream has ended, and forget what was still to be said on it."""
        async with asyncio.timeout(60):
            await self._ended.wait()
        self._ended.clear()
        self._responses = asyncio.Queue()

    async def _talk(self, requests: AsyncIterator[bytes], context: Any) -> None:
        self.streams += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(requests))
                while isinstance(response := await self._responses.get(), bytes):
                    await context.write(response)
                listening.cancel()
        finally:
            self._ended.set()
        if response is not None:
            await context.abort(response, "as the script says")

    async def _listen(self, requests: AsyncIterator[bytes]) -> None:
        async for request in requests:
            self._requests.put_nowait(self._request_class.FromString(request))
        self.say(None)


@asynccontextmanager
async def scripted(method: str, address: str = "127.0.0.1:0") -> AsyncIterator[Script]:
    """Run a server with one method."""
    script = Script(method)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((script.handler(),))
    port = server.add_insecure_port(address)
    script.target = address if address.startswith("unix:") else f"127.0.0.1:{port}"
    await server.start()
    try:
        yield script
    finally:
        await server.stop(None)
