"""Client status (CSDS) over REST: POST /v3/discovery:client_status."""

from __future__ import annotations

from aiohttp import web

from fsxds.transports.client_status import ClientReports
from fsxds.transports.rest_requests import read_body
from fsxds.transports.rest_responses import send

CLIENT_STATUS_PATH = "/v3/discovery:client_status"


async def answer_client_status(request: web.Request, reports: ClientReports) -> web.StreamResponse:
    """Answer a POST whose body is a ClientStatusRequest in JSON.

    Raises:
        ProtocolError: the body cannot be read, or it or the answer is too large.
    """
    response, _ = await send(request, await reports.answer_json(await read_body(request)))
    return response
