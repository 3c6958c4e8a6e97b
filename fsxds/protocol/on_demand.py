"""Names that clients ask for, and other servers may have: what is known to be nowhere, and what is not known yet. Pure.

| rule | source |
| --- | --- |
| A name that no server was asked for yet, or that one has not answered, is not reported as missing: its client waits. | xRFC TP1, "xDS relay proxy"; xDS protocol, "Knowing When a Requested Resource Does Not Exist" |
| `*` is answered when all that the servers have of the type is known; until then nothing counts as missing from it. | xDS protocol, "Deleting Resources" |
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias

from fsxds.model.values import TypeUrl

Unanswered: TypeAlias = Callable[[TypeUrl, AbstractSet[str]], frozenset[str]]
"""Returns those of some names of a type, `*` for everything, that nothing served has, and that may still exist elsewhere.

It is to be asked only about names that nothing served has: it does not know what is served.
"""


def nothing_unanswered(_type_url: TypeUrl, _names: AbstractSet[str]) -> frozenset[str]:
    """Return no names: where there are no other servers, what is not served exists nowhere."""
    return frozenset()


class OnDemand(Protocol):
    """What knows the other servers, and has them asked for what clients ask for.

    Attributes:
        listeners: by whom they belong to: what is called when more is known of what is nowhere.
    """

    listeners: dict[object, Callable[[], object]]

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Note all that a client asks for of a type from now on, `*` for everything."""

    def forget(self, client: object) -> None:
        """Note that a client asks for nothing any more; one that is unknown asked for nothing."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return what `Unanswered` does."""


class NoUpstreams:
    """Where there are no other servers."""

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Do nothing."""

    def forget(self, client: object) -> None:
        """Do nothing."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return no names."""
        return nothing_unanswered(type_url, names)
