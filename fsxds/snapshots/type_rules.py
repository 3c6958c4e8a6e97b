"""Types whose resources need more than their message says: a module each, imported with the first such resource."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.model.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.model.resources import Reference
from fsxds.model.values import Fault, PlainValue


class TypeRules(Protocol):
    """What the resources of a type need beside their message."""

    def read(self, written: dict[str, PlainValue], authority: str) -> tuple[dict[str, PlainValue], tuple[Fault, ...]]:
        """Return a resource as its message has it, and what is wrong with it as it was written."""

    def complete(
        self, message: DynamicMessage, written: PlainValue, catalogue: Catalogue, authority: str
    ) -> list[Fault]:
        """Complete a message by what clients need, and return what is wrong with it, at places within it."""

    def name_fault(self, name: str) -> Fault | None:
        """Return what is wrong with the name around a resource, at a place within its wrapper."""

    def references_of(self, message: DynamicMessage) -> Iterator[Reference]:
        """Yield what a message refers to beside its fields of references.

        Raises:
            MalformedName: it has none.
            KeyError: it is of a type that xDS does not serve.
        """


class TypeRow(NamedTuple):
    """A type with rules, and the module that has them."""

    row: ResourceType
    module: str


TYPE_RULES = (TypeRow(BY_SHORT_NAME["lcds"], "fsxds.snapshots.list_collections"),)


def rules_of(row: ResourceType | None) -> TypeRules | None:
    """Return the rules of a type; None for a type that needs none."""
    # For each resource: a generator would cost more than the few rows.
    for each in TYPE_RULES:
        if each.row is row:
            return cast("TypeRules", import_module(each.module))
    return None
