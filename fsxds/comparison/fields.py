"""The fields that changed between two messages, in plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, LONG_INTEGERS, SPECIAL_JSON, is_map, map_parts, type_of_url
from fsxds.api.secrets import HIDDEN, Masker
from fsxds.comparison.changes import Act, FieldChange
from fsxds.comparison.lists import Matching, canonical, match_items
from fsxds.values import PlainValue

# No text that UTF-8 can write holds half a surrogate pair.
_MARK = "\udfff"
_WHOLE_MARK = re.compile(f"{_MARK}[0-9]+{_MARK}")
_IDENTIFIER = re.compile(r"@?[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a value stands.

    Attributes:
        path: leads to it from the top of the resource.
        message: the message that it is, or that its items or its values are; None where that is not known.
        is_map: it is a map, whose keys are no fields.
    """

    path: str = ""
    message: Descriptor | None = None
    is_map: bool = False


class FieldComparer:
    """Compares messages that were written as plain values, as `Printer` does.

    What is compared has marks in place of secrets, the same for the same secret: they tell whether a secret changed, and
    nothing of what it is. Where values are shown, `<hidden>` stands for every mark.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._marks: dict[str, str] = {}
        self._masker = Masker(catalogue, self._mark)

    def compare(self, before: dict[str, PlainValue], after: dict[str, PlainValue]) -> tuple[FieldChange, ...]:
        """Return what changed between two resources, each with its `@type`, in the order of the fields.

        Fields that Envoy gives a value where the author gives none are compared by that value.
        """
        self._marks.clear()
        return tuple(self._compare(self._masker.masked(before), self._masker.masked(after), _Site()))

    def _mark(self, secret: str) -> str:
        return self._marks.setdefault(secret, f"{_MARK}{len(self._marks)}{_MARK}")

    def _compare(self, before: PlainValue, after: PlainValue, site: _Site) -> Iterator[FieldChange]:
        # Python takes 1 for True, and 0.0 for -0.0.
        if before == after and canonical(before) == canonical(after):
            return
        if isinstance(before, dict) and isinstance(after, dict):
            if before.get("@type") == after.get("@type"):
                yield from self._compare_objects(before, after, site)
                return
        elif isinstance(before, list) and isinstance(after, list):
            yield from self._compare_lists(before, after, site)
            return
        yield self._change(Act.CHANGED, before, after, site)

    def _compare_objects(
        self, before: dict[str, PlainValue], after: dict[str, PlainValue], site: _Site
    ) -> Iterator[FieldChange]:
        site = self._inside(after, site)
        for name in (*before, *(name for name in after if name not in before)):
            here, field = self._at(name, before, site)
            default = _default(field)
            if name in before and name in after:
                yield from self._compare(before[name], after[name], here)
            elif default is not None:
                yield self._change(Act.CHANGED, before.get(name, default), after.get(name, default), here)
            else:
                act = Act.ADDED if name in after else Act.REMOVED
                yield self._change(act, before.get(name), after.get(name), here)

    def _compare_lists(self, before: list[PlainValue], after: list[PlainValue], site: _Site) -> Iterator[FieldChange]:
        matching = match_items(before, after)
        if matching.is_reordered:
            yield _reordered(matching, site)
        for place in matching.removed:
            yield self._change(Act.REMOVED, before[place], None, _item(site, place, matching.labels_before))
        changes = {place: (Act.CHANGED, old) for old, place in matching.pairs}
        changes |= dict.fromkeys(matching.added, (Act.ADDED, -1))
        for place, (act, old) in sorted(changes.items()):
            here = _item(site, place, matching.labels_after)
            if act is Act.ADDED:
                yield self._change(act, None, after[place], here)
            else:
                yield from self._compare(before[old], after[place], here)

    def _change(self, act: Act, before: PlainValue, after: PlainValue, site: _Site) -> FieldChange:
        if all(value is None or _is_mark(value) for value in (before, after)):
            return FieldChange(site.path, act, is_hidden=True)
        shown_before, shown_after = _shown(before), _shown(after)
        if canonical(shown_before) == canonical(shown_after):
            return FieldChange(site.path, act, is_hidden=True)
        return FieldChange(site.path, act, shown_before, shown_after)

    def _inside(self, value: dict[str, PlainValue], site: _Site) -> _Site:
        """Return the site of an object with the message that the object really is."""
        type_url = value.get("@type")
        if isinstance(type_url, str) and (site.message is None or site.message.full_name == ANY):
            message_type = type_of_url(type_url)
            return replace(site, message=self._catalogue.descriptor(message_type) if message_type else None)
        return site

    def _at(self, name: str, owner: dict[str, PlainValue], site: _Site) -> tuple[_Site, FieldDescriptor | None]:
        """Return the site of a field, or of a value of a map, and the descriptor of the field."""
        path = _key_path(site.path, name)
        if site.is_map:
            return replace(site, path=path, is_map=False), None
        known = site.message is not None and site.message.full_name not in SPECIAL_JSON
        field = cast("Descriptor", site.message).fields_by_name.get(name) if known else None
        if field is None or field.message_type is None:
            return _Site(path), field
        message: Descriptor | None = map_parts(field)[1].message_type if is_map(field) else field.message_type
        return _Site(path, message, is_map(field)), field


def _is_mark(value: PlainValue) -> bool:
    return isinstance(value, str) and _WHOLE_MARK.fullmatch(value) is not None


def _shown(value: PlainValue) -> PlainValue:
    """Return a value with `<hidden>` for every mark."""
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
    """Tell the order of what is on both sides: names, or places before."""
    if matching.labels_after:
        after = [_shown(matching.labels_after[place]) for _, place in matching.pairs]
        before = [_shown(matching.labels_before[place]) for place, _ in sorted(matching.pairs)]
        return FieldChange(site.path, Act.REORDERED, before, after)
    return FieldChange(site.path, Act.REORDERED)


def _default(field: FieldDescriptor | None) -> PlainValue:
    """Return what a field is when it is not given, as it would be written; None for one that may be absent."""
    if field is None or field.has_presence or field.is_repeated:
        return None
    if field.enum_type is not None:
        first = field.enum_type.values_by_number.get(field.default_value)
        return first.name if first else 0
    if isinstance(field.default_value, bytes):
        return ""
    return str(field.default_value) if field.type in LONG_INTEGERS else cast("PlainValue", field.default_value)
