"""The edge of gRPC calls: an error of fsxds ends only its own call; long-lived calls end with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from inspect import isasyncgenfunction
from typing import Any

import grpc
import grpc.aio

from fsxds.events.client_events import RequestAnswered
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.model.errors import ProtocolError
from fsxds.transports.grpc_streams.stream_requests import Context, peer_of
from fsxds.transports.limits import Limiter, report_rejection

HEALTH = "grpc.health.v1.Health"
STOPPING = "the server stops; connect again"
INTERNAL = "an internal error of fsxds; the server's log has its traceback"


def where(method: str) -> str:
    """Name a call in reports, such as `gRPC StreamClusters`."""
    return f"gRPC {method.rpartition('/')[2]}"


def guarded(
    behavior: Callable[..., Awaitable[object]],
    method: str,
    observer: Observer,
    admit: Callable[[Context], object] = lambda _: None,
) -> Callable[..., Awaitable[object]]:
    """Wrap a method: report its end, and answer unexpected exceptions with INTERNAL.

    `admit` comes first; a ProtocolError of either ends the call with its code. A streaming method writes by its
    context.
    """

    async def answer(request: object, context: Context) -> object:
        is_over = False
        try:
            admit(context)
            result = await behavior(request, context)
            is_over = True
        except ProtocolError as error:
            report_rejection(observer, peer_of(context.peer()), error.code, error)
            await context.abort(grpc.StatusCode[error.code], str(error))
            raise  # never reached: abort raises
        except grpc.aio.BaseError:
            # The client is gone or rejected.
            raise
        # The edge of every call.
        except Exception as error:
            observer(InternalError(where(method), error))
            await context.abort(grpc.StatusCode.INTERNAL, INTERNAL)
            raise  # never reached: abort raises
        finally:
            code = context.code()
            status = code.name if isinstance(code, grpc.StatusCode) else "OK" if is_over else "CANCELLED"
            observer(RequestAnswered("gRPC", status, peer_of(context.peer())))
        return result

    return answer


class LongLivedCalls:
    """Knows and ends long-lived calls, admitted as in `guarded` except for health. For the event loop."""

    def __init__(
        self,
        observer: Observer,
        limiter: Limiter | None = None,
        admit: Callable[[Context], object] = lambda _: None,
    ) -> None:
        self._observer = observer
        self._limiter = limiter or Limiter()
        self._admit = admit
        self._calls: dict[_TrackedContext, asyncio.Task[object] | None] = {}

    def adapt(self, handler: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """Guard a handler's methods; `end` can end its streams."""
        return _AdaptedHandler(handler, self._adapted)

    async def end(self) -> None:
        """End all calls with UNAVAILABLE after present responses."""
        async with asyncio.TaskGroup() as ending:
            for context, task in tuple(self._calls.items()):
                ending.create_task(_end(context, task))

    def _adapted(self, method: grpc.RpcMethodHandler, name: str) -> grpc.RpcMethodHandler:
        behavior = method.unary_unary or method.unary_stream or method.stream_stream
        if method.response_streaming:
            behavior = partial(self._last, behavior)
        make = _MAKERS[method.request_streaming, method.response_streaming]
        # Health checks get answers even if their address asks too often.
        is_health = name.startswith(f"/{HEALTH}/")
        guard = guarded if is_health else partial(guarded, admit=self._admit)
        return make(guard(behavior, name, self._observer), method.request_deserializer, method.response_serializer)

    async def _last(self, behavior: Callable[..., Any], request: object, grpc_context: Context) -> None:
        context = _TrackedContext(grpc_context)
        with self._limiter.stream(peer_of(grpc_context.peer())):
            self._calls[context] = asyncio.current_task()
            try:
                if isasyncgenfunction(behavior):
                    responses: AsyncIterator[object] = behavior(request, context)
                    async for response in responses:
                        await context.write(response)
                else:
                    await behavior(request, context)
            finally:
                del self._calls[context]


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class _AdaptedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(
        self,
        handler: grpc.GenericRpcHandler,
        adapt: Callable[[grpc.RpcMethodHandler, str], grpc.RpcMethodHandler],
    ) -> None:
        self._handler = handler
        self._adapt = adapt

    @property
    def _method_handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        methods = self._handler._method_handlers  # noqa: SLF001 - nothing else tells
        return {name: self._adapt(method, name) for name, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = self._handler.service(handler_call_details)
        return None if method is None else self._adapt(method, handler_call_details.method)


async def _end(context: _TrackedContext, task: asyncio.Task[object] | None) -> None:
    await context.idle.wait()
    with suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
    if task is not None:
        # It may wait for more than its client.
        task.cancel()


class _TrackedContext:
    """Knows when no response is being written: only then can gRPC send a status."""

    def __init__(self, context: Context) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._context = context

    async def write(self, response: object) -> None:
        self.idle.clear()
        try:
            await self._context.write(response)
        finally:
            self.idle.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
