"""Processes a server's responses: applies and reports them, with ACK or NACK.

Its servers' certificate and token files are read each time.

Late NACKs: an upstream gets a NACK once too many nodes here reject its resource.

| rule | source |
| --- | --- |
| Resources that the relay itself rejects are NACKed at once, others are ACKed when applied. | xDS protocol, "ACK and NACK semantics summary" |
| When an upstream's versions are held back from all nodes here, their type is NACKed, with a node's reason. | xRFC TP1, "xDS relay proxy" |
| The reason names each resource as an Envoy does: the last response may have had others. | `rollout.rejections` |
| A response with these versions again is NACKed at once: an ACK would accept them now. | |
| So is one soon after the upstream took them back: nodes here would reject them again and again. | |
| This time doubles with each further rejection, and is limited: nodes may accept the versions by now. | |
| After a reconnect, the versions are not reported as held, to be sent again, and NACKed. | |

Rules: which responses of upstreams get an ACK or NACK (late ones: `late_nacks.py`), and how slowly a server is read
that sends without end.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from fsxds import __version__
from fsxds.api.converter import Converter
from fsxds.api.secrets import mask_reason
from fsxds.client.client_tls import ClientTls
from fsxds.client.updates import ConnectionLostError, Update
from fsxds.events.event import NO_REASON, Observer
from fsxds.events.upstream_events import UpstreamChanged, UpstreamNacked, UpstreamRejected
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Rows
from fsxds.model.values import BackOff, TypeUrl
from fsxds.protocol.messages import Node
from fsxds.protocol.ttl import SOTW_TTL_FEATURES, TTL_FEATURE
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode, names_as_envoy
from fsxds.settings.access_rules import read_token
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamNode, UpstreamRule
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

    `relays` are between, if known.
    """

    def __init__(self, words: str, relays: tuple[str, ...] = ()) -> None:
        super().__init__(words, "LOOP", is_final=True)
        self.relays = relays


@dataclass(frozen=True, slots=True)
class LinkContext:
    """Shared by all upstreams' links; `converter` is for polls."""

    settings: Callable[[], Settings]
    observer: Observer
    late_nacks: LateNacks
    relays: RelayIds
    converter: Converter
    back_off: BackOff = PAUSES
    trusted_content: Mapping[str, TrustedContent] = field(default_factory=dict)


class Intake:
    """Processes one server's responses."""

    def __init__(self, upstream: Upstream, server: str, access: ServerAccess, context: LinkContext) -> None:
        self.upstream = upstream
        self.server = server
        self.access = access
        self.context = context
        name = upstream.rule.name
        self._trusted_content = context.trusted_content.get(name) or TrustedContent(name)
        self._left, self._at_s = float(MOST_AT_ONCE), 0.0

    async def admit(self, update: Update) -> None:
        """Wait for the rate limit before applying a response. Raises RelayLoopError if it passed this relay already."""
        now_s = asyncio.get_running_loop().time()
        self._left = min(self._left + (now_s - self._at_s) * MOST_PER_SECOND, MOST_AT_ONCE)
        self._at_s = now_s
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / MOST_PER_SECOND)
        if words := self.context.relays.receive(self, update.relays):
            raise RelayLoopError(words, update.relays)

    async def take(self, update: Update) -> str | None:
        """Apply and report a response; return a NACK's reason."""
        if len(update.resources) > MOST_READ_HERE:
            response = await asyncio.to_thread(self.upstream.read, update)
        else:
            response = self.upstream.read(update)
        # After a NACK of an early response, the server might revert the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(MANIFEST_WITHIN_S):
                while self._trusted_content.is_waiting(response, self._held(response.type_url)):
                    await self._trusted_content.changed.replaced()
        response = self._trusted_content.admitted(response, self._held(response.type_url))
        received = self.upstream.take(response, self.server, time.time())
        self._report(update.type_url, update.version, received)
        faults = "; ".join(received.faults)
        words = faults or self.context.late_nacks.nack_message(
            self.upstream.rule.name, update.type_url, update.resources
        )
        return None if words is None else words[:LONGEST_REASON]

    async def take_manifests(self, content: bytes) -> None:
        """Apply manifests, and responses that waited for them."""
        examined = await asyncio.to_thread(self._trusted_content.examine, content, time.time())
        self._trusted_content.take(examined)
        for response in self._trusted_content.late():
            self._report(response.type_url, "", self.upstream.take(response, self.server, time.time()))

    def _held(self, type_url: TypeUrl) -> Rows:
        rows = self.upstream.rows.get(type_url)
        return Rows(type_url) if rows is None else rows

    def disconnected(self) -> None:
        """Record the disconnection."""
        self.context.relays.disconnected(self)

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
        """Return TLS files; None: plain text, or public trust."""
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


# Time of NACKs after a version was taken back; its upstream offers it at least once a minute.
BACK_OFF = BackOff(first_s=10.0, longest_s=600.0)
# How many rejected versions are remembered, and how long after their NACKs end.
MOST_REMEMBERED = 1000
REMEMBERED_FOR_S = 600.0

RELAY = "relay"

