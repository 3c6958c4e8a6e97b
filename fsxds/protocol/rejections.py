"""What a client rejected of one type on one stream, and when it is offered again.

A rejected response may have been applied in part (ENVOY.md D3), so every name in it is pending until a response that bears
it is accepted. The same content is offered again with back-off: a rejection may heal by itself.

Back-off belongs to a resource at a version: what else the client rejects does not lengthen it, and new content begins
without one. Nobody knows which resource of a rejected response was to blame, so each is offered again in a smaller
response, alone in the end. Then only the culprit waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fsxds.protocol.back_off import back_off_s

# A client that never answers is taken to accept what is older than this many responses.
MOST_UNANSWERED = 64

# Of what was rejected together, so many parts are offered apart: of a thousand names the culprit is alone at the third offer.
MOST_PARTS = 16

# A client that rejects everything is not offered more at once than this many responses bear.
MOST_BATCHES = 256

NOTHING: frozenset[str] = frozenset()


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
