"""The engine that is etcd or speaks its API.

| rule | reason |
| --- | --- |
| Each member has its own gRPC channel; after a missed deadline, calls and watches go to the next. | A channel of three addresses never left a frozen member. |
| A watch continues with the next revision. | |
| A write without an answer is not repeated here. | It may have succeeded; the writer can find out. |
| An expired token is renewed, and the call repeated. | It was rejected before it did anything. |

Messages are built from a table, with field numbers of etcd 3 (`rpc.proto`, `kv.proto`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from fsxds.fleet.key_values import (
    Changed,
    CompactedError,
    Delete,
    Found,
    Guard,
    KeyValue,
    LeaseLostError,
    Put,
    RejectedRequestError,
    UnreachableError,
)
from fsxds.runtime.channels import end_wait

# After a call without an answer for this time, calls go to the next member.
CALL_WITHIN_S = 1.5

# etcd sends as much at once as was asked for.
MOST_RECEIVED_BYTES = 64 * 1024 * 1024
PAGE = 2_000

_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_RECEIVED_BYTES),
    # Two members behind one address need two connections.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_GONE = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED))
_LOST_LEASE = "requested lease not found"
_TOKEN_FAULT = "invalid auth token"  # noqa: S105 - words of etcd


@dataclass(frozen=True, slots=True)
class Members:
    """The addresses of an engine's members.

    Attributes:
        targets: in gRPC's notation: `127.0.0.1:2379`, `unix:/run/fleet`.
        credentials: None for connections in clear.
        user: name and password, or None.
    """

    targets: tuple[str, ...]
    credentials: grpc.ChannelCredentials | None = None
    user: tuple[str, str] | None = None


class EtcdKeyValues:
    """The engine of some members."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._channels = [
            grpc.aio.insecure_channel(target, _OPTIONS)
            if members.credentials is None
            else grpc.aio.secure_channel(target, members.credentials, _OPTIONS)
            for target in members.targets
        ]
        self._at = 0
        # Replaced whenever calls move to another member; that ends the waits of watches.
        self._moved = object()
        self._limits: set[asyncio.Timeout] = set()
        self._token = ""

    @property
    def member(self) -> str:
        """The member that calls go to."""
        return self._members.targets[self._at]

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close(None)

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read keys, at most `MOST_CHANGES` at once."""
        request = MESSAGES["TxnRequest"]()
        for key in keys:
            request.success.add().request_range.key = key
        response = await self._call("txn", request, is_repeated=True)
        found = [one for each in response.responses for one in each.response_range.kvs]
        return Found(response.header.revision, {one.key: _key_value(one) for one in found})

    async def read_prefix(self, prefix: bytes, *, is_keys_only: bool = False) -> Found:
        """Read all keys with a prefix, as of one revision."""
        values: dict[bytes, KeyValue] = {}
        first, end, revision, has_more = prefix, _end_after(prefix), 0, True
        while has_more:
            request = MESSAGES["RangeRequest"](
                key=first, range_end=end, limit=PAGE, revision=revision, keys_only=is_keys_only
            )
            response = await self._call("range", request, is_repeated=True)
            values |= {one.key: _key_value(one) for one in response.kvs}
            revision, has_more = revision or response.header.revision, response.more
            if has_more:
                first = response.kvs[-1].key + b"\0"
        return Found(revision, values)

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Make all changes, or none."""
        request = MESSAGES["TxnRequest"]()
        for guard in guards:
            if guard.created is not None:
                request.compare.add(key=guard.key, target=COMPARE_CREATED, create_revision=guard.created)
            if guard.modified is not None:
                request.compare.add(key=guard.key, target=COMPARE_MODIFIED, mod_revision=guard.modified)
        for one in changes:
            if isinstance(one, Put):
                put = request.success.add().request_put
                put.key, put.value, put.lease = one
            else:
                request.success.add().request_delete_range.key = one.key
        response = await self._call("txn", request)
        return response.header.revision if response.succeeded else None

    async def watch(self, prefix: bytes, since: int) -> AsyncGenerator[Changed]:
        """Yield changes of keys with a prefix."""
        create = MESSAGES["WatchCreateRequest"](key=prefix, range_end=_end_after(prefix))
        failures = 0
        while True:
            create.start_revision, moved = since, self._moved
            try:
                async with aclosing(self._responses(create)) as responses:
                    async for response in responses:
                        failures = 0
                        # The revision of the response may be later: more changes up to that one may follow.
                        if response.events:
                            revision = max(one.kv.mod_revision for one in response.events)
                            since = revision + 1
                            values = {
                                one.kv.key: None if one.type == EVENT_DELETED else _key_value(one.kv)
                                for one in response.events
                            }
                            yield Changed(revision, values)
            except (grpc.aio.AioRpcError, TimeoutError, _EndedError) as error:
                if _is_old_token(error):
                    self._token = ""
                elif isinstance(error, grpc.aio.AioRpcError) and error.code() not in _GONE:
                    raise RejectedRequestError(
                        f"{self.member} refuses to be watched: {_error_message(error)}"
                    ) from error
                else:
                    self._leave(moved)
                failures += 1
                if failures > len(self._channels):
                    raise UnreachableError(f"no member can be watched: {_error_message(error)}") from error
                await asyncio.sleep(PAUSE_S)

    async def _responses(self, create: Any) -> AsyncGenerator[Any]:
        """TimeoutError: the watch does not begin, or calls move on."""
        await self._authenticate()
        calling = self._method("watch", "stream_stream")(metadata=self._metadata())
        patience_s: float | None = CALL_WITHIN_S
        try:
            async with asyncio.timeout(CALL_WITHIN_S):
                await calling.write(MESSAGES["WatchRequest"](create_request=create))
            while True:
                async with asyncio.timeout(patience_s) as limit:
                    self._limits.add(limit)
                    try:
                        response = await calling.read()
                    finally:
                        self._limits.discard(limit)
                if response is grpc.aio.EOF or response.canceled:
                    raise _error_at_end(response)
                yield response
                # The first response confirms that the watch was made.
                patience_s = None
        finally:
            calling.cancel()

    async def grant(self, ttl_s: int) -> int:
        """Create a lease."""
        response = await self._call("grant", MESSAGES["LeaseGrantRequest"](TTL=ttl_s))
        lease: int = response.ID
        return lease

    async def keep_alive(self, lease: int) -> None:
        """Restart a lease's time to live."""

        async def call() -> Any:
            calling = self._method("keep_alive", "stream_stream")(metadata=self._metadata(), timeout=CALL_WITHIN_S)
            try:
                await calling.write(MESSAGES["LeaseKeepAliveRequest"](ID=lease))
                return await calling.read()
            finally:
                calling.cancel()

        response = await self._asked(call, is_repeated=True)
        if response is grpc.aio.EOF or response.TTL <= 0:
            raise LeaseLostError("the lease is no more")

    async def revoke(self, lease: int) -> None:
        """Revoke a lease."""
        with suppress(LeaseLostError):
            await self._call("revoke", MESSAGES["LeaseRevokeRequest"](ID=lease))

    async def _call(self, method: str, request: Any, *, is_repeated: bool = False) -> Any:
        def call() -> Awaitable[Any]:
            made: Awaitable[Any] = self._method(method, "unary_unary")(
                request, timeout=CALL_WITHIN_S, metadata=self._metadata()
            )
            return made

        return await self._asked(call, is_repeated=is_repeated)

    async def _asked(self, call: Callable[[], Awaitable[Any]], *, is_repeated: bool) -> Any:
        """A repeatable call goes to each member in turn."""
        error: Exception = TimeoutError()
        is_renewed = False
        for _ in range(len(self._channels) + 1):
            moved = self._moved
            try:
                await self._authenticate()
                return await call()
            except grpc.aio.AioRpcError as found:
                error = found
                if _is_old_token(found) and not is_renewed:
                    is_renewed, self._token = True, ""
                    continue
                if _LOST_LEASE in (found.details() or ""):
                    raise LeaseLostError("the lease is no more") from found
                if found.code() not in _GONE:
                    raise RejectedRequestError(f"{self.member} refuses: {_error_message(found)}") from found
                self._leave(moved)
                if not is_repeated:
                    break
        raise UnreachableError(f"no member answers; the last was asked in vain: {_error_message(error)}") from error

    async def _authenticate(self) -> None:
        if self._members.user is None or self._token:
            return
        name, password = self._members.user
        request = MESSAGES["AuthenticateRequest"](name=name, password=password)
        response = await self._method("authenticate", "unary_unary")(request, timeout=CALL_WITHIN_S)
        self._token = response.token

    def _leave(self, moved: object) -> None:
        if moved is self._moved:
            self._at = (self._at + 1) % len(self._channels)
            self._moved = object()
            for limit in self._limits:
                end_wait(limit, asyncio.get_running_loop().time())

    def _method(self, name: str, form: str) -> Any:
        path, request, response = METHODS[name]
        make = getattr(self._channels[self._at], form)
        return make(
            path,
            request_serializer=MESSAGES[request].SerializeToString,
            response_deserializer=MESSAGES[response].FromString,
        )

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()


