"""The base of events, with log lines and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePath
from typing import ClassVar, NamedTuple, TypeAlias, cast

from fsxds.model.values import PlainValue


class Level(IntEnum):
    """A line's severity, as in `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


Details: TypeAlias = dict[str, PlainValue]
"""The fields of a line."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log: `text` for people, `details` for programs.

    `admitted_as` replaces `level` in deciding to write: a problem's end belongs in every log that had it.
    """

    level: Level
    event: str
    text: str
    details: Mapping[str, PlainValue] = field(default_factory=dict)
    admitted_as: Level | None = None


@dataclass(frozen=True, slots=True)
class LogRow:
    """One kind of log line.

    `levels`: several if it depends; `fields` in JSON, beside `ts`, `level`, `event` and `message`
    (`log_catalogue.FIELDS`).
    """

    event: str
    levels: tuple[Level, ...]
    meaning: str
    fields: tuple[str, ...] = ()


def log_row(event: str, levels: str, meaning: str, fields: str = "") -> LogRow:
    """Make a row from space-separated levels and fields."""
    return LogRow(event, tuple(Level[word.upper()] for word in levels.split()), meaning, tuple(fields.split()))


class Measure(NamedTuple):
    """A counter's growth, a gauge's value, or a histogram's.

    `name` is without `fsxds_`; `value` a number, or an attribute that is one or has a length; `labels` are attributes,
    in the metric's order, then `fixed`.
    """

    name: str
    value: float | str = 1
    labels: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


class LogMessage(NamedTuple):
    """A line's text, and differences from its event's row.

    `details` are not attributes, None omits one; `level` is None for the row's first; `event` names the row, empty for
    the only one; `admitted_as` as in `LogLine`.
    """

    text: str
    details: Mapping[str, PlainValue] = {}
    level: Level | None = None
    event: str = ""
    admitted_as: Level | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    `rows` are its lines, if independent of earlier events, else `reporter` is the class of their reports.
    `is_frequent`: maybe thousands at once: worded only if logged.
    """

    rows: ClassVar[tuple[LogRow, ...]] = ()
    measures: ClassVar[tuple[Measure, ...]] = ()
    is_frequent: ClassVar[bool] = False
    reporter: ClassVar[str] = ""

    def line(self) -> LogLine:
        """Return the line, with attributes as remaining fields."""
        said = self._message()
        words = LogMessage(said) if isinstance(said, str) else said
        row = next(row for row in self.rows if words.event in {"", row.event})
        own = (name for name in row.fields if name not in words.details and hasattr(self, name))
        details = {**{name: _plain(getattr(self, name)) for name in own}, **words.details}
        details = {name: each for name, each in details.items() if each is not None}
        return LogLine(words.level or row.levels[0], row.event, words.text, details, words.admitted_as)

    def _message(self) -> str | LogMessage:
        raise TypeError(f"{self} has no wording")


def _plain(value: object) -> PlainValue:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return cast("PlainValue", value)


Observer: TypeAlias = Callable[[Event], object]
"""Receives events synchronously, so must be quick and not raise."""
