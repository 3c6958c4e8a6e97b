"""The admin address: routing, access, parameters, JSON; closed to other origins' pages.

Rules: who may ask at the admin address.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from aiohttp import web

from fsxds.events.event import Observer
from fsxds.events.rollout_events import RolloutCommanded
from fsxds.model.errors import ProtocolError, UsageError
from fsxds.runtime.access import AccessInUse, Peer
from fsxds.settings.forms import Address, TcpAddress
from fsxds.transports.exchange import check_host, check_page, origin_of, peer_of_request
from fsxds.transports.rest.http_edge import WRONG_CONTENT, HttpEdge
from fsxds.transports.rest.poll_requests import is_json, read_body, strict_loads
from fsxds.transports.rest.poll_responses import JSON, ErrorResponse

# The longest value is a view's layers.
MOST_CHARACTERS = 4096
API = "/api"
# Stands for a path's last segment, as a parameter.
WORD = "N"

RequestParameters = Mapping[str, str]
"""The parameters of a GET, or the members of a POST's JSON object, as text.

Under `N` is the last segment of paths that end in `N`.
"""

Answer = Callable[[web.Request, RequestParameters], Awaitable[object]]
"""Returns a `web.StreamResponse`, or values to send as JSON. May raise ProtocolError."""


@dataclass(frozen=True, slots=True)
class AdminPath:
    """A path's handler. `is_open`: without authentication; reveals no configuration."""

    answer: Answer
    parameters: frozenset[str] = frozenset()
    is_open: bool = False


AdminPaths = Mapping[tuple[str, str], AdminPath]
"""Handlers by method (`GET` or `POST`) and path: `("GET", "/api/history/N")`. GET answers HEAD too."""


class AdminApi:
    """Answers requests at the admin address; an error of fsxds ends only its request.

    `address` is the configured one; without `access` all clients are allowed.
    """

    def __init__(
        self, paths: AdminPaths, address: Address, observer: Observer, access: AccessInUse | None = None
    ) -> None:
        self._paths = paths
        self._address = address
        self._observer = observer
        self._access = access or AccessInUse()
        # Some last as long as the client stays.
        self._open: list[tuple[web.Request, Peer]] = []
        self._edge = HttpEdge("admin", self._answer, observer)

    def application(self) -> web.Application:
        """Make the application, for `listening`."""
        application = self._edge.application()

        async def forget(_: web.Application) -> None:
            self._access.listeners.pop(self, None)

        self._access.listeners[self] = self._check_again
        application.on_shutdown.append(forget)
        return application

    def _check_again(self) -> None:
        for request, peer in tuple(self._open):
            try:
                self._access.current.check_admin(peer)
            except ProtocolError:
                if request.transport is not None:
                    request.transport.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method = "GET" if request.method == "HEAD" else request.method
        path, word = self._path_and_word(request)
        found = self._paths.get((method, path))
        may_be_linked = found is not None and found.is_open
        check_page(request.headers, own_origin=origin_of(request), may_be_linked=may_be_linked)
        if isinstance(self._address, TcpAddress):
            check_host(request.headers, self._address)
        peer = peer_of_request(request)
        if found is None or not found.is_open:
            self._access.current.check_admin(peer)
        if found is None:
            return self._edge.reject(request, self._nothing_at(path))
        if found.is_open:
            return await self._answer_at(found, request, word)
        held = request, peer
        self._open.append(held)
        try:
            return await self._answer_at(found, request, word)
        finally:
            # Equal requests compare equal.
            self._open = [each for each in self._open if each is not held]

    async def _answer_at(self, found: AdminPath, request: web.Request, word: str) -> web.StreamResponse:
        method = "POST" if request.method == "POST" else "GET"
        if method == "POST" and not is_json(request.headers.get("Content-Type")):
            return self._edge.reject(request, WRONG_CONTENT)
        words = _members(await read_body(request)) if method == "POST" else dict(request.query)
        for name in words:
            if name not in found.parameters:
                there = f"there is {', '.join(sorted(found.parameters))}" if found.parameters else "there is none here"
                raise ProtocolError(f"{name[:80]!r}: is no parameter of this path; {there}")
        content = await found.answer(request, {**words, WORD: word} if word else words)
        if method == "POST":
            self._observer(RolloutCommanded(request.path.removeprefix(f"{API}/"), words, request.remote or ""))
        if isinstance(content, web.StreamResponse):
            return content
        return web.Response(body=written(content) + b"\n", headers=JSON)

    def _path_and_word(self, request: web.Request) -> tuple[str, str]:
        folder, _, last = request.rel_url.raw_path.rpartition("/")
        pattern = f"{folder}/{WORD}"
        if last and ("GET", pattern) in self._paths and ("GET", request.path) not in self._paths:
            return pattern, unquote(last)
        return request.path, ""

    def _nothing_at(self, path: str) -> ErrorResponse:
        methods = [method for method, each in self._paths if each == path]
        if methods:
            allowed = ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
            return ErrorResponse(405, 12, f"this path takes {allowed} alone", {"Allow": allowed})
        all_paths = ", ".join(f"{method} {each}" for method, each in self._paths)
        return ErrorResponse(404, 5, f"there is nothing at this path; ask for one of {all_paths}")


def _members(body: bytes) -> RequestParameters:
    try:
        content = strict_loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the body is not JSON; send an object, `{}` at least") from error
    if not isinstance(content, dict):
        raise ProtocolError("the body is no object; send one, `{}` at least")
    for name, value in content.items():
        if not isinstance(value, str) and (isinstance(value, bool) or not isinstance(value, int)):
            raise ProtocolError(f"{name[:80]!r}: is neither a string nor a whole number; send one of them")
    words = {name: str(value) for name, value in content.items()}
    for name, word in words.items():
        if len(word) > MOST_CHARACTERS:
            raise ProtocolError(f"{name[:80]!r}: is over {MOST_CHARACTERS} characters")
    return words


Report = TypeVar("Report")


def report_of(form: type[Report], plain: object) -> Report:
    """Decode a report. Raises UsageError if another version of fsxds wrote it."""
    try:
        return cast("Report", _read(form, plain))
    except (LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            "the server writes its reports otherwise than this fsxds reads them; use its version"
        ) from error


def _read(form: Any, plain: Any) -> object:
    if is_dataclass(form) and isinstance(form, type):
        hints = get_type_hints(form)
        return form(**{each.name: _read(hints[each.name], plain[each.name]) for each in fields(form)})
    parts = get_args(form)
    if get_origin(form) is tuple:
        return tuple(_read(parts[0], each) for each in plain)
    if get_origin(form) is Mapping:
        return {name: _read(parts[1], each) for name, each in plain.items()}
    if parts:
        return None if plain is None else _read(parts[0], plain)
    if not isinstance(plain, (int, float) if form is float else form):
        raise TypeError(form)
    return plain


def written(content: object) -> bytes:
    """Encode values as JSON objects."""
    # `asdict` would copy all values.
    return json.dumps(
        content, default=lambda value: {each.name: getattr(value, each.name) for each in fields(value)}
    ).encode()
