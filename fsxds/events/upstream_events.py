"""What can be logged or counted of upstreams, the other xDS servers that are sources; and how each of them stands.

Texts that a server sent (reasons, names, versions) are in these values as they came; the log shortens and masks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from fsxds.events.event import Event
from fsxds.model.resources import Key
from fsxds.model.values import TypeUrl

UpstreamState: TypeAlias = Literal["connected", "connecting", "away", "refused"]
"""How the connection with an upstream is: `refused` where another attempt would end in the same way."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """How an upstream stands. Times are seconds since 1970.

    Attributes:
        name: what it is called.
        servers: the addresses of its servers, in order.
        server: the one that it is connected with; empty for none.
        wire: how that is asked: `Delta ADS`, `SotW ADS`, `REST`; empty while there is none.
        state: how the connection is.
        since_s: since when; 0 where no server was asked yet.
        trouble: why it is not connected, or what is wrong with what it sends; empty for nothing.
        resources: how many are held, by type; only types that have some.
        pending: the types of which an answer is awaited.
        last_update_s: when it sent something last; None for never. What is held is so old.
        rejected: what it sent last and could not be taken in, a text for each resource, bounded.
    """

    name: str
    servers: tuple[str, ...]
    server: str = ""
    wire: str = ""
    state: UpstreamState = "connecting"
    since_s: float = 0.0
    trouble: str = ""
    resources: Mapping[TypeUrl, int] = field(default_factory=lambda: MappingProxyType({}))
    pending: tuple[TypeUrl, ...] = ()
    last_update_s: float | None = None
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamEvent(Event):
    """Something that happened with the upstream of this name."""

    upstream: str


@dataclass(frozen=True, slots=True)
class UpstreamConnected(UpstreamEvent):
    """A server of an upstream answers, and is asked over `wire` (`Delta ADS`) from now on."""

    server: str
    wire: str


@dataclass(frozen=True, slots=True)
class UpstreamLost(UpstreamEvent):
    """The connection with a server ended, or an attempt to connect failed; to be sent for each of them.

    Attributes:
        server: the one that was asked.
        reason: why.
        retry_s: it is tried again in so many seconds.
        resources: how many are held of the upstream, all of which stay.
    """

    server: str
    reason: str
    retry_s: float
    resources: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamFailedOver(UpstreamEvent):
    """Another server of the upstream is asked from now on.

    Attributes:
        before: the one that was asked before.
        server: the one that is asked now.
        reason: why that before is not asked any more; empty where this one stands earlier in the list and answers again.
    """

    before: str
    server: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamChanged(UpstreamEvent):
    """A response changed what is held.

    Attributes:
        server: the one that sent it.
        type_url: the type that it is about.
        version: what the server calls it.
        changed: how many resources are new or differ.
        removed: how many are gone.
    """

    server: str
    type_url: TypeUrl
    version: str
    changed: int
    removed: int


@dataclass(frozen=True, slots=True)
class UpstreamExpired(UpstreamEvent):
    """The time to live of resources is over: they are gone."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class UpstreamUnanswered(UpstreamEvent):
    """A change that came on a new connection is published without an answer about these types, which it may concern."""

    types: tuple[TypeUrl, ...]


@dataclass(frozen=True, slots=True)
class UpstreamRejected(UpstreamEvent):
    """A response was NACKed by the relay itself; what is good in it was taken in.

    Attributes:
        server: the one that sent it.
        type_url: the type that it is about.
        version: what the server calls it.
        faults: what is wrong with it, a text for each resource, bounded.
    """

    server: str
    type_url: TypeUrl
    version: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpstreamNacked(UpstreamEvent):
    """So many nodes reject what came from an upstream that it is held back from all.

    Attributes:
        type_url: the type of it.
        reason: the words of a node, with its name.
        names: the resources.
        was_sent: a server of the upstream is connected, and got a NACK.
    """

    type_url: TypeUrl
    reason: str
    names: frozenset[str]
    was_sent: bool


@dataclass(frozen=True, slots=True)
class UpstreamLooped(UpstreamEvent):
    """A server has this process above itself: it would send back what it gets from here, and is not asked.

    Attributes:
        server: the one that was asked.
        relays: the ids of the relays that it named, from it to this process.
    """

    server: str
    relays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpstreamShadowed(UpstreamEvent):
    """Sources that come before it have resources that the upstream has too, and win.

    Attributes:
        count: how many; 0 where there are none any more.
        examples: the first of them, each with the source that wins.
    """

    count: int
    examples: tuple[tuple[Key, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamsRestored(Event):
    """What an earlier process held of upstreams is held again.

    Attributes:
        directory: the state directory.
        resources: how many, by the names of the upstreams.
        age_s: seconds since the oldest of it came; 0 for nothing.
    """

    directory: Path
    resources: Mapping[str, int]
    age_s: float
