"""Events of clients: connections, requests, ACKs and NACKs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.api.secrets import mask_reason
from fsxds.events.event import Details, Event, LogMessage, Measure, name_of, shortened, single_row, some_of, type_name
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription, files_of

_OF_VERSION = "node cluster type version"
_OF_STREAM = "node cluster service peer"


@dataclass(frozen=True, slots=True)
class HandshakeFailed(Event):
    """A TLS handshake of REST or admin failed."""

    rows = single_row(
        "handshake_failed", "warning", "A TLS handshake with a client of REST or admin failed.", "peer reason repeats"
    )
    measures = (Measure("handshake_failures_total"),)

    peer: str
    reason: str

    def _message(self) -> LogMessage:
        reason = shortened(self.reason)
        return LogMessage(f"TLS: handshake with {self.peer or 'a local client'} failed: {reason}", {"reason": reason})


@dataclass(frozen=True, slots=True)
class StreamOpened(Event):
    """A client's first request on a stream of `service`."""

    is_frequent = True
    rows = single_row("stream_opened", "debug", "A client opened a stream.", _OF_STREAM)
    measures = (Measure("streams_opened_total", labels=("service",)),)

    node: Node
    service: str
    peer: str

    def _message(self) -> LogMessage:
        node = self.node
        return LogMessage(f"{name_of(node)} opened {self.service}", {"node": node.id, "cluster": node.cluster})


@dataclass(frozen=True, slots=True)
class StreamClosed(Event):
    """A stream ended, on either side."""

    is_frequent = True
    rows = single_row("stream_closed", "debug", "A stream ended.", _OF_STREAM)
    measures = (Measure("streams_closed_total", labels=("service",)),)

    node: Node
    service: str
    peer: str

    def _message(self) -> LogMessage:
        node = self.node
        return LogMessage(f"{name_of(node)} left {self.service}", {"node": node.id, "cluster": node.cluster})


@dataclass(frozen=True, slots=True)
class ResponseSent(Event):
    """A version was sent.

    `detected_s`: monotonic time of the change's first sign; None: not awaited, or no file changed.
    """

    is_frequent = True
    rows = single_row("response_sent", "debug", "A version was sent to a client.", _OF_VERSION)

    node: Node
    subscription: Subscription
    version: Version
    detected_s: float | None = None

    def _message(self) -> LogMessage:
        return _version_message("was sent", self)


@dataclass(frozen=True, slots=True)
class AckReceived(Event):
    """A client ACKed a version."""

    is_frequent = True
    rows = single_row("ack_received", "debug", "A client ACKed a version.", _OF_VERSION)

    node: Node
    subscription: Subscription
    version: Version

    def _message(self) -> LogMessage:
        return _version_message("ACKed", self)


@dataclass(frozen=True, slots=True)
class NackReceived(Event):
    """A client NACKed a version from `files`, or ()."""

    rows = single_row(
        "nack_received", "warning", "A client NACKed a version.", f"{_OF_VERSION} reason is_inferred files repeats"
    )

    node: Node
    subscription: Subscription
    acknowledgement: Acknowledgement
    files: tuple[PurePosixPath, ...]

    def _message(self) -> LogMessage:
        names, said = [str(path) for path in self.files], self.acknowledgement.reason
        version, type_url = self.acknowledgement.version, self.subscription.type_url
        reason = shortened(
            mask_reason(said or "it requested the type again with its previous version; see the client's log")
        )
        text = (
            f"NACK: {name_of(self.node)} rejected {type_name(type_url)} {version[:12]}"
            f"{f' from {some_of(names)}' if names else ''}: {reason}"
        )
        return LogMessage(text, {**_of(self.node, type_url, version), "reason": reason, "is_inferred": said is None})


def _version_message(verb: str, event: ResponseSent | AckReceived) -> LogMessage:
    type_url = event.subscription.type_url
    text = f"{name_of(event.node)} {verb} {type_name(type_url)} {event.version[:12]}"
    return LogMessage(text, _of(event.node, type_url, event.version))


