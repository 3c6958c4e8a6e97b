"""A gRPC server that a call of no method cannot end.

grpcio decodes the path of each call in the one task that accepts calls, and ends the whole server where it is not UTF-8: one
request of a stranger would end all streams, for good (seen in grpcio 1.85; `tests/fuzzing` found it). Here every method is
registered, so that gRPC compares the bytes of paths with those of known methods, and whatever is left is rejected without a look at
its path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from grpc._cython import cygrpc
from grpc.aio import _server

# Stands for the path of a call that is not looked at.
_UNKNOWN = "/unknown"


class KnownMethodsServer(_server.Server):  # type: ignore[misc]  # grpc has no types
    """A server of `grpc.aio` with the methods that it is made with.

    Args:
        handlers: their methods are in `_method_handlers`, as in what `grpc.method_handlers_generic_handler` makes.
        options: channel arguments.
    """

    # Not that of the base class: its server would have no end.
    def __init__(self, handlers: Iterable[grpc.GenericRpcHandler], options: Sequence[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        arguments = _server._augment_channel_arguments(options, None)  # noqa: SLF001 - as the base class does
        self._server = _Core(self._loop, None, (), (), arguments, None)
        for handler in handlers:
            self._server.add_registered_method_handlers(handler._method_handlers)  # noqa: SLF001 - nothing else tells


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """Accepts calls of registered methods, and rejects all others with UNIMPLEMENTED."""

    async def _request_call(self) -> object:
        """Reject the calls of no method, until the server ends, which is an error of gRPC's own."""
        loop, resolver = asyncio.get_running_loop(), cygrpc._MethodResolver([], {})  # noqa: SLF001
        ended: cygrpc._RequestCallError | None = None
        async with asyncio.TaskGroup() as rejecting:
            while ended is None:
                try:
                    call = await super()._request_call()
                except cygrpc._RequestCallError as error:  # noqa: SLF001
                    ended = error
                else:
                    answer = cygrpc._handle_rpc(_UNKNOWN, resolver, (), call, loop, False)  # noqa: SLF001
                    rejecting.create_task(_reject(cygrpc._schedule_rpc_coro(answer, call, loop, _UNKNOWN)))  # noqa: SLF001
        raise ended


async def _reject(answer: Any) -> None:
    # The client may be gone already.
    with suppress(grpc.aio.BaseError):
        await answer
