"""GET over aiohttp: routing, and requests that wait for a change; `protocol.get` decides.

CORS is off unless origins are given, and never includes secrets.
Source: Fetch, "HTTP-network-or-cache fetch", "CORS protocol".

`openapi.json`, OpenAPI 3.1, describes paths, parameters, headers, statuses and bodies' form; resources' content is
Envoy's API, from `fsxds schema`. Without tokens and client certificates in the settings, clients need none.

Rules: how long a GET waits, and for which change; which resources pages of other origins may read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from string import Template
from typing import cast

from aiohttp import web

from fsxds import __version__
from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import dump
from fsxds.events.client_events import ResponseSent
from fsxds.events.event import Observer
from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import PlainValue
from fsxds.protocol.get import Absent, FoundList, FoundRedirect, FoundResource, find
from fsxds.protocol.poll import NOT_ANSWERED, Unavailable
from fsxds.protocol.subscription import Subscription
from fsxds.settings.forms import ANY_ORIGIN
from fsxds.transports.exchange import Exchange, Reader, Requester, peer_of_request
from fsxds.transports.http_get.get_requests import (
    JSON_CONTENT,
    GetRequest,
    Preconditions,
    Representation,
    chosen_coding,
    compressed,
    read_get,
    tags_of,
)
from fsxds.transports.http_get.get_responses import NO_STORE, GetResponses, GetRules, Selected, select_representation
from fsxds.transports.rest.application import REST, RestContext
from fsxds.transports.rest.http_edge import Handler, HttpRejection
from fsxds.transports.rest.poll_responses import ErrorResponse, Payload, write_response

METHODS = "GET, HEAD, OPTIONS"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Headers for pages, beside those that any page may use.
_REQUEST_HEADERS = "Accept, Authorization, If-Match, If-None-Match, Prefer"
_RESPONSE_HEADERS = "ETag, Location, Preference-Applied, Retry-After"
# In seconds; most browsers cache for at most two hours.
_MAX_AGE_S = "7200"
WRONG_METHOD_OF_RESOURCE = ErrorResponse(
    405, 12, "resources are read alone: GET or HEAD them; POST to /v3/discovery:… is for polls", {"Allow": METHODS}
)
FAILED_PRECONDITION = ErrorResponse(
    412, 9, "`if-match` names no current tag; GET the resource without it, and send the `etag` of the answer"
)


def join(context: RestContext, application: web.Application) -> None:
    """Add GET to a server: a row of `app.REST_PARTS`."""
    limiter = context.exchange.limiter
    get = HttpGet(context.exchange, context.catalogue, context.observer, lambda: GetRules.of(limiter.settings))
    get.documents.update({**documents(), **context.documents})
    get.join(application)


class HttpGet:
    """Answers GET, HEAD and OPTIONS; `documents` name no resource."""

    def __init__(
        self, exchange: Exchange, catalogue: Catalogue, observer: Observer, rules: Callable[[], GetRules] = GetRules
    ) -> None:
        self.documents: dict[str, Handler] = {}
        self.responses = GetResponses(catalogue, lambda: not exchange.access.current.is_for_everybody)
        self._exchange = exchange
        self._observer = observer
        self._rules = rules

    def join(self, application: web.Application) -> None:
        """Answer other requests than POST."""
        application[REST].elsewhere = self.answer
        application.on_response_prepare.append(self._add_cors_headers)

        async def close(_: web.Application) -> None:
            self.responses.contents.close()

        application.on_cleanup.append(close)

    async def _add_cors_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        headers = response.headers
        if request.method not in READING or headers.get("Cache-Control") == NO_STORE:
            return
        if response.status >= 400:
            # A corrected mistake must not persist in a cache.
            headers.setdefault("Cache-Control", "no-cache")
        origins = self._rules().cors_origins
        if not origins:
            return
        is_any = ANY_ORIGIN in origins
        if not is_any:
            headers["Vary"] = f"{headers['Vary']}, Origin" if "Vary" in headers else "Origin"
        origin = request.headers.get("Origin")
        if origin is None or not (is_any or origin in origins):
            return
        headers["Access-Control-Allow-Origin"] = ANY_ORIGIN if is_any else origin
        headers["Access-Control-Expose-Headers"] = _RESPONSE_HEADERS
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            headers["Access-Control-Allow-Methods"] = "GET, HEAD"
            headers["Access-Control-Allow-Headers"] = _REQUEST_HEADERS
            headers["Access-Control-Max-Age"] = _MAX_AGE_S

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer other requests than polls. Raises ProtocolError."""
        if request.method == "OPTIONS":
            return web.Response(status=204, headers={"Allow": METHODS})
        peer = peer_of_request(request)
        self._exchange.access.current.check_peer(peer)
        is_read = request.method in {"GET", "HEAD"}
        document = self.documents.get(request.path)
        if document is None:
            # Before the method: an unknown path is an error for any method.
            get = read_get(request, self._rules().authority, self._exchange.limiter.settings.max_hold_s)
            if is_read:
                return await self._answer(request, get)
        elif is_read:
            return await document(request)
        raise HttpRejection(WRONG_METHOD_OF_RESOURCE)

    async def _answer(self, request: web.Request, get: GetRequest) -> web.StreamResponse:
        row = get.target.row
        # The type is checked when a resource is found: everyone may know that there is none.
        requester = Requester(get.peer, get.node)
        reader = Reader(await self._exchange.channel_of(requester))
        with self._exchange.asking(
            requester if row is None else replace(requester, type_url=row.type_url, asked=get.target.asked)
        ):
            first = self._select(get, reader)
            selected = await self._hold(requester, get, reader, first) if _patience_s(get, first) else first
        response = await self._respond(request, get, selected)
        if response.status == 200:
            # Only a held request reports a change.
            detected_s = None if selected is first else reader.channel.detected_s
            match selected.found:
                case FoundResource(resource):
                    subscription = Subscription.for_request(resource.type_url, (resource.name,))
                    self._observer(ResponseSent(get.node, subscription, resource.version, detected_s))
                case FoundList(row, version=version):
                    self._observer(ResponseSent(get.node, Subscription(row.type_url), version, detected_s))
        return response

    def _select(self, get: GetRequest, reader: Reader) -> Selected:
        rules = self._rules()
        unanswered = self._exchange.channels.on_demand.unanswered
        found = find(get.target, self._exchange.snapshot_of(reader.channel), rules.urls, unanswered)
        if isinstance(found, FoundResource):
            self._exchange.access.current.check_type(get.peer, found.resource.type_url)
        selected = select_representation(found, get, rules)
        if get.preconditions.fails(selected.tag):
            raise HttpRejection(FAILED_PRECONDITION)
        return selected

    async def _hold(self, requester: Requester, get: GetRequest, reader: Reader, selected: Selected) -> Selected:
        exchange = self._exchange
        with exchange.limiter.holding(len(get.target.names)):
            since_s = now_s = asyncio.get_running_loop().time()
            while now_s < (deadline_s := since_s + _patience_s(get, selected)) and not exchange.is_draining:
                awaits_answers = selected.found is NOT_ANSWERED
                now_s = await exchange.wait_reading(requester, reader, deadline_s, awaits_answers=awaits_answers)
                selected = self._select(get, reader)
            return selected

    async def _respond(self, request: web.Request, get: GetRequest, selected: Selected) -> web.StreamResponse:
        found = selected.found
        if isinstance(found, Absent):
            raise ProtocolError(found.reason, "NOT_FOUND")
        if isinstance(found, Unavailable):
            raise HttpRejection(ErrorResponse(503, 14, found.reason, {"Retry-After": "1"}))
        if isinstance(found, FoundRedirect):
            return self.responses.redirection(get, selected, found)
        if get.preconditions.has(selected.tag):
            return self.responses.not_modified(get, selected)
        return await self.responses.send(request, get, selected)


def _patience_s(get: GetRequest, selected: Selected) -> float:
    """From its arrival; 0.0: not at all.

    Waits if the client has this content, if nothing is found and it has nothing, or if an upstream may have the resource.
    """
    if selected.found is NOT_ANSWERED:
        return get.on_demand_patience_s
    if isinstance(selected.found, Absent):
        is_held = get.preconditions.if_none_match is None
    else:
        is_held = isinstance(selected.found, Unavailable) or get.preconditions.has(selected.tag)
    return get.patience_s if is_held else 0.0


def documents() -> Mapping[str, Handler]:
    """Return documents' handlers, by path."""
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

    The file has placeholders `$version` and `$short_names`; a path with a `$` is repeated for each type.
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
                placeholders = {
                    "message_type": row.message_type,
                    "type_url": row.type_url,
                    "rest_path": row.rest_path or "",
                    "noun": row.noun,
                    # For the names of operations.
                    "Noun": "".join(part.capitalize() for part in row.noun.split("-")),
                    "fact": "The secret, with `Cache-Control: no-store`." if row.is_secret else "The resource.",
                }
                path_of_type, operations_of_type = json.loads(template.safe_substitute(placeholders))
                yield path_of_type, operations_of_type
