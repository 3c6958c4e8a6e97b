"""Word what happens with upstreams: which server is asked, what it sends, and what is wrong with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial, singledispatch

from fsxds.api.secrets import mask_reason
from fsxds.events.event import Details, Level, LogLine
from fsxds.events.phrases import (
    LONGEST_FOREIGN_TEXT,
    LONGEST_NAME,
    MOST_NAMES,
    count_of,
    noun_of,
    omitted,
    shortened,
    some_of,
    type_name,
)
from fsxds.events.upstream_events import (
    UpstreamChanged,
    UpstreamConnected,
    UpstreamEvent,
    UpstreamExpired,
    UpstreamFailedOver,
    UpstreamLooped,
    UpstreamLost,
    UpstreamNacked,
    UpstreamRejected,
    UpstreamShadowed,
    UpstreamUnanswered,
)
from fsxds.model.values import PlainValue
from fsxds.observe.internal_errors import RepeatLimit
from fsxds.observe.rollout_lines import MOST_RESOURCES, resources_of, written_keys

# An outage is one line, and one more as long as it lasts.
REMINDER_S = 300.0
# A server may say another one each time.
MOST_REASONS = 10
# More than is quoted, so that nothing is cut in the midst of what has to be masked.
LONGEST_READ = 4 * LONGEST_FOREIGN_TEXT


class UpstreamReports:
    """Words the events of upstreams; of what repeats, one line in a while."""

    def __init__(self) -> None:
        # By upstream, so that none can keep words about another one from the log.
        self._repeats: defaultdict[str, RepeatLimit] = defaultdict(RepeatLimit)
        self._losses: defaultdict[str, RepeatLimit] = defaultdict(partial(RepeatLimit, MOST_REASONS))
        self._loops = RepeatLimit(pause_s=REMINDER_S)
        # By upstream, what was said of its outage.
        self._outages: dict[str, RepeatLimit] = {}
        # Those of which the last line said that they are connected.
        self._connected: set[str] = set()

    def lines(self, event: UpstreamEvent, now_s: float) -> Iterator[LogLine]:
        """Yield the line of an event; none where the same was said a moment ago."""
        match event:
            case UpstreamConnected():
                yield from self._connection(event)
            case UpstreamLost():
                yield from self._loss(event, now_s)
            case UpstreamLooped():
                yield from _limited(self._loops, (event.upstream, event.server), now_s, partial(_loop, event))
            case UpstreamRejected():
                said = event.server, event.type_url, event.faults
                yield from _limited(self._repeats[event.upstream], said, now_s, partial(_rejection, event))
            case UpstreamNacked():
                words = event.type_url, event.reason, event.names
                yield from _limited(self._repeats[event.upstream], words, now_s, partial(_nack, event))
            case UpstreamExpired():
                yield from _limited(self._repeats[event.upstream], "expired", now_s, partial(_expiry, event))
            case _:
                yield _line_of(event)

    def _connection(self, event: UpstreamConnected) -> Iterator[LogLine]:
        self._outages.pop(event.upstream, None)
        if event.upstream in self._connected:
            return
        self._connected.add(event.upstream)
        text = f"upstream {event.upstream}: connected{_with(event.upstream, event.server)} by {event.wire}"
        yield LogLine(
            Level.INFO, "upstream_connected", text, {**_server(event.upstream, event.server), "wire": event.wire}
        )

    def _loss(self, event: UpstreamLost, now_s: float) -> Iterator[LogLine]:
        said = event.server, event.reason
        outage = self._outages.setdefault(event.upstream, RepeatLimit(MOST_REASONS, REMINDER_S))
        # Both: a server that lets clients in and ends at once is as quiet as one that is away.
        flaps = self._losses[event.upstream].admit(said, now_s)
        repeats = None if flaps is None else outage.admit(said, now_s)
        if flaps is None or repeats is None:
            return
        self._connected.discard(event.upstream)
        kept = f"its {count_of(event.resources, 'resource')} stay" if event.resources else "nothing of it is known yet"
        reason = quoted(event.reason)
        text = (
            f"upstream {event.upstream}: no connection{_with(event.upstream, event.server)}: {reason}; {kept}, "
            f"and it is tried again{omitted(flaps + repeats, 'attempt')}"
        )
        details = {**_server(event.upstream, event.server), "reason": reason, "retry_s": event.retry_s}
        yield LogLine(
            Level.WARNING, "upstream_lost", text, {**details, "count": event.resources, "repeats": flaps + repeats}
        )


def quoted(text: str) -> str:
    """Return words of a server or a client as they may be shown. Masking takes the longer, the more there is."""
    return shortened(mask_reason(text[:LONGEST_READ]))


def _limited(limit: RepeatLimit, said: Hashable, now_s: float, word: Callable[[], LogLine]) -> Iterator[LogLine]:
    repeats = limit.admit(said, now_s)
    if repeats is not None:
        line = word()
        yield replace(line, text=line.text + omitted(repeats, "line"), details={**line.details, "repeats": repeats})


@singledispatch
def _line_of(event: UpstreamEvent) -> LogLine:
    """Return the line of an event that is logged each time."""
    raise TypeError(f"{event} has no wording")


@_line_of.register
def _(event: UpstreamFailedOver) -> LogLine:
    reason = quoted(event.reason)
    details = {**_server(event.upstream, event.server), "before": event.before, "reason": reason}
    if not event.reason:
        text = f"upstream {event.upstream}: {event.server} answers again, and is asked instead of {event.before}"
        return LogLine(Level.INFO, "upstream_failed_over", text, details)
    text = f"upstream {event.upstream}: {event.server} is asked instead of {event.before}: {reason}"
    return LogLine(Level.WARNING, "upstream_failed_over", text, details)


@_line_of.register
def _(event: UpstreamChanged) -> LogLine:
    counts = f"{event.changed} changed, {event.removed} removed"
    text = f"upstream {event.upstream}: {noun_of(event.type_url)} {event.version[:12]}: {counts}"
    details = {**_server(event.upstream, event.server), **_response(event)}
    changes: PlainValue = {type_name(event.type_url): {"changed": event.changed, "removed": event.removed}}
    return LogLine(Level.DEBUG, "upstream_changed", text, {**details, "changes": changes})


def _expiry(event: UpstreamExpired) -> LogLine:
    text = f"upstream {event.upstream}: the time to live of {resources_of(event.keys)} is over, which nobody renewed"
    details: Details = {"upstream": event.upstream, "count": len(event.keys)}
    return LogLine(
        Level.WARNING, "upstream_expired", text, {**details, "resources": [*written_keys(event.keys)[:MOST_RESOURCES]]}
    )


@_line_of.register
def _(event: UpstreamUnanswered) -> LogLine:
    types = [type_name(type_url) for type_url in event.types]
    text = f"upstream {event.upstream}: a change is published without an answer about {', '.join(types)}"
    return LogLine(Level.INFO, "upstream_unanswered", text, {"upstream": event.upstream, "types": [*types]})


def _rejection(event: UpstreamRejected) -> LogLine:
    faults = [quoted(fault) for fault in event.faults[:MOST_NAMES]]
    more = f" and {len(event.faults) - MOST_NAMES} more" if len(event.faults) > MOST_NAMES else ""
    text = (
        f"upstream {event.upstream}: NACKed {noun_of(event.type_url)} {event.version[:12]}"
        f"{_with(event.upstream, event.server, 'of')}: {'; '.join(faults)}{more}; what is good in it is served, "
        "beside the last good content of the rest"
    )
    details = {**_server(event.upstream, event.server), **_response(event)}
    return LogLine(
        Level.WARNING, "upstream_rejected", text, {**details, "faults": [*faults], "count": len(event.faults)}
    )


def _nack(event: UpstreamNacked) -> LogLine:
    reason = quoted(event.reason)
    names = f" {some_of(sorted(name[:LONGEST_NAME] for name in event.names))}" if event.names else ""
    fact = f"{noun_of(event.type_url)}{names} of it: held back from all nodes; {reason}"
    outcome = "it was NACKed" if event.was_sent else "it is not connected, and has not heard of it"
    details: Details = {"upstream": event.upstream, "type": type_name(event.type_url)}
    return LogLine(
        Level.WARNING,
        "upstream_nacked",
        f"upstream {event.upstream}: {fact}; {outcome}",
        {**details, "reason": reason, "was_sent": event.was_sent},
    )


def _loop(event: UpstreamLooped) -> LogLine:
    path = f" ({' → '.join(shortened(relay) for relay in event.relays)})" if event.relays else ""
    text = (
        f"upstream {event.upstream}: a loop: {event.server} gets its resources from here{path}, so nothing is taken from it; "
        "what is held stays; remove one of the --upstream options on the way"
    )
    relays: PlainValue = [*event.relays]
    details = {**_server(event.upstream, event.server), "relays": relays}
    return LogLine(Level.ERROR, "upstream_looped", text, details)


@_line_of.register
def _(event: UpstreamShadowed) -> LogLine:
    details: Details = {
        "upstream": event.upstream,
        "count": event.count,
        "resources": [*written_keys(key for key, _ in event.examples)],
    }
    if not event.count:
        text = f"upstream {event.upstream}: no resource of it is replaced by an earlier source any more"
        return LogLine(Level.INFO, "upstream_shadowed", text, details)
    examples = [f"{written_keys((key,))[0]} (of {winner})" for key, winner in event.examples]
    more = f": {some_of(examples)}" if examples else ""
    text = (
        f"upstream {event.upstream}: earlier sources have {count_of(event.count, 'resource')} of it too, and win{more}"
    )
    return LogLine(Level.INFO, "upstream_shadowed", text, details)


def _server(upstream: str, server: str) -> Details:
    return {"upstream": upstream, "server": server}


def _response(event: UpstreamChanged | UpstreamRejected) -> Details:
    return {"type": type_name(event.type_url), "version": event.version}


def _with(upstream: str, server: str, preposition: str = "with") -> str:
    return "" if server == upstream else f" {preposition} {server}"
