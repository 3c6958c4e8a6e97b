"""A gRPC server for one Envoy: it answers each subscription once, with nothing, and remembers what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from fsxds.api.catalogue import Catalogue

DISCOVERY = "envoy.service.discovery.v3"


class AdsServer:
    """The methods of AggregatedDiscoveryService, without generated stubs.

    Attributes:
        nodes: the node ids of the streams, in the order in which they came.
        asked: what was subscribed to: method and type URL.
        nodes_told: how many messages carried a node.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.nodes: list[str] = []
        self.asked: set[tuple[str, str]] = set()
        self.messages = 0
        self.nodes_told = 0
        self._catalogue = catalogue

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a server registers."""
        return grpc.method_handlers_generic_handler(
            f"{DISCOVERY}.AggregatedDiscoveryService",
            {
                "StreamAggregatedResources": self._method("", self._answer_sotw),
                "DeltaAggregatedResources": self._method("Delta", self._answer_delta),
            },
        )

    def _method(self, word: str, answer: Any) -> grpc.RpcMethodHandler:
        request = self._catalogue.message_class(f"{DISCOVERY}.{word}DiscoveryRequest")
        response = self._catalogue.message_class(f"{DISCOVERY}.{word}DiscoveryResponse")

        async def talk(requests: AsyncIterator[Any], _: object) -> AsyncIterator[Any]:
            async for message in requests:
                self._note(word, message)
                if not message.response_nonce:
                    yield answer(response, message.type_url)

        return grpc.stream_stream_rpc_method_handler(
            talk,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _note(self, word: str, message: Any) -> None:
        self.messages += 1
        self.asked.add((word, message.type_url.rpartition(".")[2]))
        if message.HasField("node"):
            self.nodes_told += 1
            self.nodes.append(message.node.id)

    def _answer_sotw(self, response: Any, type_url: str) -> Any:
        runtime = [self._layer()] if type_url.endswith(".Runtime") else []
        return response(version_info="1", nonce="1", type_url=type_url, resources=runtime)

    def _answer_delta(self, response: Any, type_url: str) -> Any:
        runtime = [{"name": "features", "version": "1", "resource": self._layer()}] if "Runtime" in type_url else []
        return response(system_version_info="1", nonce="1", type_url=type_url, resources=runtime)

    def _layer(self) -> Any:
        name = "envoy.service.runtime.v3.Runtime"
        packed = self._catalogue.message_class("google.protobuf.Any")
        layer = self._catalogue.message_class(name)(name="features")
        return packed(type_url=f"type.googleapis.com/{name}", value=layer.SerializeToString())


@asynccontextmanager
async def ads_server(catalogue: Catalogue, address: str) -> AsyncIterator[tuple[AdsServer, str]]:
    """Run the server with gRPC's own limits; yield it and the address, its port chosen by the kernel for port 0."""
    ads = AdsServer(catalogue)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((ads.handler(),))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield ads, address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(None)
        await asyncio.sleep(0)
