"""The admin paths of the whole server: status, clients, files, metrics, health, outline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import SyncState
from fsxds.rollout import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.transports.admin.admin_api import API, WORD, AdminPath, AdminPaths, RequestParameters
from fsxds.transports.admin.status_reports import DEFAULT_ROWS, MOST_ROWS, RowQuery, StatusFacts
from fsxds.transports.rest.poll_responses import JSON

FILE_STATES = ("good", "held", "broken")
_CLIENT_STATES = tuple(state.value for state in SyncState)
_ROWS = frozenset({"state", "search", "offset", "limit"})
_LARGEST = 10**9


class StatusPaths:
    """Answers requests about the whole server."""

    def __init__(self, facts: StatusFacts) -> None:
        self._facts = facts
        self.paths: AdminPaths = {
            ("GET", "/api/status"): AdminPath(self._status),
            ("GET", "/api/clients"): AdminPath(self._clients, _ROWS | {"view"}),
            ("GET", "/api/clients/N"): AdminPath(self._node),
            ("GET", "/api/files"): AdminPath(self._files, _ROWS),
        }

    async def _status(self, _request: web.Request, _words: RequestParameters) -> object:
        return await self._facts.report()

    async def _clients(self, _: web.Request, words: RequestParameters) -> object:
        return await self._facts.clients(query_of(words, _CLIENT_STATES))

    async def _node(self, _: web.Request, words: RequestParameters) -> object:
        return await self._facts.node(words[WORD])

    async def _files(self, _: web.Request, words: RequestParameters) -> object:
        return await self._facts.files(query_of(words, FILE_STATES))


def query_of(words: RequestParameters, states: tuple[str, ...]) -> RowQuery:
    """Parse a query. Raises ProtocolError."""
    state = words.get("state") or None
    if state is not None and state not in states:
        raise ProtocolError(f"state: {state[:80]!r} is not a state; give one of {', '.join(states)}")
    offset, limit = _number(words, "offset", 0), _number(words, "limit", DEFAULT_ROWS)
    return RowQuery(state, words.get("search", ""), words.get("view"), offset, min(limit, MOST_ROWS))


def _number(words: RequestParameters, name: str, default: int) -> int:
    written = words.get(name)
    if written is None:
        return default
    if not (written.isascii() and written.isdecimal() and len(written) <= len(str(_LARGEST))):
        raise ProtocolError(f"{name}: {written[:80]!r} is no whole number; give one from 0 on")
    return int(written)


def metrics_paths(registry: CollectorRegistry) -> AdminPaths:
    """Return the handler of `/metrics`: text or OpenMetrics."""
    scrape = make_aiohttp_handler(registry)

    async def answer(request: web.Request, _: RequestParameters) -> object:
        return await scrape(request)

    return {("GET", "/metrics"): AdminPath(answer)}


def health_paths(unready: Callable[[], str]) -> AdminPaths:
    """Return the health handlers; `unready` returns "" if clients are served."""

    async def live(_: web.Request, __: RequestParameters) -> object:
        return web.Response(text="ok\n")

    async def ready(_: web.Request, __: RequestParameters) -> object:
        reason = unready()
        return web.Response(status=503, text=f"not ready: {reason}\n") if reason else web.Response(text="ready\n")

    return {("GET", "/healthz"): AdminPath(live, is_open=True), ("GET", "/readyz"): AdminPath(ready, is_open=True)}


OUTLINE = f"{API}/outline"


class Outlined(Protocol):
    """Has outlines of the served snapshots."""

    def outlines(self) -> tuple[HoldingRules, Sequence[ServedOutline]]:
        """Return the views' outlines, and the rules for holding changes."""


def outline_paths(outlined: Outlined) -> AdminPaths:
    """Return the handler of the outline."""

    async def answer(_: web.Request, __: RequestParameters) -> object:
        rules, outlines = outlined.outlines()
        # Encoding a hundred thousand resources takes a second.
        return web.Response(body=await asyncio.to_thread(_written, rules, outlines), headers=JSON)

    return {("GET", OUTLINE): AdminPath(answer)}


def _written(rules: HoldingRules, outlines: Sequence[ServedOutline]) -> bytes:
    content = {
        "references": "hold" if rules.keeps_references else "warn",
        "max_removal": rules.max_removal,
        "approved": sorted(rules.approved),
        "views": [one.plain() for one in outlines],
    }
    return json.dumps(content).encode() + b"\n"
