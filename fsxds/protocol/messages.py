"""Stream messages as values, node attributes that views match beside id and cluster, and clients' statuses.

Attributes are read once per distinct node, and the result is small: metadata may hold annotations of many kilobytes,
and a client may send anything.

Source: xDS protocol, "Basic Protocol Overview", "Incremental xDS".

Rules: whether a client is SYNCED, STALE or NACKs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from envoy.config.core.v3 import base_pb2
from google.protobuf.struct_pb2 import Struct

from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Nonce, PlainValue, TypeUrl, Version, scalar_text
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout.rejections import Nack


class SyncState(Enum):
    """A client's state for one type, worst first."""

    NACK = "NACK"
    """It rejected a response, and has not accepted a later one."""
    STALE = "STALE"
    """It has not accepted a response yet, or a newer one is to be sent."""
    NOT_SENT = "NOT SENT"
    """It requested the type, and there is no resource to send."""
    SYNCED = "SYNCED"
    """It accepted everything that is served to it."""


_ORDER = (SyncState.NACK, SyncState.STALE, SyncState.SYNCED)


def combined_state(states: Iterable[SyncState]) -> SyncState:
    """Return the worst state; NOT_SENT counts last."""
    found = set(states)
    return next((state for state in _ORDER if state in found), SyncState.NOT_SENT)


ENVOY = "envoy"
"""The `user_agent_name` of an Envoy."""


# The longest kept text of a client: ids, versions and nonces take some dozen characters.
LONGEST_TEXT = 4096

# Larger nodes are not kept; an Envoy's takes some hundred bytes, its operator's metadata a few thousand.
MOST_KEPT_NODE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """The client: `node.id`, `node.cluster`, and IP address ("" on a Unix socket).

    `agent` is its `user_agent_name`; views match `attributes`. `serialized` is the node without
    its extensions (61 kB in an Envoy), for display only; empty beyond `MOST_KEPT_NODE_BYTES`.
    """

    id: str
    cluster: str = ""
    peer: str = ""
    features: frozenset[str] = frozenset()
    agent: str = ""
    attributes: Attributes = field(default=(), repr=False)
    serialized: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """A `DiscoveryRequest`.

    Empty `version_info`, `nonce` and `node` are None; `error_detail` is a NACK's message (may be ""), None for an ACK.
    `names` are canonical; `rejected_names` maps rejected ones to reasons. `without_authority` is a name completed by
    the settings' authority.
    """

    type_url: TypeUrl
    names: tuple[str, ...] = ()
    version_info: Version | None = None
    nonce: Nonce | None = None
    error_detail: str | None = None
    node: Node | None = None
    rejected_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    without_authority: str = ""

    @property
    def holds(self) -> bool:
        """Whether the client holds a version."""
        return self.version_info is not None

    def holds_of(self, snapshot: Snapshot) -> bool:
        """Whether the client holds a snapshot's version."""
        return self.version_info == version_of(snapshot, Subscription.for_request(self.type_url, self.names))


