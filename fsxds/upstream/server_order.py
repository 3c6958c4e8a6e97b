"""Which server of an upstream is asked, and when it is asked again (pure).

| rule | why |
| --- | --- |
| A server is asked while each before it in the list has failed since it answered last. | The first that answers is the one that counts. |
| A server before the one that answers is asked again within 5 s; as soon as it answers, those after it are left. | What answers goes on until then, so there is no gap. |
| What answered for a minute is asked again at once when it is lost, and counts as failed when that fails. | A server that restarts is there again before another one has sent everything. |
| All pauses are random up to a bound that doubles from 0.5 to 30 s (full jitter). | A thousand relays that lost one server do not come back at one moment. |
| The bound is 0.5 s again when a server answered for a minute, and for no other reason. | A server that answers and dies again and again is asked as seldom as one that is down. |
| Who gives no response in time is given twice as long the next time, up to eight times. | A server that is slow, and the only one, is not asked in vain forever. |
"""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.model.values import BackOff

PAUSES = BackOff(first_s=0.5, longest_s=30.0, well_after_s=60.0)
LONGEST_PATIENCE = 8
ASKED_WITHIN_S = 5.0


@dataclass(slots=True)
class _Server:
    """How a server is.

    Attributes:
        is_answering: it gave a response on the connection that there is.
        has_failed: an attempt failed since it answered last.
        failures: attempts that failed since it was well.
        silences: those that ended without a response, in a row.
    """

    is_answering: bool = False
    has_failed: bool = False
    failures: int = 0
    silences: int = 0


class ServerOrder:
    """The servers of an upstream, by their places in its list."""

    def __init__(self, count: int, back_off: BackOff = PAUSES) -> None:
        self._servers = [_Server() for _ in range(count)]
        self._back_off = back_off

    @property
    def current(self) -> int | None:
        """The first server that answers; None for none."""
        return next((place for place, each in enumerate(self._servers) if each.is_answering), None)

    def may_ask(self, place: int) -> bool:
        """Whether a server is to be asked: all before it have failed."""
        return all(each.has_failed for each in self._servers[:place])

    def is_answering(self, place: int) -> bool:
        """Whether a server gave a response on the connection that there is."""
        return self._servers[place].is_answering

    def answered(self, place: int) -> None:
        """Note the first response of a server on a connection; servers after it are not to be asked any longer."""
        self._servers[place] = _Server(is_answering=True, failures=self._servers[place].failures)

    def left(self, place: int) -> None:
        """Note that a server is not asked any more, for one before it answers."""
        server = self._servers[place]
        server.is_answering = server.has_failed = False

    def failed(self, place: int, answered_s: float, *, is_silent: bool = False) -> bool:
        """Note that a connection ended, or that there is none; return whether that is the first failure since the server was well.

        Args:
            place: that of the server.
            answered_s: how long ago it gave its first response on the connection; any number where it gave none.
            is_silent: it gave none in time.
        """
        server = self._servers[place]
        was_well = server.is_answering and answered_s >= self._back_off.well_after_s
        server.failures = 1 if was_well else server.failures + 1
        server.silences = server.silences + 1 if is_silent else 0
        server.has_failed = not was_well
        server.is_answering = False
        return server.failures == 1

    def patience_s(self, place: int, patience_s: float) -> float:
        """Return how long a server may give no response, where that is so long for the first time."""
        return patience_s * min(1 << min(self._servers[place].silences, 8), LONGEST_PATIENCE)

    def pause_s(self, place: int, share: float, *, is_final: bool = False) -> float:
        """Return how long to wait before a server that failed is asked again.

        Args:
            place: that of the server.
            share: a random number from 0 to 1.
            is_final: another attempt would end in the same way, unless somebody changes something.
        """
        if is_final:
            return self._back_off.longest_s * (0.5 + share)
        if self.current is not None:
            return ASKED_WITHIN_S * (1 + share) / 2
        return share * self._back_off.pause_s(self._servers[place].failures)
