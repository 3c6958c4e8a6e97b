"""What anchors stand for, and how much their aliases may blow up a document."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.formats.documents import MAX_DEPTH, too_deep
from fsxds.values import PlainValue

MAX_COPIED_VALUES = 1_000_000
"""Values that all aliases of one file may stand for together; conversion would copy each of them."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why an alias cannot be used; `is_final` where reading must end."""

    rule: str
    message: str
    remedy: str
    is_final: bool = False


class Anchors:
    """The anchors of the document that is being read, and what their aliases have copied so far in the file.

    Values are shared, not copied: they are only read from here on. The budget is for those who expand them.
    """

    def __init__(self) -> None:
        self._values: dict[str, PlainValue] = {}
        self._open: set[str] = set()
        self._extents: dict[str, tuple[int, int]] = {}  # {anchor: (number of values, levels)}
        self._copied = 0

    def forget(self) -> None:
        """Begin a new document: anchors do not reach beyond their own."""
        self._values.clear()
        self._open.clear()
        self._extents.clear()

    def begin(self, anchor: str) -> None:
        """Note that the value of this anchor has begun: an alias inside it would be recursive."""
        self._open.add(anchor)

    def define(self, anchor: str, value: PlainValue) -> None:
        """Note the value of an anchor; a later one of the same name replaces it, as YAML wants."""
        self._open.discard(anchor)
        self._extents.pop(anchor, None)
        self._values[anchor] = value

    def use(self, anchor: str, depth: int) -> tuple[PlainValue, Complaint | None]:
        """Return what an alias at this depth stands for, or None and why it cannot be used."""
        if anchor in self._open:
            return None, Complaint("recursive-alias", "this alias contains itself", "break the loop")
        if anchor not in self._values:
            remedy = "define its anchor before it, or quote the text"
            return None, Complaint("undefined-alias", "this alias is not defined above", remedy)
        value = self._values[anchor]
        if not isinstance(value, (dict, list)):
            return value, None
        size, height = self._extent(anchor, value)
        self._copied += size
        if self._copied > MAX_COPIED_VALUES:
            message = f"the aliases of this file stand for more than {MAX_COPIED_VALUES} values"
            return None, Complaint("alias-bomb", message, "write less by aliases", is_final=True)
        if depth - 1 + height > MAX_DEPTH:
            fault = too_deep()
            return None, Complaint(fault.rule, fault.message, fault.remedy, is_final=True)
        return value, None

    def _extent(self, anchor: str, value: PlainValue) -> tuple[int, int]:
        if anchor not in self._extents:
            self._extents[anchor] = _measure(value)
        return self._extents[anchor]


def _measure(value: PlainValue) -> tuple[int, int]:
    """Return how many values there are inside, with aliases expanded, and in how many levels of containers."""
    size, levels, level = 0, 0, [value]
    while level:
        size += len(level)
        containers = [container for container in level if isinstance(container, (dict, list))]
        levels += bool(containers)
        level = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return size, levels