# Between two tries of a watch.
PAUSE_S = 0.1


class _EndedError(Exception):
    """A member ended a watch."""


def _end_after(prefix: bytes) -> bytes:
    """The prefix's last byte is not 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _error_at_end(response: Any) -> Exception:
    if response is grpc.aio.EOF:
        return _EndedError("it ended the call")
    if response.compact_revision:
        return CompactedError(response.compact_revision)
    return _EndedError(response.cancel_reason)


def _key_value(found: Any) -> KeyValue:
    return KeyValue(found.value, found.create_revision, found.mod_revision)


def _is_old_token(error: Exception) -> bool:
    return isinstance(error, grpc.aio.AioRpcError) and _TOKEN_FAULT in (error.details() or "")


def _error_message(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return str(error.details() or error.code().name)
    return str(error) or "it gave no answer in time"


_PACKAGE = "etcd"

_SCALARS = {
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "string": FieldDescriptorProto.TYPE_STRING,
    "int": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
}

# Each field: its number and its type, after `repeated` if it is. Oneofs need no declaration: fsxds sets one field.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "ResponseHeader": {"revision": (3, "int")},
    "KeyValue": {
        "key": (1, "bytes"),
        "create_revision": (2, "int"),
        "mod_revision": (3, "int"),
        "value": (5, "bytes"),
    },
    "Event": {"type": (1, "int"), "kv": (2, "KeyValue")},
    "RangeRequest": {
        "key": (1, "bytes"),
        "range_end": (2, "bytes"),
        "limit": (3, "int"),
        "revision": (4, "int"),
        "keys_only": (8, "bool"),
    },
    "RangeResponse": {"header": (1, "ResponseHeader"), "kvs": (2, "repeated KeyValue"), "more": (3, "bool")},
    "PutRequest": {"key": (1, "bytes"), "value": (2, "bytes"), "lease": (3, "int")},
    "DeleteRangeRequest": {"key": (1, "bytes"), "range_end": (2, "bytes")},
    "RequestOp": {
        "request_range": (1, "RangeRequest"),
        "request_put": (2, "PutRequest"),
        "request_delete_range": (3, "DeleteRangeRequest"),
    },
    "ResponseOp": {"response_range": (1, "RangeResponse")},
    # `target`: CREATE or MOD; `result` is EQUAL, which is 0.
    "Compare": {
        "target": (2, "int"),
        "key": (3, "bytes"),
        "create_revision": (5, "int"),
        "mod_revision": (6, "int"),
    },
    "TxnRequest": {"compare": (1, "repeated Compare"), "success": (2, "repeated RequestOp")},
    "TxnResponse": {
        "header": (1, "ResponseHeader"),
        "succeeded": (2, "bool"),
        "responses": (3, "repeated ResponseOp"),
    },
    "WatchRequest": {"create_request": (1, "WatchCreateRequest")},
    "WatchCreateRequest": {"key": (1, "bytes"), "range_end": (2, "bytes"), "start_revision": (3, "int")},
    "WatchResponse": {
        "created": (3, "bool"),
        "canceled": (4, "bool"),
        "compact_revision": (5, "int"),
        "cancel_reason": (6, "string"),
        "events": (11, "repeated Event"),
    },
    "LeaseGrantRequest": {"TTL": (1, "int")},
    "LeaseGrantResponse": {"ID": (2, "int")},
    "LeaseRevokeRequest": {"ID": (1, "int")},
    "LeaseRevokeResponse": {},
    "LeaseKeepAliveRequest": {"ID": (1, "int")},
    "LeaseKeepAliveResponse": {"TTL": (3, "int")},
    "AuthenticateRequest": {"name": (1, "string"), "password": (2, "string")},
    "AuthenticateResponse": {"token": (2, "string")},
}

# Numbers of etcd's enums.
COMPARE_CREATED, COMPARE_MODIFIED = 1, 2
EVENT_DELETED = 1


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, words) in fields.items():
            made = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            *repeated, of = words.split()
            if repeated:
                made.label = FieldDescriptorProto.LABEL_REPEATED
            if of in _SCALARS:
                made.type = _SCALARS[of]
            else:
                made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{of}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


MESSAGES = _classes()
"""The class of each message, by name."""

# By method: its path, and its messages for request and response.
METHODS: Mapping[str, tuple[str, str, str]] = {
    "range": ("/etcdserverpb.KV/Range", "RangeRequest", "RangeResponse"),
    "txn": ("/etcdserverpb.KV/Txn", "TxnRequest", "TxnResponse"),
    "watch": ("/etcdserverpb.Watch/Watch", "WatchRequest", "WatchResponse"),
    "grant": ("/etcdserverpb.Lease/LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse"),
    "revoke": ("/etcdserverpb.Lease/LeaseRevoke", "LeaseRevokeRequest", "LeaseRevokeResponse"),
    "keep_alive": ("/etcdserverpb.Lease/LeaseKeepAlive", "LeaseKeepAliveRequest", "LeaseKeepAliveResponse"),
    "authenticate": ("/etcdserverpb.Auth/Authenticate", "AuthenticateRequest", "AuthenticateResponse"),
}
