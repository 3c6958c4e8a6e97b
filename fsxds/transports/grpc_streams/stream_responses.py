"""Serializes responses: existing bytes of resources, in protobuf's framing.

Concatenated protobuf messages are one message. So the part that streams share is written first, and cached while they
ask for the same collection; one stream's part follows.
Source: https://protobuf.dev/programming-guides/encoding#last-one-wins; envoy/service/discovery/v3/discovery.proto.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Never

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.duration_pb2 import Duration
from google.rpc import status_pb2
from grpc import StatusCode

from fsxds.model.memo import Lru
from fsxds.model.relay_ids import SERVER
from fsxds.model.resources import Resource, ResourceList
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import DeltaResponse, SotwResponse
from fsxds.protocol.subscription import OnDemand
from fsxds.runtime.channels import Channel

# Of the cache, in bytes and messages; the last message is kept in any case.
MOST_KEPT_BYTES = 64 * 1024 * 1024
MOST_KEPT = 1024
# Two per type: a removal of clusters is sent in two steps.
LARGE_BYTES = 1024 * 1024
MOST_LARGE_EACH = 2

# Cached body sizes per type.
MOST_HEADS = 65536

RESOURCE_TYPE_URL = "type.googleapis.com/envoy.service.discovery.v3.Resource"
LOCATOR_TYPE_URL = "type.googleapis.com/xds.core.v3.ResourceLocator"

Response = SotwResponse | DeltaResponse


class ResponseWriter:
    """Serializes all streams' responses, equal collections once.

    Streams with equal own parts share the whole message. `written` counts cache misses. With `passes_redirects`, bodies of
    redirects are locators. `identifier` returns the server's name.
    """

    def __init__(
        self,
        most_kept_bytes: int = MOST_KEPT_BYTES,
        *,
        passes_redirects: bool = False,
        identifier: Callable[[], str] = lambda: SERVER,
    ) -> None:
        self.written = 0
        self._identifier = identifier
        self._passes_redirects = passes_redirects
        self._kept: Lru[_Key, _Kept] = Lru(MOST_KEPT, lambda kept: len(kept.message), most_kept_bytes)
        # By form, the oldest first.
        self._large: dict[_Form, list[_Key]] = {}

    def write(self, response: Response) -> bytes:
        """Serialize a DiscoveryResponse or DeltaDiscoveryResponse."""
        resources, own = response.resources, _own_part(response)
        is_shared = not (isinstance(response, DeltaResponse) and response.aliases)
        if not resources or not is_shared or not isinstance(resources, ResourceList):
            return b"".join((*self._shared_parts(response), own))
        form = response.type_url, isinstance(response, DeltaResponse), response.with_ttl
        key = resources, form, response.version, self._identifier()
        kept = self._kept.get(key)
        if kept is None:
            # Before writing: touching new pages takes longer than reusing those of old large messages.
            large = self._large.setdefault(form, [])
            while len(large) >= MOST_LARGE_EACH:
                self._kept.pop(large.pop(0))
            return self._keep(key, _Kept(b"".join((*self._shared_parts(response), own)), own))
        if kept.own == own:
            return kept.message
        return b"".join((memoryview(kept.message)[: len(kept.message) - len(kept.own)], own))

    def _shared_parts(self, response: Response) -> Iterable[bytes]:
        if isinstance(response, DeltaResponse):
            return (self._delta_part(response),)
        message = discovery_pb2.DiscoveryResponse(
            version_info=response.version, type_url=response.type_url, control_plane={"identifier": self._identifier()}
        )
        return message.SerializeToString(), *self._sotw_parts(response)

    def _delta_part(self, response: DeltaResponse) -> bytes:
        message = discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=response.version,
            type_url=response.type_url,
            control_plane={"identifier": self._identifier()},
        )
        add = message.resources.add
        for resource in response.resources:
            aliases = response.aliases.get(resource.name, resource.aliases)
            self._fill(add(), resource, aliases, with_ttl=response.with_ttl)
        return bytes(message.SerializeToString())

    def _sotw_parts(self, response: SotwResponse) -> list[bytes]:
        """In a sixth of the time of Any messages; wrapped to carry a time to live or a name."""
        heads, with_ttl, passes = _heads_of(response.type_url), response.with_ttl, self._passes_redirects
        if with_ttl or passes:
            return [
                self._wrapped(resource, with_ttl=with_ttl)
                if (with_ttl and resource.ttl_s is not None) or (passes and resource.redirect)
                else heads[len(resource.body)] + resource.body
                for resource in response.resources
            ]
        return [part for resource in response.resources for part in (heads[len(resource.body)], resource.body)]

    def _wrapped(self, resource: Resource, *, with_ttl: bool) -> bytes:
        wrapper = discovery_pb2.Resource()
        self._fill(wrapper, resource, resource.aliases, with_ttl=with_ttl)
        return bytes(discovery_pb2.DiscoveryResponse(resources=(_packed(wrapper),)).SerializeToString())

    def _fill(
        self, wrapper: discovery_pb2.Resource, resource: Resource, aliases: Iterable[str], *, with_ttl: bool
    ) -> None:
        wrapper.name, wrapper.version = resource.name, resource.version
        is_locator = self._passes_redirects and resource.redirect
        wrapper.resource.type_url = LOCATOR_TYPE_URL if is_locator else resource.type_url
        wrapper.resource.value = resource.body
        wrapper.aliases.extend(aliases)
        if with_ttl and resource.ttl_s is not None:
            wrapper.ttl.CopyFrom(_duration(resource.ttl_s))

    def _keep(self, key: _Key, kept: _Kept) -> bytes:
        self.written += 1
        for dropped, _ in self._kept.put(key, kept):
            if dropped in self._large[dropped[1]]:
                self._large[dropped[1]].remove(dropped)
        if len(kept.message) >= LARGE_BYTES:
            self._large[key[1]].append(key)
        return kept.message


_Form = tuple[TypeUrl, bool, bool]
"""The type, whether for Delta, and whether with times to live."""

_Key = tuple[ResourceList, _Form, Version, str]
"""A collection, its form and version, and the server's name."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Ends with `own`."""

    message: bytes
    own: bytes


