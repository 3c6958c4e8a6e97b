"""An immutable, sorted mapping from names that shares equal parts with its successors.

A name is found by hash, in one of many small dicts; the order is in chunks of some hundred names. A change copies
touched dicts and chunks, and their lists. A few new names are in a separate dict: a thousand tables that each add some
to one share all others.

A chunk's boundaries depend only on its names, so equal names are in equal chunks, in all processes.

The version of a table, or of another set of resources, is equal in every process and release.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar
from zlib import crc32

from fsxds.model.values import TypeUrl, Version

Value = TypeVar("Value")
Result = TypeVar("Result")

# The average number of names per chunk. With it, a change of one of 100 000 names copies some hundred members of a
# chunk and the list of some hundred chunks, which cost the same. Versions depend on it: it must never change.
NAMES_PER_CHUNK = 128

# The number of dicts is a power of two, so that each has 64 to 128 names when they are created, 16 to 256 later.
NEW_BUCKET, LEAST_BUCKET, MOST_BUCKET = 64, 16, 256

# The maximum number of new names in the separate dict.
MOST_ADDED = 16


def begins(name: str, count: int) -> bool:
    """Whether a part begins with this name, as one in `count` does.

    Where parts by a multiple begin, so do parts by `count`.
    """
    return crc32(name.encode()) % count == 0


def begins_chunk(name: str) -> bool:
    """Whether a chunk begins with this name, independent of others."""
    return begins(name, NAMES_PER_CHUNK)


class Chunk(Generic[Value]):
    """Consecutive names and their values, with cached results."""

    __slots__ = ("_known", "first", "names", "values")

    def __init__(self, names: tuple[str, ...], values: tuple[Value, ...]) -> None:
        self.first, self.names, self.values = names[0], names, values
        self._known: dict[Callable[..., object], Any] = {}

    def once(self, make: Callable[[Chunk[Value]], Result]) -> Result:
        """Return a function's cached result."""
        known: Result | None = self._known.get(make)
        if known is None:
            known = self._known[make] = make(self)
        return known


_first = attrgetter("first")

Chunks = tuple[Chunk[Value], ...]
Buckets = tuple[dict[str, Value], ...]


@dataclass(slots=True)
class _Run:
    """Chunks from `start` to before `end`, and their changed names."""

    start: int
    end: int
    names: list[str]


