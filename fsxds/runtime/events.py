"""What can be logged or counted: the events that components send.

A component takes an `Observer` and calls it with a value of this module whenever something happened; `observe` receives
them all. A new event is a class here, its wording in `observe.event_lines`, and a row in `observe.log_catalogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from fsxds.model.resources import Snapshot
from fsxds.model.values import HeldFile, Layers, Problem, Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription, files_of
from fsxds.rollout import Client, RejectingNode, ResourceVersion, RolloutEvent


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


Observer: TypeAlias = Callable[[Event], object]
"""Receives events. Called where they happen, in the midst of other work: it must be quick, and must not raise."""


# Events of the process
@dataclass(frozen=True, slots=True)
class ApiFound(Event):
    """The message types were read; `api` says of which Envoy: `Envoy 1.40.0 from …, 557 files`."""

    api: str


@dataclass(frozen=True, slots=True)
class TransportChosen(Event):
    """`fsxds dev` chose how its Envoy gets resources."""

    transport: str
    reason: str


@dataclass(frozen=True, slots=True)
class ListeningStarted(Event):
    """`name` (REST, gRPC) listens at `address`, or a directory is written to."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class PlainTextExposed(Event):
    """What `name` (REST, gRPC, admin) serves at `address` can be read on the network: it has no TLS."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class CertificatesReloaded(Event):
    """Files of TLS changed: new connections begin with what is in them now."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CertificatesKept(Event):
    """Files of TLS changed, and cannot be used for `reason`: those that were read before stay in use."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandshakeFailed(Event):
    """A client connected to REST or admin, and did not get as far as a request: `reason` is what TLS says of it."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class TokensRead(Event):
    """A file of tokens was read, at the start or because it changed.

    Attributes:
        path: the file.
        count: how many tokens it has.
        unknown: the names in rules of `access` that no token has.
    """

    path: Path
    count: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokensKept(Event):
    """A file of tokens changed and cannot be used: those that were read before stay valid."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class TokensExposed(Event):
    """Other users of the machine can read a file of tokens."""

    path: Path


@dataclass(frozen=True, slots=True)
class RolloutCommanded(Event):
    """An operator decided something at the admin address.

    Attributes:
        command: the path below `/api`, such as `rollout/abort`.
        words: what the request said, such as a version.
        peer: the IP address that it came from; empty for a unix socket.
    """

    command: str
    words: Mapping[str, str]
    peer: str


@dataclass(frozen=True, slots=True)
class StartDelayed(Event):
    """The start waits for something, for `elapsed_s` seconds so far."""

    waits_for: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ReadinessChanged(Event):
    """Clients are served from now on, or are not for `reason`; empty where they are."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The process ends, because of a signal."""

    reason: str


@dataclass(frozen=True, slots=True)
class SettingsReloaded(Event):
    """SIGHUP applied new settings: the names of the options that changed, and of those that need a restart to change."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsRejected(Event):
    """SIGHUP found a mistake in the settings: those in use stay."""

    reason: str


# Events of components
@dataclass(frozen=True, slots=True)
class InternalError(Event):
    """An exception that nobody expected ended a request, a stream or a component: the one that `where` names."""

    where: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ComponentDegraded(Event):
    """A component failed, for `reason`; it starts again in `retry_s` seconds, and what is served stays."""

    component: str
    reason: str
    retry_s: float


@dataclass(frozen=True, slots=True)
class ComponentRecovered(Event):
    """A component that failed runs again."""

    component: str


@dataclass(frozen=True, slots=True)
class SnapshotSetAside(Event):
    """A component failed on a snapshot three times in a row by an error of fsxds, and waits for the next one."""

    component: str
    error: BaseException


# Events of the source
@dataclass(frozen=True, slots=True)
class WatchStarted(Event):
    """The tree is watched by `inotify` or `poll` from now on, because of `reason`."""

    mode: str
    reason: str


@dataclass(frozen=True, slots=True)
class TreeDisappeared(Event):
    """The tree, or all its files, went away; what was served last stays."""

    reason: str


@dataclass(frozen=True, slots=True)
class TreeReturned(Event):
    """The tree is back."""


@dataclass(frozen=True, slots=True)
class FilesIgnored(Event):
    """No format claims these files; sent once as long as they are there."""

    paths: tuple[PurePosixPath, ...]


@dataclass(frozen=True, slots=True)
class ConfigurationMissing(Event):
    """Nothing in the tree is configuration so far; the first file that is will be served."""

    root: Path
    ignored: tuple[PurePosixPath, ...] = ()
    excluded: tuple[PurePosixPath, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueOverflowed(Event):
    """The kernel dropped file events; the whole tree is read again."""


# Events of reload
@dataclass(frozen=True, slots=True)
class CacheRead(Event):
    """Of `count` files that were to be parsed, the results of `found` were known from an earlier process."""

    found: int
    count: int


@dataclass(frozen=True, slots=True)
class CacheFailed(Event):
    """A directory of kept results is not used any more; all files are parsed."""

    directory: Path
    reason: str


@dataclass(frozen=True, slots=True)
class TreeLoaded(Event):
    """A tree was loaded in `duration_s`: all its problems, and the files of which something older is served, or nothing."""

    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotPublished(Event):
    """A snapshot is served from now on; `detected_s` is the monotonic clock at the first sign of its change."""

    snapshot: Snapshot
    detected_s: float


# Events of rollouts
@dataclass(frozen=True, slots=True)
class RolloutChanged(Event):
    """Something happened in the rollout of a channel.

    Attributes:
        layers: of the nodes that it is for; empty for all nodes.
        cohort: which of them: `main`, `canary`, `rejecting` or `catching up`.
        happened: what happened.
        names: what the clients in that are called.
    """

    layers: Layers
    cohort: str
    happened: RolloutEvent
    names: Mapping[Client, str]


@dataclass(frozen=True, slots=True)
class HoldsChanged(Event):
    """What of the tree is held back now, and what nodes reject of it, as problems of the files that it was written in."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class VersionsHeld(Event):
    """Versions of resources are held back from all nodes, because these reject them."""

    versions: frozenset[ResourceVersion]
    nodes: tuple[RejectingNode, ...]


