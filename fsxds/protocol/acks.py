"""ACK and NACK: what became of each response, and when something that was NACKed is sent again.

The one place where ACKs and NACKs are matched with responses, for streams (by the nonce) and polls (by the version).

A NACKed response may have been applied in part (ENVOY.md D3), so every name in it is pending until a response with it is
ACKed. The same content is sent again with back-off: a NACK may have come too early only, before what the content needs
(ENVOY.md A4).

Back-off belongs to a resource at a version: other NACKs do not lengthen it, and new content begins without one. Nobody
knows which resource of a NACKed response was to blame, so each is sent again in a smaller response, alone in the end.
Then only the culprit waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from fsxds.values import Version

# A version that was NACKed is sent again after 1, 2, 4, … and at most 60 seconds.
FIRST_S = 1.0
LONGEST_S = 60.0

# A client that never answers is taken to accept what is older than this many responses.
MOST_UNANSWERED = 64

# Of what was rejected together, so many parts are offered apart: of a thousand names the culprit is alone at the third offer.
MOST_PARTS = 16

# A client that rejects everything is not offered more at once than this many responses bear.
MOST_BATCHES = 256

NOTHING: frozenset[str] = frozenset()


def back_off_s(nacks: int) -> float:
    """Return the seconds to wait before a version is sent again that was NACKed so many times in a row, from 1."""
    return min(FIRST_S * 2.0 ** min(max(nacks, 1) - 1, 16), LONGEST_S)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Names that are offered together, and were rejected equally often in a row.

    `retry_at_s` is None while an offer of them awaits its verdict. `is_part`: they are not to be offered in smaller parts.
    """

    names: frozenset[str]
    rejections: int
    retry_at_s: float | None
    is_part: bool = False


class Rejections:
    """The names that are pending, and the times before which the same content of them is not offered again.

    With `is_whole`, all that is pending can only be offered in one response, so it shares one back-off.

    Times are readings of any clock that only goes forward, in seconds.
    """

    __slots__ = ("_batches", "_is_whole", "names")

    def __init__(self, *, is_whole: bool = False) -> None:
        self.names = NOTHING
        self._is_whole = is_whole
        # No name is in two of them.
        self._batches: list[_Batch] = []

    @property
    def retry_at_s(self) -> float | None:
        """When the first of what is pending may be offered again; None where nothing waits for that."""
        times = (batch.retry_at_s for batch in self._batches)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def reject(self, names: Iterable[str], now_s: float) -> None:
        """Note that a response with these names was rejected: once more in a row for each of them."""
        left, batches = frozenset(names), []
        for batch in self._batches:
            if again := batch.names & left:
                left -= again
                times = batch.rejections + 1
                batches += [_Batch(again, times, now_s + back_off_s(times)), *_without(batch, again)]
            else:
                batches.append(batch)
        if left:
            batches.append(_Batch(left, 1, now_s + back_off_s(1)))
        self._keep(batches)

    def accept(self, names: Iterable[str]) -> None:
        """Note that a response with these names was accepted."""
        self.forget(names)

    def forget(self, names: Iterable[str]) -> None:
        """Make these names pending no more: they were accepted, or the client wants them no longer."""
        if self._batches and (gone := self.names.intersection(names)):
            self._keep([rest for batch in self._batches for rest in _without(batch, gone)])

    def renew(self, names: Iterable[str], now_s: float) -> None:
        """Note that these have other content now, which is offered without a back-off.

        What was rejected together with one of them is due at once: this one may have been the culprit.
        """
        # What can only be offered whole is other as a whole.
        other, batches = self.names if self._is_whole else frozenset(names), []
        for batch in self._batches:
            if changed := batch.names & other:
                batches.append(_Batch(changed, 0, None))
                batches += (
                    rest if rest.retry_at_s is None else replace(rest, retry_at_s=min(rest.retry_at_s, now_s))
                    for rest in _without(batch, changed)
                )
            else:
                batches.append(batch)
        self._keep(batches)

    def offered(self, names: Iterable[str]) -> None:
        """Note that these are sent again now: the client's verdict is awaited."""
        if self._batches and (sent := self.names.intersection(names)):
            batches = []
            for batch in self._batches:
                if batch.retry_at_s is not None and (now := batch.names & sent):
                    batches += [_Batch(now, batch.rejections, None), *_without(batch, now)]
                else:
                    batches.append(batch)
            self._keep(batches)

    def due(self, now_s: float, most: int) -> tuple[frozenset[str], ...]:
        """Return the names that may be offered again now, in at most so many responses; none that is empty."""
        if not self._is_due(now_s):
            return ()
        self._divide(now_s)
        ready = [(batch.retry_at_s, batch.names) for batch in self._batches if batch.retry_at_s is not None]
        ready.sort(key=lambda each: each[0])
        return tuple(names for retry_at_s, names in ready[:most] if retry_at_s <= now_s)

    def _is_due(self, now_s: float) -> bool:
        retry_at_s = self.retry_at_s if self._batches else None
        return retry_at_s is not None and now_s >= retry_at_s

    def _divide(self, now_s: float) -> None:
        """Divide what is due and was rejected together."""
        batches, room = [], MOST_BATCHES - len(self._batches)
        for batch in self._batches:
            is_due = batch.retry_at_s is not None and batch.retry_at_s <= now_s
            if self._is_whole or batch.is_part or not is_due or len(batch.names) == 1 or room <= 0:
                batches.append(batch)
                continue
            parts = [replace(batch, names=names, is_part=True) for names in _parts(batch.names, room + 1)]
            room -= len(parts) - 1
            batches += parts
        self._batches = batches

    def _keep(self, batches: list[_Batch]) -> None:
        """Keep these; where they are too many, put those together that were rejected most."""
        most = 1 if self._is_whole else MOST_BATCHES
        if len(batches) > most:
            batches.sort(key=lambda batch: batch.rejections)
            batches[most - 1 :] = [_together(batches[most - 1 :])]
        self._batches = batches
        # Streams that reject the same share the one set of its names.
        self.names = batches[0].names if len(batches) == 1 else NOTHING.union(*(batch.names for batch in batches))


