"""The edge of every gRPC call: an error of fsxds ends the call in which it happened, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from fsxds.supervisor import ErrorObserver
from fsxds.transports.grpc_requests import Context

INTERNAL = "an internal error of fsxds; the server's log has its traceback"


def where(method: str) -> str:
    """Return what a call is named in reports of errors: `gRPC StreamClusters`."""
    return f"gRPC {method.rpartition('/')[2]}"


def guarded(
    behavior: Callable[..., Awaitable[Any]], method: str, observer: ErrorObserver
) -> Callable[..., Awaitable[Any]]:
    """Return a method that does the same, but that reports an unexpected exception, and gives its client INTERNAL.

    A streaming method writes by its context, and yields nothing.
    """

    async def answer(request: Any, context: Context) -> Any:
        try:
            return await behavior(request, context)
        except grpc.aio.BaseError:
            # The client is gone, or its request was rejected.
            raise
        # The edge of every call.
        except Exception as error:  # noqa: BLE001
            observer.internal_error(where(method), error)
            await context.abort(grpc.StatusCode.INTERNAL, INTERNAL)

    return answer
