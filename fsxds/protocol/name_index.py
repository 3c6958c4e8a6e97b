"""Maps aliases and collections to own names, and follows changes of the rows.

| rule | source |
| --- | --- |
| Of several resources with an alias, the first by name has it. | xDS protocol, "Aliases" |
| The members of a collection have its directory, and nothing deeper, and its parameters. All names are canonical. | xRFC TP1, "Glob collections" |
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import SCHEME, glob_of
from fsxds.model.resources import Resource, RowsChange

# Up to this many names are found faster by bisection than by sorting the list.
FEW_CHANGES = 128

KeysOf = Callable[[Resource], Iterable[str]]
"""Returns a resource's aliases or collections."""


@dataclass(frozen=True, slots=True)
class _Owners:
    all: NameTable[tuple[str, ...]]
    first: NameTable[str]

    @classmethod
    def of(cls, rows: Mapping[str, Resource], keys_of: KeysOf) -> _Owners:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for resource in rows.values():
            for key in keys_of(resource):
                found[key].append(resource.name)
        owners = {key: tuple(sorted(names)) for key, names in found.items()}
        return cls(NameTable(owners), NameTable({key: names[0] for key, names in owners.items()}))

    def after(self, changes: Iterable[tuple[str, Resource | None, Resource | None]], keys_of: KeysOf) -> _Owners:
        lost, gained = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for name, old, new in changes:
            was, now = (frozenset(keys_of(each) if each is not None else ()) for each in (old, new))
            for key in was - now:
                lost[key].add(name)
            for key in now - was:
                gained[key].add(name)
        if not lost and not gained:
            return self
        changed = {key: self._names_after(key, lost[key], gained[key]) for key in lost.keys() | gained.keys()}
        kept = {key: names for key, names in changed.items() if names}
        gone = frozenset(self.all.among(changed.keys() - kept.keys()))
        first = {key: names[0] for key, names in kept.items()}
        return _Owners(self.all.changed(kept, gone), self.first.changed(first, gone))

    def _names_after(self, key: str, lost: set[str], gained: set[str]) -> tuple[str, ...]:
        before = self.all.get(key, ())
        if len(lost) + len(gained) > FEW_CHANGES:
            return tuple(sorted((*(name for name in before if name not in lost), *gained)))
        # A collection may have 20 000 members, one of which is removed each second: copying is cheaper than comparing.
        names = list(before)
        for name in lost:
            del names[bisect_left(names, name)]
        for name in gained:
            insort(names, name)
        return tuple(names)


class NameIndex:
    """Builds each table when needed."""

    __slots__ = ("_by_alias", "_by_collection", "_rows")

    def __init__(self, rows: Mapping[str, Resource]) -> None:
        self._rows = rows
        self._by_alias: _Owners | None = None
        self._by_collection: _Owners | None = None

    def aliases(self) -> NameTable[str]:
        """Return the own name for each alias."""
        if self._by_alias is None:
            self._by_alias = _Owners.of(self._rows, _aliases_of)
        return self._by_alias.first

    def collections(self) -> NameTable[tuple[str, ...]]:
        """Return each collection's sorted names."""
        if self._by_collection is None:
            self._by_collection = _Owners.of(self._rows, _collections_of)
        return self._by_collection.all

    def after(self, rows: Mapping[str, Resource], change: RowsChange) -> NameIndex:
        """Return the index after a change, sharing unchanged tables."""
        changes = [(name, self._rows.get(name), rows.get(name)) for name in change.names]
        index = NameIndex(rows)
        if self._by_alias is not None:
            index._by_alias = self._by_alias.after(changes, _aliases_of)
        if self._by_collection is not None:
            index._by_collection = self._by_collection.after(changes, _collections_of)
        return index

    def finds_as(self, other: NameIndex) -> bool:
        """Whether this certainly finds as `other`, from which it was derived."""
        has_same_aliases = self._by_alias is not None and self._by_alias is other._by_alias
        return has_same_aliases and self._by_collection is not None and self._by_collection is other._by_collection


def _aliases_of(resource: Resource) -> Iterable[str]:
    return resource.aliases


def _collections_of(resource: Resource) -> Iterator[str]:
    if resource.name.startswith(SCHEME):
        yield glob_of(resource.name)
