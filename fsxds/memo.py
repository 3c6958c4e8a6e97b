"""A memory of bounded size: what was used last is kept, what was not used for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Keeps up to `most` values, by key, the least recently used first. Not for use by several threads at once.

    With `size_of`, values are also dropped until their sizes together are at most `most_size`; the last one is kept
    whatever its size is.
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
            self._values.move_to_end(key)
        return value

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value that is kept, or make and keep it."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> list[tuple[Key, Value]]:
        """Keep a value as the one used last; return what was dropped to make room for it."""
        self.pop(key)
        self._values[key] = value
        if self._size_of is not None:
            self._size += self._size_of(value)
        dropped = []
        while len(self) > 1 and (len(self) > self._most or self._size > self._most_size):
            oldest = next(iter(self))
            dropped.append((oldest, self._values[oldest]))
            self.pop(oldest)
        return dropped

    def pop(self, key: Key) -> Value | None:
        """Drop a value and return it; None where there is none."""
        value = self._values.pop(key, None)
        if value is not None and self._size_of is not None:
            self._size -= self._size_of(value)
        return value
