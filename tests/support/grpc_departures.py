"""What gRPC clients send that go away.

Their bytes are HTTP/2 frames written by hand, because no client library can be made to stop within one.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.status.v3 import csds_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from fsxds.transports.grpc_streams.stream_requests import METHODS, Variant
from tests.support.departures import NODES

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
ACK = END_STREAM = 1
END_HEADERS = 4
CANCEL = struct.pack(">I", 8)
# `SETTINGS_INITIAL_WINDOW_SIZE`, of which a server may send so many bytes until it is told otherwise.
WINDOW = 4


def frame(frame_type: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Write a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((frame_type, flags)) + struct.pack(">I", stream) + payload


def begin(window: int | None = None) -> bytes:
    """Write what a connection begins with."""
    settings = b"" if window is None else struct.pack(">HI", WINDOW, window)
    return PREFACE + frame(SETTINGS, 0, 0, settings) + frame(SETTINGS, ACK, 0)


def call(stream: int, path: str, *messages: bytes, is_last: bool = False, timeout: str = "") -> bytes:
    """Write a call of a method, and its first messages; `is_last`: no more will follow."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "fsxds", "te": "trailers"}
    headers["content-type"] = "application/grpc"
    if timeout:
        headers["grpc-timeout"] = timeout
    # Literals that no table is to keep, each with its length; none is longer than the lengths of a byte reach.
    block = b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    framed = b"".join(b"\x00" + struct.pack(">I", len(message)) + message for message in messages)
    data = frame(DATA, END_STREAM if is_last else 0, stream, framed) if framed or is_last else b""
    return frame(HEADERS, END_HEADERS, stream, block) + data


def calls(rng: random.Random) -> Iterator[tuple[str, bytes, bool]]:
    """Yield the path of each method, a message for it, and whether it takes one only."""
    for method in METHODS:
        node = {"id": f"gone-{rng.randrange(NODES)}", "user_agent_name": rng.choice(["envoy", ""])}
        type_url = method.row.type_url if method.row else "type.googleapis.com/envoy.config.cluster.v3.Cluster"
        is_delta = method.variant is Variant.DELTA
        make = discovery_pb2.DeltaDiscoveryRequest if is_delta else discovery_pb2.DiscoveryRequest
        message = make(node=node, type_url=type_url)
        yield f"/{method.service}/{method.name}", message.SerializeToString(), method.variant is Variant.FETCH
    status = csds_pb2.ClientStatusRequest().SerializeToString()
    service = "/envoy.service.status.v3.ClientStatusDiscoveryService"
    yield f"{service}/StreamClientStatus", status, False
    yield f"{service}/FetchClientStatus", status, True
    check = health_pb2.HealthCheckRequest().SerializeToString()
    yield "/grpc.health.v1.Health/Watch", check, True
    yield "/grpc.health.v1.Health/Check", check, True
    listing = reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString()
    yield "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", listing, False
    yield "/no.such.Service/Method", check, False


def conversations(rng: random.Random) -> list[bytes]:
    """Return what a client may send in all, in every form that ends by itself or by its going."""
    return list(_conversations(rng))


def _conversations(rng: random.Random) -> Iterator[bytes]:
    for path, message, is_unary in calls(rng):
        whole = call(1, path, message, is_last=is_unary)
        yield begin() + whole
        # The response is stuck after its first bytes.
        yield begin(window=rng.choice([0, 1, 1000])) + whole
        yield begin() + whole + frame(RST_STREAM, 0, 1, CANCEL)
        yield begin() + call(1, path, message, is_last=is_unary, timeout=rng.choice(["1n", "1m", "9m"]))
        yield begin() + call(1, path, message, message, is_last=True)
        yield begin() + b"".join(call(stream, path, message, is_last=is_unary) for stream in (1, 3, 5, 7))
        yield begin() + whole + frame(PING, 0, 0, bytes(8))
    yield b"GET / HTTP/1.1\r\nhost: fsxds\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    yield begin() + frame(DATA, 0, 1, b"nobody asked")
    yield begin() + frame(SETTINGS, 0, 3, b"odd")
