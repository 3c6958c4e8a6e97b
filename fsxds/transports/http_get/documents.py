"""Documents that are equal for all clients, with entity tags: the OpenAPI 3.1 description of the REST address.

`openapi.json` describes paths, parameters, headers, statuses and the form of bodies; the content of resources is
Envoy's API, which `fsxds schema` writes. Without tokens and client certificates in the settings, clients need none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import cast

from aiohttp import web

from fsxds import __version__
from fsxds.api.printing import dump
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.values import PlainValue
from fsxds.transports.http_get.get_requests import Preconditions, tags_of
from fsxds.transports.http_get.representations import JSON_CONTENT, Representation, chosen_coding, compressed
from fsxds.transports.rest.http_edge import Handler
from fsxds.transports.rest.poll_responses import Payload, write_response


def documents() -> Mapping[str, Handler]:
    """Return the handlers of documents, by path."""
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


# One entry per coding.
@cache
def _description(coding: str) -> tuple[str, bytes]:
    content = dump(openapi_document(__version__))
    return hashlib.sha256(content).hexdigest()[:32], compressed(content, coding)


OPENAPI_PATH = "/openapi.json"

Plain = dict[str, PlainValue]


def openapi_document(version: str) -> Plain:
    """Return this version's OpenAPI description.

    In the file, `$version` and `$short_names` are placeholders; a path with a `$` is repeated for each type.
    """
    text = (files("fsxds") / "transports" / "http_get" / "openapi.json").read_text(encoding="utf-8")
    short_names = '", "'.join(row.short_name for row in RESOURCE_TYPES)
    # `safe_substitute` keeps `$ref`.
    document: Plain = json.loads(Template(text).safe_substitute(version=version, short_names=short_names))
    document["paths"] = dict(_paths(cast("Plain", document["paths"])))
    return document


def _paths(written: Plain) -> Iterator[tuple[str, PlainValue]]:
    for path, operations in written.items():
        if "$" not in path:
            yield path, operations
            continue
        template = Template(json.dumps([path, operations]))
        for row in RESOURCE_TYPES:
            if row.rest_path is not None or "$rest_path" not in path:
                path_of_type, operations_of_type = json.loads(template.safe_substitute(_placeholders(row)))
                yield path_of_type, operations_of_type


def _placeholders(row: ResourceType) -> dict[str, str]:
    """`Noun` is for the names of operations."""
    return {
        "message_type": row.message_type,
        "type_url": row.type_url,
        "rest_path": row.rest_path or "",
        "noun": row.noun,
        "Noun": "".join(part.capitalize() for part in row.noun.split("-")),
        "fact": "The secret, with `Cache-Control: no-store`." if row.is_secret else "The resource.",
    }
