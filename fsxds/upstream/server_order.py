"""Decides which server of an upstream is asked, and when again (pure).

| rule | why |
| --- | --- |
| A server is asked while each before it in the list has failed since it answered last. | The first that answers counts. |
| A server before the answering one is asked again within 5 s; as soon as it answers, those after it are left. | The answering one goes on until then: no gap. |
| A server that answered for a minute is asked again at once when lost, and counts as failed when that fails. | A restarting server is back before another one has sent everything. |
| All pauses are random up to a bound that doubles from 0.5 to 30 s (full jitter). | A thousand relays that lost one server do not come back at one moment. |
| The bound is 0.5 s again when a server answered for a minute. | It was well. |
| The bound is 4 s at most for the first eight failures after an answer. | A server that restarts repeatedly is followed soon; one that answers and dies again and again is not asked at full speed. |
| A server without a response in time gets twice as long the next time, up to eight times. | A single slow server is not asked in vain forever. |
"""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.model.values import BackOff

PAUSES = BackOff(first_s=0.5, longest_s=30.0, well_after_s=60.0)
LONGEST_PATIENCE = 8
ASKED_WITHIN_S = 5.0
# The number of failures after an answer with pauses of at most 4 s, and the number of failures that gives such pauses.
SOON_FAILURES = 8
_BOUND_OF_4_S = 4


@dataclass(slots=True)
class _Server:
    """A server: `has_failed` since it answered, `failures` since it was well, `unanswered_attempts` in a row.

    Its next `soon_failures` have short pauses.
    """

    is_answering: bool = False
    has_failed: bool = False
    failures: int = 0
    unanswered_attempts: int = 0
    soon_failures: int = 0


class ServerOrder:
    """An upstream's servers, by place."""

    def __init__(self, count: int, back_off: BackOff = PAUSES) -> None:
        self._servers = [_Server() for _ in range(count)]
        self._back_off = back_off

    @property
    def current(self) -> int | None:
        """The first server that answers, or None."""
        return next((place for place, each in enumerate(self._servers) if each.is_answering), None)

    def may_ask(self, place: int) -> bool:
        """Whether all servers before have failed."""
        return all(each.has_failed for each in self._servers[:place])

    def is_answering(self, place: int) -> bool:
        """Whether a server answered on this connection."""
        return self._servers[place].is_answering

    def answered(self, place: int) -> None:
        """Record a connection's first response."""
        self._servers[place] = _Server(
            is_answering=True, failures=self._servers[place].failures, soon_failures=SOON_FAILURES
        )

    def left(self, place: int) -> None:
        """Record a change to one before it."""
        server = self._servers[place]
        server.is_answering = server.has_failed = False

    def failed(self, place: int, answered_s: float, *, is_silent: bool = False) -> bool:
        """Record a loss or failure; return whether it is the first since the server was well.

        `answered_s`: since the connection's first response; `is_silent`: none came in time.
        """
        server = self._servers[place]
        was_well = server.is_answering and answered_s >= self._back_off.well_after_s
        server.failures = 1 if was_well else server.failures + 1
        if server.soon_failures:
            server.failures = min(server.failures, _BOUND_OF_4_S)
            server.soon_failures -= 1
        server.unanswered_attempts = server.unanswered_attempts + 1 if is_silent else 0
        server.has_failed = not was_well
        server.is_answering = False
        return server.failures == 1

    def patience_s(self, place: int, patience_s: float) -> float:
        """Return how long to await a response."""
        return patience_s * min(1 << min(self._servers[place].unanswered_attempts, 8), LONGEST_PATIENCE)

    def pause_s(self, place: int, share: float, *, is_final: bool = False) -> float:
        """Return the pause before asking a failed server.

        `share` is random from 0 to 1; `is_final`: another attempt would fail alike.
        """
        if is_final:
            return self._back_off.longest_s * (0.5 + share)
        if self.current is not None:
            return ASKED_WITHIN_S * (1 + share) / 2
        return share * self._back_off.pause_s(self._servers[place].failures)
