"""The catalogue of the log's lines: what becomes of events, and what each field means."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from fsxds.events.event import Level


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
_ROLLOUT = "layers cohort version"
_PROBLEM = "problem path line column rule severity"

CATALOGUE = (
    _row("api_found", "info", "The message types were read.", "api"),
    _row("transport_chosen", "info", "`fsxds dev` chose how its Envoy gets resources.", "transport reason"),
    _row("listening", "info", "An address was bound, or a directory is written to.", "name address"),
    _row(
        "plain_text_exposed",
        "warning",
        "Other machines can reach an address that is served without TLS.",
        "name address",
    ),
    _row("certificates_reloaded", "info", "New connections begin with the certificates that were changed.", "files"),
    _row("certificates_kept", "error", "Certificates were changed and cannot be used: those before stay.", "reason"),
    _row(
        "handshake_failed",
        "warning",
        "TLS with a client of REST or admin did not come about.",
        "peer reason repeats",
    ),
    _row(
        "tokens_read",
        "info warning",
        "A file of tokens was read, at the start or because it changed.",
        "file count unknown",
    ),
    _row(
        "tokens_kept", "error", "A file of tokens changed and cannot be used: those before stay valid.", "file reason"
    ),
    _row("tokens_exposed", "warning", "Other users of the machine can read a file of tokens.", "file"),
    _row("rollout_commanded", "info", "An operator decided something at the admin address.", "command peer words"),
    _row("waiting", "warning", "The start waits for something.", "waits_for elapsed_s"),
    _row("ready", "info", "Clients are served from now on: `/readyz` says 200."),
    _row("not_ready", "warning", "Clients had better ask elsewhere: `/readyz` says 503.", "reason"),
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
    _row(
        "state_failed", "error", "The state directory could not be written; serving goes on.", "directory error retry_s"
    ),
    _row("state_written", "debug", "The state directory has what is served.", "directory count"),
    _row("state_recovered", "info", "The state directory is written again.", "directory"),
    _row("state_restored", "info", "What the process before served is served again.", "directory count"),
    _row("lingering_dropped", "warning", "The end of the process ends what lingers.", "count"),
    _row(
        "members_not_kept",
        "warning",
        "A client has members of a collection, and without --state the next process does not know what was removed of them.",
        "node",
    ),
    _row(
        "authority_missing",
        "warning",
        "A client asks for a name without authority, and is answered with names of the setting `authority`, which it may take for others.",
        "node name authority",
    ),
    _row("state_ignored", "warning", "Something in the state directory is not used.", "subject reason"),
    _row("upstream_connected", "info", "An upstream answers.", "upstream server wire"),
    _row(
        "upstream_lost",
        "warning",
        "A connection with an upstream ended, or cannot be made; what is held of it stays.",
        "upstream server reason retry_s count repeats",
    ),
    _row(
        "upstream_failed_over",
        "info warning",
        "Another server of an upstream is asked from now on.",
        "upstream server before reason",
    ),
    _row(
        "upstream_changed",
        "debug",
        "A response of an upstream changed what is held of it.",
        "upstream server type version changes",
    ),
    _row(
        "upstream_expired",
        "warning",
        "Resources of an upstream are gone, because it did not renew their time to live.",
        "upstream count resources repeats",
    ),
    _row(
        "upstream_unanswered",
        "info",
        "A change that came on a new connection to an upstream is published without an answer about some types.",
        "upstream types",
    ),
    _row(
        "upstream_rejected",
        "warning",
        "A response of an upstream has resources that are not taken in.",
        "upstream server type version faults count repeats",
    ),
    _row(
        "upstream_nacked",
        "warning",
        "Too many nodes here reject versions of an upstream's resources: it gets a late NACK.",
        "upstream type reason was_sent repeats",
    ),
    _row(
        "upstream_looped",
        "error",
        "An upstream gets its resources from this process, and is not asked.",
        "upstream server relays repeats",
    ),
    _row(
        "upstream_shadowed",
        "info",
        "Earlier sources have resources that an upstream has too, and win.",
        "upstream count resources",
    ),
    _row(
        "upstreams_restored",
        "info",
        "What the process before held of upstreams is served again.",
        "directory upstreams count age_s",
    ),
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
    _row("step_started", "debug", "A step of a rollout is served from now on.", f"{_ROLLOUT} step changes"),
    _row(
        "step_timed_out",
        "warning",
        "Clients did not take a step of a rollout in time: they catch up, and the others go on.",
        f"{_ROLLOUT} step client_count clients",
    ),
    _row("rollout_completed", "debug", "All clients that were waited for have taken a change.", _ROLLOUT),
    _row("rollout_superseded", "debug", "A newer change took the place of one that was under way.", _ROLLOUT),
    _row(
        "removal_held", "warning", "A type shrinks so much that the removal waits for approval.", f"{_ROLLOUT} removals"
    ),
    _row(
        "rolled_back", "warning", "Resources are as they were before, by an operator's decision.", f"{_ROLLOUT} count"
    ),
    _row("rollback_reduced", "info", "Some of them changed in the tree, and follow it again.", f"{_ROLLOUT} count"),
    _row("rollback_ended", "info", "No resource is rolled back any more.", f"{_ROLLOUT} count"),
    _row(
        "versions_held",
        "error",
        "Too many nodes reject versions of resources: all get what was good before, where that is known.",
        "count resources client_count clients reason",
    ),
    _row("versions_released", "info", "Such versions are offered to all nodes again, or are gone.", "count resources"),
    _row(
        "canary_awaited",
        "warning",
        "A change waits for canaries that are not there, or have not taken it.",
        "missing count",
    ),
    _row(
        "lingering_started",
        "info",
        "Resources stay for connections of draining listeners.",
        f"{_ROLLOUT} count resources",
    ),
    _row("lingering_ended", "info", "Resources that lingered are gone.", f"{_ROLLOUT} count resources"),
    _row("stream_opened", "debug", "A client opened a stream.", "node cluster service peer"),
    _row("stream_closed", "debug", "A stream ended.", "node cluster service peer"),
    _row("response_sent", "debug", "A client was sent a version.", _CLIENT),
    _row("ack_received", "debug", "A client ACKed a version.", _CLIENT),
    _row("nack_received", "warning", "A client NACKed a version.", f"{_CLIENT} reason is_inferred files repeats"),
    _row("request_answered", "debug", "A request or a stream ended.", "name peer status"),
    _row(
        "request_rejected",
        "warning",
        "A request was answered with an error, or ignored.",
        "peer status reason repeats subject",
    ),
    _row(
        "limit_reached",
        "warning",
        "Something was rejected, closed or forgotten because an option allows no more.",
        "limit peer repeats",
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
        "error": "type of the exception, or what the system says",
        "excluded": "how many files the settings exclude",
        "faults": "what is wrong with the first of its resources",
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
        "name": "what listens there, or the name of the resource, if known",
        "needs_restart": "options that changed, and need a restart",
        "node": "the client's node id",
        "path": "the file, from the top of the tree",
        "peer": "the client's IP address",
        "place": "file, line and function of fsxds",
        "places": "file and line of the resource",
        "problem": "identifies the problem: the same when it is found and when it is fixed",
        "reason": "why, and what to do",
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
        "where": "what it ended: a request, a stream or a component",
        "wire": "`Delta ADS`, `SotW ADS` or `REST`",
        "words": "what the request said, such as a version",
        "written": "how many files were written",
    }
)
"""What each field of a line means; one word has one meaning in all of them."""