def _without(batch: _Batch, names: frozenset[str]) -> Iterator[_Batch]:
    """Yield the rest of a batch where there is any."""
    if batch.names.isdisjoint(names):
        yield batch
    elif rest := batch.names - names:
        yield replace(batch, names=rest)


def _together(batches: list[_Batch]) -> _Batch:
    times_s = [batch.retry_at_s for batch in batches if batch.retry_at_s is not None]
    names = NOTHING.union(*(batch.names for batch in batches))
    return _Batch(names, max(batch.rejections for batch in batches), min(times_s, default=None))


def _parts(names: frozenset[str], most: int) -> Iterator[frozenset[str]]:
    ordered, count = sorted(names), min(len(names), most, MOST_PARTS)
    for part in range(count):
        yield frozenset(ordered[part * len(ordered) // count : (part + 1) * len(ordered) // count])


class PollEvidence(Enum):
    """What a poll shows of the response before it. It has no nonce, so that its version has to tell."""

    ACK = auto()
    NACK = auto()
    NOTHING = auto()


class PollState(Enum):
    """What is known of the version that was sent last to one client for one subscription.

    | state | means | at an ACK | at a NACK | at nothing |
    | --- | --- | --- | --- | --- |
    | SENT | the client has not polled since | ACKED | NACKED | UNKNOWN |
    | ACKED | the client holds it | ACKED | NACKED | UNKNOWN |
    | NACKED | it waits for its back-off | ACKED | NACKED | UNKNOWN |
    | UNKNOWN | the response was lost, or the client restarted | ACKED | UNKNOWN | UNKNOWN |
    | NACKED_BEFORE | a previous process sent it, or another replica | FORGOTTEN | NACKED_BEFORE | FORGOTTEN |

    Only a change is reported. Sending makes each of them SENT, a lost response UNKNOWN.
    """

    SENT = auto()
    ACKED = auto()
    NACKED = auto()
    UNKNOWN = auto()
    NACKED_BEFORE = auto()
    FORGOTTEN = auto()


_AFTER_NACK = {PollState.UNKNOWN: PollState.UNKNOWN, PollState.NACKED_BEFORE: PollState.NACKED_BEFORE}


@dataclass(slots=True)
class PolledVersion:
    """The version that was sent last to one client for one subscription.

    `nacks` counts the NACKs in a row; times are readings of the caller's clock in seconds. `ended_at_s` is when the last
    poll was answered, with the version or with nothing new.
    """

    version: Version
    sent_at_s: float
    ended_at_s: float
    state: PollState = PollState.SENT
    nacks: int = 0

    def receive(self, evidence: PollEvidence) -> bool:
        """Take what a poll shows of the version; return whether that is new."""
        before = self.state
        if evidence is PollEvidence.NACK:
            self.state = _AFTER_NACK.get(before, PollState.NACKED)
            self.nacks += self.state is not before
        else:
            known = PollState.ACKED if evidence is PollEvidence.ACK else PollState.UNKNOWN
            self.state = PollState.FORGOTTEN if before is PollState.NACKED_BEFORE else known
            self.nacks = 0
        return self.state is not before

    def receive_lost(self) -> None:
        """Note that the response did not arrive: what the client holds next is no sign that it NACKed the version."""
        self.state, self.nacks = PollState.UNKNOWN, 0

    def retry_at_s(self, allowed: int) -> float:
        """Return when the version may be sent again, if so many NACKs call for no back-off."""
        nacks = self.nacks - allowed
        return self.sent_at_s + (back_off_s(nacks) if nacks > 0 else 0.0)
