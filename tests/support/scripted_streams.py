"""An xDS server over gRPC that answers as a test says, whatever the protocol wants: to see what a client makes of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Self, TypeAlias

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

Request: TypeAlias = discovery_pb2.DeltaDiscoveryRequest | discovery_pb2.DiscoveryRequest
Answer: TypeAlias = Callable[[Request], dict[str, Any] | None]
"""Returns the fields of the response, or None for none. Type and nonce are added where they lack."""


def packed(message: Message) -> AnyMessage:
    """Return a message as an Any."""
    wrapped = AnyMessage()
    wrapped.Pack(message)
    return wrapped


def resource(name: str, message: Message, **fields: Any) -> discovery_pb2.Resource:
    """Return a resource under a name, whatever the message in it is called."""
    return discovery_pb2.Resource(name=name, version="1", resource=packed(message), **fields)


def names_of(request: Request) -> list[str]:
    """Return the names that a request asks for."""
    if isinstance(request, discovery_pb2.DeltaDiscoveryRequest):
        return list(request.resource_names_subscribe)
    return list(request.resource_names)


class ScriptedStreams:
    """Serves every gRPC method of xDS, Delta or SotW; a context manager.

    Attributes:
        requests: of all streams, as they arrived.
        port: of 127.0.0.1.
    """

    def __init__(self, answer: Answer, *, delta: bool = True) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._answer = answer
        words = "DeltaDiscovery" if delta else "Discovery"
        self._types = getattr(discovery_pb2, f"{words}Request"), getattr(discovery_pb2, f"{words}Response")
        self._streams: list[queue.Queue[Message | None]] = []
        self._nonce = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(16), handlers=(self,))

    def __enter__(self) -> Self:
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_streams()
        self._server.stop(0).wait()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Take every method of xDS; grpcio calls this."""
        if not details.method.startswith("/envoy."):
            return None
        request, response = self._types
        return grpc.stream_stream_rpc_method_handler(self._run, request.FromString, response.SerializeToString)

    def send(self, type_url: str, **fields: Any) -> None:
        """Send a response on the stream that was opened last."""
        self._put(self._streams[-1], type_url, fields)

    def end_streams(self) -> None:
        """End all streams, so that clients come back."""
        for stream in self._streams:
            stream.put(None)

    def rejections(self) -> list[str]:
        """Return the reasons of all NACKs."""
        return [request.error_detail.message for request in self.requests if request.HasField("error_detail")]

    def _put(self, stream: queue.Queue[Message | None], type_url: str, fields: dict[str, Any]) -> None:
        self._nonce += 1
        stream.put(self._types[1](**{"type_url": type_url, "nonce": str(self._nonce), **fields}))

    def _run(self, requests: Iterator[Request], _: grpc.ServicerContext) -> Iterator[Message]:
        stream: queue.Queue[Message | None] = queue.Queue()
        self._streams.append(stream)
        threading.Thread(target=self._read, args=(requests, stream), daemon=True).start()
        while (response := stream.get()) is not None:
            yield response

    def _read(self, requests: Iterator[Request], stream: queue.Queue[Message | None]) -> None:
        try:
            for request in requests:
                self.requests.append(request)
                fields = self._answer(request)
                if fields is not None:
                    self._put(stream, request.type_url, fields)
        except grpc.RpcError:
            # The client left.
            stream.put(None)
