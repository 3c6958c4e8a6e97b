"""What a comparison finds: resources that came, went or changed, and the fields that changed in them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from fsxds.resources import Resource
from fsxds.values import PlainValue, TypeUrl


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
    """What is different in one type, each part sorted by name.

    Neither `maybe_added`, which are on the later side, nor `maybe_removed`, which are on the earlier one, are known to be:
    they may stand in what could not be read of the other side.
    """

    type_url: TypeUrl
    added: tuple[Resource, ...] = ()
    removed: tuple[Resource, ...] = ()
    changed: tuple[ResourceChange, ...] = ()
    maybe_added: tuple[Resource, ...] = ()
    maybe_removed: tuple[Resource, ...] = ()

    @property
    def unknown(self) -> int:
        """How many resources are not known to be added or removed."""
        return len(self.maybe_added) + len(self.maybe_removed)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something of one side that could not be read, and may hold resources.

    Attributes:
        type_urls: of the resources that it may hold.
        path: of the file within its tree; None where it is no file.
        content: of the file, which names what it holds even where it cannot be parsed; None where it is not known.
    """

    type_urls: frozenset[TypeUrl]
    path: PurePosixPath | None = None
    content: bytes | None = None

    def may_hold(self, resource: Resource) -> bool:
        """Whether a resource of the other side may stand here as well."""
        if self.path is not None and resource.origin.path == self.path:
            return True
        if resource.type_url not in self.type_urls:
            return False
        return self.content is None or resource.name.encode() in self.content


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different between two states: the types in which something is, in push order."""

    types: tuple[TypeDifference, ...]
