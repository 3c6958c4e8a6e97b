"""What a comparison finds: resources that came, went or changed, and the fields that changed in them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsxds.values import PlainValue, Resource, TypeUrl


class Act(Enum):
    """What became of a field."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that is not what it was.

    Attributes:
        path: leads from the top of the resource to the field: `virtual_hosts["web"].routes[2].route.cluster`.
        act: what became of it.
        before: what it held; None where it was added, or is hidden. Secrets within are hidden.
        after: what it holds; None where it was removed, or is hidden. Secrets within are hidden.
        is_hidden: it is a secret itself.
    """

    path: str
    act: Act
    before: PlainValue = None
    after: PlainValue = None
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A resource that is on both sides with different content.

    No `fields` means that the same fields were written in other bytes.
    """

    before: Resource
    after: Resource
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """What is different in one type, each part sorted by name."""

    type_url: TypeUrl
    added: tuple[Resource, ...] = ()
    removed: tuple[Resource, ...] = ()
    changed: tuple[ResourceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different between two states: the types in which something is, in push order."""

    types: tuple[TypeDifference, ...]
