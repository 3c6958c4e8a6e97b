"""Events of clients: their connections, requests, ACKs and NACKs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.events.event import Event
from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription, files_of


@dataclass(frozen=True, slots=True)
class HandshakeFailed(Event):
    """A client connected to REST or admin, and did not get as far as a request: `reason` is what TLS says of it."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamOpened(Event):
    """A client sent its first request on a stream of `service` (`StreamAggregatedResources`)."""

    node: Node
    service: str
    peer: str


@dataclass(frozen=True, slots=True)
class StreamClosed(Event):
    """A stream that was opened is over, on either side."""

    node: Node
    service: str
    peer: str


@dataclass(frozen=True, slots=True)
class ResponseSent(Event):
    """A version was handed over to a client.

    `detected_s` is the monotonic clock at the first sign of the change that it brings to a client who waited for it; None
    where the client asked for it just now, or nobody changed a file for it.
    """

    node: Node
    subscription: Subscription
    version: Version
    detected_s: float | None = None


@dataclass(frozen=True, slots=True)
class AckReceived(Event):
    """A client ACKed a version."""

    node: Node
    subscription: Subscription
    version: Version


@dataclass(frozen=True, slots=True)
class NackReceived(Event):
    """A client NACKed a version, which came from `files` (none where that is not known any more)."""

    node: Node
    subscription: Subscription
    acknowledgement: Acknowledgement
    files: tuple[PurePosixPath, ...]


def ack_or_nack(
    node: Node, subscription: Subscription, acknowledgement: Acknowledgement, snapshot: Snapshot | None
) -> AckReceived | NackReceived:
    """Return the event of an ACK or NACK that was received while `snapshot` was current."""
    if acknowledgement.accepted:
        return AckReceived(node, subscription, acknowledgement.version)
    files = () if snapshot is None else files_of(subscription, acknowledgement.version, snapshot)
    return NackReceived(node, subscription, acknowledgement, files)


@dataclass(frozen=True, slots=True)
class RequestRejected(Event):
    """A request was answered with an error, or ignored; `status` is an HTTP status or the name of a gRPC status.

    `subject` is what it was about, such as a node; rejections that differ in it alone are repetitions.
    """

    peer: str
    status: int | str
    reason: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class LimitReached(Event):
    """Something was rejected, closed or forgotten because an option allows no more.

    Attributes:
        limit: the name of the option without its dashes, such as `max-streams`.
        peer: the IP address of the client; empty for a unix socket, or where nobody is to blame.
        text: what to say of a limit that no option sets; empty for the others.
    """

    limit: str
    peer: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RequestAnswered(Event):
    """A request or a stream ended, at the listener `name` (REST, gRPC, admin); `status` is as in `RequestRejected`."""

    name: str
    status: int | str
    peer: str


@dataclass(frozen=True, slots=True)
class MembersNotKept(Event):
    """A client has members of a collection, and what is removed of these is not known to the next process."""

    node: Node


@dataclass(frozen=True, slots=True)
class AuthorityMissing(Event):
    """A client asks for a name without authority, and is answered with names that have that of the settings."""

    node: Node
    name: str
    authority: str
