"""Connections for streams, and the paths of the methods that are called on them."""

from __future__ import annotations

import grpc.aio

from fsxds.resource_types import ResourceType

# As a server with ten thousand clusters answers: no limit is of use to who only looks.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # Each client has a connection of its own, as each Envoy has.
    ("grpc.use_local_subchannel_pool", 1),
    # gRPC would ask the proxy of the environment for 127.0.0.1, too.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


def open_channel(target: str) -> grpc.aio.Channel:
    """Return a channel to `host:port` or `unix:/path`. Nothing is connected before something is called."""
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def method_of(row: ResourceType, *, is_delta: bool) -> str:
    """Return the path of the method that streams one type; KeyError for a type that only ADS has."""
    if not row.grpc:
        raise KeyError(row.short_name)
    service, noun = row.grpc.split()
    return f"/envoy.service.{service}/{'Delta' if is_delta else 'Stream'}{noun}"


def ads_method(*, is_delta: bool) -> str:
    """Return the path of the method that streams all types."""
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"
    return f"/{service}/{'Delta' if is_delta else 'Stream'}AggregatedResources"