def _of(node: Node, type_url: TypeUrl, version: Version) -> Details:
    return {"node": node.id, "cluster": node.cluster, "type": type_name(type_url), "version": version}


def ack_or_nack(
    node: Node, subscription: Subscription, acknowledgement: Acknowledgement, snapshot: Snapshot | None
) -> AckReceived | NackReceived:
    """Make an ACK's or NACK's event."""
    if acknowledgement.accepted:
        return AckReceived(node, subscription, acknowledgement.version)
    files = () if snapshot is None else files_of(subscription, acknowledgement.version, snapshot)
    return NackReceived(node, subscription, acknowledgement, files)


@dataclass(frozen=True, slots=True)
class RequestRejected(Event):
    """A request got an error, or was ignored; `status` is of HTTP or gRPC.

    Rejections that differ only in `subject`, such as a node, are repetitions.
    """

    rows = single_row(
        "request_rejected",
        "warning",
        "A request was answered with an error, or ignored.",
        "peer status reason repeats subject",
    )
    measures = (Measure("requests_rejected_total", labels=("status",)),)

    peer: str
    status: int | str
    reason: str
    subject: str = ""

    def _message(self) -> LogMessage:
        reason, about = shortened(self.reason), f" ({shortened(self.subject)})" if self.subject else ""
        text = f"rejected a request of {self.peer or 'a local client'} with {self.status}: {reason}{about}"
        return LogMessage(text, {"reason": reason, "subject": shortened(self.subject) or None})


@dataclass(frozen=True, slots=True)
class LimitReached(Event):
    """A request, stream or entry exceeded a limit.

    `limit` is the option without dashes, such as `max-streams`; `peer` an IP address, empty for a unix socket or
    without a culprit; `text` is for a limit without an option.
    """

    rows = single_row(
        "limit_reached",
        "warning",
        "A limit set by an option was reached: a request was rejected, a stream closed or an entry dropped.",
        "limit peer repeats",
    )
    measures = (Measure("limit_reached_total", labels=("limit",)),)

    limit: str
    peer: str = ""
    text: str = ""

    def _message(self) -> str:
        return self.text or f"the limit {self.limit} was reached{f', by {self.peer}' if self.peer else ''}"


@dataclass(frozen=True, slots=True)
class RequestAnswered(Event):
    """A request or stream ended at `name` (REST, gRPC, admin)."""

    is_frequent = True
    rows = single_row("request_answered", "debug", "A request or a stream ended.", "name peer status")

    name: str
    status: int | str
    peer: str

    def _message(self) -> str:
        return f"{self.name}: a request of {self.peer or 'a local client'} ended with {self.status}"


@dataclass(frozen=True, slots=True)
class MembersNotKept(Event):
    """A client's collection members, whose removals the next process misses."""

    rows = single_row(
        "members_not_kept",
        "warning",
        "A client has members of a collection, and without --state or a home directory the next process cannot tell it about removals.",
        "node",
    )

    node: Node

    def _message(self) -> LogMessage:
        fact = "subscribes to a collection, and does not list the members that it has when it reconnects"
        remedy = "give --state DIR, so that it learns of removals after a restart"
        return LogMessage(f"{name_of(self.node)} {fact}; {remedy}", {"node": self.node.id})


@dataclass(frozen=True, slots=True)
class AuthorityMissing(Event):
    """A client names no authority, and gets the settings'."""

    rows = single_row(
        "authority_missing",
        "warning",
        "A client subscribes to a name without an authority, and gets the names of the setting `authority`, which it may not recognise.",
        "node name authority",
    )

    node: Node
    name: str
    authority: str

    def _message(self) -> LogMessage:
        fact = f"subscribes to {self.name}, without an authority, and may not recognise the names of authority {self.authority} that it gets"
        text = f"{name_of(self.node)} {fact}; write xdstp://{self.authority}/… in its configuration"
        return LogMessage(text, {"node": self.node.id})
