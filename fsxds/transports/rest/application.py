"""POST /v3/discovery:* over aiohttp: routing, error responses, and held polls.

Each polling node is one client of its channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.events.client_events import LimitReached, ResponseSent, ack_or_nack
from fsxds.events.event import Observer
from fsxds.model.errors import ProtocolError
from fsxds.model.relay_ids import HEADER, RelayIds, relays_in
from fsxds.model.resource_types import BY_MESSAGE_TYPE, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState, combined_state
from fsxds.protocol.poll import Decision, PollMemory, PollRequest, Send, Unavailable, Wait
from fsxds.protocol.polling_node import POLLING, PollingNode
from fsxds.protocol.subscription import Selection
from fsxds.rollout import Step
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel, end_wait
from fsxds.settings.forms import Address, TcpAddress
from fsxds.transports.exchange import (
    Clients,
    Exchange,
    Requester,
    check_host,
    check_page,
    origin_of,
    peer_of_request,
)
from fsxds.transports.rest.http_edge import WRONG_CONTENT, Handler, HttpEdge
from fsxds.transports.rest.poll_requests import DEADLINE_HEADER, RestRequestReader, is_json, patience_of, read_body
from fsxds.transports.rest.poll_responses import ErrorResponse, ResponseBodies, error_response, not_modified, send

# Error codes of requests that access rules deny.
DENIED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
# A denied Envoy gets its answer after this time, or before its own timeout.
DENIED_PAUSE_S = 5.0
PREFIX = "/v3/discovery:"
ROWS = {PREFIX + row.rest_path: row for row in RESOURCE_TYPES if row.rest_path}

WRONG_METHOD = ErrorResponse(
    405, 12, "this path takes POST alone, with a request in JSON as its body", {"Allow": "POST"}
)
STOPPING = ErrorResponse(503, 14, "the server stops; ask again", {"Retry-After": "1"})


@dataclass(frozen=True, slots=True)
class RestContext:
    """The REST listener's dependencies; capabilities add paths by `join(context, application)`.

    Attributes:
        address: of the listener; None accepts any `Host`.
        posts: more POST paths.
        documents: paths that name no resource.
    """

    exchange: Exchange
    catalogue: Catalogue
    observer: Observer
    clients: Clients
    address: Address | None = None
    relays: RelayIds = field(default_factory=RelayIds)
    posts: Mapping[str, Handler] = field(default_factory=dict)
    documents: Mapping[str, Handler] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedPoll:
    """A poll, its sender, its longest hold."""

    poll: PollRequest
    requester: Requester
    patience_s: float


def make_application(rest: RestJson) -> web.Application:
    """Make the application that answers polls, for `http_server.listening`.

    Handlers must be cancelled when clients go. Its shutdown answers held polls.
    """
    application = rest.edge.application(rest.handlers)
    application[REST] = rest

    stack = ExitStack()
    stack.enter_context(rest.exchange.woken())

    async def drain(_: web.Application) -> None:
        rest.exchange.drain()
        stack.close()

    application.on_shutdown.append(drain)
    if rest.relays.own:
        application.on_response_prepare.append(rest.name_relays)
    return application


class RestJson:
    """Answers REST requests, polls by `protocol.poll`.

    `handlers` are for POST; `elsewhere`, if any, for other paths, except POST to those that cannot name a resource.
    """

    def __init__(self, context: RestContext) -> None:
        self.exchange = exchange = context.exchange
        polls: dict[str, Handler] = {path: partial(self._answer_poll, row) for path, row in ROWS.items()}
        self.handlers = {**polls, **context.posts}
        self.elsewhere: Handler | None = None
        self.relays = context.relays
        self.edge = HttpEdge("REST", self._answer, context.observer, exchange.limiter.admit_request)
        self._address = context.address
        self._observer = context.observer
        self._clients = RestClients()
        context.clients.add(self._clients.statuses)
        on_demand = exchange.channels.on_demand
        self._memory = PollMemory(
            lambda: exchange.limiter.settings.max_nodes,
            forget=self._forget,
            unanswered=on_demand.unanswered,
            recognized=self._clients.receive_recognized,
        )
        self._requests = RestRequestReader(context.catalogue, authority=lambda: exchange.limiter.settings.authority)
        self._bodies = ResponseBodies(Printer(context.catalogue))

    async def name_relays(self, _: web.Request, response: web.StreamResponse) -> None:
        """Add the header with relays."""
        response.headers[HEADER] = self.relays.downwards

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._check_page(request)
        handler = self.handlers.get(request.path)
        if handler is None:
            is_of_type = request.path.removeprefix("/").partition("/")[0] in BY_MESSAGE_TYPE
            if self.elsewhere is not None and (request.method != "POST" or is_of_type):
                return await self.elsewhere(request)
            paths = ", ".join(self.handlers)
            fact = f"there is nothing at this path; POST to one of {paths}. VHDS and Delta have no REST form"
            return self.edge.reject(request, ErrorResponse(404, 5, fact))
        if request.method != "POST":
            return self.edge.reject(request, WRONG_METHOD)
        if not is_json(request.headers.get("Content-Type")):
            return self.edge.reject(request, WRONG_CONTENT)
        return await handler(request)

    def _check_page(self, request: web.Request) -> None:
        settings, may_be_linked = self.exchange.limiter.settings, request.method in {"GET", "HEAD"}
        own_origin, origins = origin_of(request), settings.cors_origin or ()
        check_page(request.headers, own_origin=own_origin, origins=origins, may_be_linked=may_be_linked)
        # With its cluster's name in `Host` (ENVOY.md E85); pages' POSTs have an `Origin`.
        is_of_envoy = DEADLINE_HEADER in request.headers and "Origin" not in request.headers
        if isinstance(self._address, TcpAddress) and not (is_of_envoy and request.method == "POST"):
            authorities = (settings.authority, *(settings.authorities or ()))
            check_host(request.headers, self._address, settings.allowed_hosts, filter(None, authorities))

    async def _answer_poll(self, row: ResourceType, request: web.Request) -> web.StreamResponse:
        try:
            named = request.headers.get(HEADER)
            with nullcontext() if named is None else self.relays.calling(relays_in(named)):
                return await self._answer_poll_of(row, request)
        except ProtocolError as error:
            if error.code in DENIED:
                # A denied Envoy repeats after its `refresh_delay`, 20 times a second (ENVOY.md E4).
                deadline = request.headers.get(DEADLINE_HEADER)
                if deadline is not None:
                    patience_s = patience_of(deadline, None, self.exchange.limiter.settings.max_hold_s)
                    await self.exchange.pause(min(DENIED_PAUSE_S, patience_s))
            raise

    async def _answer_poll_of(self, row: ResourceType, request: web.Request) -> web.StreamResponse:
        peer = peer_of_request(request)
        # Before strangers can make the server read a body.
        self.exchange.access.current.check_peer(peer)
        self.exchange.access.current.check_type(peer, row.type_url)
        poll, patience_s = await self._read(request, row)
        subscription = poll.subscription
        received = ReceivedPoll(poll, Requester(peer, poll.node, subscription.type_url, subscription.asked), patience_s)
        self.exchange.check(received.requester)
        known = self._memory.node_of(poll.node)
        # The first poll of one name has no version, even if the client holds other resources.
        holds = poll.version_info is not None or (known is not None and poll.subscription not in known.watches)
        watch = None if known is None else known.watches.get(poll.subscription)
        sent = None if watch is None else watch.sent
        is_here = sent is not None and sent.may_leave(poll.version_info)
        if known is not None and sent is not None and not (is_here or known.has_open_polls):
            # Another process served the client meanwhile: its place here is outdated.
            self._clients.forget(known)
        channel = await self.exchange.channel_of(
            received.requester, holds=holds, holds_of=poll.holds_of, is_here=is_here
        )
        channel = self._clients.channel_of(self._memory.node_of(poll.node), channel)
        # Read once: a later step may publish during each wait.
        snapshot = channel.store.current
        decided = self._receive(poll, snapshot), snapshot
        identity = self.exchange.access.current.identity_of(peer, poll.node)
        client = self._clients.receive_poll(poll, self._memory.node_of(poll.node), channel, identity)
        is_answered = False
        try:
            with self.exchange.asking(received.requester):
                decision, snapshot = await self._hold(client, received, decided)
            if isinstance(decision, Send) and snapshot is not None:
                # Only a held poll reports a change.
                detected_s = None if decision is decided[0] else client.channel.detected_s
                response, is_answered = await self._send(request, poll, decision.selection, snapshot)
                if is_answered:
                    self._observer(ResponseSent(poll.node, poll.subscription, decision.selection.version, detected_s))
            else:
                response, is_answered = self._without_update(request, poll, decision), True
        finally:
            # Also on failure, or if the client gave up its poll.
            self._memory.receive_end(poll, asyncio.get_running_loop().time(), is_given_up=not is_answered)
            self._clients.receive_end(client)
        return response

    def _without_update(self, request: web.Request, poll: PollRequest, decision: Decision) -> web.StreamResponse:
        if isinstance(decision, Unavailable):
            return self.edge.reject(request, ErrorResponse(503, 14, decision.reason, {"Retry-After": "1"}))
        if not self.exchange.is_draining:
            return not_modified()
        last = error_response(STOPPING) if poll.version_info is None else not_modified()
        last.force_close()
        return last

    async def _read(self, request: web.Request, row: ResourceType) -> tuple[PollRequest, float]:
        """The poll, and for how many seconds to hold it. Raises ProtocolError.

        A function, to free the body's 77 kB before the poll is held.
        """
        deadline = request.headers.get(DEADLINE_HEADER)
        timeout = request.query.get("timeout") if request.query_string else None
        patience_s = patience_of(deadline, timeout, self.exchange.limiter.settings.max_hold_s)
        limiter = self.exchange.limiter
        with limiter.receiving() as count:
            body = await read_body(request, limiter.settings.max_body_bytes, count)
        poll = self._requests.read(body, row, request.remote or "", from_envoy=deadline is not None)
        self.exchange.limiter.check_names(len(poll.subscription.names))
        return poll, patience_s

    def _forget(self, node: PollingNode) -> None:
        self._clients.forget(node)
        self._observer(LimitReached("max-nodes", node.node.peer))

    def _receive(self, poll: PollRequest, snapshot: Snapshot | None) -> Decision:
        now_s = asyncio.get_running_loop().time()
        decision, acknowledgement = self._memory.receive_request(poll, snapshot, now_s)
        if acknowledgement is not None:
            self._observer(ack_or_nack(poll.node, poll.subscription, acknowledgement, snapshot))
        return decision

    async def _hold(
        self, client: RestClient, received: ReceivedPoll, decided: tuple[Decision, Snapshot | None]
    ) -> tuple[Decision, Snapshot | None]:
        if not isinstance(decided[0], Wait):
            return decided
        poll, now_s, (decision, snapshot) = received.poll, asyncio.get_running_loop().time(), decided
        deadline_s = now_s + received.patience_s
        with self.exchange.limiter.holding(len(poll.subscription.names)):
            while isinstance(decision, Wait):
                if now_s >= deadline_s or self.exchange.is_draining:
                    self._memory.receive_deadline(poll, now_s)
                    break
                until_s = deadline_s if decision.until_s is None else min(decision.until_s, deadline_s)
                now_s = await self.exchange.wait(
                    received.requester, client, snapshot, Wait(until_s, decision.awaits_answers)
                )
                snapshot = client.channel.store.current
                decision = self._memory.receive_snapshot(poll, snapshot, now_s)
        return decision, snapshot

    async def _send(
        self, request: web.Request, poll: PollRequest, selection: Selection, snapshot: Snapshot
    ) -> tuple[web.StreamResponse, bool]:
        is_received = False
        try:
            payload = await self._bodies.payload_of(selection, snapshot, is_whole=poll.subscription.wildcard)
            response, is_received = await send(request, payload)
        finally:
            # Or the next poll would be an ACK or NACK of this version.
            if not is_received:
                self._memory.receive_lost(poll)
        return response, is_received


REST = web.AppKey("rest", RestJson)


# A node without an open poll has no connection that could end.
GONE_AFTER_S = 600.0
CHECK_INTERVAL_S = 30.0


class RestClient:
    """A polling node, with its last poll's `identity` and held polls' `limits`."""

    __slots__ = ("channel", "identity", "limits", "polls")

    transport: Final = POLLING

    def __init__(self, polls: PollingNode, channel: Channel) -> None:
        self.identity = polls.node.id
        self.polls = polls
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()

    @property
    def node(self) -> Node:
        """The client's own description."""
        return self.polls.node

    @property
    def name(self) -> str:
        """As in the log."""
        return self.node.id

    node_count = 1

    @property
    def has_returned(self) -> bool:
        """Whether it polled after an answer."""
        return self.polls.has_returned

    @property
    def is_away(self) -> bool:
        """Whether it is unreachable, without open polls."""
        return not self.polls.has_open_polls

    def standing(self, step: Step) -> Standing:
        """See `ChannelClient`."""
        return self.polls.standing(step)

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """See `ChannelClient`."""
        return self.polls.selected(type_url, names)

    def reachable(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """See `ChannelClient`."""
        return self.polls.reachable(type_url, names)

    def sync_state(self) -> SyncState:
        """See `ChannelClient`."""
        snapshot = self.channel.store.current
        return combined_state(() if snapshot is None else self.polls.sync_states(snapshot))

    def status(self) -> ClientStatus:
        """See `ChannelClient`."""
        return self.polls.status(self.channel.store.current)

    def wake(self) -> None:
        """Do nothing: held polls wait themselves."""

    def follow(self, channel: Channel) -> None:
        """Wake held polls for a channel already joined."""
        self.channel = channel
        now_s = asyncio.get_running_loop().time()
        for limit in self.limits:
            end_wait(limit, now_s)


class RestClients:
    """Knows each polling node's client."""

    def __init__(self) -> None:
        self._clients: dict[PollingNode, RestClient] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Count polling nodes."""
        return len(self._clients)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield clients' status, maybe of gone ones."""
        for client in tuple(self._clients.values()):
            yield client.status()

    def channel_of(self, polls: PollingNode | None, channel: Channel) -> Channel:
        """Return the followed channel if it has the view of `channel`, else `channel`.

        The node belongs to `channel`; rollout steps move it there.
        """
        client = None if polls is None else self._clients.get(polls)
        if client is None or client not in client.channel.clients:
            return channel
        followed, wanted = client.channel.key, channel.key
        is_same = followed.layers == wanted.layers and followed.is_canary == wanted.is_canary
        return client.channel if is_same else channel

    def receive_poll(self, poll: PollRequest, polls: PollingNode | None, channel: Channel, identity: str) -> RestClient:
        """Return a poll's client, joined to `channel` if remembered."""
        if polls is None:
            return RestClient(PollingNode(poll.node), channel)
        client = self._clients.get(polls)
        if client is None:
            client = self._clients[polls] = RestClient(polls, channel)
            channel.join(client)
            self._look_later()
        elif client.channel is not channel or client not in channel.clients:
            client.channel.leave(client)
            channel.join(client)
            client.follow(channel)
        client.identity = identity
        nack, polls.nack = polls.nack, None
        if nack is not None:
            client.channel.on_nack(client, nack)
        client.channel.progressed(client)
        return client

    def receive_recognized(self, polls: PollingNode) -> None:
        """Record that another process sent the current version."""
        client = self._clients.get(polls)
        if client is not None:
            client.channel.progressed(client)

    def receive_end(self, client: RestClient) -> None:
        """Record a poll's end, maybe the last."""
        if client.polls.is_polling:
            client.channel.progressed(client)
        else:
            self.forget(client.polls)

    def forget(self, polls: PollingNode) -> None:
        """Take a node's client from its channel."""
        client = self._clients.pop(polls, None)
        if client is not None:
            client.channel.leave(client)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._forget_silent)

    def _forget_silent(self) -> None:
        self._timer = None
        silent_since_s = asyncio.get_running_loop().time() - GONE_AFTER_S
        for polls in [one for one in self._clients if one.is_silent_since(silent_since_s)]:
            self.forget(polls)
        if self._clients:
            self._look_later()
