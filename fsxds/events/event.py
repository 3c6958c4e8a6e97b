"""The base of events, with log lines and metrics, and phrases for people: counts, names, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import PurePath
from typing import ClassVar, NamedTuple, TypeAlias, cast

from fsxds.api.secrets import mask_reason
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.protocol.messages import Node


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


def single_row(event: str, levels: str, meaning: str, fields: str = "") -> tuple[LogRow]:
    """Make the rows of an event with a single one."""
    return (log_row(event, levels, meaning, fields),)


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


# Control characters, line separators, and marks that change the text's direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Envoy quotes whole messages when it rejects them (ENVOY.md E21).
LONGEST_FOREIGN_TEXT = 500

# More than is quoted, so that no secret is cut before masking.
LONGEST_READ = 4 * LONGEST_FOREIGN_TEXT

# Names in a line for programs.
MOST_RESOURCES = 20

# Names in a line for people.
MOST_NAMES = 3

LONGEST_NAME = 80

NO_REASON = "it gave no reason; see its own log"
"""If a client gave no reason."""

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def escape(text: str) -> str:
    """Escape characters that forge lines or colours."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(text: str) -> str:
    """Cut a foreign text of any length."""
    return text if len(text) <= LONGEST_FOREIGN_TEXT else f"{text[:LONGEST_FOREIGN_TEXT]}…"


def type_name(type_url: TypeUrl) -> str:
    """Return a type's short name (`cds`), or its URL if unknown."""
    row = BY_TYPE_URL.get(type_url)
    return row.short_name if row else type_url


def noun_of(type_url: TypeUrl) -> str:
    """Return a type's noun (`clusters`), or its URL if unknown."""
    row = BY_TYPE_URL.get(type_url)
    return row.noun if row else type_url


def some_of(names: Sequence[str]) -> str:
    """Return the first names: `a, b, c and 5 more`."""
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a count: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def duration(time_s: float) -> str:
    """Round to the largest unit: `3 s`, `5 min`, `2 h`, `4 d`."""
    size, unit = next((each for each in _UNITS if time_s >= each[0]), _UNITS[-1])
    return f"{int(time_s / size)} {unit}"


def omitted(repeats: int, noun: str) -> str:
    """Note omitted lines: ` (2 NACKs before it omitted)`, or ""."""
    return f" ({count_of(repeats, noun)} before it omitted)" if repeats else ""


def name_of(node: Node) -> str:
    """Return a client's node id, else its address."""
    return node.id or node.peer or "a client without an id"


def resources_of(keys: Collection[Key]) -> str:
    """Name a few resources, or count them."""
    return some_of(written_keys(keys)) if len(keys) <= MOST_NAMES else count_of(len(keys), "resource")


def written_keys(keys: Iterable[Key]) -> list[str]:
    """Name resources, sorted: `cds web`."""
    return sorted(f"{type_name(type_url)} {name[:LONGEST_NAME]}" for type_url, name in keys)


def quoted(text: str) -> str:
    """Mask and shorten a foreign text, cut first for speed."""
    return shortened(mask_reason(text[:LONGEST_READ]))
