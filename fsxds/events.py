"""What can be logged or counted: the events that components send, and the catalogue of the lines that become of them.

A component takes an `Observer` and calls it with a value of this module whenever something happened; `observe` receives
them all. A new event is a class here, and its wording in `observe.log_lines`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription, files_of
from fsxds.resources import Snapshot
from fsxds.values import HeldFile, Problem, Version


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
class StartDelayed(Event):
    """The start waits for something, for `elapsed_s` seconds so far."""

    waits_for: str
    elapsed_s: float


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
    """A tree was loaded: all its problems, and the files of which something older is served, or nothing."""

    problems: tuple[Problem, ...]
    held: tuple[HeldFile, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPublished(Event):
    """A snapshot is served from now on; `detected_s` is the monotonic clock at the first sign of its change."""

    snapshot: Snapshot
    detected_s: float


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
    """A version was handed over to a client."""

    node: Node
    subscription: Subscription
    version: Version


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
    """A request was answered with an error, or ignored; `status` is an HTTP status or the name of a gRPC status."""

    peer: str
    status: int | str
    reason: str


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
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MirrorFailed(Event):
    """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""

    error: OSError
    retry_s: float


# What becomes of events in the log.
class Level(IntEnum):
    """The severity of a line, as `logging` counts."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """What a line of the log may be.

    Attributes:
        event: its name, `event` in JSON.
        levels: its level; several where it depends.
        meaning: one sentence.
        fields: what JSON has beside `ts`, `level`, `event` and `message`; `FIELDS` has their meanings.
    """

    event: str
    levels: tuple[Level, ...]
    meaning: str
    fields: tuple[str, ...] = ()


def _row(event: str, levels: str, meaning: str, fields: str = "") -> CatalogueRow:
    return CatalogueRow(event, tuple(Level[word.upper()] for word in levels.split()), meaning, tuple(fields.split()))


_CLIENT = "node cluster type version"
_PROBLEM = "problem path line column rule severity"

CATALOGUE = (
    _row("api_found", "info", "The message types were read.", "api"),
    _row("transport_chosen", "info", "`fsxds dev` chose how its Envoy gets resources.", "transport reason"),
    _row("listening", "info", "An address was bound, or a directory is written to.", "name address"),
    _row("waiting", "warning", "The start waits for something.", "waits_for elapsed_s"),
    _row("stopping", "info", "The process ends.", "reason"),
    _row("settings_reloaded", "info warning", "SIGHUP applied new settings.", "changed needs_restart"),
    _row("settings_kept", "error", "SIGHUP found a mistake in the settings: those in use stay.", "reason"),
    _row(
        "internal_error",
        "error",
        "An error of fsxds itself ended a request, a stream or a component; the rest goes on.",
        "where error place repeats traceback",
    ),
    _row("component_degraded", "error", "A component failed and will start again.", "component reason retry_s"),
    _row("component_recovered", "info", "A component that failed runs again.", "component"),
    _row(
        "snapshot_set_aside",
        "error",
        "A component failed on a snapshot three times, and waits for the next edit.",
        "component rule error place",
    ),
    _row(
        "library_error",
        "info warning error",
        "A library, or Python itself, reported something.",
        "logger repeats details traceback",
    ),
    _row("library_message", "debug", "A library reported what a client caused, or a detail.", "logger"),
    _row("watching", "info", "How changes are detected.", "mode reason"),
    _row("tree_lost", "error", "The directory, or all its files, went away; what was served last stays.", "error"),
    _row("tree_found", "info", "The directory is back."),
    _row("files_ignored", "info", "No format has the suffix of these files.", "count files"),
    _row(
        "waiting_for_files",
        "warning",
        "No file in the directory is configuration yet.",
        "directory ignored excluded",
    ),
    _row("cache_read", "info", "What files parsed to was known from an earlier start.", "found count"),
    _row("cache_failed", "warning", "Results are not kept for the next start.", "directory error"),
    _row("queue_overflowed", "warning", "The kernel dropped file events; the whole tree is read again."),
    _row(
        "snapshot_published",
        "debug info",
        "A change is served, and the clients that waited for it were answered.",
        "changes files client_count clients took_ms rejected_by held",
    ),
    _row("problem_found", "debug warning error", "A file has a mistake that it did not have before.", _PROBLEM),
    _row("problem_fixed", "info", "A mistake was fixed.", _PROBLEM),
    _row("more_problems_found", "debug warning error", "More mistakes than have a line each.", "severity count"),
    _row("more_problems_fixed", "debug warning error", "More fixed mistakes than have a line each.", "severity count"),
    _row("degraded", "warning", "Of some files the last good version is served, or nothing.", "held since"),
    _row("recovered", "info", "Every file is served as it is."),
    _row("stream_opened", "debug", "A client opened a stream.", "node cluster service peer"),
    _row("stream_closed", "debug", "A stream ended.", "node cluster service peer"),
    _row("response_sent", "debug", "A client was sent a version.", _CLIENT),
    _row("ack_received", "debug", "A client ACKed a version.", _CLIENT),
    _row("nack_received", "warning", "A client NACKed a version.", f"{_CLIENT} reason is_inferred files"),
    _row(
        "request_rejected",
        "warning",
        "A request was answered with an error, or ignored.",
        "peer status reason repeats",
    ),
    _row("files_written", "info", "Mirrored files were written.", "written removed unchanged took_ms"),
    _row("files_restored", "warning", "Mirrored files that somebody else changed were written again.", "files"),
    _row("mirror_failed", "error", "The directory of mirrored files could not be written.", "error retry_s"),
    _row("file_blocked", "error", "A file of somebody else stands in the way of a mirrored one.", "subject reason"),
    _row("resource_kept", "info", "A mirrored file stays although its resource was removed.", "subject reason"),
    _row("config_source_left", "warning", "A config source was left as it was written.", "subject reason"),
    _row("envoy_started", "info", "The Envoy of `fsxds dev` runs.", "admin listeners"),
    _row("envoy_listens", "info", "Where that Envoy takes traffic.", "listeners"),
    _row("envoy_acked", "info", "The whole snapshot is in effect in it.", "types took_ms held"),
    _row("envoy_nacked", "error", "It NACKed a part of the snapshot.", "type name reason places took_ms"),
    _row("envoy_pending", "warning", "It has not taken the whole snapshot yet.", "waits_for warming took_ms"),
    _row("envoy_logged", "warning error", "A warning or an error of its own log.", "logger"),
    _row("envoy_ended", "error", "It ended without being asked to.", "status"),
)
EVENTS_BY_NAME = MappingProxyType({row.event: row for row in CATALOGUE})

FIELDS = MappingProxyType(
    {
        "address": "the address, or the directory of mirrored files",
        "admin": "address of the admin page",
        "api": "the Envoy or the package that the message types are of",
        "changed": "options that changed",
        "changes": "by type, how many resources were `added`, `changed` and `removed`",
        "client_count": "how many clients were answered",
        "clients": "node ids of the first three",
        "cluster": "the client's cluster",
        "column": "from 1",
        "component": "name of the component",
        "count": "how many",
        "details": "the whole message",
        "directory": "the tree, or the directory of the cache",
        "elapsed_s": "seconds so far",
        "error": "type of the exception, or what the system says",
        "excluded": "how many files the settings exclude",
        "files": "paths of the files that it is about, or that it came from",
        "found": "how many of them",
        "held": "files of which an older version is served, or nothing; where there are some",
        "ignored": "how many files have no known suffix",
        "is_inferred": "whether it asked again with the version before, instead of saying why",
        "line": "from 1",
        "listeners": "addresses by the names of listeners",
        "logger": "the library, or the part of Envoy",
        "mode": "`inotify` or `poll`",
        "name": "what listens there, or the name of the resource, if known",
        "needs_restart": "options that changed, and need a restart",
        "node": "the client's node id",
        "path": "the file, from the top of the tree",
        "peer": "the client's IP address",
        "place": "file, line and function of fsxds",
        "places": "file and line of the resource",
        "problem": "identifies the problem: the same when it is found and when it is fixed",
        "reason": "why, and what to do",
        "rejected_by": "node ids of the first three that NACKed it, if any did",
        "removed": "how many files were removed",
        "repeats": "how many such lines were left out before",
        "retry_s": "seconds until it is tried again",
        "rule": "name of the rule; `fsxds explain` has its page",
        "service": "method of the stream",
        "severity": "`error`, `warning` or `note`",
        "since": "the time since when, ISO 8601",
        "status": "HTTP status, name of the gRPC status, or exit status",
        "subject": "path or resource",
        "took_ms": "milliseconds, from the file event to the last answer",
        "traceback": "traceback, where there is an exception",
        "transport": "`rest`, `ads`, `delta` or `mirror`",
        "type": "short name of the resource type, or its URL",
        "types": "short names of the resource types that changed",
        "unchanged": "how many files were as they should be",
        "version": "the version",
        "waits_for": "for what",
        "warming": "how many clusters and listeners are warming",
        "where": "what it ended: a request, a stream or a component",
        "written": "how many files were written",
    }
)
"""What each field of a line means; one word has one meaning in all of them."""
