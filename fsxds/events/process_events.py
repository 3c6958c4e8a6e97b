"""Events of the process, from start to end."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from fsxds import __version__
from fsxds.events.event import Event, Level, LogMessage, Measure, count_of, log_row, shortened, single_row, some_of

MOST_ATTEMPTS = 3
"""Failures in a row after which an input is set aside."""

_PACKAGE = f"{Path(__file__).parent.parent}/"


@dataclass(frozen=True, slots=True)
class ApiFound(Event):
    """Message types of `Envoy 1.40.0 from ..., 557 files` were read."""

    rows = single_row("api_found", "info", "The message types were read.", "api")

    api: str

    def _message(self) -> str:
        return f"API: {self.api}"


@dataclass(frozen=True, slots=True)
class TransportChosen(Event):
    """`fsxds dev` chose its Envoy's transport."""

    rows = single_row("transport_chosen", "info", "`fsxds dev` chose how its Envoy gets resources.", "transport reason")

    transport: str
    reason: str

    def _message(self) -> str:
        return f"transport: {self.transport}, {self.reason}"


@dataclass(frozen=True, slots=True)
class ListeningStarted(Event):
    """`name` (REST, gRPC) listens, or a directory is written."""

    rows = single_row("listening", "info", "An address was bound, or a mirror directory opened.", "name address")

    name: str
    address: str

    def _message(self) -> str:
        return f"{self.name}: {self.address}"


@dataclass(frozen=True, slots=True)
class PlainTextExposed(Event):
    """`name` listens without TLS, readable on the network."""

    rows = single_row(
        "plain_text_exposed", "warning", "Other machines can reach an address without TLS.", "name address"
    )

    name: str
    address: str

    def _message(self) -> str:
        return (
            f"{self.name}: NO TLS at {self.address}, which other machines can reach: the network between can read and change "
            "every response; give --tls-cert and --tls-key, or a loopback address or unix:PATH"
        )


@dataclass(frozen=True, slots=True)
class CertificatesReloaded(Event):
    """Changed TLS files apply to new connections."""

    rows = single_row("certificates_reloaded", "info", "New connections use the changed certificates.", "files")
    measures = (
        Measure("certificate_reloads_total", fixed=("applied",)),
        Measure("certificates_last_reload_successful", 1),
    )

    files: tuple[str, ...]

    def _message(self) -> str:
        return f"TLS: new connections use the changed files: {', '.join(self.files)}"


@dataclass(frozen=True, slots=True)
class CertificatesKept(Event):
    """Changed TLS files are unusable: old ones stay."""

    rows = single_row(
        "certificates_kept", "error", "Changed certificates cannot be used: the previous ones stay in use.", "reason"
    )
    measures = (
        Measure("certificate_reloads_total", fixed=("rejected",)),
        Measure("certificates_last_reload_successful", 0),
    )

    reason: str

    def _message(self) -> str:
        return f"TLS: the changed files cannot be used, the previous ones stay in use: {shortened(self.reason)}"


@dataclass(frozen=True, slots=True)
class TokensRead(Event):
    """A token file was read, without tokens for `unknown` names."""

    rows = single_row(
        "tokens_read",
        "info warning",
        "A token file was read, at the start or because it changed.",
        "file count unknown",
    )

    path: Path
    count: int
    unknown: tuple[str, ...] = ()

    def _message(self) -> LogMessage:
        text = f"tokens: {count_of(self.count, 'token')} in {self.path}"
        if not self.unknown:
            return LogMessage(text, {"file": str(self.path)})
        text = f"{text}; `access` names {some_of(self.unknown)}, which no token has: these rules match no client"
        return LogMessage(text, {"file": str(self.path)}, Level.WARNING)


@dataclass(frozen=True, slots=True)
class TokensKept(Event):
    """A changed token file is unusable: old tokens stay valid."""

    rows = single_row(
        "tokens_kept", "error", "A changed token file cannot be used: the previous tokens stay valid.", "file reason"
    )

    path: Path
    reason: str

    def _message(self) -> LogMessage:
        return LogMessage(f"tokens: the previous tokens stay valid: {self.reason}", {"file": str(self.path)})


