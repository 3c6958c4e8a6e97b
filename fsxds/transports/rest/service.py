"""POST /v3/discovery:* with long polling, over aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import HttpVersion11, web

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.errors import ProtocolError
from fsxds.events import AckReceived, InternalError, NackReceived, Observer, RequestRejected, ResponseSent
from fsxds.observe.clients import ReportedPolls
from fsxds.protocol.messages import Acknowledgement
from fsxds.protocol.poll import Hold, PollMemory, PollRequest, Send, Unavailable
from fsxds.protocol.subscription import Selection, files_of
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.transports.client_status.service import CLIENT_STATUS_PATH, ClientReports, answer_client_status
from fsxds.transports.rest.requests import (
    TOO_LARGE,
    TOO_SLOW,
    UNKNOWN_CODING,
    RequestReader,
    is_continue_expected,
    is_json,
    patience_of,
    read_body,
)
from fsxds.transports.rest.responses import CLIENT_GONE, Refusal, ResponseBodies, not_modified, refuse, send
from fsxds.transports.rest.server import Connection

DEADLINE_HEADER = "x-envoy-expected-rq-timeout-ms"
PREFIX = "/v3/discovery:"
ROWS = {PREFIX + row.rest_path: row for row in RESOURCE_TYPES if row.rest_path}

UNKNOWN_PATH = Refusal(
    404,
    5,
    f"there is nothing at this path; POST to one of {', '.join((*ROWS, CLIENT_STATUS_PATH))}. VHDS and Delta have no REST form",
)
WRONG_METHOD = Refusal(405, 12, "this path takes POST alone, with a request in JSON as its body", {"Allow": "POST"})
WRONG_CONTENT = Refusal(415, 3, "the body is not said to be JSON; send it with `content-type: application/json`")
WRONG_EXPECTATION = Refusal(417, 3, "the one expectation that can be met is `expect: 100-continue`")
# The HTTP status and the gRPC code of what is wrong with a body; all other mistakes are 400 and INVALID_ARGUMENT.
STATUSES = {TOO_LARGE: (413, 8), TOO_SLOW: (408, 4), UNKNOWN_CODING: (415, 3)}
FULL = Refusal(
    503, 14, "too many connections for the limit of open files; close some and ask again", {"Retry-After": "5"}
)
STOPPING = Refusal(503, 14, "the server stops; ask again", {"Retry-After": "1"})
INTERNAL = Refusal(500, 13, "an internal error of fsxds; it is told in the server's log")


@dataclass(frozen=True, slots=True)
class Audience:
    """Who hears of polls: `observer` as they happen, and who asks later, from `reports`."""

    observer: Observer
    reports: ClientReports

    @property
    def polls(self) -> ReportedPolls:
        """What remembers polls for those who ask."""
        return self.reports.clients.polls


def make_application(
    store: SnapshotStore,
    catalogue: Catalogue,
    observer: Observer,
    reports: ClientReports,
    *,
    max_hold_s: Callable[[], float],
) -> web.Application:
    """Make the application that answers polls from `store`.

    Run it with `serving.listening`: handlers must be cancelled when their client goes. On its shutdown all held polls are
    answered at once. An error of fsxds ends the request in which it happened alone, and goes to the observer.

    Args:
        store: what is served.
        catalogue: the API that resources and requests are of.
        observer: hears of polls.
        reports: remembers polls, and answers those who ask for the status of clients.
        max_hold_s: returns the longest time that a poll is held.
    """
    rest = RestJson(store, catalogue, Audience(observer, reports), max_hold_s)
    application = web.Application()
    application[REST] = rest
    for path in (*ROWS, CLIENT_STATUS_PATH):
        application.router.add_route("*", path, rest.answer, expect_handler=rest.check_expectation)
    application.router.add_route("*", "/{path:.*}", rest.answer, expect_handler=rest.check_expectation)

    async def drain(_: web.Application) -> None:
        rest.drain()

    application.on_shutdown.append(drain)
    return application


class RestJson:
    """Answers polls. What a poll is told, and when, is decided in `protocol.poll`."""

    def __init__(
        self, store: SnapshotStore, catalogue: Catalogue, audience: Audience, max_hold_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._observer = audience.observer
        self._reports = audience.reports
        self._polls = audience.polls
        self._max_hold_s = max_hold_s
        self._memory = PollMemory()
        self._requests = RequestReader(catalogue)
        self._bodies = ResponseBodies(Printer(catalogue))
        # The time limits of the polls that are held.
        self._held: set[asyncio.Timeout] = set()
        self._is_draining = False

    @property
    def held(self) -> int:
        """How many polls are held now."""
        return len(self._held)

    def drain(self) -> None:
        """Answer all held polls now, and hold no more."""
        self._is_draining = True
        now_s = asyncio.get_running_loop().time()
        for limit in self._held:
            limit.reschedule(now_s)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of any kind."""
        try:
            if isinstance(request.protocol, Connection) and request.protocol.is_surplus:
                response = self._refuse(request, FULL)
                response.force_close()
                return response
            row = ROWS.get(request.path)
            if row is None and request.path != CLIENT_STATUS_PATH:
                return self._refuse(request, UNKNOWN_PATH)
            return await self._answer_path(request, row)
        except ConnectionError:
            # Its body is read and its answer written in here, and no other connection: the client went away.
            return refuse(CLIENT_GONE)
        # The edge of every request: an error of ours ends this one alone.
        except Exception as error:  # noqa: BLE001
            self._observer(InternalError("REST request", error))
            return refuse(INTERNAL)

    async def check_expectation(self, request: web.Request) -> web.StreamResponse | None:
        """Refuse an expectation that is unknown. `100-continue` is answered where the body is read, and only then."""
        is_known = request.version < HttpVersion11 or is_continue_expected(request)
        return None if is_known else self._refuse(request, WRONG_EXPECTATION)

    async def _answer_path(self, request: web.Request, row: ResourceType | None) -> web.StreamResponse:
        """Answer a request for resources of a type, or for the status of clients where there is none."""
        if request.method != "POST":
            return self._refuse(request, WRONG_METHOD)
        if not is_json(request.headers.get("Content-Type")):
            return self._refuse(request, WRONG_CONTENT)
        try:
            if row is None:
                return await answer_client_status(request, self._reports)
            poll, patience_s = await self._read(request, row)
        except ProtocolError as error:
            return self._refuse(request, Refusal(*STATUSES.get(error.code, (400, 3)), str(error)))
        return await self._answer_poll(request, poll, patience_s)

    async def _read(self, request: web.Request, row: ResourceType) -> tuple[PollRequest, float]:
        """Return the poll, and for how many seconds it may be held. Raises ProtocolError.

        The body is let go of here: a poll that is held must not hold its 77 kB.
        """
        deadline = request.headers.get(DEADLINE_HEADER)
        timeout = request.query.get("timeout") if request.query_string else None
        patience_s = patience_of(deadline, timeout, self._max_hold_s())
        body = await read_body(request)
        return self._requests.read(body, row, request.remote or "", from_envoy=deadline is not None), patience_s

    async def _answer_poll(self, request: web.Request, poll: PollRequest, patience_s: float) -> web.StreamResponse:
        decision, snapshot = await self._decide(poll, patience_s)
        if isinstance(decision, Send) and snapshot is not None:
            return await self._send(request, poll, decision.selection, snapshot)
        if isinstance(decision, Unavailable):
            return self._refuse(request, Refusal(503, 14, decision.reason, {"Retry-After": "1"}))
        if not self._is_draining:
            return not_modified()
        last = refuse(STOPPING) if poll.version_info is None else not_modified()
        last.force_close()
        return last

    async def _send(
        self, request: web.Request, poll: PollRequest, selection: Selection, snapshot: Snapshot
    ) -> web.StreamResponse:
        is_through = False
        try:
            payload = await self._bodies.payload_of(selection, snapshot, is_whole=poll.subscription.wildcard)
            response, is_through = await send(request, payload)
        finally:
            # Also when this is cancelled or fails: what the client holds next says nothing of what it thinks of the version.
            if not is_through:
                self._memory.receive_lost(poll)
        if is_through:
            self._observer(ResponseSent(poll.node, poll.subscription, selection.version))
            self._polls.response_sent(poll, selection, asyncio.get_running_loop().time())
        return response

    async def _decide(self, poll: PollRequest, patience_s: float) -> tuple[Send | Hold | Unavailable, Snapshot | None]:
        """Return what to say, after waiting for it; Hold when there was nothing until the deadline."""
        now_s = asyncio.get_running_loop().time()
        deadline_s = now_s + patience_s
        snapshot = self._store.current
        decision, verdict = self._memory.receive_request(poll, snapshot, now_s)
        self._polls.poll_received(poll, snapshot, now_s)
        if verdict is not None:
            self._polls.verdict_received(poll, verdict, now_s)
            self._tell(poll, verdict, snapshot)
        while isinstance(decision, Hold):
            if now_s >= deadline_s or self._is_draining:
                self._memory.receive_deadline(poll, now_s)
                self._polls.nothing_new(poll, now_s)
                break
            look_at_s = deadline_s if decision.until_s is None else min(decision.until_s, deadline_s)
            now_s = await self._wait(snapshot, look_at_s)
            snapshot = self._store.current
            decision = self._memory.receive_snapshot(poll, snapshot, now_s)
        return decision, snapshot

    async def _wait(self, snapshot: Snapshot | None, until_s: float) -> float:
        """Wait for a newer snapshot, `until_s` or the end of the server, and return what time it is then.

        All that wait share one event; each has a timer.
        """
        try:
            async with asyncio.timeout_at(until_s) as limit:
                self._held.add(limit)
                try:
                    await self._store.newer_than(0 if snapshot is None else snapshot.generation)
                finally:
                    self._held.discard(limit)
        except TimeoutError:
            if not self._is_draining:
                # Timers may fire a hair early; whoever asked for `until_s` is to find it reached.
                return max(until_s, asyncio.get_running_loop().time())
        return asyncio.get_running_loop().time()

    def _tell(self, poll: PollRequest, verdict: Acknowledgement, snapshot: Snapshot | None) -> None:
        if verdict.accepted:
            self._observer(AckReceived(poll.node, poll.subscription, verdict.version))
        else:
            files = () if snapshot is None else files_of(poll.subscription, verdict.version, snapshot)
            self._observer(NackReceived(poll.node, poll.subscription, verdict, files))

    def _refuse(self, request: web.Request, refusal: Refusal) -> web.Response:
        self._observer(RequestRejected(request.remote or "", refusal.status, refusal.message))
        response = refuse(refusal)
        if not request.content.is_eof():
            # What is still to come of its body is not read.
            response.force_close()
        return response


REST = web.AppKey("rest", RestJson)
