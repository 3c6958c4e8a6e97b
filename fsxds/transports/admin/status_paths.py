"""The admin paths: status, clients, files, metrics, health, outline, rollouts, history, operators' decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from fsxds.model.errors import ProtocolError
from fsxds.model.values import Layers
from fsxds.protocol.messages import SyncState
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.transports.admin.admin_api import API, WORD, AdminPath, AdminPaths, Answer, RequestParameters
from fsxds.transports.admin.admin_reports import (
    DEFAULT_ROWS,
    MOST_ROWS,
    Action,
    DecisionReport,
    OperatorDecision,
    RetryReport,
    RolloutControl,
    RowQuery,
    StatusFacts,
    StatusReport,
    no_snapshot,
    snapshot_number,
    unix_time,
)
from fsxds.transports.rest.poll_responses import JSON

FILE_STATES = ("good", "held", "broken")
_CLIENT_STATES = tuple(state.value for state in SyncState)
_ROWS = frozenset({"state", "search", "offset", "limit"})
_LARGEST = 10**9


def status_paths(facts: StatusFacts) -> AdminPaths:
    """Return the handlers of the whole server's status."""
    return {
        ("GET", "/api/status"): AdminPath(lambda *_: facts.report()),
        ("GET", "/api/clients"): AdminPath(
            lambda _, words: facts.clients(query_of(words, _CLIENT_STATES)), _ROWS | {"view"}
        ),
        ("GET", "/api/clients/N"): AdminPath(lambda _, words: facts.node(words[WORD])),
        ("GET", "/api/files"): AdminPath(lambda _, words: facts.files(query_of(words, FILE_STATES)), _ROWS),
    }


def query_of(words: RequestParameters, states: tuple[str, ...]) -> RowQuery:
    """Parse a query. Raises ProtocolError."""
    state = words.get("state") or None
    if state is not None and state not in states:
        raise ProtocolError(f"state: {state[:80]!r} is not a state; give one of {', '.join(states)}")
    offset, limit = number_in(words, "offset", 0), number_in(words, "limit", DEFAULT_ROWS)
    return RowQuery(state, words.get("search", ""), words.get("view"), offset, min(limit, MOST_ROWS))


def number_in(words: RequestParameters, name: str, default: int) -> int:
    """Return a parameter's number from 0 on. Raises ProtocolError."""
    written = words.get(name)
    if written is None:
        return default
    if not (written.isascii() and written.isdecimal() and len(written) <= len(str(_LARGEST))):
        raise ProtocolError(f"{name}: {written[:80]!r} is no whole number; give one from 0 on")
    return int(written)


def metrics_paths(registry: CollectorRegistry) -> AdminPaths:
    """Return the handler of `/metrics`, text or OpenMetrics."""
    scrape = make_aiohttp_handler(registry)

    async def answer(request: web.Request, _: RequestParameters) -> object:
        return await scrape(request)

    return {("GET", "/metrics"): AdminPath(answer)}


def health_paths(unready: Callable[[], str]) -> AdminPaths:
    """Return health handlers; `unready` returns "" if clients are served."""

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
        """Return views' outlines, and the rules for holding changes."""


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


# A request without either means all views.
_SCOPE = frozenset({"view", "node"})
_MOST_NAMES = 20


