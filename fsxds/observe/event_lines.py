"""Word the events that have a line of their own, whatever happened before."""

from __future__ import annotations

from functools import singledispatch

from fsxds.api.secrets import mask_reason
from fsxds.events.client_events import (
    AckReceived,
    AuthorityMissing,
    HandshakeFailed,
    LimitReached,
    MembersNotKept,
    NackReceived,
    RequestAnswered,
    RequestRejected,
    ResponseSent,
    StreamClosed,
    StreamOpened,
)
from fsxds.events.event import Details, Event, Level, LogLine
from fsxds.events.file_events import (
    CacheFailed,
    CacheRead,
    ConfigurationMissing,
    FilesIgnored,
    QueueOverflowed,
    TreeDisappeared,
    TreeReturned,
    WatchStarted,
)
from fsxds.events.phrases import count_of, duration, name_of, shortened, some_of, type_name
from fsxds.events.process_events import (
    ApiFound,
    CertificatesKept,
    CertificatesReloaded,
    ComponentDegraded,
    ComponentRecovered,
    ListeningStarted,
    PlainTextExposed,
    ReadinessChanged,
    SettingsRejected,
    SettingsReloaded,
    SnapshotSetAside,
    StartDelayed,
    StopRequested,
    TokensExposed,
    TokensKept,
    TokensRead,
    TransportChosen,
)
from fsxds.events.rollout_events import CanaryAwaited, RolloutChanged, RolloutCommanded, VersionsHeld, VersionsReleased
from fsxds.events.state_events import (
    LingeringDropped,
    StateFailed,
    StateIgnored,
    StateRecovered,
    StateRestored,
    StateWritten,
)
from fsxds.events.upstream_events import UpstreamsRestored
from fsxds.formats import FORMATS
from fsxds.model.values import TypeUrl, Version
from fsxds.observe.rollout_lines import canary_line, held_line, released_line, rollout_line
from fsxds.protocol.messages import Node
from fsxds.runtime.supervisor import MOST_ATTEMPTS, fault_of, place_of

# Names of files in one line for programs.
MOST_FILES = 20


@singledispatch
def line_of(event: Event) -> LogLine:
    """Word an event that has a line of its own, whatever happened before."""
    raise TypeError(f"{event} has no wording")


@line_of.register
def _(event: ApiFound) -> LogLine:
    return LogLine(Level.INFO, "api_found", f"API: {event.api}", {"api": event.api})


@line_of.register
def _(event: TransportChosen) -> LogLine:
    details: Details = {"transport": event.transport, "reason": event.reason}
    return LogLine(Level.INFO, "transport_chosen", f"transport: {event.transport}, {event.reason}", details)


@line_of.register
def _(event: ListeningStarted) -> LogLine:
    details: Details = {"name": event.name, "address": event.address}
    return LogLine(Level.INFO, "listening", f"{event.name}: {event.address}", details)


@line_of.register
def _(event: PlainTextExposed) -> LogLine:
    text = (
        f"{event.name}: NO TLS at {event.address}, which other machines can reach: whoever is between can read and change all "
        "that is served; give --tls-cert and --tls-key, or a loopback address or unix:PATH"
    )
    return LogLine(Level.WARNING, "plain_text_exposed", text, {"name": event.name, "address": event.address})


@line_of.register
def _(event: CertificatesReloaded) -> LogLine:
    text = f"TLS: read again, for new connections: {', '.join(event.files)}"
    return LogLine(Level.INFO, "certificates_reloaded", text, {"files": [*event.files]})


@line_of.register
def _(event: CertificatesKept) -> LogLine:
    text = f"TLS: not read again, what was read before stays in use: {shortened(event.reason)}"
    return LogLine(Level.ERROR, "certificates_kept", text, {"reason": event.reason})


@line_of.register
def _(event: TokensRead) -> LogLine:
    details: Details = {"file": str(event.path), "count": event.count, "unknown": [*event.unknown]}
    text = f"tokens: {count_of(event.count, 'token')} in {event.path}"
    if not event.unknown:
        return LogLine(Level.INFO, "tokens_read", text, details)
    text = f"{text}; `access` names {some_of(event.unknown)}, which no token has: nobody can meet these rules"
    return LogLine(Level.WARNING, "tokens_read", text, details)


