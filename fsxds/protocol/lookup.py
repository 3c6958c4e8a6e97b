"""What a name stands for that a client subscribes to: a resource's own name, one of its aliases, a host, a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsxds.protocol.virtual_hosts import find_virtual_hosts
from fsxds.protocol.xdstp_names import SCHEME, collection_of, is_glob
from fsxds.values import Resource


class Lookup:
    """Finds resources of one type by the names that clients use. One object serves all streams.

    Args:
        rows: the resources by their own names.
        is_on_demand: names are those of hosts, and resources are virtual hosts.
    """

    __slots__ = ("_by_alias", "_by_collection", "_is_on_demand", "rows")

    def __init__(self, rows: Mapping[str, Resource], *, is_on_demand: bool) -> None:
        self.rows = rows
        self._is_on_demand = is_on_demand
        # Made when a name is asked for that is nobody's own.
        self._by_alias: dict[str, Resource] | None = None
        self._by_collection: dict[str, tuple[Resource, ...]] | None = None

    def find(self, name: str) -> tuple[Resource, ...]:
        """Return what a name stands for; nothing where it does not exist."""
        if self._is_on_demand:
            return find_virtual_hosts(name, self.rows, self._aliases())
        if name not in self.rows and is_glob(name):
            return self._collections().get(collection_of(name), ())
        found = self.rows.get(name) or self._aliases().get(name)
        return () if found is None else (found,)

    def names(self, names: Iterable[str]) -> frozenset[str]:
        """Return the own names of all that these names stand for."""
        return frozenset(resource.name for name in names for resource in self.find(name))

    def _aliases(self) -> Mapping[str, Resource]:
        if self._by_alias is None:
            self._by_alias = {}
            for resource in self.rows.values():
                for alias in resource.aliases:
                    # The first has it, in the order of their names.
                    self._by_alias.setdefault(alias, resource)
        return self._by_alias

    def _collections(self) -> Mapping[str, tuple[Resource, ...]]:
        if self._by_collection is None:
            members: dict[str, list[Resource]] = {}
            for name, resource in self.rows.items():
                if name.startswith(SCHEME):
                    members.setdefault(collection_of(name), []).append(resource)
            self._by_collection = {collection: tuple(resources) for collection, resources in members.items()}
        return self._by_collection
