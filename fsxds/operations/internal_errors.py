"""Errors of fsxds itself: each is counted, and logged with its traceback; the same one at most once a minute."""

from __future__ import annotations

import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsxds.api.secrets import mask_error
from fsxds.operations.log_lines import Level, LogLine, shortened
from fsxds.supervisor import MOST_ATTEMPTS, fault_of, place_of
from fsxds.values import PlainValue

PAUSE_S = 60.0
MOST_REMEMBERED = 100


@dataclass(slots=True)
class _Logged:
    at_s: float
    repeats: int = 0


class InternalErrors:
    """Counts errors by where they happened, and makes a line of each that was not logged lately.

    Attributes:
        counts: how many there were, by what they ended: `mirror`, `REST request`.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._now_s = now_s
        # By what was ended, the exception's type and its place; the one that was logged last is the last.
        self._logged: OrderedDict[tuple[str, str, str], _Logged] = OrderedDict()

    def line(self, where: str, error: BaseException) -> LogLine | None:
        """Count an error and return its line; None when the same one was logged a moment ago."""
        self.counts[where] += 1
        name, place, now_s = type(error).__name__, place_of(error), self._now_s()
        key = where, name, place
        logged = self._logged.get(key)
        if logged is not None and now_s < logged.at_s + PAUSE_S:
            logged.repeats += 1
            return None
        self._logged.pop(key, None)
        self._logged[key] = _Logged(now_s)
        if len(self._logged) > MOST_REMEMBERED:
            self._logged.popitem(last=False)
        repeats = logged.repeats if logged else 0
        more = f" ({repeats} more since it was logged last)" if repeats else ""
        text = f"internal error in {where}: {name} at {place}: {shortened(mask_error(error))}{more}; the rest goes on"
        trace = traceback_of(error)
        details: dict[str, PlainValue] = {
            "where": where,
            "error": name,
            "place": place,
            "repeats": repeats,
            "traceback": trace,
        }
        return LogLine(Level.ERROR, "internal_error", text, details)


def traceback_of(error: BaseException) -> str:
    """Write the traceback of an exception without what exceptions repeat of the data that they met."""
    return "\n".join(_trace(error))


def _trace(error: BaseException) -> Iterator[str]:
    """Yield the parts of a traceback, causes first."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _trace(before)
        yield "which led to:"
    yield "Traceback (most recent call last):"
    yield "".join(traceback.format_tb(error.__traceback__)).rstrip()
    yield f"{type(error).__name__}: {mask_error(error)}"
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _trace(part)


def set_aside_line(component: str, error: BaseException) -> LogLine:
    """Return the line that a component gives up on a snapshot until the next one."""
    name, place = type(error).__name__, place_of(error)
    text = (
        f"{component}: this snapshot is set aside after {MOST_ATTEMPTS} failures, by {fault_of(error)}; "
        "what it made of the last one stays, and the next edit is tried at once. Send this line, the "
        "traceback of `internal_error` and, if you may, the changed files to the authors of fsxds"
    )
    details: dict[str, PlainValue] = {"component": component, "rule": "internal-error", "error": name, "place": place}
    return LogLine(Level.ERROR, "snapshot_set_aside", text, details)