@line_of.register
def _(event: TokensKept) -> LogLine:
    text = f"tokens: the ones before stay valid: {event.reason}"
    return LogLine(Level.ERROR, "tokens_kept", text, {"file": str(event.path), "reason": event.reason})


@line_of.register
def _(event: TokensExposed) -> LogLine:
    text = f"tokens: other users can read {event.path}; take that away with `chmod o-r`"
    return LogLine(Level.WARNING, "tokens_exposed", text, {"file": str(event.path)})


@line_of.register
def _(event: RolloutCommanded) -> LogLine:
    said = "".join(f" {name}={word}" for name, word in event.words.items())
    text = f"admin: {event.command}{said}, from {event.peer or 'the unix socket'}"
    details: Details = {"command": event.command, "peer": event.peer, "words": {**event.words}}
    return LogLine(Level.INFO, "rollout_commanded", text, details)


line_of.register(RolloutChanged, rollout_line)
line_of.register(VersionsHeld, held_line)
line_of.register(VersionsReleased, released_line)
line_of.register(CanaryAwaited, canary_line)


@line_of.register
def _(event: CacheRead) -> LogLine:
    text = f"cache: {event.found} of {count_of(event.count, 'file')} need not be parsed"
    return LogLine(Level.INFO, "cache_read", text, {"found": event.found, "count": event.count})


@line_of.register
def _(event: CacheFailed) -> LogLine:
    text = f"cache: {event.directory} is not used, and every start parses all files: {event.reason}; give another --cache-dir"
    details: Details = {"directory": str(event.directory), "error": event.reason}
    return LogLine(Level.WARNING, "cache_failed", text, details)


@line_of.register
def _(event: StateFailed) -> LogLine:
    text = f"state: {event.directory} cannot be written ({event.reason}), and is tried again; what is served goes on"
    details: Details = {"directory": str(event.directory), "error": event.reason, "retry_s": event.retry_s}
    return LogLine(Level.ERROR, "state_failed", text, details)


@line_of.register
def _(event: StateWritten) -> LogLine:
    text = f"state: {event.directory} has {count_of(event.count, 'view')} more as they are served"
    details: Details = {"directory": str(event.directory), "count": event.count}
    return LogLine(Level.DEBUG, "state_written", text, details)


@line_of.register
def _(event: StateRecovered) -> LogLine:
    details: Details = {"directory": str(event.directory)}
    return LogLine(Level.INFO, "state_recovered", f"state: {event.directory} is written again", details)


@line_of.register
def _(event: StateRestored) -> LogLine:
    views = count_of(event.channel_count, "view")
    names = count_of(event.draining_count, "resource")
    text = f"state: what was served before is served again, in {views}; draining listeners may use {names}"
    details: Details = {"directory": str(event.directory), "count": event.channel_count}
    return LogLine(Level.INFO, "state_restored", text, details)


@line_of.register
def _(event: UpstreamsRestored) -> LogLine:
    count = sum(event.resources.values())
    age = f", up to {duration(event.age_s)} old" if count else ""
    text = (
        f"state: {count_of(count, 'resource')} of {some_of(sorted(event.resources)) or 'no upstream'} served again{age}"
    )
    details: Details = {"directory": str(event.directory), "upstreams": [*sorted(event.resources)], "count": count}
    return LogLine(Level.INFO, "upstreams_restored", text, {**details, "age_s": round(event.age_s)})


@line_of.register
def _(event: LingeringDropped) -> LogLine:
    resources = count_of(event.count, "resource")
    text = f"the end of fsxds ends what lingers: {resources} that open connections may use; --state keeps them"
    return LogLine(Level.WARNING, "lingering_dropped", text, {"count": event.count})


@line_of.register
def _(event: MembersNotKept) -> LogLine:
    fact = "has members of a collection, and does not say which when it connects again"
    text = f"{name_of(event.node)} {fact}; give --state DIR, so that after a restart it is told what was removed"
    return LogLine(Level.WARNING, "members_not_kept", text, {"node": event.node.id})


