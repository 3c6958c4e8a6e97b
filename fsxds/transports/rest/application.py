"""POST /v3/discovery:* over aiohttp: which path answers, error responses, and polls that are held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from aiohttp import HttpVersion11, web

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.errors import ProtocolError
from fsxds.events import InternalError, Observer, RequestRejected, ResponseSent, ack_or_nack
from fsxds.protocol.messages import Acknowledgement
from fsxds.protocol.poll import Decision, Hold, PollMemory, PollRequest, Send, Unavailable
from fsxds.protocol.subscription import Selection
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.transports.rest.http_server import Connection
from fsxds.transports.rest.poll_requests import (
    TOO_LARGE,
    TOO_SLOW,
    UNKNOWN_CODING,
    RestRequestReader,
    is_continue_expected,
    is_json,
    patience_of,
    read_body,
)
from fsxds.transports.rest.poll_responses import (
    CLIENT_GONE,
    ErrorResponse,
    ResponseBodies,
    error_response,
    not_modified,
    send,
)

DEADLINE_HEADER = "x-envoy-expected-rq-timeout-ms"
PREFIX = "/v3/discovery:"
ROWS = {PREFIX + row.rest_path: row for row in RESOURCE_TYPES if row.rest_path}

WRONG_METHOD = ErrorResponse(
    405, 12, "this path takes POST alone, with a request in JSON as its body", {"Allow": "POST"}
)
WRONG_CONTENT = ErrorResponse(415, 3, "the body is not declared as JSON; send it with `content-type: application/json`")
WRONG_EXPECTATION = ErrorResponse(417, 3, "the one expectation that can be met is `expect: 100-continue`")
# The HTTP status and the gRPC code of what is wrong with a body; all other mistakes are 400 and INVALID_ARGUMENT.
STATUSES = {TOO_LARGE: (413, 8), TOO_SLOW: (408, 4), UNKNOWN_CODING: (415, 3)}
FULL = ErrorResponse(
    503, 14, "too many connections for the limit of open files; close some and ask again", {"Retry-After": "5"}
)
STOPPING = ErrorResponse(503, 14, "the server stops; ask again", {"Retry-After": "1"})
INTERNAL = ErrorResponse(500, 13, "an internal error of fsxds; the server's log has its traceback")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a POST with a body of JSON. Raises ProtocolError where that cannot be read."""


class PollRegistry(Protocol):
    """What remembers polls for requests for the status of clients. Times are those of the event loop."""

    def poll_received(self, poll: PollRequest, snapshot: Snapshot | None, now_s: float) -> None:
        """A client polls."""

    def ack_received(self, poll: PollRequest, acknowledgement: Acknowledgement, now_s: float) -> None:
        """A poll ACKed or NACKed a version."""

    def response_sent(self, poll: PollRequest, selection: Selection, now_s: float) -> None:
        """A poll was answered."""

    def poll_ended(self, poll: PollRequest, now_s: float) -> None:
        """A poll that was held ended without an update."""


class HeldPolls:
    """Lets polls wait for a newer snapshot; all of them share one event, and each has a timer.

    Args:
        store: what is served.
        max_hold_s: returns the longest time that a poll is held.

    Attributes:
        is_draining: the server ends, and no poll is to be held.
    """

    def __init__(self, store: SnapshotStore, max_hold_s: Callable[[], float]) -> None:
        self.store = store
        self.max_hold_s = max_hold_s
        self.is_draining = False
        self._limits: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        """How many polls are held now."""
        return len(self._limits)

    async def wait(self, snapshot: Snapshot | None, until_s: float) -> float:
        """Wait for a newer snapshot, `until_s` or the end of the server, and return what time it is then."""
        try:
            async with asyncio.timeout_at(until_s) as limit:
                self._limits.add(limit)
                try:
                    await self.store.newer_than(0 if snapshot is None else snapshot.generation)
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if not self.is_draining:
                # Timers may fire a little early; at `until_s` it must be reached.
                return max(until_s, asyncio.get_running_loop().time())
        return asyncio.get_running_loop().time()

    def drain(self) -> None:
        """Let no poll wait any longer."""
        self.is_draining = True
        now_s = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now_s)


def make_application(rest: RestJson, extra: Mapping[str, Handler]) -> web.Application:
    """Make the application that answers polls, and requests for more paths.

    Run it with `server.listening`: handlers must be cancelled when their client goes. On its shutdown all held polls are
    answered at once.
    """
    rest.handlers.update(extra)
    application = web.Application()
    application[REST] = rest
    for path in (*rest.handlers, "/{path:.*}"):
        application.router.add_route("*", path, rest.answer, expect_handler=rest.check_expectation)

    async def drain(_: web.Application) -> None:
        rest.held.drain()

    application.on_shutdown.append(drain)
    return application


