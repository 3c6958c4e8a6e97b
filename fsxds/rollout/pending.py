"""Tracks NACKed names, and when the same content is offered again.

| rule | source |
| --- | --- |
| The same content is offered again after 1, 2, 4, ... and at most 60 s: it may have come before its dependencies. | ENVOY.md E10 |
| A NACKed response's culprit is unknown: each resource is offered again with fewer others, alone in the end. | ENVOY.md E12 |

Other NACKs do not lengthen the back-off, and new content begins without one. Times are readings, in seconds, of a clock
that only goes forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from fsxds.model.resources import Key
from fsxds.model.values import BackOff, Version

ResourceVersion: TypeAlias = tuple[Key, Version]
"""A digest of content, the same in every view."""

Name = TypeVar("Name", str, ResourceVersion)

BACK_OFF = BackOff(longest_s=60.0)

# The maximum number of parts in which a NACKed batch is offered again: among a thousand the culprit is alone at the
# third time.
MOST_PARTS = 16

# The maximum number of parts offered again at once to a client that NACKs everything.
MOST_BATCHES = 256

Share = Callable[[frozenset[Name]], frozenset[Name]]
"""Interns a set of names."""


@dataclass(frozen=True, slots=True)
class _Batch(Generic[Name]):
    """Names sent again together.

    `nacks` are in a row; `retry_at_s` is None while an ACK is awaited. One that `is_part` is divided no further.
    """

    names: frozenset[Name]
    nacks: int
    retry_at_s: float | None
    is_part: bool = False


class Pending(Generic[Name]):
    """Names NACKed and not ACKed since, with their back-off; if `is_whole`, all are sent again together."""

    __slots__ = ("_batches", "_is_whole", "_share", "names")

    def __init__(self, *, is_whole: bool = False, share: Share[Name] | None = None) -> None:
        self.names: frozenset[Name] = frozenset()
        self._is_whole = is_whole
        self._share: Share[Name] | None = share
        # No name is in two of them.
        self._batches: list[_Batch[Name]] = []

    @property
    def retry_at_s(self) -> float | None:
        """The first retry, or None."""
        times = (batch.retry_at_s for batch in self._batches)
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def batches(self) -> list[tuple[frozenset[Name], int, float | None]]:
        """Names, NACKs in a row, and the next retry; None while an ACK is awaited."""
        return [(batch.names, batch.nacks, batch.retry_at_s) for batch in self._batches]

    def restore(self, batches: Iterable[tuple[frozenset[Name], int, float | None]]) -> None:
        """Take another process's batches."""
        self._keep([_Batch(*batch) for batch in batches])

    @property
    def offered(self) -> frozenset[Name]:
        """Names sent again that await an ACK or NACK."""
        return frozenset[Name]().union(*(batch.names for batch in self._batches if batch.retry_at_s is None))

    def nack(self, names: Iterable[Name], now_s: float) -> None:
        """Count one more NACK in a row."""
        left = frozenset(names)
        batches: list[_Batch[Name]] = []
        for batch in self._batches:
            again = batch.names & left
            if again:
                left -= again
                nacks = batch.nacks + 1
                batches.append(_Batch(again, nacks, now_s + BACK_OFF.pause_s(nacks)))
                batches.extend(_without(batch, again))
            else:
                batches.append(batch)
        if left:
            batches.append(_Batch(left, 1, now_s + BACK_OFF.pause_s(1)))
        self._keep(batches)

    def forget(self, names: Iterable[Name]) -> None:
        """Remove names that were ACKed or unsubscribed."""
        if self._batches and (removed := self.names.intersection(names)):
            self._keep([rest for batch in self._batches for rest in _without(batch, removed)])

    def renew(self, names: Iterable[Name], now_s: float) -> None:
        """Send new content without back-off, and names NACKed together with it: it may have been the culprit."""
        # If only the whole can be sent, all of it is new.
        renewed, batches = self.names if self._is_whole else frozenset(names), []
        for batch in self._batches:
            if changed := batch.names & renewed:
                batches.append(_Batch(changed, 0, None))
                batches += (
                    rest if rest.retry_at_s is None else replace(rest, retry_at_s=min(rest.retry_at_s, now_s))
                    for rest in _without(batch, changed)
                )
            else:
                batches.append(batch)
        self._keep(batches)

    def sent_again(self, names: Iterable[Name]) -> None:
        """Record that names are sent."""
        if self._batches and (sent := self.names.intersection(names)):
            batches: list[_Batch[Name]] = []
            for batch in self._batches:
                now = batch.names & sent
                if batch.retry_at_s is not None and now:
                    batches.append(_Batch(now, batch.nacks, None))
                    batches.extend(_without(batch, now))
                else:
                    batches.append(batch)
            self._keep(batches)

    def due(self, now_s: float, most: int) -> tuple[frozenset[Name], ...]:
        """Return names to send now, in at most `most` responses."""
        retry_at_s = self.retry_at_s
        if retry_at_s is None or now_s < retry_at_s:
            return ()
        self._divide(now_s)
        ready = [(batch.retry_at_s, batch.names) for batch in self._batches if batch.retry_at_s is not None]
        ready.sort(key=lambda each: each[0])
        return tuple(names for retry_at_s, names in ready[:most] if retry_at_s <= now_s)

    def _divide(self, now_s: float) -> None:
        batches, room = [], MOST_BATCHES - len(self._batches)
        for batch in self._batches:
            is_due = batch.retry_at_s is not None and batch.retry_at_s <= now_s
            if self._is_whole or batch.is_part or not is_due or len(batch.names) == 1 or room <= 0:
                batches.append(batch)
                continue
            parts = [replace(batch, names=names, is_part=True) for names in _parts(batch.names, room + 1)]
            room -= len(parts) - 1
            batches += parts
        self._batches = self._shared(batches)

    def _keep(self, batches: list[_Batch[Name]]) -> None:
        """Unite too many, those with the most NACKs."""
        most = 1 if self._is_whole else MOST_BATCHES
        if len(batches) > most:
            batches.sort(key=lambda batch: batch.nacks)
            batches[most - 1 :] = [_united(batches[most - 1 :])]
        self._batches = batches = self._shared(batches)
        names = batches[0].names if len(batches) == 1 else frozenset[Name]().union(*(batch.names for batch in batches))
        self.names = names if self._share is None else self._share(names)

    def _shared(self, batches: list[_Batch[Name]]) -> list[_Batch[Name]]:
        if self._share is None:
            return batches
        return [replace(batch, names=self._share(batch.names)) for batch in batches]


def _without(batch: _Batch[Name], names: frozenset[Name]) -> Iterator[_Batch[Name]]:
    if batch.names.isdisjoint(names):
        yield batch
    elif rest := batch.names - names:
        yield replace(batch, names=rest)


def _united(batches: list[_Batch[Name]]) -> _Batch[Name]:
    times_s = [batch.retry_at_s for batch in batches if batch.retry_at_s is not None]
    names = frozenset[Name]().union(*(batch.names for batch in batches))
    return _Batch(names, max(batch.nacks for batch in batches), min(times_s, default=None))


def _parts(names: frozenset[Name], most: int) -> Iterator[frozenset[Name]]:
    ordered, count = sorted(names), min(len(names), most, MOST_PARTS)
    for part in range(count):
        yield frozenset(ordered[part * len(ordered) // count : (part + 1) * len(ordered) // count])