@dataclass(frozen=True, slots=True)
class TokensExposed(Event):
    """Other users can read a token file."""

    rows = single_row("tokens_exposed", "warning", "Other users of the machine can read a token file.", "file")

    path: Path

    def _message(self) -> LogMessage:
        text = f"tokens: other users can read {self.path}; run `chmod o-r` on it"
        return LogMessage(text, {"file": str(self.path)})


@dataclass(frozen=True, slots=True)
class StartDelayed(Event):
    """The start has waited for `elapsed_s` seconds."""

    rows = single_row("waiting", "warning", "The start is not complete yet.", "waits_for elapsed_s")

    waits_for: str
    elapsed_s: float

    def _message(self) -> str:
        return f"waiting for {self.waits_for}, {self.elapsed_s:g} s so far"


@dataclass(frozen=True, slots=True)
class ReadinessChanged(Event):
    """Clients are served, or not for `reason`."""

    rows = (
        log_row("ready", "info", "fsxds serves clients from now on: `/readyz` answers 200."),
        log_row("not_ready", "warning", "fsxds is not ready for clients: `/readyz` answers 503.", "reason"),
    )

    reason: str

    def _message(self) -> LogMessage:
        if self.reason:
            return LogMessage(f"not ready: {self.reason}", event="not_ready")
        return LogMessage("ready: clients are served", event="ready")


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """A signal requested the process's end."""

    rows = single_row("stopping", "info", "The process ends.", "reason")

    reason: str

    def _message(self) -> str:
        return f"stopping: {self.reason}"


@dataclass(frozen=True, slots=True)
class SettingsReloaded(Event):
    """SIGHUP applied settings; some need a restart."""

    rows = single_row("settings_reloaded", "info warning", "SIGHUP applied new settings.", "changed needs_restart")
    measures = (
        Measure("settings_reloads_total", fixed=("applied",)),
        Measure("settings_last_reload_successful", 1),
    )

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]

    def _message(self) -> LogMessage:
        text = f"settings reloaded: {', '.join(self.changed) or 'nothing'} changed"
        if not self.needs_restart:
            return LogMessage(text)
        return LogMessage(f"{text}; restart to change {', '.join(self.needs_restart)}", level=Level.WARNING)


@dataclass(frozen=True, slots=True)
class SettingsRejected(Event):
    """SIGHUP found a mistake: present settings stay."""

    rows = single_row(
        "settings_kept", "error", "SIGHUP found a mistake in the settings: the ones in use stay.", "reason"
    )
    measures = (
        Measure("settings_reloads_total", fixed=("rejected",)),
        Measure("settings_last_reload_successful", 0),
    )

    reason: str

    def _message(self) -> str:
        return f"settings not reloaded, the ones in use stay: {shortened(self.reason)}; correct them, and send SIGHUP again"


@dataclass(frozen=True, slots=True)
class InternalError(Event):
    """An unexpected exception ended a task."""

    where: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ComponentDegraded(Event):
    """A component restarts in `retry_s` seconds; the served snapshot stays."""

    rows = single_row(
        "component_degraded", "error", "A component failed and will start again.", "component reason retry_s"
    )
    measures = (Measure("component_restarts_total", labels=("component",)),)

    component: str
    reason: str
    retry_s: float

    def _message(self) -> str:
        reason = shortened(self.reason)
        return f"degraded: {self.component} restarts in {self.retry_s:g} s ({reason}); served resources stay"


@dataclass(frozen=True, slots=True)
class ComponentRecovered(Event):
    """A failed component runs again."""

    rows = single_row("component_recovered", "info", "A component that failed runs again.", "component")

    component: str

    def _message(self) -> str:
        return f"recovered: {self.component} runs again"


@dataclass(frozen=True, slots=True)
class SnapshotSetAside(Event):
    """A component failed three times, and awaits the next snapshot."""

    rows = single_row(
        "snapshot_set_aside",
        "error",
        "A component failed on a snapshot three times, and waits for the next edit.",
        "component rule error place",
    )
    measures = (Measure("snapshots_set_aside_total", labels=("component",)),)

    component: str
    error: BaseException

    def _message(self) -> LogMessage:
        text = (
            f"{self.component}: this snapshot is set aside after {MOST_ATTEMPTS} failures, by {fault_of(self.error)}; "
            "its result for the previous one stays, and the next edit is tried at once. Send this line, the "
            "traceback of `internal_error` and, if you may, the changed files to the authors of fsxds"
        )
        name, place = type(self.error).__name__, place_of(self.error)
        return LogMessage(text, {"rule": "internal-error", "error": name, "place": place})


