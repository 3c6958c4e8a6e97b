"""Requested names that upstreams may have. Pure.

| rule | source |
| --- | --- |
| A name is not reported as missing while an upstream was not asked for it or has not answered: its client waits. | xRFC TP1, "xDS relay proxy"; xDS protocol, "Knowing When a Requested Resource Does Not Exist" |
| `*` is answered once all resources of the type on the upstreams are known; until then none counts as missing from it. | xDS protocol, "Deleting Resources" |
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias

from fsxds.model.values import TypeUrl

Unanswered: TypeAlias = Callable[[TypeUrl, AbstractSet[str]], frozenset[str]]
"""Returns the subset of names of a type (`*` for all) that may still exist on an upstream.

Only valid for names that are not served.
"""


def nothing_unanswered(_type_url: TypeUrl, _names: AbstractSet[str]) -> frozenset[str]:
    """Without upstreams, an unserved name does not exist."""
    return frozenset()


class OnDemand(Protocol):
    """Asks upstreams for the names that clients request.

    `listeners` are callbacks by owner, called when upstreams reported missing names.
    """

    listeners: dict[object, Callable[[], object]]

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Set a client's names of a type, `*` for all."""

    def forget(self, client: object) -> None:
        """Drop a client's requests, if any."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """See `Unanswered`."""


class NoUpstreams:
    """A server without upstreams."""

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Do nothing."""

    def forget(self, client: object) -> None:
        """Do nothing."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return no names."""
        return nothing_unanswered(type_url, names)
