"""Processes a server's responses: applies and reports them, with ACK or NACK.

Files of certificates and tokens for its servers are read each time.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from fsxds import __version__
from fsxds.api.converter import Converter
from fsxds.client.client_tls import ClientTls
from fsxds.client.updates import ConnectionLostError, Update
from fsxds.events.event import Observer
from fsxds.events.upstream_events import UpstreamChanged, UpstreamRejected
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resources import Rows
from fsxds.model.values import BackOff, TypeUrl
from fsxds.protocol.messages import Node
from fsxds.protocol.ttl import SOTW_TTL_FEATURES, TTL_FEATURE
from fsxds.settings.access_rules import read_token
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamNode, UpstreamRule
from fsxds.upstream.late_nacks import LateNacks
from fsxds.upstream.responses import ReadResponse
from fsxds.upstream.server_order import PAUSES
from fsxds.upstream.trusted import TrustedContent
from fsxds.upstream.upstream import Received, Upstream

LONGEST_REASON = 2000
# Larger responses are parsed in a thread.
MOST_READ_HERE = 500
# From a response to the manifest that vouches for it.
MANIFEST_WITHIN_S = 3.0
# A server that sends without end is read slowly.
MOST_AT_ONCE = 200
MOST_PER_SECOND = 100


class RelayLoopError(ConnectionLostError):
    """A server is downstream of this relay: it would return our resources.

    `relays` are those between, if known.

    """

    def __init__(self, words: str, relays: tuple[str, ...] = ()) -> None:
        super().__init__(words, "LOOP", is_final=True)
        self.relays = relays


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The shared context of all upstreams' links; `converter` is for polls."""

    settings: Callable[[], Settings]
    observer: Observer
    late_nacks: LateNacks
    relays: RelayIds
    converter: Converter
    back_off: BackOff = PAUSES
    trusted_content: Mapping[str, TrustedContent] = field(default_factory=dict)


class Intake:
    """Processes the responses of one server."""

    def __init__(self, upstream: Upstream, server: str, access: ServerAccess, context: LinkContext) -> None:
        self.upstream = upstream
        self.server = server
        self.access = access
        self.context = context
        name = upstream.rule.name
        self._trusted_content = context.trusted_content.get(name) or TrustedContent(name)
        self._left, self._at_s = float(MOST_AT_ONCE), 0.0

    async def admit(self, update: Update) -> None:
        """Wait for the rate limit before a response is applied.

        Raises:
            RelayLoopError: it passed this relay already, and must not be applied.
        """
        await self._wait_for_turn()
        if words := self.context.relays.receive(self, update.relays):
            raise RelayLoopError(words, update.relays)

    async def take(self, update: Update) -> str | None:
        """Apply and report a response; return a NACK's reason, or None."""
        if len(update.resources) > MOST_READ_HERE:
            response = await asyncio.to_thread(self.upstream.read, update)
        else:
            response = self.upstream.read(update)
        await self._await_manifest(response)
        response = self._trusted_content.admitted(response, self._held(response.type_url))
        received = self.upstream.take(response, self.server, time.time())
        self._report(update.type_url, update.version, received)
        faults = "; ".join(received.faults)
        words = faults or self.context.late_nacks.nack_message(
            self.upstream.rule.name, update.type_url, update.resources
        )
        return None if words is None else words[:LONGEST_REASON]

    async def take_manifests(self, content: bytes) -> None:
        """Apply manifests and the responses that waited for them."""
        examined = await asyncio.to_thread(self._trusted_content.examine, content, time.time())
        self._trusted_content.take(examined)
        for response in self._trusted_content.late():
            self._report(response.type_url, "", self.upstream.take(response, self.server, time.time()))

    def _held(self, type_url: TypeUrl) -> Rows:
        rows = self.upstream.rows.get(type_url)
        return Rows(type_url) if rows is None else rows

    async def _await_manifest(self, response: ReadResponse) -> None:
        """After a NACK of an early response, the server might revert the change."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MANIFEST_WITHIN_S):
                while self._trusted_content.is_waiting(response, self._held(response.type_url)):
                    await self._trusted_content.changed.replaced()

    def disconnected(self) -> None:
        """Record the disconnection."""
        self.context.relays.disconnected(self)

    async def _wait_for_turn(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._left = min(self._left + (now_s - self._at_s) * MOST_PER_SECOND, MOST_AT_ONCE)
        self._at_s = now_s
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / MOST_PER_SECOND)

    def _report(self, type_url: TypeUrl, version: str, received: Received) -> None:
        name = self.upstream.rule.name
        if received.faults:
            event = UpstreamRejected(name, self.server, type_url, version, received.faults)
            self.context.observer(event)
        if received.keys:
            counts = received.changed, received.removed
            self.context.observer(UpstreamChanged(name, self.server, type_url, version, *counts))


AGENT = "fsxds"
# Times to live are passed on.
_FEATURES = frozenset({TTL_FEATURE, *SOTW_TTL_FEATURES})


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Node and credentials for an upstream's servers."""

    rule: UpstreamRule
    announced: UpstreamNode | None = None

    def check(self) -> None:
        """Raise UsageError for an unusable file."""
        if (tls := self.tls()) is not None:
            tls.ssl_context()
        self.token()

    def tls(self) -> ClientTls | None:
        """Return the TLS files; None: plain text, or public trust."""
        return ClientTls.of(self.rule.ca, self.rule.cert, self.rule.key)

    def token(self) -> str:
        """Return the bearer token or "". Raises UsageError."""
        return "" if self.rule.token is None else read_token(self.rule.token)

    def node(self) -> Node:
        """Return the relay's node."""
        announced = self.announced or UpstreamNode()
        message = base_pb2.Node(
            id=announced.id or socket.gethostname(),
            cluster=announced.cluster,
            user_agent_name=AGENT,
            user_agent_version=__version__,
            client_features=sorted(_FEATURES),
        )
        if announced.metadata:
            message.metadata.CopyFrom(json_format.ParseDict(dict(announced.metadata), Struct()))
        locality = base_pb2.Locality(region=announced.region, zone=announced.zone, sub_zone=announced.sub_zone)
        if locality.ByteSize():
            message.locality.CopyFrom(locality)
        return Node(
            message.id, message.cluster, agent=AGENT, features=_FEATURES, serialized=message.SerializeToString()
        )
