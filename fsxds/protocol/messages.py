"""What goes over a stream in both directions, as values, and the state of a client.

Source: xDS protocol, "Basic Protocol Overview", "Incremental xDS".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.node_attributes import Attributes
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout.rejections import Nack


class SyncState(Enum):
    """How a client stands with a type, the worst first."""

    NACK = "NACK"
    """It rejected something, and has not accepted what was sent in its place."""
    STALE = "STALE"
    """It was sent something that it has not accepted yet, or is to be sent something newer."""
    NOT_SENT = "NOT SENT"
    """It asked for the type, and was sent nothing: there is nothing for it."""
    SYNCED = "SYNCED"
    """It accepted all that it is served."""


_ORDER = (SyncState.NACK, SyncState.STALE, SyncState.SYNCED)


def combined_state(states: Iterable[SyncState]) -> SyncState:
    """Return how a client stands that stands so with its types: the worst, where types without anything count last."""
    found = set(states)
    return next((state for state in _ORDER if state in found), SyncState.NOT_SENT)


ENVOY = "envoy"
"""The `user_agent_name` of an Envoy."""


# What is kept of a client has texts of this length at most: ids, versions and nonces take some dozen characters.
LONGEST_TEXT = 4096

# Nodes that take more are not kept; an Envoy's takes some hundred bytes, its operator's metadata a few thousand.
MOST_KEPT_NODE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """The client: `node.id` and `node.cluster` of a request, and the IP address it came from ("" on a Unix socket).

    `features` are its `client_features`, `agent` is its `user_agent_name`. `attributes` are what views match beside these:
    `user_agent_version`, `locality.region`, `metadata.tier`, … with their values (see `node_attributes.py`). `serialized` is the whole node without the list
    of extensions (61 kB in an Envoy), empty where that takes more than `MOST_KEPT_NODE_BYTES`; it is kept to be shown, and
    decides nothing.
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

    `version_info` and `nonce` are None where they are empty, `node` where the message has none. `error_detail` is the
    message of a NACK ("" for one without a message), None for an ACK. `names` are canonical; `rejected_names` says why some of
    them are rejected, `without_authority` is one that the client wrote so, where the settings have an authority.
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
        """Whether the client says that it holds something."""
        return self.version_info is not None

    def holds_of(self, snapshot: Snapshot) -> bool:
        """Whether the client says that it holds what a snapshot has for it."""
        return self.version_info == version_of(snapshot, Subscription.for_request(self.type_url, self.names))


@dataclass(frozen=True, slots=True)
class SotwResponse:
    """A `DiscoveryResponse`.

    `resources` is the same object on all streams where it is equal, so that its bytes can be kept with it. With
    `with_ttl`, resources that have a `ttl_s` are wrapped and carry it. `heartbeats` are resources whose time to live is
    renewed without their content. `errors` says of names that the client asked for why they are rejected.
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
    """A `DeltaDiscoveryRequest`; what it has in common with a `SotwRequest` is as there.

    Names are as the client writes them; `canonical` has the canonical forms of those that are written otherwise. What is
    rejected has the name there that it has in the subscription.
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
        """Whether the client says that it holds something."""
        return bool(self.initial_resource_versions)

    def holds_of(self, snapshot: Snapshot) -> bool:
        """Whether the client says that it holds what a snapshot has, or a part of that."""
        rows = snapshot.resources(self.type_url)
        held = ((rows.get(name), version) for name, version in self.initial_resource_versions.items())
        return self.holds and all(one is not None and one.version == version for one, version in held)


