"""Events of the state directory, and of a process's end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsxds.events.event import Event, LogMessage, Measure, log_row
from fsxds.events.phrases import count_of


@dataclass(frozen=True, slots=True)
class StateFailed(Event):
    """Writing the state failed; again in `retry_s` seconds."""

    rows = (
        log_row(
            "state_failed",
            "error",
            "The state directory cannot be written; fsxds keeps serving.",
            "directory error retry_s",
        ),
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
    """The places of `count` more rollouts were written."""

    is_frequent = True
    rows = (
        log_row("state_written", "debug", "The served content was written to the state directory.", "directory count"),
    )
    measures = (Measure("state_writes_total"),)

    directory: Path
    count: int

    def _message(self) -> str:
        return f"state: wrote {count_of(self.count, 'view')} to {self.directory}"


@dataclass(frozen=True, slots=True)
class StateRecovered(Event):
    """The state directory is up to date again."""

    rows = (log_row("state_recovered", "info", "The state directory can be written again.", "directory"),)
    measures = (Measure("state_failing", 0),)

    directory: Path

    def _message(self) -> str:
        return f"state: {self.directory} can be written again"


@dataclass(frozen=True, slots=True)
class StateRestored(Event):
    """An earlier process's snapshots and draining names were restored."""

    rows = (
        log_row("state_restored", "info", "The content of the previous process is served again.", "directory count"),
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
    """The process ends without state, and drops lingering resources."""

    rows = (
        log_row(
            "lingering_dropped",
            "warning",
            "The process ends while resources stay for draining listeners, and drops them.",
            "count",
        ),
    )

    count: int

    def _message(self) -> str:
        resources = count_of(self.count, "resource")
        return f"fsxds ends and drops {resources} that open connections may use; --state keeps them"


@dataclass(frozen=True, slots=True)
class StateIgnored(Event):
    """Unusable state is ignored, and stays."""

    rows = (log_row("state_ignored", "warning", "A part of the state directory cannot be used.", "subject reason"),)

    subject: str
    reason: str

    def _message(self) -> str:
        return f"state: {self.subject} cannot be used: {self.reason}"


@dataclass(frozen=True, slots=True)
class MembersNotWritten(Event):
    """Members' names could not be kept without state either."""

    rows = (
        log_row(
            "members_not_written",
            "warning",
            "The member names of collections cannot be kept for the next process.",
            "directory error",
        ),
    )

    directory: Path
    reason: str

    def _message(self) -> LogMessage:
        fact = f"the member names of collections cannot be kept in {self.directory}: {self.reason}"
        remedy = "give --state DIR, so that clients learn of removals after a restart"
        return LogMessage(f"{fact}; {remedy}", {"error": self.reason})