class RolloutPaths:
    """Answers requests about rollouts."""

    def __init__(self, control: RolloutControl) -> None:
        self._control = control

    @property
    def paths(self) -> AdminPaths:
        """Each path's handler."""
        return {
            ("GET", f"{API}/rollout"): AdminPath(self._status, _SCOPE),
            ("POST", f"{API}/rollout/approve"): AdminPath(self._approve, frozenset({"id"})),
            ("POST", f"{API}/rollout/promote"): AdminPath(self._decide(Action.PROMOTE, "no change waits for a canary")),
            ("POST", f"{API}/rollout/abort"): AdminPath(self._decide(Action.ABORT, "no rollout goes on"), _SCOPE),
            ("POST", f"{API}/rollout/retry"): AdminPath(self._retry, frozenset({"name"})),
            ("GET", f"{API}/history"): AdminPath(self._history, _SCOPE),
            ("GET", f"{API}/history/{WORD}"): AdminPath(self._snapshot),
            ("POST", f"{API}/rollback"): AdminPath(self._rollback, frozenset({"number", "time"})),
            ("POST", f"{API}/resume"): AdminPath(
                self._decide(Action.RESUME, "no resource is rolled back: all follow the tree already"), _SCOPE
            ),
        }

    async def _status(self, _: web.Request, words: RequestParameters) -> object:
        scope, directory = self._scope(words), self._control.state_directory
        channels = (each for each in await self._control.channels() if scope is None or each.layers in scope)
        return StatusReport(tuple(channels), None if directory is None else str(directory))

    async def _approve(self, _: web.Request, words: RequestParameters) -> object:
        approval_id = words.get("id")
        if not approval_id:
            raise ProtocolError("id: is missing; send the id that fsxds rollout status shows")
        if count := await self._control.decide(OperatorDecision(Action.APPROVE, approval_id)):
            return DecisionReport(count)
        waiting = sorted({each.approval.id for each in await self._control.channels() if each.approval})
        there = f"the waiting ones are {', '.join(waiting)}" if waiting else "no removal is waiting"
        raise ProtocolError(f"{approval_id}: no such removal waits for approval; {there}", "NOT_FOUND")

    async def _retry(self, _: web.Request, words: RequestParameters) -> object:
        name = words.get("name")
        if count := await self._control.decide(OperatorDecision(Action.RETRY, name)):
            return RetryReport(count)
        fact = "no node rejects a resource" if name is None else f"no node rejects a resource {name[:80]!r}"
        raise ProtocolError(f"{fact}; fsxds rollout status shows rejected resources", "FAILED_PRECONDITION")

    def _decide(self, action: Action, otherwise: str) -> Answer:
        async def answer(_: web.Request, words: RequestParameters) -> object:
            return _done(await self._control.decide(OperatorDecision(action, layers=self._scope(words))), otherwise)

        return answer

    async def _history(self, _: web.Request, words: RequestParameters) -> object:
        scope = self._scope(words)
        return {"snapshots": [each for each in await self._control.history() if scope is None or each.layers in scope]}

    async def _snapshot(self, _: web.Request, words: RequestParameters) -> object:
        number = snapshot_number(words[WORD])
        for snapshot in await self._control.history():
            if snapshot.number == number:
                return snapshot
        raise no_snapshot(number)

    async def _rollback(self, _: web.Request, words: RequestParameters) -> object:
        if (time := words.get("time")) is not None:
            decision = OperatorDecision(Action.ROLLBACK, time_s=unix_time(time))
            return _done(await self._control.decide(decision), "the content of that time is served already")
        number = snapshot_number(words.get("number", ""))
        return _done(
            await self._control.decide(OperatorDecision(Action.ROLLBACK, number=number)),
            f"@{number} is of layers that no node has now, or equals the tree",
        )

    def _scope(self, words: RequestParameters) -> tuple[Layers, ...] | None:
        if (node := words.get("node")) is not None:
            layers = self._control.layers_of_node(node)
            if layers is None:
                raise ProtocolError(
                    f"node: no client with the id {node[:80]!r} is connected; name its view", "NOT_FOUND"
                )
            return (layers,)
        if (name := words.get("view")) is None:
            return None
        views = self._control.views()
        if found := tuple({layers for view, layers in views if is_called(name, view, layers)}):
            return found
        names = sorted({view or "the whole tree" for view, _ in views})
        there = f"{', '.join(names[:_MOST_NAMES])}{' and more' if len(names) > _MOST_NAMES else ''}"
        raise ProtocolError(f"view: there is no {name[:80]!r}; there is {there}", "NOT_FOUND")


def is_called(name: str, view: str, layers: Layers) -> bool:
    """Whether a name, or layers such as `common+edge`, mean a view."""
    return name in (view, "+".join(layers))


def _done(count: int, otherwise: str) -> object:
    if not count:
        raise ProtocolError(f"{otherwise}; fsxds rollout status shows the present state", "FAILED_PRECONDITION")
    return DecisionReport(count)
