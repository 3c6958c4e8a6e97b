"""An engine in memory that processes of one machine share, at a socket with etcd's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from fsxds.fleet.etcd_messages import COMPARE_CREATED, EVENT_DELETED, MESSAGES, METHODS
from fsxds.fleet.key_values import (
    CompactedError,
    Delete,
    Guard,
    KeyValue,
    LeaseLostError,
    MemoryKeyValues,
    Put,
)


@asynccontextmanager
async def served(engine: MemoryKeyValues, target: str) -> AsyncIterator[None]:
    """Serve an engine at a gRPC target, such as `unix:/run/fleet`, while the context lasts."""
    server = grpc.aio.server()
    calls = _Calls(engine)
    handlers: dict[str, dict[str, grpc.RpcMethodHandler]] = {}
    for name, (path, request, response) in METHODS.items():
        if (answer := getattr(calls, name, None)) is None:
            continue
        make = grpc.stream_stream_rpc_method_handler if name in _STREAMS else grpc.unary_unary_rpc_method_handler
        service, method = path.strip("/").split("/")
        handlers.setdefault(service, {})[method] = make(
            answer, MESSAGES[request].FromString, MESSAGES[response].SerializeToString
        )
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in handlers.items())
    )
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
        found = await self._engine.read_range(request.key, request.range_end, is_keys_only=request.keys_only)
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
        yield MESSAGES["WatchResponse"](header=self._header(), created=True)
        try:
            async for changed in self._engine.watch(create.key, create.range_end, create.start_revision):
                response = MESSAGES["WatchResponse"](header=MESSAGES["ResponseHeader"](revision=changed.revision))
                for key, one in changed.values.items():
                    kv = _message(key, one or KeyValue(b"", 0, changed.revision))
                    response.events.add(type=0 if one else EVENT_DELETED, kv=kv)
                yield response
        except CompactedError:
            yield MESSAGES["WatchResponse"](
                header=self._header(), canceled=True, compact_revision=self._engine.revision
            )

    async def grant(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        return MESSAGES["LeaseGrantResponse"](ID=await self._engine.grant(request.TTL), TTL=request.TTL)

    async def revoke(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        await self._engine.revoke(request.ID)
        return MESSAGES["LeaseRevokeResponse"](header=self._header())

    async def keep_alive(self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        async for request in requests:
            try:
                await self._engine.keep_alive(request.ID)
            except LeaseLostError:
                yield MESSAGES["LeaseKeepAliveResponse"](ID=request.ID, TTL=0)
            else:
                yield MESSAGES["LeaseKeepAliveResponse"](ID=request.ID, TTL=1)

    def _header(self) -> Any:
        return MESSAGES["ResponseHeader"](revision=self._engine.revision)


def _message(key: bytes, found: KeyValue) -> Any:
    return MESSAGES["KeyValue"](key=key, value=found.value, create_revision=found.created, mod_revision=found.modified)


def _guard(compare: Any) -> Guard:
    if compare.target == COMPARE_CREATED:
        return Guard(compare.key, created=compare.create_revision)
    return Guard(compare.key, modified=compare.mod_revision)
