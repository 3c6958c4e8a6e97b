"""Client status (CSDS): resources that each client was sent, ACKed and NACKed.

Source: envoy/service/status/v3/csds.proto.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import grpc
from aiohttp import web
from envoy.service.status.v3 import csds_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import ClientStatus, Node, OwnStatus
from fsxds.runtime.access import AccessInUse
from fsxds.transports.client_status.contents import Contents, Form, JsonForm, WireForm, node_filter, resource_statuses
from fsxds.transports.exchange import Clients, ExtraServices, ServiceContext, peer_of_call, peer_of_request
from fsxds.transports.rest.http_edge import Handler
from fsxds.transports.rest.poll_requests import read_body
from fsxds.transports.rest.poll_responses import LARGE_RESOURCE_BYTES, Payload, send

CLIENT_STATUS_PATH = "/v3/discovery:client_status"
CLIENT_STATUS_SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"

# A thousand clients with ten thousand resources each make gigabytes.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
# Of all clients; counting is far faster than writing.
MOST_ROWS = 400_000
# Takes some 10 ms to parse.
MOST_REQUEST_BYTES = 64 * 1024
# A thread would take longer: it releases Python's lock after 5 ms, and the loop needs the lock again after each look at
# a socket.
SLICE_S = 0.002
# Larger pieces are joined in a thread, as joining them releases the lock.
PIECE_BYTES = 1024 * 1024

_NO_REQUEST = "the body is no ClientStatusRequest in JSON; send `{}` at least"


@dataclass(slots=True)
class _Request:
    """A request that one or more clients wait for.

    `made_for`: requests received before the answer was begun; all may have it. `answer` None: too large.
    """

    waiting: int = 0
    made_for: int = 0
    answer: Payload | None = None


class ClientReports:
    """Answers requests for clients' status.

    One large answer at a time, in time slices. Equal waiting requests share one; abandoned ones get none. `made` counts
    begun answers.
    """

    def __init__(self, clients: Clients, catalogue: Catalogue, own: Callable[[], Iterable[OwnStatus]] = tuple) -> None:
        """`own`: this process as an upstream client."""
        self.made = 0
        self._own = own
        self._clients = clients
        self._contents = Contents(catalogue)
        self._wire, self._json = WireForm(self._contents), JsonForm(self._contents)
        self._one_at_a_time = asyncio.Lock()
        self._received = 0
        self._requests: dict[tuple[Form, bytes], _Request] = {}

    async def answer(self, request: bytes) -> bytes:
        """Answer a serialized ClientStatusRequest.

        Raises:
            ProtocolError: malformed; or it or the answer is too large (`RESOURCE_EXHAUSTED`).
        """
        _check_size(request)
        try:
            message = csds_pb2.ClientStatusRequest.FromString(request)
        except DecodeError as error:
            raise ProtocolError("the message is no ClientStatusRequest; send one in protobuf's wire format") from error
        return (await self._answer(message, self._wire)).body

    async def answer_json(self, request: bytes) -> Payload:
        """Answer in proto JSON with snake_case names. Raises as `answer`."""
        _check_size(request)
        return await self._answer(_parse_json(request), self._json)

    async def _answer(self, request: csds_pb2.ClientStatusRequest, form: Form) -> Payload:
        wants = node_filter(request.node_matchers)
        key = form, request.SerializeToString(deterministic=True)
        shared = self._requests.setdefault(key, _Request())
        shared.waiting += 1
        self._received += 1
        number = self._received
        try:
            async with self._one_at_a_time:
                if number > shared.made_for:
                    begun_at, shared.made_for, shared.answer = self._received, 0, None
                    shared.answer = await self._make(wants, form, with_contents=not request.exclude_resource_contents)
                    shared.made_for = begun_at
                answer = shared.answer
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                del self._requests[key]
        if answer is None:
            message = (
                f"the answer would be over {MOST_ANSWER_BYTES} bytes, or have over {MOST_ROWS} resources; "
                "ask for fewer clients with node_matchers, or set exclude_resource_contents"
            )
            raise ProtocolError(message, "RESOURCE_EXHAUSTED")
        return answer

    async def _make(self, wants: Callable[[Node], bool], form: Form, *, with_contents: bool) -> Payload | None:
        self.made += 1
        self._contents.turn(with_contents=with_contents)
        answer = _Answer(form, with_contents=with_contents)
        # To reject a too large request at once.
        for take in (answer.count, answer.add):
            found: Iterator[ClientStatus | OwnStatus] = chain(self._own(), self._clients.statuses())
            for status in found:
                if wants(status.node):
                    await take(status)
                if answer.is_too_large:
                    return None
                await answer.pause()
        return await form.payload(answer.pieces())


class _Answer:
    def __init__(self, form: Form, *, with_contents: bool) -> None:
        self._rows_left, self._bytes_left = MOST_ROWS, MOST_ANSWER_BYTES
        self._form, self._with_contents = form, with_contents
        self._large: list[bytes] = []
        self._small: list[bytes] = []
        self._small_bytes = 0
        self._clock = asyncio.get_running_loop().time
        self._slice_end_s = self._clock() + SLICE_S

    @property
    def is_too_large(self) -> bool:
        return min(self._rows_left, self._bytes_left) < 0

    async def pause(self) -> None:
        if self._clock() >= self._slice_end_s:
            await asyncio.sleep(0)
            self._slice_end_s = self._clock() + SLICE_S

    async def count(self, status: ClientStatus | OwnStatus) -> None:
        if isinstance(status, OwnStatus):
            self._rows_left -= status.count
            return
        for watch in status.watches:
            self._rows_left -= len(watch.resources)
            await self.pause()

    async def add(self, status: ClientStatus | OwnStatus) -> None:
        rows = await self._rows(status)
        if self.is_too_large:
            return
        is_first = not self._small
        if sum(map(len, rows)) > PIECE_BYTES:
            piece = await asyncio.to_thread(self._form.client, status, rows, is_first=is_first)
        else:
            piece = self._form.client(status, rows, is_first=is_first)
        self._bytes_left -= len(piece) - sum(map(len, rows))
        if self._small_bytes + len(piece) > PIECE_BYTES:
            self._join()
        self._small.append(piece)
        self._small_bytes += len(piece)

    def pieces(self) -> list[bytes]:
        self._join()
        return self._large

    async def _rows(self, status: ClientStatus | OwnStatus) -> list[bytes]:
        rows: list[bytes] = []
        for each in status.resources if isinstance(status, OwnStatus) else resource_statuses(status):
            content = None
            if self._with_contents and (shown := each.resource) is not None:
                # Takes long at first.
                is_large = len(shown.body) > LARGE_RESOURCE_BYTES
                find = self._form.content
                content = await asyncio.to_thread(find, shown) if is_large else find(shown)
            rows.append(self._form.row(each, content))
            self._bytes_left -= len(rows[-1])
            if self.is_too_large:
                break
            await self.pause()
        return rows

    def _join(self) -> None:
        if self._small:
            self._large.append(b"".join(self._small))
        self._small, self._small_bytes = [], 0


def _check_size(request: bytes) -> None:
    if len(request) > MOST_REQUEST_BYTES:
        message = f"the request is over {MOST_REQUEST_BYTES} bytes; ask with fewer or shorter node_matchers"
        raise ProtocolError(message, "RESOURCE_EXHAUSTED")


def _parse_json(request: bytes) -> csds_pb2.ClientStatusRequest:
    try:
        plain = json.loads(request)
        if not isinstance(plain, dict):
            # Protobuf would accept an empty list as a message.
            raise ProtocolError(_NO_REQUEST)
        return json_format.ParseDict(plain, csds_pb2.ClientStatusRequest(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise ProtocolError(f"{_NO_REQUEST}: {error}") from error


def services(context: ServiceContext) -> ExtraServices:
    """Return the handlers: a row of `app.SERVICES`."""
    reports = ClientReports(context.clients, context.catalogue, context.own)
    posts = client_status_paths(reports, context.access)
    return ExtraServices(posts, calls=client_status_handlers(reports, context.access))


def client_status_paths(reports: ClientReports, access: AccessInUse | None = None) -> Mapping[str, Handler]:
    """Return the REST handler."""
    in_use = access or AccessInUse()

    async def answer(request: web.Request) -> web.StreamResponse:
        in_use.current.check_all_nodes(peer_of_request(request))
        response, _ = await send(request, await reports.answer_json(await read_body(request)))
        return response

    return {CLIENT_STATUS_PATH: answer}


def client_status_handlers(
    reports: ClientReports, access: AccessInUse | None = None
) -> tuple[grpc.ServiceRpcHandler, ...]:
    """Return the gRPC handlers; a stream's requests are answered separately.

    They raise ProtocolError, also for peers without all nodes.
    """
    in_use = access or AccessInUse()

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        in_use.current.check_all_nodes(peer_of_call(context))
        return await reports.answer(request)

    async def answer_each(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await answer(request, context)

    methods = {
        "FetchClientStatus": grpc.unary_unary_rpc_method_handler(answer),
        "StreamClientStatus": grpc.stream_stream_rpc_method_handler(answer_each),
    }
    return (grpc.method_handlers_generic_handler(CLIENT_STATUS_SERVICE, methods),)