class NameTable(Mapping[str, Value]):
    """Values by name, sorted; never changed."""

    __slots__ = ("_added", "_buckets", "_mask", "_size", "chunks")

    def __init__(self, members: Mapping[str, Value] | None = None) -> None:
        """Take values in any order; a table is shared, not copied."""
        if isinstance(members, NameTable):
            self._share(members)
        else:
            chunks = tuple(_split(sorted(members), members, begins_chunk)) if members else ()
            size = len(members) if members else 0
            self._set(chunks, _buckets_of(chunks, size), {}, size)

    def _share(self, table: NameTable[Value]) -> None:
        self._set(table.chunks, table._buckets, table._added, len(table))

    def _set(self, chunks: Chunks[Value], buckets: Buckets[Value], added: dict[str, Value], size: int) -> None:
        self.chunks, self._buckets, self._added, self._size = chunks, buckets, added, size
        self._mask = len(buckets) - 1

    def __getitem__(self, name: str) -> Value:
        try:
            return self._buckets[hash(name) & self._mask][name]
        except KeyError:
            return self._added[name]

    def get(self, name: str, default: Any = None) -> Value | Any:
        """Return a value, or the default."""
        bucket = self._buckets[hash(name) & self._mask]
        return bucket[name] if name in bucket else self._added.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._buckets[hash(name) & self._mask] or name in self._added

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(chunk.names for chunk in self.chunks)

    def keys(self) -> Names:
        """Set operations cost as much as the smaller set."""
        return Names(self)

    def values(self) -> Values[Value]:
        """Return the values, in the order of names."""
        return Values(self)

    def items(self) -> Items[Value]:
        """Return names and values, in order."""
        return Items(self)

    def among(self, names: Iterable[object]) -> set[str]:
        """Return the names with values."""
        buckets, mask, added = self._buckets, self._mask, self._added
        return {name for name in names if name in buckets[hash(name) & mask] or name in added}

    def starting_with(self, prefix: str) -> Iterator[tuple[str, Value]]:
        """Yield names with a prefix, and values, in order."""
        at = max(bisect_right(self.chunks, prefix, key=_first) - 1, 0)
        for chunk in self.chunks[at:]:
            for place in range(bisect_left(chunk.names, prefix), len(chunk.names)):
                if not chunk.names[place].startswith(prefix):
                    return
                yield chunk.names[place], chunk.values[place]

    def chunks_with(self, prefix: str) -> Iterator[Chunk[Value]]:
        """Yield chunks that may have names with a prefix, in order."""
        at = max(bisect_right(self.chunks, prefix, key=_first) - 1, 0)
        for place in range(at, len(self.chunks)):
            chunk = self.chunks[place]
            if place > at and not chunk.first.startswith(prefix):
                return
            yield chunk

    def changed(self, new: Mapping[str, Value], removed: AbstractSet[str]) -> NameTable[Value]:
        """Add `new` values, and remove `removed` names, which must be there."""
        size = len(self) - len(removed) + len(new) - len(self.among(new))
        chunks = self._changed_chunks(new, removed)
        added: dict[str, Value] = {}
        if len(self._buckets) * LEAST_BUCKET <= size <= len(self._buckets) * MOST_BUCKET:
            buckets, added = self._changed_buckets(new, removed)
        else:
            buckets = _buckets_of(chunks, size)
        table = NameTable[Value]()
        table._set(chunks, buckets, added, size)
        return table

    def differing(self, other: NameTable[Value]) -> set[str]:
        """Return names with different objects, or in one table only."""
        mine, others = set(self.chunks), set(other.chunks)
        names = chain.from_iterable(chunk.names for chunk in mine ^ others)
        return {name for name in names if self.get(name) is not other.get(name)}

    def _changed_buckets(
        self, new: Mapping[str, Value], removed: AbstractSet[str]
    ) -> tuple[Buckets[Value], dict[str, Value]]:
        buckets, mask = list(self._buckets), self._mask
        added = {name: value for name, value in self._added.items() if name not in removed}
        placed: dict[str, Value] = {}
        for name, value in new.items():
            (placed if name in buckets[hash(name) & mask] else added)[name] = value
        if len(added) > MOST_ADDED:
            placed, added = {**placed, **added}, {}
        gone = [name for name in removed if name not in self._added]
        copied = {hash(name) & mask for name in chain(placed, gone)}
        for at in copied:
            buckets[at] = buckets[at].copy()
        for name, value in placed.items():
            buckets[hash(name) & mask][name] = value
        for name in gone:
            del buckets[hash(name) & mask][name]
        return tuple(buckets) if copied else self._buckets, added

    def _changed_chunks(self, new: Mapping[str, Value], removed: AbstractSet[str]) -> Chunks[Value]:
        if not self.chunks:
            return tuple(_split(sorted(new), new, begins_chunk))
        chunks = list(self.chunks)
        # From the end, so that earlier positions stay valid.
        for run in reversed(self._touched(sorted({*new, *removed}), removed)):
            chunks[run.start : run.end] = _merged(chunks[run.start : run.end], run.names, new, removed)
        return tuple(chunks)

    def _touched(self, names: list[str], removed: AbstractSet[str]) -> list[_Run]:
        runs: list[_Run] = []
        for name in names:
            at = max(bisect_right(self.chunks, name, key=_first) - 1, 0)
            # If the first name of a chunk is removed, its other names join the previous chunk.
            start = at - 1 if at and name == self.chunks[at].first and name in removed else at
            if runs and start < runs[-1].end:
                runs[-1].end = at + 1
                runs[-1].names.append(name)
            else:
                runs.append(_Run(start, at + 1, [name]))
        return runs


