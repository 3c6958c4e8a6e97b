"""Client status (CSDS) over gRPC: handlers for a grpc.aio server, with bytes in and bytes out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from fsxds.errors import ProtocolError
from fsxds.transports.client_status import ClientReports

CLIENT_STATUS_SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"


def client_status_handlers(reports: ClientReports) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return what answers the methods of the service; hand it to `server.add_generic_rpc_handlers`.

    Each request of a stream is answered by itself.
    """

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return await reports.answer(request)
        except ProtocolError as error:
            await context.abort(grpc.StatusCode[error.code], str(error))
            raise  # never reached: abort raises

    async def answer_each(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await answer(request, context)

    methods = {
        "FetchClientStatus": grpc.unary_unary_rpc_method_handler(answer),
        "StreamClientStatus": grpc.stream_stream_rpc_method_handler(answer_each),
    }
    return (grpc.method_handlers_generic_handler(CLIENT_STATUS_SERVICE, methods),)
