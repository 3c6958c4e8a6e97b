"""The edge of every gRPC call: an error of fsxds ends the call in which it happened, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fsxds.supervisor import ErrorObserver
from fsxds.transports.grpc_requests import Context

INTERNAL = "an internal error of fsxds; the server's log has its traceback"

_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def where(method: str) -> str:
    """Return what a call is named in reports of errors: `gRPC StreamClusters`."""
    return f"gRPC {method.rpartition('/')[2]}"


class GuardedHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Does what `handler` does; an unexpected exception of its methods is reported, and the client gets INTERNAL.

    Its streaming methods write by their context, and yield nothing, as those of `LastingCalls` do.
    """

    def __init__(self, handler: grpc.GenericRpcHandler, observer: ErrorObserver) -> None:
        self._handler = handler
        self._observer = observer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the method that is called, None where it is another service's."""
        method = self._handler.service(handler_call_details)
        if method is None:
            return None
        behavior = method.unary_unary or method.unary_stream or method.stream_stream
        guarded = self._guarded(behavior, where(handler_call_details.method))
        make = _MAKERS[method.request_streaming, method.response_streaming]
        return make(guarded, method.request_deserializer, method.response_serializer)

    def _guarded(self, behavior: Callable[..., Any], name: str) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> Any:
            try:
                return await behavior(request, context)
            except grpc.aio.BaseError:
                # The client is gone, or was refused.
                raise
            # The edge of every call.
            except Exception as error:  # noqa: BLE001
                self._observer.internal_error(name, error)
                await context.abort(grpc.StatusCode.INTERNAL, INTERNAL)

        return answer
