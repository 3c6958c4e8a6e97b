"""The edge of HTTP requests: an error ends only its own request, with a JSON answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import HttpVersion11, web

from fsxds.events.client_events import LimitReached, RequestAnswered, RequestRejected
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.model.errors import FsxdsError, LimitError, ProtocolError
from fsxds.model.relay_ids import LoopError
from fsxds.transports.rest.http_server import Connection
from fsxds.transports.rest.poll_requests import (
    TOO_LARGE,
    TOO_SLOW,
    UNKNOWN_CODING,
    is_continue_expected,
)
from fsxds.transports.rest.poll_responses import CLIENT_GONE, INTERNAL, ErrorResponse, error_response

WRONG_FRAMING = ErrorResponse(
    400, 3, "transfer-encoding: `chunked` alone is known, over HTTP/1.1; send that, or a content-length"
)
WRONG_CONTENT = ErrorResponse(415, 3, "the body is not declared as JSON; send it with `content-type: application/json`")
WRONG_EXPECTATION = ErrorResponse(417, 3, "the only supported expectation is `expect: 100-continue`")
# HTTP status and gRPC code by error code; any other code is 400 and INVALID_ARGUMENT.
STATUSES = {
    TOO_LARGE: (413, 8),
    TOO_SLOW: (408, 4),
    UNKNOWN_CODING: (415, 3),
    "NOT_FOUND": (404, 5),
    "FAILED_PRECONDITION": (409, 9),
    "UNAVAILABLE": (503, 14),
    "PERMISSION_DENIED": (403, 7),
    "UNAUTHENTICATED": (401, 16),
}
# Soon for a fast peer, later if other clients have to leave first.
_AGAIN = {"max-requests-per-peer": (429, "1")}
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request. Raises ProtocolError for a mistake of the client.
"""


class HttpRejection(FsxdsError):  # noqa: N818 - it says what becomes of the request
    """An HTTP error outside of the protocol."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__(response.message)
        self.response = response


class HttpEdge:
    """Passes requests to a handler, and turns its errors into responses.

    Args:
        name: for the log, such as `REST`.
        admit: gets each peer's address first; its LimitError rejects the request.
    """

    def __init__(
        self, name: str, handler: Handler, observer: Observer, admit: Callable[[str], object] = lambda _: None
    ) -> None:
        self._name = name
        self._handler = handler
        self._observer = observer
        self._admit = admit

    def application(self, paths: Iterable[str] = ()) -> web.Application:
        """Make the application, for `listening`, routing frequent `paths` first."""
        application = web.Application(middlewares=(self._answer_elsewhere,))
        # A dot does not match a line feed, which a path may have.
        for path in (*paths, r"/{path:[\s\S]*}"):
            application.router.add_route("*", path, self.answer, expect_handler=self._check_expectation)
        return application

    @web.middleware
    async def _answer_elsewhere(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """For requests without a path, such as `OPTIONS *`, which aiohttp would answer."""
        return await (handler(request) if request.match_info.http_exception is None else self.answer(request))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        return self._count(request, await self._answer(request))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            if isinstance(request.protocol, Connection) and (fact := request.protocol.surplus):
                self._observer(LimitReached("max-connections", request.remote or ""))
                response = self.reject(request, ErrorResponse(503, 14, fact, {"Retry-After": "5"}))
                response.force_close()
                return response
            if not _is_framed(request):
                response = self.reject(request, WRONG_FRAMING)
                # Another parser may see the end of the body elsewhere.
                response.force_close()
                return response
            self._admit(request.remote or "")
            return await self._handler(request)
        except (ProtocolError, HttpRejection) as error:
            return self._reject_client(request, error)
        except ConnectionError:
            # Reading or writing failed: the client went away.
            return error_response(CLIENT_GONE)
        # An error of fsxds ends only this request.
        except Exception as error:  # noqa: BLE001
            self._observer(InternalError(f"{self._name} request", error))
            return error_response(INTERNAL)

    def _reject_client(self, request: web.Request, error: ProtocolError | HttpRejection) -> web.Response:
        if isinstance(error, HttpRejection):
            return self.reject(request, error.response)
        if isinstance(error, LimitError):
            status, after_s = _AGAIN.get(error.limit, (503, "5"))
            self._observer(LimitReached(error.limit, request.remote or ""))
            return self.reject(request, ErrorResponse(status, 8, str(error), {"Retry-After": after_s}))
        if error.code == TOO_LARGE:
            self._observer(LimitReached("max-body", request.remote or ""))
        status, code = (508, 9) if isinstance(error, LoopError) else STATUSES.get(error.code, (400, 3))
        return self.reject(request, ErrorResponse(status, code, str(error), _HEADERS.get(status, {})), error.subject)

    def reject(self, request: web.Request, error: ErrorResponse, subject: str = "") -> web.Response:
        """Report and answer a rejection."""
        self._observer(RequestRejected(request.remote or "", error.status, error.message, subject))
        response = error_response(error)
        if not request.content.is_eof():
            # The rest of the body stays unread.
            response.force_close()
        return response

    async def _check_expectation(self, request: web.Request) -> web.StreamResponse | None:
        """`100-continue` is answered only when the body is read."""
        is_known = request.version < HttpVersion11 or is_continue_expected(request)
        return None if is_known else self._count(request, self.reject(request, WRONG_EXPECTATION))

    def _count(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        self._observer(RequestAnswered(self._name, response.status, request.remote or ""))
        return response


def _is_framed(request: web.Request) -> bool:
    """Whether all parsers agree on its end (RFC 9112, section 6.1); aiohttp allows any white space."""
    if "Transfer-Encoding" not in request.headers:
        return True
    codings = [value for name, value in request.raw_headers if name.lower() == b"transfer-encoding"]
    is_chunked = [coding.strip(b" \t").lower() for coding in codings] == [b"chunked"]
    return is_chunked and request.version >= HttpVersion11
