"""Word events, each in one line of the log."""

from __future__ import annotations

from functools import singledispatch

from fsxds.api.secrets import mask_reason
from fsxds.events import (
    AckReceived,
    ApiFound,
    ComponentDegraded,
    ComponentRecovered,
    ConfigurationMissing,
    Event,
    FilesIgnored,
    Level,
    ListeningStarted,
    NackReceived,
    QueueOverflowed,
    ResponseSent,
    SettingsRejected,
    SettingsReloaded,
    SnapshotSetAside,
    StartDelayed,
    StopRequested,
    StreamClosed,
    StreamOpened,
    TransportChosen,
    TreeDisappeared,
    TreeReturned,
    WatchStarted,
)
from fsxds.formats import FORMATS
from fsxds.observe.log_lines import Details, LogLine, name_of, shortened, some_of, type_name
from fsxds.protocol.messages import Node
from fsxds.supervisor import MOST_ATTEMPTS, fault_of, place_of
from fsxds.values import TypeUrl, Version

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
def _(event: StartDelayed) -> LogLine:
    text = f"waiting for {event.waits_for}, {event.elapsed_s:g} s so far"
    return LogLine(Level.WARNING, "waiting", text, {"waits_for": event.waits_for, "elapsed_s": event.elapsed_s})


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
def _(event: ResponseSent) -> LogLine:
    return _client_line("response_sent", "was sent", event)


@line_of.register
def _(event: AckReceived) -> LogLine:
    return _client_line("ack_received", "ACKed", event)


@line_of.register
def _(event: NackReceived) -> LogLine:
    names = [str(path) for path in event.files]
    version, type_url = event.verdict.version, event.subscription.type_url
    reason = shortened(mask_reason(event.verdict.reason or "it asked again with the version before; see its own log"))
    text = (
        f"NACK: {name_of(event.node)} rejected {type_name(type_url)} {version[:12]}"
        f"{f' from {some_of(names)}' if names else ''}: {reason}"
    )
    details = _client(event.node, type_url, version)
    details |= {"reason": reason, "is_inferred": event.verdict.reason is None, "files": [*names]}
    return LogLine(Level.WARNING, "nack_received", text, details)


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
