"""The catalogue of log lines and their fields."""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType

from fsxds.events import client_events, file_events, fleet_events, process_events, rollout_events, upstream_events
from fsxds.events.event import Event, LogRow, log_row

_FAMILIES = (process_events, file_events, rollout_events, client_events, upstream_events, fleet_events)

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
        "A warning or an error of a library, or of Python itself.",
        "logger repeats details traceback",
    ),
    log_row("library_message", "debug", "A library reported a client's fault, or a detail.", "logger"),
    log_row(
        "snapshot_published",
        "debug info",
        "A change was published, and waiting clients got it.",
        "changes files client_count clients took_ms rejected_by held",
    ),
    log_row("problem_found", "debug warning error", "A file has a new mistake.", _PROBLEM),
    log_row("problem_fixed", "info", "A mistake was fixed.", _PROBLEM),
    log_row(
        "more_problems_found",
        "debug warning error",
        "The number of new mistakes without a line of their own.",
        "severity count",
    ),
    log_row(
        "more_problems_fixed",
        "debug warning error",
        "The number of fixed mistakes without a line of their own.",
        "severity count",
    ),
    log_row(
        "degraded",
        "warning",
        "fsxds holds files back: it serves their last good version, if there is one.",
        "held since",
    ),
    log_row("recovered", "info", "fsxds serves the present content of every file."),
    log_row("files_written", "info", "Mirrored files were written.", "written removed unchanged took_ms"),
    log_row("files_restored", "warning", "Mirrored files that another program changed were written again.", "files"),
    log_row("mirror_failed", "error", "The directory of mirrored files could not be written.", "error retry_s"),
    log_row(
        "file_blocked", "error", "A file of another program occupies the path of a mirrored file.", "subject reason"
    ),
    log_row("resource_kept", "info", "A mirrored file stays although its resource was removed.", "subject reason"),
    log_row("config_source_left", "warning", "A config source was mirrored unchanged.", "subject reason"),
    log_row("envoy_started", "info", "`fsxds dev` started its Envoy.", "admin listeners"),
    log_row("envoy_listens", "info", "The listener addresses of this Envoy.", "listeners"),
    log_row("envoy_acked", "info", "This Envoy ACKed the whole snapshot, and uses it.", "types took_ms held"),
    log_row("envoy_nacked", "error", "This Envoy NACKed a part of the snapshot.", "type name reason places took_ms"),
    log_row("envoy_pending", "warning", "This Envoy does not use the whole snapshot yet.", "waits_for warming took_ms"),
    log_row("envoy_logged", "warning error", "A warning or an error from the log of this Envoy.", "logger"),
    log_row("envoy_ended", "error", "This Envoy ended unexpectedly.", "status"),
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
        "age_s": "seconds since the oldest resource was received",
        "api": "the Envoy or the package that defines the message types",
        "authority": "the authority of the settings",
        "before": "the server that was used before",
        "changed": "options that changed",
        "changes": "by type, how many resources were `added`, `changed` and `removed`",
        "client_count": "the number of clients",
        "clients": "the first three node ids",
        "cluster": "the client's cluster",
        "cohort": "`canary` for nodes that get a change first, `rejecting` for nodes that reject a part of it, `catching up` for slower nodes, otherwise `main`",
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
        "files": "paths of the files, or of the files that define the resources",
        "found": "how many files the cache had",
        "held": "files that are held back: fsxds serves their last good version, if there is one; absent if none is held",
        "ignored": "how many files have no known suffix",
        "is_inferred": "whether the NACK was inferred, because the client requested the previous version again without a reason",
        "layers": "layers of the nodes; empty for all nodes",
        "limit": "the option without its dashes, such as `max-streams`",
        "line": "from 1",
        "listeners": "addresses by the names of listeners",
        "logger": "the library, or the part of Envoy",
        "missing": "how many canaries have not ACKed the change, or left",
        "mode": "`inotify` or `poll`",
        "name": "the listener there, or the name of the resource, if known",
        "needs_restart": "options that change only at a restart",
        "node": "the client's node id",
        "path": "the file, from the top of the tree",
        "peer": "the client's IP address",
        "place": "file, line and function of fsxds",
        "places": "file and line of the resource",
        "problem": "id of the problem, the same in `problem_found` and `problem_fixed`",
        "reason": "the cause, and the remedy",
        "rejected_by": "the first three node ids that NACKed it before this line was written, if any",
        "relays": "ids of the relays on the way, from the server to this process",
        "removals": "by type, how many resources would be removed, and how many there are",
        "removed": "how many files were removed",
        "repeats": "how many equal lines were suppressed before this one",
        "resources": "types and names of the first resources",
        "retry_s": "seconds until the next attempt",
        "rule": "name of the rule; `fsxds explain` has its page",
        "server": "the server of the upstream",
        "service": "method of the stream",
        "severity": "`error`, `warning` or `note`",
        "since": "the time since when, ISO 8601",
        "status": "HTTP status, name of the gRPC status, or exit status",
        "step": "`whole`, `grow`, `switch` or `shrink`",
        "subject": "path, resource, view or node",
        "took_ms": "milliseconds, from the file event to the last answer",
        "traceback": "traceback of the exception, if there is one",
        "transport": "`rest`, `ads`, `delta` or `mirror`",
        "type": "short name of the resource type, or its URL",
        "types": "short names of the resource types that changed, or for which an upstream sent no response",
        "unchanged": "how many files were as they should be",
        "unknown": "names of tokens in rules that no token has",
        "upstream": "name of the upstream",
        "upstreams": "names of the upstreams",
        "version": "the version; of a rollout the id of its target, in `removal_held` the id to approve",
        "waits_for": "the missing step of the start, or the missing parts of Envoy",
        "warming": "how many clusters and listeners are warming",
        "was_sent": "whether a connected server of the upstream got the NACK",
        "where": "the request, stream or component that failed",
        "wire": "`Delta ADS`, `SotW ADS` or `REST`",
        "words": "arguments of the command, such as a version",
        "written": "how many files were written",
    }
)
"""The fields' meanings, the same in all lines."""