@dataclass(frozen=True, slots=True)
class VersionsReleased(Event):
    """Versions of resources that were held back from all nodes are offered to them again, or are in no tree any more."""

    versions: frozenset[ResourceVersion]


@dataclass(frozen=True, slots=True)
class CanaryAwaited(Event):
    """A change waits because canaries have not taken it: so many of `count` that were connected since it was offered."""

    missing: int
    count: int


# Events of clients
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


# Events of mirrored files
@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that was not done as asked: `subject` is a path or a resource, `reason` a sentence with the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilesWritten(Event):
    """What one snapshot did to the directory of mirrored files.

    Attributes:
        generation: that of the snapshot.
        written: in order; a bundle that let clusters go is twice in it.
        removed: files of resources that were removed.
        unchanged: how many files were as they should be.
        kept: what stays although the snapshot does not have it.
        left_sources: config sources that were not pointed at a file.
        blocked: files of somebody else that stand in the way.
        restored: those of the written files that somebody had removed or changed.
        pause_s: for how long the next ones are left as somebody makes them, who goes on to change files; 0 at first.
        duration_s: how long it took.
    """

    generation: int = 0
    written: tuple[PurePosixPath, ...] = ()
    removed: tuple[PurePosixPath, ...] = ()
    unchanged: int = 0
    kept: tuple[Remark, ...] = ()
    left_sources: tuple[Remark, ...] = ()
    blocked: tuple[Remark, ...] = ()
    restored: tuple[PurePosixPath, ...] = ()
    pause_s: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MirrorFailed(Event):
    """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""

    error: OSError
    retry_s: float


# Events of the state directory
@dataclass(frozen=True, slots=True)
class StateFailed(Event):
    """The state directory could not be written, so that it is behind what is served; it is tried again in `retry_s` seconds."""

    directory: Path
    reason: str
    retry_s: float


@dataclass(frozen=True, slots=True)
class StateWritten(Event):
    """The state directory has the places of `count` more rollouts as they are."""

    directory: Path
    count: int


@dataclass(frozen=True, slots=True)
class StateRecovered(Event):
    """The state directory, which could not be written, has what is served again."""

    directory: Path


@dataclass(frozen=True, slots=True)
class StateRestored(Event):
    """What an earlier process served, by the state directory: in so many channels, with names that its listeners drain."""

    directory: Path
    channel_count: int
    draining_count: int


@dataclass(frozen=True, slots=True)
class LingeringDropped(Event):
    """The process ends, and so does what lingers in it: so many resources, as there is no state directory."""

    count: int


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


@dataclass(frozen=True, slots=True)
class StateIgnored(Event):
    """Something in the state directory cannot be used, and is left as it is: `subject` is a path or a view."""

    subject: str
    reason: str


# What becomes of events in the log.
class Level(IntEnum):
    """The severity of a line, as `logging` counts."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