class RestJson:
    """Answers REST requests. What a poll is answered, and when, is decided in `protocol.poll`.

    An error of fsxds ends the request in which it happened alone.

    Args:
        held: has the polls that are held.
        catalogue: the API that resources and requests are of.
        observer: receives what happens to polls.
        polls: remembers polls.

    Attributes:
        held: the polls that are held.
        handlers: what answers each path.
    """

    def __init__(self, held: HeldPolls, catalogue: Catalogue, observer: Observer, polls: PollRegistry) -> None:
        self.held = held
        self.handlers: dict[str, Handler] = {path: partial(self._answer_poll, row) for path, row in ROWS.items()}
        self._observer = observer
        self._polls = polls
        self._memory = PollMemory()
        self._requests = RestRequestReader(catalogue)
        self._bodies = ResponseBodies(Printer(catalogue))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of any kind."""
        try:
            return await self._answer_any(request)
        except ProtocolError as error:
            return self._reject(request, ErrorResponse(*STATUSES.get(error.code, (400, 3)), str(error)))
        except ConnectionError:
            # The body was read and the response written in there, and no other connection: the client went away.
            return error_response(CLIENT_GONE)
        # The edge of every request: an error of fsxds ends this one alone.
        except Exception as error:  # noqa: BLE001
            self._observer(InternalError("REST request", error))
            return error_response(INTERNAL)

    async def check_expectation(self, request: web.Request) -> web.StreamResponse | None:
        """Reject an expectation that is unknown. `100-continue` is answered where the body is read, and only then."""
        is_known = request.version < HttpVersion11 or is_continue_expected(request)
        return None if is_known else self._reject(request, WRONG_EXPECTATION)

    async def _answer_any(self, request: web.Request) -> web.StreamResponse:
        if isinstance(request.protocol, Connection) and request.protocol.is_surplus:
            response = self._reject(request, FULL)
            response.force_close()
            return response
        handler = self.handlers.get(request.path)
        if handler is None:
            paths = ", ".join(self.handlers)
            fact = f"there is nothing at this path; POST to one of {paths}. VHDS and Delta have no REST form"
            return self._reject(request, ErrorResponse(404, 5, fact))
        if request.method != "POST":
            return self._reject(request, WRONG_METHOD)
        if not is_json(request.headers.get("Content-Type")):
            return self._reject(request, WRONG_CONTENT)
        return await handler(request)

    async def _answer_poll(self, row: ResourceType, request: web.Request) -> web.StreamResponse:
        poll, patience_s = await self._read(request, row)
        decision, snapshot = await self._decide(poll, patience_s)
        if isinstance(decision, Send) and snapshot is not None:
            return await self._send(request, poll, decision.selection, snapshot)
        if isinstance(decision, Unavailable):
            return self._reject(request, ErrorResponse(503, 14, decision.reason, {"Retry-After": "1"}))
        if not self.held.is_draining:
            return not_modified()
        last = error_response(STOPPING) if poll.version_info is None else not_modified()
        last.force_close()
        return last

    async def _read(self, request: web.Request, row: ResourceType) -> tuple[PollRequest, float]:
        """Return the poll, and for how many seconds it may be held. Raises ProtocolError.

        The body goes at the end of this: a poll that is held must not hold its 77 kB.
        """
        deadline = request.headers.get(DEADLINE_HEADER)
        timeout = request.query.get("timeout") if request.query_string else None
        patience_s = patience_of(deadline, timeout, self.held.max_hold_s())
        body = await read_body(request)
        return self._requests.read(body, row, request.remote or "", from_envoy=deadline is not None), patience_s

    async def _decide(self, poll: PollRequest, patience_s: float) -> tuple[Decision, Snapshot | None]:
        """Return how to answer, after waiting for it; Hold when there was no update until the deadline."""
        now_s = asyncio.get_running_loop().time()
        deadline_s = now_s + patience_s
        snapshot = self.held.store.current
        decision, acknowledgement = self._memory.receive_request(poll, snapshot, now_s)
        self._polls.poll_received(poll, snapshot, now_s)
        if acknowledgement is not None:
            self._polls.ack_received(poll, acknowledgement, now_s)
            self._observer(ack_or_nack(poll.node, poll.subscription, acknowledgement, snapshot))
        while isinstance(decision, Hold):
            if now_s >= deadline_s or self.held.is_draining:
                self._memory.receive_deadline(poll, now_s)
                self._polls.poll_ended(poll, now_s)
                break
            until_s = deadline_s if decision.until_s is None else min(decision.until_s, deadline_s)
            now_s = await self.held.wait(snapshot, until_s)
            snapshot = self.held.store.current
            decision = self._memory.receive_snapshot(poll, snapshot, now_s)
        return decision, snapshot

    async def _send(
        self, request: web.Request, poll: PollRequest, selection: Selection, snapshot: Snapshot
    ) -> web.StreamResponse:
        is_received = False
        try:
            payload = await self._bodies.payload_of(selection, snapshot, is_whole=poll.subscription.wildcard)
            response, is_received = await send(request, payload)
        finally:
            # Also when this is cancelled or fails: the next poll is no ACK or NACK of this version.
            if not is_received:
                self._memory.receive_lost(poll)
        if is_received:
            self._observer(ResponseSent(poll.node, poll.subscription, selection.version))
            self._polls.response_sent(poll, selection, asyncio.get_running_loop().time())
        return response

    def _reject(self, request: web.Request, error: ErrorResponse) -> web.Response:
        self._observer(RequestRejected(request.remote or "", error.status, error.message))
        response = error_response(error)
        if not request.content.is_eof():
            # The rest of its body is not read.
            response.force_close()
        return response


REST = web.AppKey("rest", RestJson)