def _own_part(response: Response) -> bytes:
    # Without content. Source: xDS protocol, "TTL".
    heartbeats = [
        discovery_pb2.Resource(
            name=one.name, version=one.version, ttl=None if one.ttl_s is None else _duration(one.ttl_s)
        )
        for one in response.heartbeats
    ]
    if isinstance(response, SotwResponse):
        message = discovery_pb2.DiscoveryResponse(
            nonce=response.nonce, resources=map(_packed, heartbeats), resource_errors=_errors(response)
        )
    else:
        # The virtual host does not exist: named, without content (ENVOY.md E47).
        unpopulated = (discovery_pb2.Resource(name=name, aliases=(name,)) for name in response.unpopulated)
        message = discovery_pb2.DeltaDiscoveryResponse(
            nonce=response.nonce,
            resources=(*heartbeats, *unpopulated),
            removed_resources=response.removed,
            resource_errors=_errors(response),
        )
    return bytes(message.SerializeToString())


def _errors(response: Response) -> Iterator[discovery_pb2.ResourceError]:
    """Source: xRFC TP3, "xDS error propagation"."""
    for name, reason in sorted(response.errors.items()):
        status = status_pb2.Status(code=StatusCode.INVALID_ARGUMENT.value[0], message=reason)
        yield discovery_pb2.ResourceError(resource_name=discovery_pb2.ResourceName(name=name), error_detail=status)


class _Heads(dict[int, bytes]):
    """By a body's size, the bytes before it."""

    def __init__(self, type_url: TypeUrl) -> None:
        self._type_url = type_url

    def __missing__(self, size: int) -> bytes:
        packed = PackedAny(type_url=self._type_url, value=bytes(size))
        field = discovery_pb2.DiscoveryResponse(resources=(packed,)).SerializeToString()
        head = bytes(field[: len(field) - size])
        if len(self) >= MOST_HEADS:
            self.clear()
        self[size] = head
        return head


_heads_of = lru_cache(maxsize=64)(_Heads)


def _packed(wrapper: discovery_pb2.Resource) -> PackedAny:
    return PackedAny(type_url=RESOURCE_TYPE_URL, value=wrapper.SerializeToString())


def _duration(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * 1_000_000_000), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


# Requests are received in between.
WAKE_SLICE_S = 0.005


class Waking:
    """Wakes followed channels' clients, and calls `awaiting` at upstreams' answers."""

    def __init__(self, on_demand: OnDemand) -> None:
        self.awaiting: dict[Callable[[], object], None] = {}
        # Channels with a newer snapshot; None for upstreams' answers.
        self._due: asyncio.Queue[Channel | None] = asyncio.Queue()
        self._are_answers_due = False
        self._on_demand = on_demand

    def follow(self, channel: Channel) -> None:
        """Wake a channel's clients for newer snapshots."""
        if self not in channel.streams.listeners:
            channel.streams.listeners[self] = partial(self._due.put_nowait, channel)

    def _receive_answers(self) -> None:
        if self.awaiting and not self._are_answers_due:
            self._are_answers_due = True
            self._due.put_nowait(None)

    async def keep_waking(self) -> Never:
        """Wake clients until cancelled; the next call goes on after a failure."""
        self._on_demand.listeners[self] = self._receive_answers
        self._receive_answers()
        try:
            while True:
                await self._wake(await self._due.get())
        finally:
            del self._on_demand.listeners[self]

    async def _wake(self, channel: Channel | None) -> None:
        is_done = False
        try:
            if channel is None:
                self._are_answers_due = False
                await _each_in_turn(tuple(self.awaiting))
            else:
                await _each_in_turn(client.wake for client in tuple(channel.clients))
            is_done = True
        finally:
            if not is_done:
                self._due.put_nowait(channel)


async def _each_in_turn(wakes: Iterable[Callable[[], object]]) -> None:
    slice_end_s = time.monotonic() + WAKE_SLICE_S
    for wake in wakes:
        wake()
        if time.monotonic() >= slice_end_s:
            await asyncio.sleep(0)
            slice_end_s = time.monotonic() + WAKE_SLICE_S
