"""Streaming calls of services that know nothing of a stop: health, reflection, and what is given from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from inspect import isasyncgenfunction
from typing import Any

import grpc
import grpc.aio

from fsxds.transports.grpc_requests import Context

STOPPING = "the server stops; connect again"


class LastingCalls:
    """Knows the calls that last, and ends them. Touched from the event loop only."""

    def __init__(self) -> None:
        self._calls: dict[_Writer, asyncio.Task[Any] | None] = {}

    def known(self, handler: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """Return a handler that does the same, and whose streaming calls are known while they last."""
        return _Known(handler, self._last)

    async def end(self) -> None:
        """End all calls with UNAVAILABLE, each after the response that is being written."""
        async with asyncio.TaskGroup() as ending:
            for context, task in tuple(self._calls.items()):
                ending.create_task(_end(context, task))

    async def _last(self, behavior: Callable[..., Any], request: Any, grpc_context: Context) -> None:
        context = _Writer(grpc_context)
        self._calls[context] = asyncio.current_task()
        try:
            if isasyncgenfunction(behavior):
                responses: AsyncIterator[Any] = behavior(request, context)
                async for response in responses:
                    await context.write(response)
            else:
                await behavior(request, context)
        finally:
            del self._calls[context]


async def _end(context: _Writer, task: asyncio.Task[Any] | None) -> None:
    await context.idle.wait()
    with suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
    if task is not None:
        # It may wait for something else than its client.
        task.cancel()


class _Writer:
    """A call's context that tells when nothing is being written: only then can gRPC send a status."""

    def __init__(self, context: Context) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._context = context

    async def write(self, response: Any) -> None:
        """Write a response."""
        self.idle.clear()
        try:
            await self._context.write(response)
        finally:
            self.idle.set()

    def __getattr__(self, name: str) -> Any:
        """Return what gRPC's context has of this name."""
        return getattr(self._context, name)


class _Known(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Wraps the streaming methods of a handler."""

    def __init__(self, handler: grpc.GenericRpcHandler, last: Callable[..., Any]) -> None:
        self._handler = handler
        self._last = last

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the method that is called, None where it is another service's."""
        method = self._handler.service(handler_call_details)
        if method is None or not method.response_streaming:
            return method
        behavior = method.stream_stream if method.request_streaming else method.unary_stream
        make = (
            grpc.stream_stream_rpc_method_handler if method.request_streaming else grpc.unary_stream_rpc_method_handler
        )

        async def last(request: Any, context: Context) -> None:
            await self._last(behavior, request, context)

        return make(last, method.request_deserializer, method.response_serializer)
