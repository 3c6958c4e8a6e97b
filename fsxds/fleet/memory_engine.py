"""An engine in memory, shared by processes of one machine at a socket with etcd's API; each range is a prefix."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio

from fsxds.fleet.etcd import COMPARE_CREATED, EVENT_DELETED, MESSAGES, METHODS
from fsxds.fleet.key_values import Changed, CompactedError, Delete, Found, Guard, KeyValue, LeaseLostError, Put


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    timer: asyncio.TimerHandle
    keys: set[bytes] = field(default_factory=set)


class MemoryKeyValues:
    """An engine in memory, for the event loop only."""

    def __init__(self) -> None:
        self.revision = 1
        self._values: dict[bytes, KeyValue] = {}
        self._owners: dict[bytes, int] = {}
        self._leases: dict[int, _Lease] = {}
        self._numbers = count(1)
        # The last changes by revision, for watches; and the first revision in it.
        self._log: dict[int, Mapping[bytes, KeyValue | None]] = {}
        self._logged_since = 2
        self._written = asyncio.Event()

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read keys."""
        return Found(self.revision, {key: self._values[key] for key in keys if key in self._values})

    async def read_prefix(self, prefix: bytes, *, is_keys_only: bool = False) -> Found:
        """Read keys with a prefix."""
        within = {key: one for key, one in sorted(self._values.items()) if key.startswith(prefix)}
        if is_keys_only:
            within = {key: one._replace(value=b"") for key, one in within.items()}
        return Found(self.revision, within)

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Make all changes, or none."""
        if not all(map(self._holds, guards)):
            return None
        if any(isinstance(one, Put) and one.lease and one.lease not in self._leases for one in changes):
            raise LeaseLostError("the lease is no more")
        self._change(changes)
        return self.revision

    def _holds(self, guard: Guard) -> bool:
        found = self._values.get(guard.key, KeyValue(b"", 0, 0))
        return guard.created in {None, found.created} and guard.modified in {None, found.modified}

    def _change(self, changes: Sequence[Put | Delete]) -> None:
        self.revision += 1
        changed: dict[bytes, KeyValue | None] = {}
        for one in changes:
            if (owner := self._leases.get(self._owners.pop(one.key, 0))) is not None:
                owner.keys.discard(one.key)
            before = self._values.pop(one.key, None)
            if isinstance(one, Delete):
                changed |= {} if before is None else {one.key: None}
                continue
            created = self.revision if before is None else before.created
            self._values[one.key] = changed[one.key] = KeyValue(one.value, created, self.revision)
            if one.lease:
                self._owners[one.key] = one.lease
                self._leases[one.lease].keys.add(one.key)
        self._log[self.revision] = MappingProxyType(changed)
        while len(self._log) > MOST_LOGGED:
            del self._log[self._logged_since]
            self._logged_since += 1
        written, self._written = self._written, asyncio.Event()
        written.set()

    async def watch(self, prefix: bytes, since: int) -> AsyncGenerator[Changed]:
        """Yield changes of keys with a prefix."""
        while True:
            if since < self._logged_since:
                raise CompactedError(self._logged_since)
            changed = {
                key: one
                for revision in range(since, self.revision + 1)
                for key, one in self._log[revision].items()
                if key.startswith(prefix)
            }
            since = self.revision + 1
            if changed:
                yield Changed(self.revision, changed)
            elif since > self.revision:
                await self._written.wait()

    async def grant(self, ttl_s: int) -> int:
        """Create a lease."""
        lease = next(self._numbers)
        self._leases[lease] = _Lease(ttl_s, self._timer(lease, ttl_s))
        return lease

    async def keep_alive(self, lease: int) -> None:
        """Restart its time to live."""
        if (found := self._leases.get(lease)) is None:
            raise LeaseLostError("the lease is no more")
        found.timer.cancel()
        found.timer = self._timer(lease, found.ttl_s)

    async def revoke(self, lease: int) -> None:
        """Revoke a lease."""
        self._end(lease)

    def _timer(self, lease: int, ttl_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ttl_s, self._end_soon, lease)

    def _end_soon(self, lease: int) -> None:
        """This process may have been frozen: a keep-alive may wait."""
        if (found := self._leases.get(lease)) is not None:
            found.timer = asyncio.get_running_loop().call_later(LEASE_GRACE_S, self._end, lease)

    def _end(self, lease: int) -> None:
        if (found := self._leases.get(lease)) is not None:
            found.timer.cancel()
            if found.keys:
                self._change([Delete(key) for key in sorted(found.keys)])
            del self._leases[lease]


# What was sent to this process while it did not run is read within this time.
LEASE_GRACE_S = 0.5

# Writes that watches can resume from.
MOST_LOGGED = 1000


@asynccontextmanager
async def served(engine: MemoryKeyValues, target: str) -> AsyncIterator[None]:
    """Serve an engine at a gRPC target: `unix:/run/fleet`."""
    server, calls = grpc.aio.server(), _Calls(engine)
    for name, (path, request, response) in METHODS.items():
        if (answer := getattr(calls, name, None)) is not None:
            make = grpc.stream_stream_rpc_method_handler if name in _STREAMS else grpc.unary_unary_rpc_method_handler
            handler = make(answer, MESSAGES[request].FromString, MESSAGES[response].SerializeToString)
            _, service, method = path.split("/")
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(target)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


_STREAMS = frozenset(("watch", "keep_alive"))


class _Calls:
    def __init__(self, engine: MemoryKeyValues) -> None:
        self._engine = engine

    async def range(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        found = await self._engine.read_prefix(request.key, is_keys_only=request.keys_only)
        response = MESSAGES["RangeResponse"](header=self._header())
        response.kvs.extend(_message(key, one) for key, one in found.values.items())
        return response

    async def txn(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        response = MESSAGES["TxnResponse"](succeeded=True)
        if keys := [one.request_range.key for one in request.success if one.HasField("request_range")]:
            found = await self._engine.read(keys)
            for key in keys:
                kvs = response.responses.add().response_range.kvs
                kvs.extend([_message(key, found.values[key])] if key in found.values else [])
        else:
            changes = [
                Put(one.request_put.key, one.request_put.value, one.request_put.lease)
                if one.HasField("request_put")
                else Delete(one.request_delete_range.key)
                for one in request.success
            ]
            try:
                response.succeeded = await self._engine.write(changes, [*map(_guard, request.compare)]) is not None
            except LeaseLostError:
                await context.abort(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        response.header.CopyFrom(self._header())
        return response

    async def watch(self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        create = (await anext(requests)).create_request
        yield MESSAGES["WatchResponse"](created=True)
        try:
            async for changed in self._engine.watch(create.key, create.start_revision):
                response = MESSAGES["WatchResponse"]()
                for key, one in changed.values.items():
                    kv = _message(key, one or KeyValue(b"", 0, changed.revision))
                    response.events.add(type=0 if one else EVENT_DELETED, kv=kv)
                yield response
        except CompactedError as error:
            yield MESSAGES["WatchResponse"](canceled=True, compact_revision=error.revision)

    async def grant(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        return MESSAGES["LeaseGrantResponse"](ID=await self._engine.grant(request.TTL))

    async def revoke(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        await self._engine.revoke(request.ID)
        return MESSAGES["LeaseRevokeResponse"]()

    async def keep_alive(self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        async for request in requests:
            try:
                await self._engine.keep_alive(request.ID)
            except LeaseLostError:
                yield MESSAGES["LeaseKeepAliveResponse"](TTL=0)
            else:
                yield MESSAGES["LeaseKeepAliveResponse"](TTL=1)

    def _header(self) -> Any:
        return MESSAGES["ResponseHeader"](revision=self._engine.revision)


def _message(key: bytes, found: KeyValue) -> Any:
    return MESSAGES["KeyValue"](key=key, value=found.value, create_revision=found.created, mod_revision=found.modified)


def _guard(compare: Any) -> Guard:
    if compare.target == COMPARE_CREATED:
        return Guard(compare.key, created=compare.create_revision)
    return Guard(compare.key, modified=compare.mod_revision)
