"""What a name stands for that a client subscribes to: a resource's own name, one of its aliases, a host, a collection."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from fsxds.memo import Lru
from fsxds.protocol.virtual_hosts import VIRTUAL_HOSTS, find_hidden, find_virtual_hosts
from fsxds.protocol.xdstp_names import SCHEME, collection_of, is_glob
from fsxds.resources import Resource, Rows

# Names come from clients: of so many that were looked up, those that were asked for last are remembered.
MOST_KEPT = 100_000


def lookup_of(rows: Rows, before: Rows | None = None) -> Lookup:
    """Return what finds resources by the names that clients use; it is kept with the rows.

    What was looked up in the rows `before` is not looked up again where nothing but contents changed.
    """
    return rows.derive(Lookup, lambda: _make_lookup(rows, before))


def _make_lookup(rows: Rows, before: Rows | None) -> Lookup:
    last = before.derived(Lookup) if before is not None else None
    if before is not None and last is not None and _keep_names(rows, before):
        return last.following(rows.by_name)
    # Without the rows, which would wait for the garbage collector if what is kept with them had them.
    return Lookup(rows.by_name, is_on_demand=rows.type_url == VIRTUAL_HOSTS)


def _keep_names(rows: Rows, before: Rows) -> bool:
    change = rows.changes_since(before)
    updated = change.fresh | change.renewed
    return not change.removed and all(name in before and rows[name].aliases == before[name].aliases for name in updated)


class Lookup:
    """Finds resources of one type by the names that clients use. One object serves all streams.

    Args:
        rows: the resources by their own names.
        is_on_demand: names are those of hosts, and resources are virtual hosts.
    """

    __slots__ = ("_found", "_index", "_is_on_demand", "rows")

    def __init__(self, rows: Mapping[str, Resource], *, is_on_demand: bool) -> None:
        self.rows = rows
        self._is_on_demand = is_on_demand
        self._index = _Index(rows)
        # The own names of what names stand for that are nobody's own.
        self._found: Lru[str, tuple[str, ...]] = Lru(MOST_KEPT)

    def following(self, rows: Mapping[str, Resource]) -> Lookup:
        """Return the same for other rows in which all names stand for the same ones: no name and no alias is another."""
        lookup = Lookup(rows, is_on_demand=self._is_on_demand)
        lookup._index, lookup._found = self._index, self._found
        return lookup

    def find(self, name: str) -> tuple[Resource, ...]:
        """Return what a name stands for; nothing where it does not exist."""
        return tuple(self.rows[own] for own in self._names_of(name))

    def existing(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return those of these names that stand for anything.

        A client may ask for a hundred thousand names that do not exist; they are not looked at one by one.
        """
        if self._is_on_demand:
            return frozenset(name for name in names if self._names_of(name))
        found = names & self.rows.keys() | names & self._index.aliases().keys()
        if self._index.collections():
            found |= {name for name in names - found if self._names_of(name)}
        return frozenset(found)

    def names(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the own names of all that these names stand for, and of the virtual hosts that go with them."""
        wanted = names if self._is_on_demand else self.existing(names)
        found = frozenset(own for name in wanted for own in self._names_of(name))
        if not self._is_on_demand:
            return found
        return found.union(*filter(None, map(self._index.hidden_by, found)))

    def _names_of(self, name: str) -> tuple[str, ...]:
        if not self._is_on_demand and name in self.rows:
            return (name,)
        return self._found.find(name, lambda: self._look_up(name))

    def _look_up(self, name: str) -> tuple[str, ...]:
        if self._is_on_demand:
            return find_virtual_hosts(name, self.rows, self._index.aliases())
        if is_glob(name):
            return self._index.collections().get(collection_of(name), ())
        own = self._index.aliases().get(name)
        return () if own is None else (own,)


class _Index:
    """Own names by aliases and by collections, and of what virtual hosts hide; made when they are first needed."""

    __slots__ = ("_by_alias", "_by_collection", "_hidden", "_rows")

    def __init__(self, rows: Mapping[str, Resource]) -> None:
        self._rows = rows
        self._by_alias: dict[str, str] | None = None
        self._by_collection: dict[str, tuple[str, ...]] | None = None
        self._hidden: dict[str, frozenset[str]] = {}

    def aliases(self) -> Mapping[str, str]:
        """Return whose an alias is: of several, the first by name."""
        if self._by_alias is None:
            self._by_alias = {}
            for resource in self._rows.values():
                for alias in resource.aliases:
                    self._by_alias.setdefault(alias, resource.name)
        return self._by_alias

    def hidden_by(self, own: str) -> frozenset[str]:
        """Return the virtual hosts that one hides from who has it, those that these hide, and so on."""
        hidden = self._hidden.get(own)
        if hidden is None:
            found, ahead = {own}, [own]
            while ahead:
                more = find_hidden(self._rows[ahead.pop()], self.aliases()) - found
                found |= more
                ahead += more
            hidden = self._hidden[own] = frozenset(found - {own})
        return hidden

    def collections(self) -> Mapping[str, tuple[str, ...]]:
        """Return the members of collections."""
        if self._by_collection is None:
            members: dict[str, list[str]] = {}
            for name in self._rows:
                if name.startswith(SCHEME):
                    members.setdefault(collection_of(name), []).append(name)
            self._by_collection = {collection: tuple(names) for collection, names in members.items()}
        return self._by_collection
