"""The log lines of upstreams, with limited repetition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import partial

from fsxds.events.event import Event, LogLine, omitted
from fsxds.events.upstream_events import (
    UpstreamConnected,
    UpstreamEvent,
    UpstreamExpired,
    UpstreamLooped,
    UpstreamLost,
    UpstreamNacked,
    UpstreamRejected,
)
from fsxds.observe.internal_errors import RepeatLimit

# Between lines about one outage.
REMINDER_S = 300.0
# A server may give a new reason each time.
MOST_REASONS = 10


class UpstreamReports:
    """Makes the lines of upstreams' events."""

    def __init__(self) -> None:
        # Per upstream, so that none can suppress lines about another.
        self._repeats: defaultdict[str, RepeatLimit] = defaultdict(RepeatLimit)
        self._losses: defaultdict[str, RepeatLimit] = defaultdict(partial(RepeatLimit, MOST_REASONS))
        self._loops = RepeatLimit(pause_s=REMINDER_S)
        # For the current outage, by upstream.
        self._outages: dict[str, RepeatLimit] = {}
        # As last logged.
        self._connected: set[str] = set()

    def lines(self, event: Event, now_s: float) -> Iterator[LogLine]:
        """Yield an event's line, unless just logged."""
        match event:
            case UpstreamConnected():
                self._outages.pop(event.upstream, None)
                if event.upstream not in self._connected:
                    self._connected.add(event.upstream)
                    yield event.line()
            case UpstreamLost():
                yield from self._loss(event, now_s)
            case UpstreamLooped():
                yield from _limited(self._loops, (event.upstream, event.server), now_s, event)
            case UpstreamRejected():
                yield from _limited(
                    self._repeats[event.upstream], (event.server, event.type_url, event.faults), now_s, event
                )
            case UpstreamNacked():
                yield from _limited(
                    self._repeats[event.upstream], (event.type_url, event.reason, event.names), now_s, event
                )
            case UpstreamExpired():
                yield from _limited(self._repeats[event.upstream], "expired", now_s, event)
            case _:
                yield event.line()

    def _loss(self, event: UpstreamLost, now_s: float) -> Iterator[LogLine]:
        said = event.server, event.reason
        outage = self._outages.setdefault(event.upstream, RepeatLimit(MOST_REASONS, REMINDER_S))
        # Both limits: a server that disconnects clients at once is as quiet as one that is away.
        flaps = self._losses[event.upstream].admit(said, now_s)
        repeats = None if flaps is None else outage.admit(said, now_s)
        if flaps is not None and repeats is not None:
            self._connected.discard(event.upstream)
            yield _repeated(event.line(), flaps + repeats, "attempt")


def _limited(limit: RepeatLimit, said: Hashable, now_s: float, event: UpstreamEvent) -> Iterator[LogLine]:
    repeats = limit.admit(said, now_s)
    if repeats is not None:
        yield _repeated(event.line(), repeats, "line")


def _repeated(line: LogLine, repeats: int, noun: str) -> LogLine:
    return replace(line, text=line.text + omitted(repeats, noun), details={**line.details, "repeats": repeats})
