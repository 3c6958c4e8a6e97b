"""Compares two snapshots, or two trees: each change once, with its views."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import ANY, LONG_INTEGERS, SPECIAL_JSON, is_map, map_parts, type_of_url
from fsxds.api.printing import Printer
from fsxds.api.secrets import HIDDEN, Masker
from fsxds.model.memo import Lru
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES, name_of_domain, route_configuration_of
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Layers, PlainValue, TypeUrl
from fsxds.snapshots.loaded_views import folders_of, view_text
from fsxds.tools.diff.lists import Matching, canonical, match_items


class ChangeAction(Enum):
    """How a field changed."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed field, secrets hidden.

    Attributes:
        path: such as `virtual_hosts["web"].routes[2].route.cluster`.
        before: None if added or hidden.
        after: None if removed or hidden.
    """

    path: str
    act: ChangeAction
    before: PlainValue = None
    after: PlainValue = None
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A changed resource; without `fields`, only the bytes differ."""

    before: Resource
    after: Resource
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """The differences in one type, sorted by name.

    `maybe_added` and `maybe_removed` may be unreadable on the opposite side.
    """

    type_url: TypeUrl
    added: tuple[Resource, ...] = ()
    removed: tuple[Resource, ...] = ()
    changed: tuple[ResourceChange, ...] = ()
    maybe_added: tuple[Resource, ...] = ()
    maybe_removed: tuple[Resource, ...] = ()

    @property
    def unknown(self) -> int:
        """The number of resources only maybe added or removed."""
        return len(self.maybe_added) + len(self.maybe_removed)


@dataclass(frozen=True, slots=True)
class Gap:
    """An unreadable part of one side.

    Attributes:
        path: None if it is no file.
        content: None if unknown.
    """

    type_urls: frozenset[TypeUrl]
    path: PurePosixPath | None = None
    content: bytes | None = None

    def may_hold(self, resource: Resource) -> bool:
        """Whether a resource may be here."""
        if self.path is not None and resource.origin.path == self.path:
            return True
        if resource.type_url not in self.type_urls:
            return False
        return self.content is None or resource.name.encode() in self.content


@dataclass(frozen=True, slots=True)
class Difference:
    """The differing types, in push order."""

    types: tuple[TypeDifference, ...]


