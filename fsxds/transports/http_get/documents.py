"""Documents that are the same for all clients, each made once, with an entity tag and in the coding that a client takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

from aiohttp import web

from fsxds import __version__
from fsxds.api.printing import dump
from fsxds.transports.http_get.get_requests import Preconditions, tags_of
from fsxds.transports.http_get.openapi import OPENAPI_PATH, openapi_document
from fsxds.transports.http_get.representations import JSON_CONTENT, Representation, chosen_coding, compressed
from fsxds.transports.rest.http_edge import Handler
from fsxds.transports.rest.poll_responses import Payload, write_response


def documents() -> Mapping[str, Handler]:
    """Return what answers at the paths of documents."""
    return {OPENAPI_PATH: _answer_description}


async def _answer_description(request: web.Request) -> web.StreamResponse:
    coding = chosen_coding(request.headers.get("Accept-Encoding", ""))
    version, content = _description(coding)
    tag = Representation(JSON_CONTENT, coding).tag_of(version)
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    headers["X-Content-Type-Options"] = "nosniff"
    if Preconditions(tags_of(request, "If-None-Match", is_weak=True)).has(tag):
        return web.Response(status=304, headers=headers)
    if coding:
        headers["Content-Encoding"] = coding
    headers["Content-Type"] = JSON_CONTENT.content_type
    return await write_response(request, headers, Payload(content))


# One for each coding.
@cache
def _description(coding: str) -> tuple[str, bytes]:
    """Return the version and the content of the description in a coding."""
    content = dump(openapi_document(__version__))
    return hashlib.sha256(content).hexdigest()[:32], compressed(content, coding)