@line_of.register
def _(event: AuthorityMissing) -> LogLine:
    fact = f"asks for {event.name}, without authority, and may not know what it is sent, of the authority {event.authority}"
    text = f"{name_of(event.node)} {fact}; write xdstp://{event.authority}/… in what it is configured with"
    fields = {"node": event.node.id, "name": event.name, "authority": event.authority}
    return LogLine(Level.WARNING, "authority_missing", text, fields)


@line_of.register
def _(event: StateIgnored) -> LogLine:
    text = f"state: {event.subject} is not used: {event.reason}"
    return LogLine(Level.WARNING, "state_ignored", text, {"subject": event.subject, "reason": event.reason})


@line_of.register
def _(event: StartDelayed) -> LogLine:
    text = f"waiting for {event.waits_for}, {event.elapsed_s:g} s so far"
    return LogLine(Level.WARNING, "waiting", text, {"waits_for": event.waits_for, "elapsed_s": event.elapsed_s})


@line_of.register
def _(event: ReadinessChanged) -> LogLine:
    if event.reason:
        return LogLine(Level.WARNING, "not_ready", f"not ready: {event.reason}", {"reason": event.reason})
    return LogLine(Level.INFO, "ready", "ready: clients are served")


@line_of.register
def _(event: StopRequested) -> LogLine:
    return LogLine(Level.INFO, "stopping", f"stopping: {event.reason}", {"reason": event.reason})


@line_of.register
def _(event: SettingsReloaded) -> LogLine:
    text = f"settings reloaded: {', '.join(event.changed) or 'nothing'} changed"
    if event.needs_restart:
        text += f"; restart to change {', '.join(event.needs_restart)}"
    details: Details = {"changed": [*event.changed], "needs_restart": [*event.needs_restart]}
    return LogLine(Level.WARNING if event.needs_restart else Level.INFO, "settings_reloaded", text, details)


@line_of.register
def _(event: SettingsRejected) -> LogLine:
    text = f"settings not reloaded, those in use stay: {shortened(event.reason)}; correct them, and send SIGHUP again"
    return LogLine(Level.ERROR, "settings_kept", text, {"reason": event.reason})


@line_of.register
def _(event: ComponentDegraded) -> LogLine:
    reason = shortened(event.reason)
    text = f"degraded: {event.component} restarts in {event.retry_s:g} s ({reason}); what is served stays"
    details: Details = {"component": event.component, "reason": event.reason, "retry_s": event.retry_s}
    return LogLine(Level.ERROR, "component_degraded", text, details)


@line_of.register
def _(event: ComponentRecovered) -> LogLine:
    text = f"recovered: {event.component} runs again"
    return LogLine(Level.INFO, "component_recovered", text, {"component": event.component})


@line_of.register
def _(event: SnapshotSetAside) -> LogLine:
    name, place = type(event.error).__name__, place_of(event.error)
    text = (
        f"{event.component}: this snapshot is set aside after {MOST_ATTEMPTS} failures, by {fault_of(event.error)}; "
        "what it made of the last one stays, and the next edit is tried at once. Send this line, the "
        "traceback of `internal_error` and, if you may, the changed files to the authors of fsxds"
    )
    details: Details = {"component": event.component, "rule": "internal-error", "error": name, "place": place}
    return LogLine(Level.ERROR, "snapshot_set_aside", text, details)


@line_of.register
def _(event: WatchStarted) -> LogLine:
    details: Details = {"mode": event.mode, "reason": event.reason}
    return LogLine(Level.INFO, "watching", f"watching by {event.mode}: {event.reason}", details)


@line_of.register
def _(event: TreeDisappeared) -> LogLine:
    text = f"{event.reason}; what was served last stays until it is back"
    return LogLine(Level.ERROR, "tree_lost", text, {"error": event.reason})


@line_of.register
def _(_: TreeReturned) -> LogLine:
    return LogLine(Level.INFO, "tree_found", "the tree is back", admitted_as=Level.ERROR)


@line_of.register
def _(event: FilesIgnored) -> LogLine:
    names = [str(path) for path in event.paths]
    text = f"{some_of(names)}: ignored, no format has {'this suffix' if len(names) == 1 else 'these suffixes'}"
    return LogLine(Level.INFO, "files_ignored", text, {"count": len(names), "files": [*names[:MOST_FILES]]})