# Text in UTF-8 has no half of a surrogate pair.
_MARK = "\udfff"
_WHOLE_MARK = re.compile(f"{_MARK}[0-9]+{_MARK}")
_IDENTIFIER = re.compile(r"@?[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Site:
    """`message` is of the value, items or map values."""

    path: str = ""
    message: Descriptor | None = None
    is_map: bool = False


class FieldComparer:
    """Compares messages as `Printer` writes them.

    Equal secrets become equal marks, shown as `<hidden>`.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        marks = self._marks = dict[str, str]()
        self._masker = Masker(catalogue, lambda secret: marks.setdefault(secret, f"{_MARK}{len(marks)}{_MARK}"))

    def compare(self, before: dict[str, PlainValue], after: dict[str, PlainValue]) -> tuple[FieldChange, ...]:
        """Return the changes between two resources with `@type`, in order of fields.

        An absent field counts as its default.
        """
        self._marks.clear()
        return tuple(self._compare(self._masker.masked(before), self._masker.masked(after), _Site()))

    def _compare(self, before: PlainValue, after: PlainValue, site: _Site) -> Iterator[FieldChange]:
        # In Python, 1 equals True, and 0.0 equals -0.0.
        if before == after and canonical(before) == canonical(after):
            return
        if isinstance(before, dict) and isinstance(after, dict):
            if before.get("@type") == after.get("@type"):
                yield from self._compare_objects(before, after, site)
                return
        elif isinstance(before, list) and isinstance(after, list):
            yield from self._compare_lists(before, after, site)
            return
        yield self._change(ChangeAction.CHANGED, before, after, site)

    def _compare_objects(
        self, before: dict[str, PlainValue], after: dict[str, PlainValue], site: _Site
    ) -> Iterator[FieldChange]:
        type_url = after.get("@type")
        if isinstance(type_url, str) and (site.message is None or site.message.full_name == ANY):
            message_type = type_of_url(type_url)
            site = replace(site, message=self._catalogue.descriptor(message_type) if message_type else None)
        for name in (*before, *(name for name in after if name not in before)):
            here, field = self._at(name, before, site)
            default = _default(field)
            if name in before and name in after:
                yield from self._compare(before[name], after[name], here)
            elif default is not None:
                yield self._change(ChangeAction.CHANGED, before.get(name, default), after.get(name, default), here)
            else:
                act = ChangeAction.ADDED if name in after else ChangeAction.REMOVED
                yield self._change(act, before.get(name), after.get(name), here)

    def _compare_lists(self, before: list[PlainValue], after: list[PlainValue], site: _Site) -> Iterator[FieldChange]:
        matching = match_items(before, after)
        if matching.is_reordered:
            yield _reordered(matching, site)
        for place in matching.removed:
            yield self._change(ChangeAction.REMOVED, before[place], None, _item(site, place, matching.labels_before))
        changes = {place: (ChangeAction.CHANGED, old) for old, place in matching.pairs}
        changes |= dict.fromkeys(matching.added, (ChangeAction.ADDED, -1))
        for place, (act, old) in sorted(changes.items()):
            here = _item(site, place, matching.labels_after)
            if act is ChangeAction.ADDED:
                yield self._change(act, None, after[place], here)
            else:
                yield from self._compare(before[old], after[place], here)

    def _change(self, act: ChangeAction, before: PlainValue, after: PlainValue, site: _Site) -> FieldChange:
        if all(
            value is None or (isinstance(value, str) and _WHOLE_MARK.fullmatch(value) is not None)
            for value in (before, after)
        ):
            return FieldChange(site.path, act, is_hidden=True)
        shown_before, shown_after = _shown(before), _shown(after)
        if canonical(shown_before) == canonical(shown_after):
            return FieldChange(site.path, act, is_hidden=True)
        return FieldChange(site.path, act, shown_before, shown_after)

    def _at(self, name: str, owner: dict[str, PlainValue], site: _Site) -> tuple[_Site, FieldDescriptor | None]:
        path = _key_path(site.path, name)
        if site.is_map:
            return replace(site, path=path, is_map=False), None
        known = site.message is not None and site.message.full_name not in SPECIAL_JSON
        field = cast("Descriptor", site.message).fields_by_name.get(name) if known else None
        if field is None or field.message_type is None:
            return _Site(path), field
        message: Descriptor | None = map_parts(field)[1].message_type if is_map(field) else field.message_type
        return _Site(path, message, is_map(field)), field


def _shown(value: PlainValue) -> PlainValue:
    if isinstance(value, dict):
        return {str(_shown(name)): _shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(member) for member in value]
    return _WHOLE_MARK.sub(HIDDEN, value) if isinstance(value, str) else value


def _key_path(path: str, name: str) -> str:
    name = str(_shown(name))
    if _IDENTIFIER.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{canonical(name)}]"


def _item(site: _Site, place: int, labels: object) -> _Site:
    label = labels[place] if isinstance(labels, tuple) and labels and _MARK not in labels[place] else None
    return replace(site, path=f"{site.path}[{place if label is None else canonical(label)}]")


def _reordered(matching: Matching, site: _Site) -> FieldChange:
    if matching.labels_after:
        after = [_shown(matching.labels_after[place]) for _, place in matching.pairs]
        before = [_shown(matching.labels_before[place]) for place, _ in sorted(matching.pairs)]
        return FieldChange(site.path, ChangeAction.REORDERED, before, after)
    return FieldChange(site.path, ChangeAction.REORDERED)


def _default(field: FieldDescriptor | None) -> PlainValue:
    """None with presence or if repeated."""
    if field is None or field.has_presence or field.is_repeated:
        return None
    if field.enum_type is not None:
        first = field.enum_type.values_by_number.get(field.default_value)
        return first.name if first else 0
    if isinstance(field.default_value, bytes):
        return ""
    return str(field.default_value) if field.type in LONG_INTEGERS else cast("PlainValue", field.default_value)


_MOST_KNOWN = 1000

Gaps = Sequence[Gap]

_VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url


class Comparer:
    """Compares snapshots."""

    def __init__(self, catalogue: Catalogue, *, over_rest: bool = False, of_views: bool = False) -> None:
        """Prepare comparisons.

        Args:
            catalogue: the messages.
            over_rest: ignore types without a REST form, TTLs and aliases.
            of_views: snapshots share most rows; later comparisons cost their difference from the first.
        """
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._fields = FieldComparer(catalogue)
        # Views share most changes.
        self._known: Lru[object, tuple[FieldChange, ...]] = Lru(_MOST_KNOWN)
        self._over_rest = over_rest
        self._of_views = of_views
        # By type: the rows of the first comparison, and the names that differ in it.
        self._first: dict[TypeUrl, tuple[Rows, Rows, AbstractSet[str]]] = {}
        self._rows = tuple(row for row in RESOURCE_TYPES if row.rest_path or not over_rest)

    def compare(self, before: Snapshot, after: Snapshot, gaps: tuple[Gaps, Gaps] = ((), ())) -> Difference:
        """Compare two snapshots; `gaps` are the unreadable parts of each side."""
        found = (self._compare_type(row.type_url, before, after, gaps) for row in self._rows)
        return Difference(tuple(row for row in found if row.added or row.removed or row.changed or row.unknown))

    def _compare_type(
        self, type_url: TypeUrl, earlier: Snapshot, later: Snapshot, gaps: tuple[Gaps, Gaps]
    ) -> TypeDifference:
        before, after = earlier.resources(type_url), later.resources(type_url)
        pairs = [(before.get(name), after.get(name)) for name in sorted(self._may_differ(before, after))]
        added, maybe_added = _parted([now for was, now in pairs if was is None and now is not None], gaps[0])
        removed, maybe_removed = _parted([was for was, now in pairs if was is not None and now is None], gaps[1])
        changed = tuple(self._change(was, now) for was, now in pairs if was and now and not self._are_equal(was, now))
        return TypeDifference(type_url, added, removed, changed, maybe_added, maybe_removed)

    def _may_differ(self, before: Rows, after: Rows) -> AbstractSet[str]:
        if (first := self._first.get(before.type_url)) is not None:
            earlier, later, names = first
            return names | before.changes_since(earlier).names | after.changes_since(later).names
        names = {
            name
            for name in before.keys() | after.keys()
            if not ((was := before.get(name)) and (now := after.get(name)) and self._are_equal(was, now))
        }
        if self._of_views:
            self._first[before.type_url] = before, after, names
        return names

    def _are_equal(self, before: Resource, after: Resource) -> bool:
        if before.version != after.version:
            return False
        return self._over_rest or (before.ttl_s == after.ttl_s and before.aliases == after.aliases)

    def _change(self, before: Resource, after: Resource) -> ResourceChange:
        key = before.type_url, before.name, *((one.version, one.ttl_s, one.aliases) for one in (before, after))
        return ResourceChange(before, after, self._known.find(key, lambda: self._changed_fields(before, after)))

    def _changed_fields(self, before: Resource, after: Resource) -> tuple[FieldChange, ...]:
        fields = self._fields.compare(self._plain(before), self._plain(after)) if before.body != after.body else ()
        if self._over_rest:
            return fields
        ttl = _around_field("ttl", _ttl(before), _ttl(after))
        if before.aliases == after.aliases:
            return (*ttl, *fields)
        return (*ttl, *_around_field("aliases", self._aliases(before), self._aliases(after)), *fields)

    def _aliases(self, resource: Resource) -> PlainValue:
        """Without aliases for domains: the domains are compared."""
        if resource.type_url != _VIRTUAL_HOST:
            return [*resource.aliases] or None
        message: DynamicMessage = self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(
            resource.body
        )
        table = route_configuration_of(resource.name)
        of_domains = {name_of_domain(table, domain) for domain in message.domains}
        return [alias for alias in resource.aliases if alias not in of_domains] or None

    def _plain(self, resource: Resource) -> dict[str, PlainValue]:
        plain: dict[str, PlainValue] = json.loads(self._printer.any_json(resource.type_url, resource.body))
        return plain


def _parted(resources: Sequence[Resource], gaps: Gaps) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    known: list[Resource] = []
    unknown: list[Resource] = []
    for resource in resources:
        (unknown if any(gap.may_hold(resource) for gap in gaps) else known).append(resource)
    return tuple(known), tuple(unknown)


def _around_field(name: str, before: PlainValue, after: PlainValue) -> Iterator[FieldChange]:
    if before != after:
        act = ChangeAction.ADDED if before is None else ChangeAction.REMOVED if after is None else ChangeAction.CHANGED
        yield FieldChange(f"(Resource).{name}", act, before, after)


def _ttl(resource: Resource) -> PlainValue:
    return None if resource.ttl_s is None else f"{resource.ttl_s:g}s"


# The maximum number of views in a heading.
MOST_NAMED = 3

_PARTS = ("added", "removed", "changed", "maybe_added", "maybe_removed")
_ORDER = {row.type_url: place for place, row in enumerate(RESOURCE_TYPES)}

_Change = Resource | ResourceChange
_Identity = tuple[TypeUrl, str, str, object]
"""The common part of equal changes: type, part, name, and content."""


@dataclass(frozen=True, slots=True)
class ComparedView:
    """A view: its names in the settings, and its layers."""

    names: tuple[str, ...]
    layers: Layers

    def __str__(self) -> str:
        return f"{', '.join(self.names)} ({view_text(self.layers)})"


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """The changes that occur in the same views.

    Attributes:
        count: of views compared.
        difference: positions and versions are from the first view.
        layer: the last layer of exactly these views, or empty.
    """

    views: tuple[ComparedView, ...]
    count: int
    difference: Difference
    layer: str = ""

    @property
    def heading(self) -> str:
        """The views; the text after the colon is the author's."""
        number = len(self.views)
        if number == self.count > 1:
            return f"in all {number} views"
        named = ", ".join(map(str, self.views[:MOST_NAMED]))
        if number > MOST_NAMED:
            named = f"all with the layer {self.layer}" if self.layer else f"{named} and {number - MOST_NAMED} more"
        return f"in {number} of {self.count} views: {named}"


def grouped(differences: Mapping[ComparedView, Difference]) -> tuple[ViewGroup, ...]:
    """Group changes by views, most views first."""
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
    by_layer: defaultdict[str, list[int]] = defaultdict(list)
    for number, view in enumerate(views):
        for layer in folders_of(view.layers):
            by_layer[layer].append(number)
    layers = {tuple(of_layer): layer for layer, of_layer in by_layer.items()}
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
    if isinstance(change, Resource):
        return change.name, (change.version, change.ttl_s, change.aliases)
    if not change.fields:
        return change.after.name, (change.before.version, change.after.version)
    # Views that share a change have the same object.
    known = fields.get(id(change.fields))
    if known is None:
        known = fields[id(change.fields)] = tuple(
            (one.path, one.act, one.is_hidden, canonical(one.before), canonical(one.after)) for one in change.fields
        )
    return change.after.name, known


def _difference(changes: Mapping[_Identity, _Change]) -> Difference:
    rows: defaultdict[TypeUrl, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for (type_url, part, _, _), change in sorted(changes.items(), key=lambda one: one[0][2]):
        rows[type_url][part].append(change)
    ordered = sorted(rows.items(), key=lambda row: _ORDER[row[0]])
    return Difference(
        tuple(
            TypeDifference(type_url, **{part: tuple(changes) for part, changes in parts.items()})
            for type_url, parts in ordered
        )
    )
