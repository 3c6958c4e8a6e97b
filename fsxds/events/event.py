"""The base of events, the line of the log that one becomes, and the metrics that it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePath
from typing import ClassVar, NamedTuple, TypeAlias, cast

from fsxds.model.values import PlainValue


class Level(IntEnum):
    """The severity of a line, as `logging` counts."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


Details: TypeAlias = dict[str, PlainValue]
"""The fields of a line."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, of which `log_catalogue.CATALOGUE` has a row.

    Attributes:
        level: its severity.
        event: its name in the catalogue.
        text: the line as people read it.
        details: the fields that programs read beside it.
        admitted_as: the level by which a log decides to write it, where that is not its own: the end of a problem
            belongs in every log that had the problem.
    """

    level: Level
    event: str
    text: str
    details: Mapping[str, PlainValue] = field(default_factory=dict)
    admitted_as: Level | None = None


@dataclass(frozen=True, slots=True)
class LogRow:
    """What a line of the log may be.

    Attributes:
        event: its name, `event` in JSON.
        levels: its level; several where it depends.
        meaning: one sentence.
        fields: what JSON has beside `ts`, `level`, `event` and `message`; `log_catalogue.FIELDS` has their meanings.
    """

    event: str
    levels: tuple[Level, ...]
    meaning: str
    fields: tuple[str, ...] = ()


def log_row(event: str, levels: str, meaning: str, fields: str = "") -> LogRow:
    """Return a row; levels and fields are written with spaces between them."""
    return LogRow(event, tuple(Level[word.upper()] for word in levels.split()), meaning, tuple(fields.split()))


class Measure(NamedTuple):
    """What an event changes of a metric: a counter grows, a gauge is set, a histogram gets a value.

    Attributes:
        name: that of the metric, without `fsxds_`.
        value: a number, or the attribute of the event that has it, or whose length it is.
        labels: attributes of the event, in the order of the metric's labels.
        fixed: labels that are the same for all events, behind those.
    """

    name: str
    value: float | str = 1
    labels: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


class Words(NamedTuple):
    """The words of a line, and what differs from the row of its event.

    Attributes:
        text: the line as people read it.
        details: fields that are no attributes of the event, or are shown in another way; None for one that is left out.
        level: its level; None for the first one of the row.
        event: the name of its row; empty if the event has one alone.
        admitted_as: as in `LogLine`.
    """

    text: str
    details: Mapping[str, PlainValue] = {}
    level: Level | None = None
    event: str = ""
    admitted_as: Level | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        rows: the lines of the log that it may become by itself, whatever happened before.
        measures: the metrics that it changes by itself.
        is_frequent: there may be thousands at once, and below their level they are not worded.
        reporter: the module whose `Reports` have its lines, as they depend on what happened before; empty for none.
    """

    rows: ClassVar[tuple[LogRow, ...]] = ()
    measures: ClassVar[tuple[Measure, ...]] = ()
    is_frequent: ClassVar[bool] = False
    reporter: ClassVar[str] = ""

    def line(self) -> LogLine:
        """Return its line: of the fields of its row, those that are not given with its words are its attributes."""
        said = self._words()
        words = Words(said) if isinstance(said, str) else said
        row = next(row for row in self.rows if words.event in {"", row.event})
        own = (name for name in row.fields if name not in words.details and hasattr(self, name))
        details = {**{name: _plain(getattr(self, name)) for name in own}, **words.details}
        details = {name: each for name, each in details.items() if each is not None}
        return LogLine(words.level or row.levels[0], row.event, words.text, details, words.admitted_as)

    def _words(self) -> str | Words:
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
"""Receives events. Called where they happen, in the midst of other work: it must be quick, and must not raise."""