@line_of.register
def _(event: ConfigurationMissing) -> LogLine:
    suffixes = ", ".join(suffix for row in FORMATS for suffix in row.suffixes)
    others = ((event.ignored, "ignored"), (event.excluded, "excluded"))
    there = "".join(f"; {word}: {some_of([str(path) for path in paths])}" for paths, word in others if paths)
    text = f"waiting for configuration: no file in {event.root} has one of the suffixes {suffixes}{there}"
    details: Details = {"directory": str(event.root), **{word: len(paths) for paths, word in others}}
    return LogLine(Level.WARNING, "waiting_for_files", text, details)


@line_of.register
def _(_: QueueOverflowed) -> LogLine:
    return LogLine(Level.WARNING, "queue_overflowed", "too many file events at once: reading the whole tree again")


@line_of.register
def _(event: StreamOpened) -> LogLine:
    return _stream_line("stream_opened", f"{name_of(event.node)} opened {event.service}", event)


@line_of.register
def _(event: StreamClosed) -> LogLine:
    return _stream_line("stream_closed", f"{name_of(event.node)} left {event.service}", event)


@line_of.register
def _(event: RequestAnswered) -> LogLine:
    text = f"{event.name}: a request of {event.peer or 'a local client'} ended with {event.status}"
    details: Details = {"name": event.name, "peer": event.peer, "status": event.status}
    return LogLine(Level.DEBUG, "request_answered", text, details)


@line_of.register
def _(event: ResponseSent) -> LogLine:
    return _client_line("response_sent", "was sent", event)


@line_of.register
def _(event: AckReceived) -> LogLine:
    return _client_line("ack_received", "ACKed", event)


@line_of.register
def _(event: NackReceived) -> LogLine:
    names = [str(path) for path in event.files]
    version, type_url = event.acknowledgement.version, event.subscription.type_url
    reason = shortened(
        mask_reason(event.acknowledgement.reason or "it asked again with the version before; see its own log")
    )
    text = (
        f"NACK: {name_of(event.node)} rejected {type_name(type_url)} {version[:12]}"
        f"{f' from {some_of(names)}' if names else ''}: {reason}"
    )
    details = _client(event.node, type_url, version)
    details |= {"reason": reason, "is_inferred": event.acknowledgement.reason is None, "files": [*names]}
    return LogLine(Level.WARNING, "nack_received", text, details)


@line_of.register
def _(event: RequestRejected) -> LogLine:
    reason, about = shortened(event.reason), f" ({shortened(event.subject)})" if event.subject else ""
    text = f"rejected a request of {event.peer or 'a local client'} with {event.status}: {reason}{about}"
    details: Details = {"peer": event.peer, "status": event.status, "reason": reason}
    if event.subject:
        details = {**details, "subject": shortened(event.subject)}
    return LogLine(Level.WARNING, "request_rejected", text, details)


@line_of.register
def _(event: HandshakeFailed) -> LogLine:
    reason = shortened(event.reason)
    text = f"TLS: no connection with {event.peer or 'a local client'}: {reason}"
    return LogLine(Level.WARNING, "handshake_failed", text, {"peer": event.peer, "reason": reason})


@line_of.register
def _(event: LimitReached) -> LogLine:
    text = event.text or f"--{event.limit} was reached{f', by {event.peer}' if event.peer else ''}"
    return LogLine(Level.WARNING, "limit_reached", text, {"limit": event.limit, "peer": event.peer})


def _stream_line(name: str, text: str, event: StreamOpened | StreamClosed) -> LogLine:
    node = event.node
    details: Details = {"node": node.id, "cluster": node.cluster, "service": event.service, "peer": event.peer}
    return LogLine(Level.DEBUG, name, text, details)


def _client_line(name: str, verb: str, event: ResponseSent | AckReceived) -> LogLine:
    type_url = event.subscription.type_url
    text = f"{name_of(event.node)} {verb} {type_name(type_url)} {event.version[:12]}"
    return LogLine(Level.DEBUG, name, text, _client(event.node, type_url, event.version))


def _client(node: Node, type_url: TypeUrl, version: Version) -> Details:
    return {"node": node.id, "cluster": node.cluster, "type": type_name(type_url), "version": version}
