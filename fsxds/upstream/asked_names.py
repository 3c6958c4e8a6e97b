"""What clients ask for, all of them together, by type. Touched from the event loop only."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from fsxds.store import Latest
from fsxds.values import TypeUrl


class AskedNames:
    """The names that clients ask for.

    Attributes:
        changed: the names by type; `*` among them means everything.
    """

    def __init__(self) -> None:
        self.changed: Latest[Mapping[TypeUrl, frozenset[str]]] = Latest(MappingProxyType({}))
        self._by_client: dict[object, dict[TypeUrl, frozenset[str]]] = {}

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Note what a client asks for of a type from now on; `*` among the names means everything."""
        self._by_client.setdefault(client, {})[type_url] = frozenset(names)
        self._replace()

    def forget(self, client: object) -> None:
        """Note that a client asks for nothing any more."""
        if self._by_client.pop(client, None) is not None:
            self._replace()

    def _replace(self) -> None:
        found: dict[TypeUrl, frozenset[str]] = {}
        for asked in self._by_client.values():
            for type_url, names in asked.items():
                found[type_url] = found.get(type_url, frozenset()) | names
        if found != self.changed.current:
            self.changed.replace(MappingProxyType(found))
