"""Events of the state directory, and of what a process leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsxds.events.event import Event


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
class StateIgnored(Event):
    """Something in the state directory cannot be used, and is left as it is: `subject` is a path or a view."""

    subject: str
    reason: str