def fault_of(error: BaseException) -> str:
    """Describe an error for fsxds' authors."""
    return f"{type(error).__name__} at {place_of(error)} of fsxds {__version__}"


def place_of(error: BaseException) -> str:
    """Return the innermost place in fsxds: `snapshots/load.py:88 in _change`; of a group, its first exception's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or frames
    if not own:
        return "an unknown place"
    return f"{own[-1].filename.removeprefix(_PACKAGE)}:{own[-1].lineno} in {own[-1].name}"


@dataclass(frozen=True, slots=True)
class StateFailed(Event):
    """Writing the state failed; again in `retry_s` seconds."""

    rows = single_row(
        "state_failed",
        "error",
        "The state directory cannot be written; fsxds keeps serving.",
        "directory error retry_s",
    )
    measures = (Measure("state_failures_total"), Measure("state_failing", 1))

    directory: Path
    reason: str
    retry_s: float

    def _message(self) -> LogMessage:
        text = f"state: {self.directory} cannot be written ({self.reason}); fsxds tries again, and keeps serving"
        return LogMessage(text, {"error": self.reason})


@dataclass(frozen=True, slots=True)
class StateWritten(Event):
    """`count` more rollouts' places were written."""

    is_frequent = True
    rows = single_row(
        "state_written", "debug", "The served content was written to the state directory.", "directory count"
    )
    measures = (Measure("state_writes_total"),)

    directory: Path
    count: int

    def _message(self) -> str:
        return f"state: wrote {count_of(self.count, 'view')} to {self.directory}"


@dataclass(frozen=True, slots=True)
class StateRecovered(Event):
    """The state directory is up to date again."""

    rows = single_row("state_recovered", "info", "The state directory can be written again.", "directory")
    measures = (Measure("state_failing", 0),)

    directory: Path

    def _message(self) -> str:
        return f"state: {self.directory} can be written again"


@dataclass(frozen=True, slots=True)
class StateRestored(Event):
    """An earlier process's snapshots were restored."""

    rows = single_row(
        "state_restored", "info", "The content of the previous process is served again.", "directory count"
    )

    directory: Path
    channel_count: int
    draining_count: int

    def _message(self) -> LogMessage:
        views, names = count_of(self.channel_count, "view"), count_of(self.draining_count, "resource")
        text = f"state: serving the content of the previous process, in {views}; draining listeners may use {names}"
        return LogMessage(text, {"count": self.channel_count})


@dataclass(frozen=True, slots=True)
class LingeringDropped(Event):
    """The process ends without state, dropping lingering resources."""

    rows = single_row(
        "lingering_dropped",
        "warning",
        "The process ends while resources stay for draining listeners, and drops them.",
        "count",
    )

    count: int

    def _message(self) -> str:
        resources = count_of(self.count, "resource")
        return f"fsxds ends and drops {resources} that open connections may use; --state keeps them"


@dataclass(frozen=True, slots=True)
class StateIgnored(Event):
    """Unusable state is ignored, and stays."""

    rows = single_row("state_ignored", "warning", "A part of the state directory cannot be used.", "subject reason")

    subject: str
    reason: str

    def _message(self) -> str:
        return f"state: {self.subject} cannot be used: {self.reason}"


@dataclass(frozen=True, slots=True)
class MembersNotWritten(Event):
    """Members' names could not be kept."""

    rows = single_row(
        "members_not_written",
        "warning",
        "The member names of collections cannot be kept for the next process.",
        "directory error",
    )

    directory: Path
    reason: str

    def _message(self) -> LogMessage:
        fact = f"the member names of collections cannot be kept in {self.directory}: {self.reason}"
        remedy = "give --state DIR, so that clients learn of removals after a restart"
        return LogMessage(f"{fact}; {remedy}", {"error": self.reason})