class Names(KeysView[str]):
    """A table's names."""

    __slots__ = ()
    _mapping: NameTable[Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __and__(self, other: Iterable[object]) -> set[str]:
        if isinstance(other, AbstractSet) and len(other) > len(self):
            return {name for name in self if name in other}
        return self._mapping.among(other)

    def __rand__(self, other: Iterable[Any]) -> set[Any]:
        return self & other


class Values(ValuesView[Value]):
    """A table's values."""

    __slots__ = ()
    _mapping: NameTable[Value]

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(chunk.values for chunk in self._mapping.chunks)


class Items(ItemsView[str, Value]):
    """A table's names and values."""

    __slots__ = ()
    _mapping: NameTable[Value]

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return zip(self._mapping, self._mapping.values(), strict=True)


def _buckets_of(chunks: Chunks[Value], size: int) -> Buckets[Value]:
    count = 1 << max((size // NEW_BUCKET).bit_length() - 1, 0)
    mask = count - 1
    buckets: Buckets[Value] = tuple({} for _ in range(count))
    for chunk in chunks:
        for name, value in zip(chunk.names, chunk.values, strict=True):
            buckets[hash(name) & mask][name] = value
    return buckets


def _split(
    ordered: Sequence[str], members: Mapping[str, Value], begins: Callable[[str], bool]
) -> Iterator[Chunk[Value]]:
    starts = [at for at, name in enumerate(ordered) if not at or begins(name)]
    for start, end in pairwise((*starts, len(ordered))):
        names = tuple(ordered[start:end])
        yield Chunk(names, tuple([members[name] for name in names]))


def _merged(
    chunks: list[Chunk[Value]], names: list[str], new: Mapping[str, Value], removed: AbstractSet[str]
) -> Iterable[Chunk[Value]]:
    members: dict[str, Value] = {}
    for chunk in chunks:
        members.update(zip(chunk.names, chunk.values, strict=True))
    added = [name for name in names if name not in members]
    if not added and removed.isdisjoint(names) and len(chunks) == 1:
        members.update((name, new[name]) for name in names)
        return (Chunk(chunks[0].names, tuple(members.values())),)
    # The first chunk of a table begins with its first name, whichever that is.
    starts = {name for name in (*added, chunks[0].first) if begins_chunk(name)}
    starts.update(chunk.first for chunk in chunks[1:])
    for name in names:
        if name in removed:
            del members[name]
        else:
            members[name] = new[name]
    return _split(sorted(members), members, starts.__contains__)


# The versions of larger sets are digests of digests. This number must never change.
MOST_IN_ONE_DIGEST = 1000


class Versioned(Protocol):
    """An object with a version."""

    @property
    def version(self) -> Version:
        """The digest of its content."""


Member = TypeVar("Member", bound=Versioned)


def version_of_set(type_url: TypeUrl, members: Iterable[tuple[str, str]]) -> Version:
    """Return a set's version: 32 hex digits of SHA-256 over its type, names and their versions.

    A member's line is its name, a zero byte, its version and a newline, in UTF-8. The digest is taken of

    - up to 1000 members: the type, a newline, and all lines;
    - more: a zero byte, the type, a newline, and the SHA-256, in 32 bytes each, of each chunk's lines. A chunk begins
      with the first member, and with each name with a CRC-32 (zlib's, in UTF-8) that 128 divides: a change costs one
      chunk's digest and the list's, and equal sets have equal versions however they came about.

    Neither may ever change: clients would fetch everything again after an upgrade. `members` are sorted; a missing name
    has an empty version.
    """
    members = tuple(members)
    if len(members) <= MOST_IN_ONE_DIGEST:
        return _version_of_lines(type_url, (_line(*member) for member in members))
    chunks: list[list[str]] = [[]]
    for name, version in members:
        if chunks[-1] and begins_chunk(name):
            chunks.append([])
        chunks[-1].append(_line(name, version))
    return _version_of_digests(type_url, map(_digest, chunks))


def version_of_table(type_url: TypeUrl, members: NameTable[Member]) -> Version:
    """Chunks shared with another set are not read again."""
    if len(members) <= MOST_IN_ONE_DIGEST:
        return _version_of_lines(type_url, (chunk.once(_lines_of) for chunk in members.chunks))
    return _version_of_digests(type_url, (chunk.once(_digest_of) for chunk in members.chunks))


def _lines_of(chunk: Chunk[Member]) -> str:
    return "".join(_line(*member) for member in _members_of(chunk))


def _digest_of(chunk: Chunk[Member]) -> bytes:
    return _digest(_line(*member) for member in _members_of(chunk))


def _members_of(chunk: Chunk[Member]) -> Iterator[tuple[str, str]]:
    return ((name, member.version) for name, member in zip(chunk.names, chunk.values, strict=True))


def _line(name: str, version: str) -> str:
    return f"{name}\0{version}\n"


def _digest(lines: Iterable[str]) -> bytes:
    return hashlib.sha256("".join(lines).encode()).digest()


def _version_of_lines(type_url: TypeUrl, lines: Iterable[str]) -> Version:
    return Version(_digest((type_url, "\n", *lines)).hex()[:32])


def _version_of_digests(type_url: TypeUrl, digests: Iterable[bytes]) -> Version:
    return Version(hashlib.sha256(b"".join((b"\0", type_url.encode(), b"\n", *digests))).hexdigest()[:32])