HeldRows = Callable[[str], Mapping[TypeUrl, Rows]]
"""Returns an upstream's held resources by type."""

NackType = Callable[[TypeUrl, str], object]
"""NACKs the last response of a type, with a reason."""


class LateNacks:
    """Decides upstreams' late NACKs. For the event loop."""

    def __init__(
        self, settings: Callable[[], Settings], observer: Observer, upstreams: Iterable[str], held: HeldRows
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._upstreams = tuple(upstreams)
        self._held = held
        self._sessions: dict[str, NackType] = {}
        # Held back from all nodes here, with a node's reason.
        self._messages: dict[ResourceVersion, str] = {}
        # Taken back by the upstream: the reason, the end of the NACKs, and how often.
        self._past: dict[ResourceVersion, tuple[str, float, int]] = {}

    @property
    def rejected(self) -> Mapping[tuple[str, Key], str]:
        """Why nodes rejected held resources."""
        return MappingProxyType({
            (upstream, key): words
            for upstream in self._upstreams
            for (key, _), words in self._of(upstream, self._messages)
        })  # fmt: skip

    def nack_message(self, upstream: str, type_url: TypeUrl, names: Collection[str]) -> str | None:
        """Return why to NACK a response at once."""
        if self._settings().upstream_verdict == RELAY:
            return None
        now_s = time.monotonic()
        known = {
            version: words for version, (words, until_s, _) in self._past.items() if until_s > now_s
        } | self._messages
        found = {
            name: words
            for ((of_type, name), _), words in self._of(upstream, known)
            if of_type == type_url and name in names
        }
        return _joined(found) if found else None

    def versions_to_send(self, upstream: str, type_url: TypeUrl, versions: Mapping[str, str]) -> Mapping[str, str]:
        """Return the `versions` to report at a start: none to be NACKed."""
        if self._settings().upstream_verdict == RELAY:
            return versions
        rejected = {name for ((of_type, name), _), _ in self._of(upstream, self._messages) if of_type == type_url}
        return {name: one for name, one in versions.items() if name not in rejected} if rejected else versions

    @contextmanager
    def receiving_nacks(self, upstream: str, nack: NackType) -> Iterator[None]:
        """NACK to an upstream's server meanwhile."""
        self._sessions[upstream] = nack
        try:
            yield
        finally:
            if self._sessions.get(upstream) is nack:
                del self._sessions[upstream]

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """NACK versions held back from all nodes."""
        fresh = {version: _nack_message(version, nodes) for version in versions if version not in self._messages}
        self._messages |= fresh
        if self._settings().upstream_verdict == RELAY:
            return
        for upstream in self._upstreams:
            of_type: defaultdict[TypeUrl, dict[str, str]] = defaultdict(dict)
            for ((type_url, name), _), words in self._of(upstream, fresh):
                of_type[type_url][name] = words
            for type_url, words_of in of_type.items():
                words, nack = _joined(words_of), self._sessions.get(upstream)
                if nack is not None:
                    nack(type_url, words)
                names = frozenset(words_of)
                self._observer(UpstreamNacked(upstream, type_url, words, names, was_sent=nack is not None))

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """Remove versions no longer held back."""
        ended = {version: words for version in versions if (words := self._messages.pop(version, None)) is not None}
        if ended:
            self._remember(ended)

    def _remember(self, ended: Mapping[ResourceVersion, str]) -> None:
        still = {version for upstream in self._upstreams for version, _ in self._of(upstream, ended)}
        now_s = time.monotonic()
        past = {version: one for version, one in self._past.items() if one[1] + REMEMBERED_FOR_S > now_s}
        for version in ended.keys() - still:
            times = past.pop(version, ("", 0.0, 0))[2] + 1
            past[version] = ended[version], now_s + BACK_OFF.pause_s(times), times
        self._past = dict(list(past.items())[-MOST_REMEMBERED:])

    def _of(self, upstream: str, words: Mapping[ResourceVersion, str]) -> Iterator[tuple[ResourceVersion, str]]:
        held = self._held(upstream) if words else {}
        for version, said in words.items():
            (type_url, name), digest = version
            found = held[type_url].get(name) if type_url in held else None
            if found is not None and found.version == digest:
                yield version, said


def _nack_message(version: ResourceVersion, nodes: Collection[RejectingNode]) -> str:
    node = next((one for one in nodes if version in one.reasons), None)
    reason = node.reasons[version][0] if node is not None else None
    masked = mask_reason(reason or NO_REASON)
    said = masked if names_as_envoy(version[0][1], masked) else f"{_begin(version[0])}{version[0][1]}: {masked}"
    return f"{'a node' if node is None else f'node {node.name}'}: {said}"


def _begin(key: Key) -> str:
    """As Envoy's messages about rejected resources begin."""
    return f"Error adding/updating {BY_TYPE_URL[key[0]].noun.removesuffix('s')}(s) "


def _joined(words_of: Mapping[str, str]) -> str:
    first = next(iter(words_of.values()))
    others = (f"{name}: {words}" for name, words in words_of.items() if not names_as_envoy(name, first))
    return "\n".join((first, *others))
