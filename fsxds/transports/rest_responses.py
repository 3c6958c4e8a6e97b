"""What goes back over REST: bodies, refusals in JSON, and nothing new."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aiohttp import web

from fsxds.transports.json_bodies import Payload

# A reader that is slow holds a copy of what was handed to its socket, so a large body is handed over in slices.
# Below a megabyte the buffers of the socket take most of it, and one write is cheaper.
LARGE_BODY_BYTES = 1_000_000
SLICE_BYTES = 256 * 1024

# In place of aiohttp's, which tells its own version and Python's.
_SERVER = {"Server": "fsxds"}
_JSON = {"Content-Type": "application/json", **_SERVER}
_GZIPPED = {"Content-Encoding": "gzip", **_JSON}
_NEVER = re.compile(r"q\s*=\s*0(\.0*)?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is answered with an error.

    Attributes:
        status: the HTTP status.
        code: the gRPC status code that a gateway would give.
        message: the fact and the remedy.
        headers: more headers.
    """

    status: int
    code: int
    message: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def refuse(refusal: Refusal) -> web.Response:
    """Make the answer of a refusal, as gateways to gRPC write it."""
    content = {"code": refusal.code, "message": refusal.message, "details": []}
    return web.Response(status=refusal.status, body=json.dumps(content).encode(), headers={**_JSON, **refusal.headers})


# Nobody reads it: aiohttp wants an answer from its handler, and finds that it cannot write it.
CLIENT_GONE = Refusal(499, 1, "the client went away")


def not_modified() -> web.Response:
    """Make the answer that there is nothing new; it has no body."""
    return web.Response(status=304, headers=_SERVER)


async def send(request: web.Request, payload: Payload) -> tuple[web.StreamResponse, bool]:
    """Answer with a body, compressed where the request asks for it, and write all of it before this returns.

    A client may go away at any byte of it, which is no error.

    Returns:
        The response, and whether all of it was handed over to a client that was still there then.
    """
    headers = _JSON
    accepted = request.headers.get("Accept-Encoding")
    if accepted is not None and takes_gzip(accepted):
        headers, payload = _GZIPPED, await payload.gzipped()
    try:
        response = await _write(request, headers, payload)
    except ConnectionError:
        return refuse(CLIENT_GONE), False
    transport = request.transport
    return response, transport is not None and not transport.is_closing()


async def _write(request: web.Request, headers: Mapping[str, str], payload: Payload) -> web.StreamResponse:
    """Write a whole response. Raises ConnectionError when its reader goes away."""
    if payload.size < LARGE_BODY_BYTES:
        small = web.Response(body=payload.body, headers=headers)
        await small.prepare(request)
        await small.write_eof()
        return small
    response = web.StreamResponse(headers=headers)
    response.content_length = payload.size
    await response.prepare(request)
    for piece in payload.pieces:
        view = memoryview(piece)
        for start in range(0, len(piece), SLICE_BYTES):
            await response.write(view[start : start + SLICE_BYTES])
    await response.write_eof()
    return response


def takes_gzip(accepted: str) -> bool:
    """Tell whether an Accept-Encoding names gzip, and not with a weight of zero."""
    for choice in accepted.lower().split(","):
        coding, _, weight = choice.partition(";")
        if coding.strip() in {"gzip", "x-gzip"}:
            return _NEVER.fullmatch(weight.strip()) is None
    return False
