"""The JSON API at the admin address: which path answers, who may ask, and what is read of a request.

No page in a browser may drive it. Requests from pages of others have an `Origin` of theirs; a page whose name was made to
lead here (DNS rebinding) has that name in `Host`; and a form cannot send `content-type: application/json`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from fsxds.errors import ProtocolError
from fsxds.events import Observer, RolloutCommanded
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from fsxds.transports.admin.rollout_control import (
    DecisionReport,
    RolloutControl,
    StatusReport,
    snapshot_number,
)
from fsxds.transports.rest.http_edge import HttpEdge
from fsxds.transports.rest.poll_requests import is_json, read_body, strict_loads
from fsxds.transports.rest.poll_responses import JSON, ErrorResponse
from fsxds.values import Layers

FOREIGN = ErrorResponse(
    403,
    7,
    "a page of another origin may not ask here, nor a name that may have been made to lead here; ask from a program, "
    "by the IP address, or with the header `host: localhost`",
)
NO_JSON = ErrorResponse(415, 3, "the body is not declared as JSON; send it with `content-type: application/json`")

# What a request is about; without either it is about all.
_SCOPE = frozenset({"view", "node"})
LABEL_SEPARATOR = "+"
_MOST_NAMES = 20
# The layers of a view are the longest that is sent.
MOST_CHARACTERS = 4096

Words = Mapping[str, str]
"""What a request says: the parameters of a GET, or the members of the object that is the body of a POST, all as text."""

Answer = Callable[[Words], Awaitable[object]]
"""Answers a request with what is written as JSON. Raises ProtocolError where it cannot."""


class AdminApi:
    """Answers requests at the admin address. An error of fsxds ends one request alone.

    Args:
        control: drives the rollouts.
        address: where it listens, as it was configured.
        observer: receives what operators decided, and what was rejected.
    """

    def __init__(self, control: RolloutControl, address: Address, observer: Observer) -> None:
        self._control = control
        self._address = address
        self._observer = observer
        self._edge = HttpEdge("admin request", self._answer, observer)
        self._paths: Mapping[tuple[str, str], tuple[Answer, frozenset[str]]] = {
            ("GET", "/rollout"): (self._status, _SCOPE),
            ("POST", "/rollout/approve"): (self._approve, frozenset({"version"})),
            ("POST", "/rollout/promote"): (self._promote, frozenset()),
            ("POST", "/rollout/abort"): (self._abort, _SCOPE),
            ("GET", "/history"): (self._history, _SCOPE),
            ("GET", "/history/N"): (self._snapshot, frozenset()),
            ("POST", "/rollback"): (self._rollback, frozenset({"number"})),
            ("POST", "/resume"): (self._resume, _SCOPE),
        }

    def application(self) -> web.Application:
        """Make the application; run it with `listening`."""
        return self._edge.application()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not is_own(request, self._address):
            return self._edge.reject(request, FOREIGN)
        method = "GET" if request.method == "HEAD" else request.method
        path, number = _path_and_number(request.path)
        found = self._paths.get((method, path))
        if found is None:
            return self._edge.reject(request, self._nothing_at(path))
        if method == "POST" and not ("Content-Type" in request.headers and is_json(request.headers["Content-Type"])):
            return self._edge.reject(request, NO_JSON)
        answer, known = found
        words = _members(await read_body(request)) if method == "POST" else dict(request.query)
        _check_names(words, known)
        content = await answer({**words, "number": number} if number else words)
        if method == "POST":
            self._observer(RolloutCommanded(path.removeprefix("/"), words, request.remote or ""))
        return web.Response(body=_written(content), headers=JSON)

    def _nothing_at(self, path: str) -> ErrorResponse:
        methods = [method for method, each in self._paths if each == path]
        if methods:
            allowed = ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
            return ErrorResponse(405, 12, f"this path takes {allowed} alone", {"Allow": allowed})
        all_paths = ", ".join(f"{method} {each}" for method, each in self._paths)
        return ErrorResponse(404, 5, f"there is nothing at this path; ask for one of {all_paths}")

    async def _status(self, words: Words) -> object:
        scope, directory = self._scope(words), self._control.state_directory
        channels = (each for each in self._control.status() if scope is None or each.layers in scope)
        return StatusReport(tuple(channels), None if directory is None else str(directory))

    async def _approve(self, words: Words) -> object:
        version = words.get("version")
        if not version:
            raise ProtocolError("version: is missing; send the id that fsxds rollout status shows as held")
        if count := self._control.approve(version):
            return DecisionReport(count)
        held = sorted({each.held.version for each in self._control.status() if each.held})
        there = f"held are {', '.join(held)}" if held else "nothing is held"
        raise ProtocolError(f"{version}: no such version is held; {there}", "NOT_FOUND")

    async def _promote(self, _: Words) -> object:
        return _done(self._control.promote(), "nothing waits for a canary")

    async def _abort(self, words: Words) -> object:
        return _done(self._control.abort(self._scope(words)), "no rollout goes on")

    async def _resume(self, words: Words) -> object:
        return _done(self._control.resume(self._scope(words)), "nothing is rolled back: the tree is followed already")

    async def _history(self, words: Words) -> object:
        scope = self._scope(words)
        return {"snapshots": [each for each in await self._control.history() if scope is None or each.layers in scope]}

    async def _snapshot(self, words: Words) -> object:
        number = snapshot_number(words["number"])
        for snapshot in await self._control.history():
            if snapshot.number == number:
                return snapshot
        raise ProtocolError(f"@{number}: the history has no such snapshot; fsxds history lists them", "NOT_FOUND")

    async def _rollback(self, words: Words) -> object:
        number = snapshot_number(words.get("number", ""))
        return _done(await self._control.rollback(number), f"@{number} is of layers that no node has now")

    def _scope(self, words: Words) -> frozenset[Layers] | None:
        """Return the layers that a request names by `view` or `node`; None where it means all."""
        if (node := words.get("node")) is not None:
            layers = self._control.layers_of_node(node)
            if layers is None:
                raise ProtocolError(
                    f"node: no client with the id {node[:80]!r} is connected; name its view", "NOT_FOUND"
                )
            return frozenset((layers,))
        if (name := words.get("view")) is None:
            return None
        views = self._control.views()
        if found := frozenset(layers for view, layers in views if name in (view, label_of(layers))):
            return found
        there = _some_of(sorted({view or "the whole tree" for view, _ in views}))
        raise ProtocolError(f"view: there is no {name[:80]!r}; there is {there}", "NOT_FOUND")


def label_of(layers: Layers) -> str:
    """Return what stands for layers in a request: `common+edge`."""
    return LABEL_SEPARATOR.join(layers)


def is_own(request: web.Request, address: Address) -> bool:
    """Whether no page of another origin asks, as far as a browser lets it hide that."""
    if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        return False
    if "Origin" in request.headers and request.headers["Origin"] != f"{request.scheme}://{request.headers.get('Host')}":
        return False
    # A page cannot reach a unix socket.
    return isinstance(address, UnixAddress) or leads_here(request.headers.get("Host", ""), address)


def leads_here(written: str, address: TcpAddress) -> bool:
    """Whether a Host header is a name that nobody else can make lead here: any IP address is, whatever its port."""
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host in {"localhost", address.host.lower()}:
        return bool(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


def is_exposed(address: Address) -> bool:
    """Whether other machines can reach a bound address."""
    return isinstance(address, TcpAddress) and not ip_address(address.host.partition("%")[0]).is_loopback


def _path_and_number(path: str) -> tuple[str, str]:
    """Return a path with `N` in place of the number of a snapshot, and that number; empty where there is none."""
    folder, _, last = path.rpartition("/")
    return (f"{folder}/N", last) if folder == "/history" and last else (path, "")


def _members(body: bytes) -> Words:
    """Return the members of the object that a body is; numbers as text."""
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


def _check_names(words: Words, known: frozenset[str]) -> None:
    for name in words:
        if name not in known:
            there = f"there is {', '.join(sorted(known))}" if known else "there is none here"
            raise ProtocolError(f"{name[:80]!r}: is no parameter of this path; {there}")


def _some_of(names: list[str]) -> str:
    return f"{', '.join(names[:_MOST_NAMES])}{' and more' if len(names) > _MOST_NAMES else ''}"


def _done(count: int, otherwise: str) -> object:
    """Return how many channels an operator's word changed, which is a ProtocolError where it changed none."""
    if not count:
        raise ProtocolError(f"{otherwise}; fsxds rollout status shows what there is", "FAILED_PRECONDITION")
    return DecisionReport(count)


def _written(content: object) -> bytes:
    return json.dumps(content, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    """Return a value of `rollout_control` as an object of its fields."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(f"{type(value).__name__} is not written")
