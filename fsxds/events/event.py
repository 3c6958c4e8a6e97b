"""The base of events, and the line of the log that one becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

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
class Event:
    """Something that happened."""


Observer: TypeAlias = Callable[[Event], object]
"""Receives events. Called where they happen, in the midst of other work: it must be quick, and must not raise."""