@dataclass(frozen=True, slots=True)
class DeltaResponse:
    """A `DeltaDiscoveryResponse`.

    `version` is its `system_version_info`. `resources`, `with_ttl`, `heartbeats` and `errors` are as in `SotwResponse`. `aliases`
    replace those of a resource, by its name. `unpopulated` are names that are answered with a `Resource` that has the name
    as its name and alias and no content: the virtual host does not exist (ENVOY.md E47).
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
    """An ACK, or the NACK of a version, reported once.

    Attributes:
        version: that of the response.
        accepted: it is an ACK.
        reason: the client's words; None for an ACK, and for a NACK without a message.
        nack: which resources may be meant; None for an ACK, and as long as it may be a lost response.
    """

    version: Version
    accepted: bool
    reason: str | None = None
    nack: Nack | None = None


Response = TypeVar("Response", SotwResponse, DeltaResponse)


@dataclass(frozen=True, slots=True)
class Reaction(Generic[Response]):
    """What follows from a request: responses, to be sent in this order, and the ACK or NACK of an earlier one."""

    responses: tuple[Response, ...] = ()
    acknowledgement: Acknowledgement | None = None


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """The state of one type on one stream, or of one subscription of a polling client.

    `names` is None for everything. `resources` are those that were sent and that the client should hold, `missing` the
    names it subscribed to that do not exist. `sent`, `acked` and `nacked` are the last versions of that kind, None where
    there was none. `rejected` are the names in NACKed responses that were not ACKed since, `reason` is the message of
    the last NACK. `state` is how the client stands with what it was sent, `since_s` when that changed last, None where it
    never did. `generation` is that of the snapshot that it was sent all of; None where the versions say whether it was.
    `unconfirmed` are names that it was sent and may not hold as they were sent.
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
    """The state of one client: of one stream, or of all polls of one node.

    `node` has an empty id until the client sends one. `service` is the method of the stream, such as
    `StreamAggregatedResources`, or `REST`. `watches` may hold several of one type: each list of polled names is a watch of
    its own. They can be iterated once: an Envoy may have ten thousand, which are made one by one. `since_s` is when it came.
    Times are of the clock that the cores are given.
    """

    node: Node
    service: str
    watches: Iterable[WatchStatus] = ()
    since_s: float = field(default=0.0, compare=False)


def check_length(field: str, text: str) -> str:
    """Return a text that a client sent, or raise ProtocolError where it is longer than any that is kept."""
    if len(text) > LONGEST_TEXT:
        raise ProtocolError(f"{field}: has {len(text)} characters, more than {LONGEST_TEXT}; shorten it")
    return text


# Envoy logs the whole message that it rejects, secrets included (ENVOY.md E21), before or after the reason; until 1.36 without the
# mark in front of it.
_MESSAGE_BEFORE = re.compile(r"^(?:goo\.gle/debug|[^\n]*\n).*: (?=Proto constraint validation failed)", re.DOTALL)
_MESSAGE_AFTER = re.compile(r"(: goo\.gle/debug|\): \{).*$", re.DOTALL)

# Reasons are kept with each client, and shown as one line.
LONGEST_REASON = 4096


def without_message(reason: str) -> str:
    """Return the reason of a NACK without the message that Envoy appends to it, and cut to a readable length."""
    short = _MESSAGE_AFTER.sub(lambda match: ")" if match[1] == "): {" else "", _MESSAGE_BEFORE.sub("", reason))
    return short.strip()[:LONGEST_REASON]


class ConfigStatus(IntEnum):
    """`envoy.service.status.v3.ConfigStatus`: how we see it; unknown where this process is the client."""

    UNKNOWN = 0
    SYNCED = 1
    NOT_SENT = 2
    STALE = 3
    ERROR = 4


class ClientResourceStatus(IntEnum):
    """`envoy.admin.v3.ClientResourceStatus`: how the client sees it."""

    UNKNOWN = 0
    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """The state of one resource, or of a name that was asked for, with one client.

    `version` is the one that the client was sent last, or where it rejected that, the one before; None where there was
    none. `nacked` and `reason` are of a rejected one alone. `resource` is None where nothing was sent. `updated_s` is when
    the content came, in seconds since 1970, where that is known.
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
    """The state of this process as a client of others.

    Attributes:
        node: how it shows itself.
        service: of whom it is a client, and how.
        count: how many resources there are, or more.
        resources: their states, and those of names that it asks for; can be iterated once.
    """

    node: Node
    service: str
    count: int
    resources: Iterable[ResourceStatus]
