"""The catalogue of log lines and their fields."""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType

from fsxds.events import (
    client_events,
    file_events,
    fleet_events,
    mirror_events,
    process_events,
    rollout_events,
    state_events,
    upstream_events,
)
from fsxds.events.event import Event, LogRow, log_row

_FAMILIES = (
    *(process_events, file_events, state_events, rollout_events, client_events, mirror_events),
    upstream_events,
    fleet_events,
)

_PROBLEM = "problem path line column rule severity"

REPORTED = (
    log_row(
        "internal_error",
        "error",
        "An error of fsxds itself ended a request, a stream or a component; the rest goes on.",
        "where error place repeats traceback",
    ),
    log_row(
        "library_error",
        "info warning error",
        "A report of a library, or of Python itself.",
        "logger repeats details traceback",
    ),
    log_row("library_message", "debug", "A library reported a fault of a client, or a detail.", "logger"),
    log_row(
        "snapshot_published",
        "debug info",
        "A change is served, and the clients that waited for it were answered.",
        "changes files client_count clients took_ms rejected_by held",
    ),
    log_row("problem_found", "debug warning error", "A file has a mistake that it did not have before.", _PROBLEM),
    log_row("problem_fixed", "info", "A mistake was fixed.", _PROBLEM),
    log_row("more_problems_found", "debug warning error", "More mistakes than have a line each.", "severity count"),
    log_row(
        "more_problems_fixed", "debug warning error", "More fixed mistakes than have a line each.", "severity count"
    ),
    log_row("degraded", "warning", "Of some files the last good version is served, or nothing.", "held since"),
    log_row("recovered", "info", "Every file is served as it is."),
    log_row("files_written", "info", "Mirrored files were written.", "written removed unchanged took_ms"),
    log_row("files_restored", "warning", "Mirrored files that another program changed were written again.", "files"),
    log_row("mirror_failed", "error", "The directory of mirrored files could not be written.", "error retry_s"),
    log_row(
        "file_blocked", "error", "A file of another program stands in the way of a mirrored one.", "subject reason"
    ),
    log_row("resource_kept", "info", "A mirrored file stays although its resource was removed.", "subject reason"),
    log_row("config_source_left", "warning", "A config source was left as it was written.", "subject reason"),
    log_row("envoy_started", "info", "The Envoy of `fsxds dev` runs.", "admin listeners"),
    log_row("envoy_listens", "info", "Where that Envoy takes traffic.", "listeners"),
    log_row("envoy_acked", "info", "The whole snapshot is in effect in it.", "types took_ms held"),
    log_row("envoy_nacked", "error", "It NACKed a part of the snapshot.", "type name reason places took_ms"),
    log_row("envoy_pending", "warning", "It has not taken the whole snapshot yet.", "waits_for warming took_ms"),
    log_row("envoy_logged", "warning error", "A warning or an error of its own log.", "logger"),
    log_row("envoy_ended", "error", "It ended without being asked to.", "status"),
)
"""Lines of several events, of libraries and of a local Envoy."""


def _rows() -> tuple[LogRow, ...]:
    classes = chain.from_iterable(vars(family).values() for family in _FAMILIES)
    events = dict.fromkeys(each for each in classes if isinstance(each, type) and issubclass(each, Event))
    return (*chain.from_iterable(each.rows for each in events), *REPORTED)


CATALOGUE = _rows()
"""All lines: single events' by family, then `REPORTED`."""

EVENTS_BY_NAME = MappingProxyType({row.event: row for row in CATALOGUE})

FIELDS = MappingProxyType(
    {
        "address": "the address, or the directory of mirrored files",
        "admin": "address of the admin page",
        "age_s": "seconds since the oldest of it came",
        "api": "the Envoy or the package that the message types are of",
        "authority": "the authority of the settings",
        "before": "the server that was asked before",
        "changed": "options that changed",
        "changes": "by type, how many resources were `added`, `changed` and `removed`",
        "client_count": "how many clients were answered",
        "clients": "node ids of the first three",
        "cluster": "the client's cluster",
        "cohort": "`canary` for nodes that get a change first, `rejecting` for those that reject some of it, `catching up` for those that are slower than the others, otherwise `main`",
        "column": "from 1",
        "command": "`rollout/approve`, `rollout/promote`, `rollout/abort`, `rollout/retry`, `rollback` or `resume`",
        "component": "name of the component",
        "count": "how many",
        "details": "the whole message",
        "directory": "the tree, or the directory of the cache or of the state",
        "elapsed_s": "seconds so far",
        "error": "type of the exception, or the message of the system",
        "excluded": "how many files the settings exclude",
        "faults": "faults of the first of its resources",
        "file": "the file of tokens",
        "files": "paths of the files that it is about, or that it came from",
        "found": "how many of them",
        "held": "files of which an older version is served, or nothing; where there are some",
        "ignored": "how many files have no known suffix",
        "is_inferred": "whether it asked again with the version before, instead of saying why",
        "layers": "layers of the nodes that it is for; none for all nodes",
        "limit": "the option without its dashes, such as `max-streams`",
        "line": "from 1",
        "listeners": "addresses by the names of listeners",
        "logger": "the library, or the part of Envoy",
        "missing": "how many canaries have not taken the change, or left",
        "mode": "`inotify` or `poll`",
        "name": "the listener there, or the name of the resource, if known",
        "needs_restart": "options that changed, and need a restart",
        "node": "the client's node id",
        "path": "the file, from the top of the tree",
        "peer": "the client's IP address",
        "place": "file, line and function of fsxds",
        "places": "file and line of the resource",
        "problem": "identifies the problem: the same when it is found and when it is fixed",
        "reason": "the cause, and the remedy",
        "rejected_by": "node ids of the first three that NACKed it before this line was written, if any did",
        "relays": "ids of the relays on the way, from the server to this process",
        "removals": "by type, how many resources of how many go",
        "removed": "how many files were removed",
        "repeats": "how many such lines were left out before",
        "resources": "types and names of the first of them",
        "retry_s": "seconds until it is tried again",
        "rule": "name of the rule; `fsxds explain` has its page",
        "server": "the server that was asked",
        "service": "method of the stream",
        "severity": "`error`, `warning` or `note`",
        "since": "the time since when, ISO 8601",
        "status": "HTTP status, name of the gRPC status, or exit status",
        "step": "`whole`, `grow`, `switch` or `shrink`",
        "subject": "path, resource, view or node",
        "took_ms": "milliseconds, from the file event to the last answer",
        "traceback": "traceback, where there is an exception",
        "transport": "`rest`, `ads`, `delta` or `mirror`",
        "type": "short name of the resource type, or its URL",
        "types": "short names of the resource types that changed, or of which an upstream said nothing",
        "unchanged": "how many files were as they should be",
        "unknown": "names of tokens in rules that no token has",
        "upstream": "name of the upstream",
        "upstreams": "names of the upstreams",
        "version": "the version; of a rollout the id of its target, in `removal_held` the id to approve",
        "waits_for": "for what",
        "warming": "how many clusters and listeners are warming",
        "was_sent": "whether a server of the upstream is connected, and got the NACK",
        "where": "the part that ended: a request, a stream or a component",
        "wire": "`Delta ADS`, `SotW ADS` or `REST`",
        "words": "words of the request, such as a version",
        "written": "how many files were written",
    }
)
"""The fields' meanings, the same in all lines."""
