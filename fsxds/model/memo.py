"""Bounded caches that drop the least recently used value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Keeps values used since the last `turn` but one."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: dict[Key, Value] = {}
        self._before: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._before | self._now)

    def turn(self) -> None:
        """Drop values not used since the last call."""
        self._now, self._before = {}, self._now

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value, or create it."""
        if key in self._now:
            return self._now[key]
        value = self._now[key] = self._before[key] if key in self._before else make()
        return value

    def put(self, key: Key, value: Value) -> Value:
        """Replace and return a value."""
        self._now[key] = value
        return value


class Lru(Generic[Key, Value]):
    """Keeps up to `most` values by key, the most recently used last.

    With `size_of`, their sum is at most `most_size`, except for a single value. Without it, threads may share one: each
    step is a single `OrderedDict` operation; a value dropped in between is created again.
    """

    __slots__ = ("_most", "_most_size", "_size", "_size_of", "_values")

    def __init__(self, most: int, size_of: Callable[[Value], int] | None = None, most_size: int = 0) -> None:
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._most, self._most_size, self._size_of, self._size = most, most_size, size_of, 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Does not count as a use."""
        return key in self._values

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def get(self, key: Key) -> Value | None:
        """Return a value, or None; counts as a use."""
        value = self._values.get(key)
        if value is not None:
            try:  # noqa: SIM105 - in a third of the time of `suppress`
                self._values.move_to_end(key)
            except KeyError:
                pass
        return value

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the cached value, which may be None, or create it."""
        with suppress(KeyError):
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> list[tuple[Key, Value]]:
        """Return the dropped values, the oldest first."""
        self.pop(key)
        self._values[key] = value
        self._size += self._size_of(value) if self._size_of else 0
        dropped = []
        while len(self) > 1 and (len(self) > self._most or self._size > self._most_size):
            oldest, old = self._values.popitem(last=False)
            self._size -= self._size_of(old) if self._size_of else 0
            dropped.append((oldest, old))
        return dropped

    def pop(self, key: Key) -> Value | None:
        """Remove and return a value."""
        value = self._values.pop(key, None)
        self._size -= self._size_of(value) if self._size_of and value is not None else 0
        return value


# How many changes back an answer may have been given.
MOST_EARLIER = 16
# The maximum number of names in all cached questions, and in those before changes. Clients choose them, up to a
# megabyte per request: a name takes some hundred bytes.
MOST_NAMES = 1_000_000


class AnswersByNames(Generic[Value]):
    """Caches answers about sets of names; each survives changes of other names.

    `earlier` has the last changes, newest first: changed names, answers before, and their number of names.
    """

    __slots__ = ("_earlier", "_kept", "_most", "_names")

    def __init__(
        self, most: int, earlier: tuple[tuple[AbstractSet[str], Lru[frozenset[str], Value], int], ...] = ()
    ) -> None:
        self._most, self._earlier = most, earlier
        self._kept: Lru[frozenset[str], Value] = Lru(most)
        # An upper bound.
        self._names = 0

    def after(self, changed: AbstractSet[str]) -> AnswersByNames[Value]:
        """Return the answers after a change."""
        earlier = ((changed, self._kept, self._names), *self._earlier[: MOST_EARLIER - 1])
        sums = accumulate(names for _, _, names in earlier)
        within = sum(names <= MOST_NAMES for names in sums)
        return AnswersByNames(self._most, earlier[: max(within, 1)])

    def find(self, names: frozenset[str], make: Callable[[], Value]) -> Value:
        """Return the answer, if still valid, or create it."""
        return self._kept.find(names, lambda: self._make(names, make))

    def _make(self, names: frozenset[str], make: Callable[[], Value]) -> Value:
        if self._names + len(names) > MOST_NAMES:
            self._drop()
        self._names += len(names)
        for changed, kept, _ in self._earlier:
            if not changed.isdisjoint(names):
                break
            if (found := kept.get(names)) is not None:
                return found
        return make()

    def _drop(self) -> None:
        kept = tuple(self._kept)
        self._names = sum(map(len, kept))
        for names in kept:
            if self._names <= MOST_NAMES // 2:
                break
            self._kept.pop(names)
            self._names -= len(names)
