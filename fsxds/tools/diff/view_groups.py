"""Groups the changes between two trees: each change once, with its views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource
from fsxds.model.values import Layers, TypeUrl
from fsxds.snapshots.loaded_views import folders_of, view_text
from fsxds.tools.diff.compare import Difference, FieldChange, ResourceChange, TypeDifference
from fsxds.tools.diff.lists import canonical

# The maximum number of views in a heading.
MOST_NAMED = 3

_PARTS = ("added", "removed", "changed", "maybe_added", "maybe_removed")
_ORDER = {row.type_url: place for place, row in enumerate(RESOURCE_TYPES)}

_Change = Resource | ResourceChange
_Identity = tuple[TypeUrl, str, str, object]
"""The common part of equal changes: type, part, name, and content."""


@dataclass(frozen=True, slots=True)
class ComparedView:
    """A view: its names in the settings, and its layers, which one tree may lack."""

    names: tuple[str, ...]
    layers: Layers

    def __str__(self) -> str:
        return f"{', '.join(self.names)} ({view_text(self.layers)})"


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """The changes that occur in the same views.

    Attributes:
        count: the number of views compared.
        difference: positions and versions are from the first view.
        layer: the last layer that exactly these views have, or empty.
    """

    views: tuple[ComparedView, ...]
    count: int
    difference: Difference
    layer: str = ""

    @property
    def heading(self) -> str:
        """The views in one line; the text after the colon is the author's."""
        number = len(self.views)
        if number == self.count > 1:
            return f"in all {number} views"
        named = ", ".join(map(str, self.views[:MOST_NAMED]))
        if number > MOST_NAMED:
            named = f"all with the layer {self.layer}" if self.layer else f"{named} and {number - MOST_NAMED} more"
        return f"in {number} of {self.count} views: {named}"


def grouped(differences: Mapping[ComparedView, Difference]) -> tuple[ViewGroup, ...]:
    """Group changes by views, those of most views first."""
    views = tuple(differences)
    first: dict[_Identity, _Change] = {}
    shown: defaultdict[_Identity, list[int]] = defaultdict(list)
    fields: dict[int, object] = {}
    for number, difference in enumerate(differences.values()):
        for row in difference.types:
            for part in _PARTS:
                for change in getattr(row, part):
                    identity = (row.type_url, part, *_content(change, fields))
                    first.setdefault(identity, change)
                    shown[identity].append(number)
    together: defaultdict[tuple[int, ...], list[_Identity]] = defaultdict(list)
    for identity, numbers in shown.items():
        together[tuple(numbers)].append(identity)
    layers = _views_by_layer(views) if together else {}
    return tuple(
        ViewGroup(
            tuple(views[number] for number in numbers),
            len(views),
            _difference({identity: first[identity] for identity in together[numbers]}),
            layers.get(numbers, ""),
        )
        for numbers in sorted(together, key=lambda numbers: (-len(numbers), numbers))
    )


def _content(change: _Change, fields: dict[int, object]) -> tuple[str, object]:
    """Return the identity of a change; `fields` is a cache."""
    if isinstance(change, Resource):
        return change.name, (change.version, change.ttl_s, change.aliases)
    if not change.fields:
        return change.after.name, (change.before.version, change.after.version)
    # Views that share a change have the same object.
    known = fields.get(id(change.fields))
    if known is None:
        known = fields[id(change.fields)] = tuple(map(_field, change.fields))
    return change.after.name, known


def _field(change: FieldChange) -> object:
    return change.path, change.act, change.is_hidden, canonical(change.before), canonical(change.after)


def _views_by_layer(views: Iterable[ComparedView]) -> Mapping[tuple[int, ...], str]:
    """Return the last layer of exactly these views, by their numbers."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, view in enumerate(views):
        for layer in folders_of(view.layers):
            numbers[layer].append(number)
    return {tuple(of_layer): layer for layer, of_layer in numbers.items()}


def _difference(changes: Mapping[_Identity, _Change]) -> Difference:
    rows: defaultdict[TypeUrl, defaultdict[str, list[_Change]]] = defaultdict(lambda: defaultdict(list))
    for (type_url, part, _, _), change in sorted(changes.items(), key=lambda one: one[0][2]):
        rows[type_url][part].append(change)
    ordered = sorted(rows.items(), key=lambda row: _ORDER[row[0]])
    return Difference(tuple(TypeDifference(type_url, **_tuples(parts)) for type_url, parts in ordered))


def _tuples(parts: Mapping[str, list[_Change]]) -> dict[str, Any]:
    return {part: tuple(changes) for part, changes in parts.items()}
