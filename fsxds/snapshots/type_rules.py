"""Registry of types with rules beyond their message; a module is imported with its type's first resource."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.model.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.model.resources import Reference
from fsxds.model.values import Fault, PlainValue


class TypeRules(Protocol):
    """The rules of one type beyond its message."""

    def read(self, written: dict[str, PlainValue], authority: str) -> tuple[dict[str, PlainValue], tuple[Fault, ...]]:
        """Return the form of the message, and faults of the authored form."""

    def complete(
        self, message: DynamicMessage, written: PlainValue, catalogue: Catalogue, authority: str
    ) -> list[Fault]:
        """Fill in fields that clients need; return faults, at places within the message."""

    def name_fault(self, name: str) -> Fault | None:
        """Judge a wrapper's name, at a place within the wrapper."""

    def references_of(self, message: DynamicMessage) -> Iterator[Reference]:
        """Yield references beyond those in reference fields.

        Raises:
            MalformedName: a reference has no valid name.
            KeyError: a reference is to a type that xDS does not serve.
        """


class TypeRow(NamedTuple):
    """A type, and the module of its rules."""

    row: ResourceType
    module: str


TYPE_RULES = (TypeRow(BY_SHORT_NAME["lcds"], "fsxds.snapshots.list_collections"),)


def rules_of(row: ResourceType | None) -> TypeRules | None:
    """Return a type's rules, or None."""
    # Called per resource: a generator would cost more than the few rows.
    for each in TYPE_RULES:
        if each.row is row:
            return cast("TypeRules", import_module(each.module))
    return None
