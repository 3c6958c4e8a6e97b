"""A gRPC server in this process, and real clients of it that say exactly what they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.runtime.access import AccessInUse
from fsxds.runtime.channels import Latest, SnapshotStore
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.forms import Address, TcpAddress
from fsxds.settings.options import Settings
from fsxds.transports.client_status.status_service import ClientReports, client_status_handlers
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import GrpcSecurity, listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.grpc_streams.stream_requests import AGGREGATED
from fsxds.transports.limits import DEFAULTS, Limiter
from tests.support.channels import OneChannel
from tests.support.errors import AT_ONCE, Recorder
from tests.support.patience import PATIENCE_S
from tests.support.snapshots import snapshot, type_url

LOCALHOST = TcpAddress("127.0.0.1", 0)
# Long enough for an answer that should not come; it is waited for in full by each test that expects silence.
SILENCE_S = 0.15


@dataclass
class GrpcServer:
    """A server that runs, and all that a test wants to know of it."""

    channels: OneChannel
    store: SnapshotStore
    recorder: Recorder
    clients: Clients
    services: GrpcServices
    address: Address
    channel: grpc.aio.Channel
    unready: Latest[str]

    def publish(self, contents: Mapping[str, Mapping[str, str]]) -> Snapshot:
        """Make `{"EDS": {"a": "1"}}` current."""
        generation = 1 if self.store.current is None else self.store.current.generation + 1
        made = snapshot(contents, generation=generation)
        self.store.publish(made)
        return made

    def stream(self, short_name: str = "", *, is_delta: bool = False) -> DiscoveryClient:
        """Open a stream of one type, or an aggregated one."""
        return DiscoveryClient(self.channel, method_path(short_name, "Delta" if is_delta else "Stream"))

    def delta(self, short_name: str = "") -> DiscoveryClient:
        """Open a Delta stream of one type, or an aggregated one."""
        return self.stream(short_name, is_delta=True)

    async def fetch(self, short_name: str, content: bytes | None = None, **fields: Any) -> Any:
        """Ask the unary method of a type; `content` stands for a message that is none."""
        call = self.channel.unary_unary(
            method_path(short_name, "Fetch"), response_deserializer=discovery_pb2.DiscoveryResponse.FromString
        )
        if content is None:
            content = discovery_pb2.DiscoveryRequest(**fields).SerializeToString()
        return await call(content, timeout=PATIENCE_S)


def method_path(short_name: str, word: str) -> str:
    """Return the path of a method: `/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters`."""
    if not short_name:
        return f"/{AGGREGATED}/{word}AggregatedResources"
    service, noun = BY_SHORT_NAME[short_name.lower()].grpc.split()
    return f"/envoy.service.{service}/{word}{noun}"


class DiscoveryClient:
    """One stream, seen from its client."""

    def __init__(self, channel: grpc.aio.Channel, path: str) -> None:
        self.is_delta = "/Delta" in path
        response = discovery_pb2.DeltaDiscoveryResponse if self.is_delta else discovery_pb2.DiscoveryResponse
        self.call: Any = channel.stream_stream(path, response_deserializer=response.FromString)()
        # A read that nothing came for yet: to cancel it would end the call.
        self._reading: asyncio.Future[Any] | None = None

    async def ask(self, short_name: str = "", **fields: Any) -> None:
        """Send a request; `node="n1"` is short for a node of this id, `nack="text"` for an error_detail."""
        request: Any = discovery_pb2.DeltaDiscoveryRequest() if self.is_delta else discovery_pb2.DiscoveryRequest()
        node, nack = fields.pop("node", None), fields.pop("nack", None)
        if isinstance(node, str):
            request.node.id = node
        elif node is not None:
            request.node.CopyFrom(node)
        if nack is not None:
            request.error_detail.message = nack
        if short_name:
            request.type_url = type_url(short_name) if "/" not in short_name else short_name
        request.MergeFrom(type(request)(**fields))
        await self.send(request.SerializeToString())

    async def send(self, content: bytes) -> None:
        """Send bytes."""
        await self.call.write(content)

    async def answer(self) -> Any:
        """Return the next response; raises AioRpcError when the stream ended."""
        reading, self._reading = self._reading or asyncio.ensure_future(self.call.read()), None
        async with asyncio.timeout(PATIENCE_S):
            return await reading

    async def take(self, response: Any, **fields: Any) -> None:
        """Send the ACK of a response; `nack="text"` rejects it."""
        fields = {"type_url": response.type_url, "response_nonce": response.nonce, **fields}
        if not self.is_delta and "nack" not in fields:
            fields["version_info"] = response.version_info
        await self.ask(**fields)

    async def is_silent(self) -> bool:
        """Tell whether nothing comes for a while."""
        self._reading = self._reading or asyncio.ensure_future(self.call.read())
        done, _ = await asyncio.wait({self._reading}, timeout=SILENCE_S)
        return not done

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """Wait for the server to end the stream; return the status and what it says."""
        try:
            while await self.answer() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return await self.call.code(), await self.call.details()


@asynccontextmanager
async def serving_grpc(
    address: Address = LOCALHOST,
    *,
    grace_s: float = 1.0,
    catalogue: Catalogue | None = None,
    settings: Settings = DEFAULTS,
    access: AccessInUse | None = None,
) -> AsyncIterator[GrpcServer]:
    """Run a server with the limits of `settings`, and a channel to it; with `catalogue`, it tells of its clients as well."""
    channels, recorder, clients, unready = OneChannel(), Recorder(), Clients(), Latest("starting")
    status = client_status_handlers(ClientReports(clients, catalogue), access) if catalogue else ()
    exchange = Exchange.of_streams(channels, Limiter(settings), access)
    shared = StreamContext(exchange, recorder, clients)
    services, security = GrpcServices(shared, status, unready=unready), GrpcSecurity(settings=settings)
    async with (
        listening_grpc(services, address, Supervisor(recorder, AT_ONCE), grace_s=grace_s, security=security) as bound,
        channel_to(bound) as channel,
    ):
        yield GrpcServer(channels, channels.store, recorder, clients, services, bound, channel, unready)


def channel_to(address: Address, **options: int) -> AbstractAsyncContextManager[grpc.aio.Channel]:
    """Open a channel that takes messages of any size."""
    chosen = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1, **options}
    opened: AbstractAsyncContextManager[grpc.aio.Channel] = grpc.aio.insecure_channel(
        str(address), options=tuple(chosen.items())
    )
    return opened


def names_in(response: Any) -> list[str]:
    """Return the names in a response whose resources are those of `tests.support.snapshots`."""
    if isinstance(response, discovery_pb2.DeltaDiscoveryResponse):
        return [resource.name for resource in response.resources]
    return [packed.value.decode().partition("=")[0] for packed in response.resources]
