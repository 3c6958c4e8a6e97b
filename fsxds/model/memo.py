"""A memory of bounded size: what was used last is kept, what was not used for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Keeps up to `most` values, by key, the least recently used first.

    With `size_of`, values are also dropped until their sizes together are at most `most_size`; the last one is kept
    whatever its size is. Without it, several threads may use one memory: each step is a single one of `OrderedDict`, and
    what another thread dropped in between is made again.
    """

    __slots__ = ("_most", "_most_size", "_size", "_size_of", "_values")

    def __init__(self, most: int, size_of: Callable[[Value], int] | None = None, most_size: int = 0) -> None:
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._most, self._most_size, self._size_of, self._size = most, most_size, size_of, 0

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Whether there is a value; asking is no use of it."""
        return key in self._values

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, the least recently used first."""
        return iter(self._values)

    def get(self, key: Key) -> Value | None:
        """Return a value and count it as used; None where there is none."""
        value = self._values.get(key)
        if value is not None:
            try:  # noqa: SIM105 - in a third of the time of `suppress`
                self._values.move_to_end(key)
            except KeyError:
                pass
        return value

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value that is kept, which may be None, and count it as used; or make and keep it."""
        with suppress(KeyError):
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> list[tuple[Key, Value]]:
        """Keep a value as the one used last; return what was dropped to make room for it, the oldest first."""
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
        """Drop a value and return it; None where there is none."""
        value = self._values.pop(key, None)
        self._size -= self._size_of(value) if self._size_of and value is not None else 0
        return value


# So many changes back, answers that still hold are found.
MOST_EARLIER = 16
# So many names the questions have that are kept, and as many those before changes. Clients choose them, up to a megabyte in one
# request: a name takes some hundred bytes.
MOST_NAMES = 1_000_000


class AnswersByNames(Generic[Value]):
    """Answers to questions about sets of names; those before a change still hold where none of their names changed.

    Args:
        most: as many are kept, the least recently used are dropped first.
        earlier: the last changes, the newest first: which names changed, the answers before that, and how many names these are
            about.
    """

    __slots__ = ("_earlier", "_kept", "_most", "_names")

    def __init__(
        self, most: int, earlier: tuple[tuple[AbstractSet[str], Lru[frozenset[str], Value], int], ...] = ()
    ) -> None:
        self._most, self._earlier = most, earlier
        self._kept: Lru[frozenset[str], Value] = Lru(most)
        # At least as many as there are.
        self._names = 0

    def after(self, changed: AbstractSet[str]) -> AnswersByNames[Value]:
        """Return the answers after a change of these names."""
        earlier = ((changed, self._kept, self._names), *self._earlier[: MOST_EARLIER - 1])
        sums = accumulate(names for _, _, names in earlier)
        within = sum(names <= MOST_NAMES for names in sums)
        return AnswersByNames(self._most, earlier[: max(within, 1)])

    def find(self, names: frozenset[str], make: Callable[[], Value]) -> Value:
        """Return the answer that is kept or still holds, or make and keep it."""
        return self._kept.find(names, lambda: self._make(names, make))

    def _make(self, names: frozenset[str], make: Callable[[], Value]) -> Value:
        if self._names + len(names) > MOST_NAMES:
            self._drop()
        self._names += len(names)
        return self._find_earlier(names, make)

    def _drop(self) -> None:
        """Drop what was not used for longest, until half as many names are left as may be; it costs a look at all."""
        kept = tuple(self._kept)
        self._names = sum(map(len, kept))
        for names in kept:
            if self._names <= MOST_NAMES // 2:
                break
            self._kept.pop(names)
            self._names -= len(names)

    def _find_earlier(self, names: frozenset[str], make: Callable[[], Value]) -> Value:
        for changed, kept, _ in self._earlier:
            if not changed.isdisjoint(names):
                break
            if (found := kept.get(names)) is not None:
                return found
        return make()