@dataclass(frozen=True, slots=True)
class SotwResponse:
    """A `DiscoveryResponse`.

    Equal `resources` are one object on all streams, so that their bytes can be cached. With `with_ttl`, resources with
    a `ttl_s` are wrapped and carry it; `heartbeats` have no content. `errors` maps rejected names to reasons.
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Collection[Resource]
    with_ttl: bool = False
    heartbeats: tuple[Resource, ...] = ()
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """A `DeltaDiscoveryRequest`, like a `SotwRequest`.

    Names are as written; `canonical` maps other spellings. `rejected_names` are canonical.
    """

    type_url: TypeUrl
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_resource_versions: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    nonce: Nonce | None = None
    error_detail: str | None = None
    node: Node | None = None
    canonical: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rejected_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    without_authority: str = ""

    @property
    def holds(self) -> bool:
        """Whether the client holds resources."""
        return bool(self.initial_resource_versions)

    def holds_of(self, snapshot: Snapshot) -> bool:
        """Whether all held resources are current in a snapshot."""
        rows = snapshot.resources(self.type_url)
        held = ((rows.get(name), version) for name, version in self.initial_resource_versions.items())
        return self.holds and all(one is not None and one.version == version for one, version in held)


@dataclass(frozen=True, slots=True)
class DeltaResponse:
    """A `DeltaDiscoveryResponse`, like a `SotwResponse`.

    `version` is its `system_version_info`. `aliases` replace a resource's own. `unpopulated` are answered with a
    `Resource` with the name as name and alias and no content: no such virtual host (ENVOY.md E47).
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Collection[Resource] = ()
    removed: tuple[str, ...] = ()
    with_ttl: bool = False
    heartbeats: tuple[Resource, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    unpopulated: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An ACK or NACK, reported once; `nack` has the suspects, None for an ACK or a possibly lost response."""

    version: Version
    accepted: bool
    reason: str | None = None
    nack: Nack | None = None


Response = TypeVar("Response", SotwResponse, DeltaResponse)


@dataclass(frozen=True, slots=True)
class Reaction(Generic[Response]):
    """A request's responses, and the ACK or NACK in it."""

    responses: tuple[Response, ...] = ()
    acknowledgement: Acknowledgement | None = None


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """The status of a stream's type, or of a polling client's subscription.

    `names` is None for a wildcard. `missing` names do not exist. `sent`, `acked` and `nacked` are the last such
    versions, or None. `rejected` names were NACKed and not ACKed since, `unconfirmed` may not be held as sent.
    `since_s` is when `state` last changed, or None. `generation` is the last snapshot sent completely; None if only
    versions show that.
    """

    type_url: TypeUrl
    names: frozenset[str] | None
    sent: Version | None = None
    acked: Version | None = None
    nacked: Version | None = None
    reason: str | None = None
    resources: Collection[Resource] = field(default=(), repr=False)
    missing: tuple[str, ...] = ()
    rejected: frozenset[str] = frozenset()
    state: SyncState = field(default=SyncState.NOT_SENT, compare=False)
    since_s: float | None = field(default=None, compare=False)
    generation: int | None = field(default=None, compare=False)
    unconfirmed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The status of one stream, or of one node's polls.

    `node` has an empty id until the client sends one. `service` is the stream's method, such as
    `StreamAggregatedResources`, or `REST`. `watches` can be iterated once: an Envoy may have ten thousand. `since_s` is
    by the cores' clock.
    """

    node: Node
    service: str
    watches: Iterable[WatchStatus] = ()
    since_s: float = field(default=0.0, compare=False)


def check_length(field: str, text: str) -> str:
    """Raises ProtocolError if a text is too long to keep."""
    if len(text) > LONGEST_TEXT:
        raise ProtocolError(f"{field}: has {len(text)} characters, more than {LONGEST_TEXT}; shorten it")
    return text


# Envoy logs the whole rejected message, secrets included (ENVOY.md E21), before or after the reason; until 1.36 without
# the mark in front of it.
_MESSAGE_BEFORE = re.compile(r"^(?:goo\.gle/debug|[^\n]*\n).*: (?=Proto constraint validation failed)", re.DOTALL)
_MESSAGE_AFTER = re.compile(r"(: goo\.gle/debug|\): \{).*$", re.DOTALL)

# Reasons are kept per client, and shown on one line.
LONGEST_REASON = 4096


def without_message(reason: str) -> str:
    """Return a shortened reason, without the message that Envoy appends."""
    short = _MESSAGE_AFTER.sub(lambda match: ")" if match[1] == "): {" else "", _MESSAGE_BEFORE.sub("", reason))
    return short.strip()[:LONGEST_REASON]


class ConfigStatus(IntEnum):
    """`envoy.service.status.v3.ConfigStatus`; UNKNOWN if this process is the client."""

    UNKNOWN = 0
    SYNCED = 1
    NOT_SENT = 2
    STALE = 3
    ERROR = 4


class ClientResourceStatus(IntEnum):
    """`envoy.admin.v3.ClientResourceStatus`: the client's view."""

    UNKNOWN = 0
    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One resource's or requested name's status with one client.

    `version` is the last one sent, or the one before if that was rejected, or None. `resource` is None if none was
    sent. `updated_s` is when the content came, since 1970, or None.
    """

    type_url: TypeUrl
    name: str
    config_status: ConfigStatus
    client_status: ClientResourceStatus
    version: Version | None = None
    resource: Resource | None = None
    nacked: Version | None = None
    reason: str | None = None
    updated_s: float | None = None


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """This process's status as a client of upstreams.

    `service` is upstream and method; `count` may be an upper bound; `resources` can be iterated once.
    """

    node: Node
    service: str
    count: int
    resources: Iterable[ResourceStatus]


Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Names such as `metadata.labels.tier`, with values, sorted."""

# Longer values match no view: they do not occur in rules or folder names.
LONGEST_ATTRIBUTE = 1024

# The limit for all names and values together, each counted with the size of an object. Shallow values come first.
MOST_ATTRIBUTE_BYTES = 16 * 1024
_OBJECT_BYTES = 64

_LOCALITY = ("region", "zone", "sub_zone")


def attributes_of_message(node: base_pb2.Node) -> Attributes:
    """Return a protobuf node's attributes."""
    build = node.user_agent_build_version.version
    version = node.user_agent_version
    if not version and node.HasField("user_agent_build_version"):
        version = f"{build.major_number}.{build.minor_number}.{build.patch}"
    locality = {name: getattr(node.locality, name) for name in _LOCALITY}
    return _attributes(version, locality, _members(node.metadata))


def attributes_of_json(version: object, locality: Mapping[str, object], metadata: Mapping[str, object]) -> Attributes:
    """Return a JSON node's attributes."""
    return _attributes(version, locality, metadata.items())


def metadata_of(attributes: Iterable[tuple[str, str]]) -> dict[str, PlainValue]:
    """Return metadata as JSON; dots become nested objects."""
    metadata: dict[str, PlainValue] = {}
    for name, value in attributes:
        first, *steps = name.split(".")
        holder = metadata
        for step in steps[:-1]:
            inner = holder.setdefault(step, {})
            holder = inner if isinstance(inner, dict) else {}
        if first == "metadata":
            holder[steps[-1]] = value
    return metadata


def _attributes(version: object, locality: Mapping[str, object], metadata: Iterable[tuple[str, object]]) -> Attributes:
    named: dict[str, object] = {"user_agent_version": version}
    named |= {f"locality.{name}": locality.get(name) for name in _LOCALITY}
    found = {name: text for name, value in named.items() if (text := _kept_text(value))} | _metadata(metadata)
    return _shared(tuple(sorted((intern(name), intern(value)) for name, value in found.items())))


def _metadata(members: Iterable[tuple[str, object]]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = MOST_ATTRIBUTE_BYTES
    waiting = deque([("metadata", members)])
    while waiting:
        prefix, members = waiting.popleft()
        for key, value in members:
            name = f"{prefix}.{key}"
            # Counts skipped values, too: visiting them takes time.
            left -= len(name) + _OBJECT_BYTES
            if isinstance(value, Mapping | Struct):
                # A Struct counts as a mapping, but its `items` raise if a value in it is not set.
                waiting.append((name, _members(value) if isinstance(value, Struct) else value.items()))
            elif (text := _kept_text(value)) and is_unicode(name):
                left -= len(text)
                # A key may have a dot: `{a: {b: 1}, "a.b": 2}`.
                found.setdefault(name, text)
            if left < 0:
                return found
    return found


def _kept_text(value: object) -> str:
    text = scalar_text(value)
    return text if text and len(text) <= LONGEST_ATTRIBUTE and is_unicode(text) else ""


def is_unicode(text: str) -> bool:
    """The json module accepts half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _members(struct: Struct) -> Iterator[tuple[str, object]]:
    for key, value in struct.fields.items():
        chosen = value.WhichOneof("kind")
        yield key, (None if chosen in (None, "null_value", "list_value") else getattr(value, chosen))


@lru_cache(maxsize=4096)
def _shared(attributes: Attributes) -> Attributes:
    """Equal nodes share one tuple."""
    return attributes
