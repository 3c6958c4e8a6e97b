"""Merges a patch into a message's JSON form: RFC 7386, guided by field types.

Objects are merged, `null` removes, all else is replaced. Beyond RFC 7386:

* a field is the same in both spellings;
* a field of a oneof removes its other members, as in protobuf;
* a list of messages with distinct keys (`name`, or those of `LIST_KEYS`) is merged by key: members of the same key are
  merged, others added at the end. A member `{name: web, $patch: delete}` removes one. Any other list is replaced.
* an Any is merged with one of the same type, even without a repeated `@type`; one of another type is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, STRUCT, VALUE, FieldNames, is_map, map_parts
from fsxds.model.values import FieldPath, PlainValue

DIRECTIVE, DELETE = "$patch", "delete"

LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "envoy.config.core.v3.HeaderValue": ("key",),
    "envoy.config.core.v3.HeaderValueOption": ("header", "key"),
}
"""The key fields of list members that have no `name`."""

_Object = dict[str, PlainValue]

Sources = dict[FieldPath, tuple[bool, FieldPath]]
"""Per path in a merged value: whether the patch wrote it, and its path in the patch or in the base."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged value; parts outside of `sources` come from the base."""

    value: dict[str, PlainValue]
    sources: Sources = field(default_factory=dict)


class PatchMerger:
    """Merges patches into messages."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._names = FieldNames(catalogue)

    def merge(self, base: dict[str, PlainValue], patch: Mapping[str, PlainValue], message_type: str) -> Merged:
        """Merge into a message as `Printer` writes it; changes neither."""
        sources: Sources = {}
        merging = _Merging(self._catalogue, self._names, sources)
        return Merged(merging.objects(base, patch, self._catalogue.descriptor(message_type), _MergePlace()), sources)


@dataclass(frozen=True, slots=True)
class _MergePlace:
    merged: FieldPath = ()
    base: FieldPath = ()
    patch: FieldPath = ()

    def at(self, merged: str | int, base: str | int, patch: str | int) -> _MergePlace:
        return _MergePlace((*self.merged, merged), (*self.base, base), (*self.patch, patch))


@dataclass(frozen=True, slots=True)
class _Merging:
    catalogue: Catalogue
    names: FieldNames
    sources: Sources

    def objects(
        self, base: _Object, patch: Mapping[str, PlainValue], descriptor: Descriptor | None, place: _MergePlace
    ) -> _Object:
        merged = dict(base)
        for key, value in patch.items():
            row = self.names.find(descriptor, key) if descriptor else None
            name = row.name if row else key
            for other in _others_of_oneof(row) if value is not None else ():
                merged.pop(other, None)
            self._set(merged, value, row, place.at(name, name, key))
        return merged

    def _set(self, merged: _Object, value: PlainValue, row: FieldDescriptor | None, place: _MergePlace) -> None:
        name = str(place.merged[-1])
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = self._value(merged.get(name), value, row, place)

    def _value(
        self, base: PlainValue, patch: PlainValue, row: FieldDescriptor | None, place: _MergePlace
    ) -> PlainValue:
        descriptor: Descriptor | None = row.message_type if row else None
        if isinstance(base, list) and descriptor is not None:
            # As elsewhere, one object may stand for a list of one.
            merged = self._list(base, patch if isinstance(patch, list) else [patch], descriptor, place)
            if merged is not None:
                return merged
        elif row is not None and is_map(row) and isinstance(base, dict) and isinstance(patch, dict):
            return self._map(base, patch, map_parts(row)[1], place)
        return self._one(base, patch, descriptor, place)

    def _replaced(self, patch: PlainValue, place: _MergePlace) -> PlainValue:
        self.sources[place.merged] = True, place.patch
        return _without_nulls(patch)

    def _map(self, base: _Object, patch: _Object, row: FieldDescriptor, place: _MergePlace) -> _Object:
        merged = dict(base)
        for key, value in patch.items():
            self._set(merged, value, row, place.at(key, key, key))
        return merged

    def _message(
        self, base: _Object, patch: _Object, descriptor: Descriptor | None, place: _MergePlace
    ) -> _Object | None:
        """None for different types."""
        if descriptor is None or descriptor.full_name in (STRUCT, VALUE):
            return self.objects(base, patch, None, place)
        if descriptor.full_name != ANY:
            return self.objects(base, patch, descriptor, place)
        message_type = _message_type(base.get("@type"))
        if "@type" in patch and _message_type(patch["@type"]) != message_type:
            return None
        others = {key: value for key, value in patch.items() if key != "@type"}
        return self.objects(base, others, self.catalogue.descriptor(message_type), place)

    def _list(
        self, base: list[PlainValue], patch: list[PlainValue], descriptor: Descriptor, place: _MergePlace
    ) -> list[PlainValue] | None:
        """None unless the keys are distinct."""
        keys = LIST_KEYS.get(descriptor.full_name, ("name",))
        if self.names.find(descriptor, keys[0]) is None:
            return None
        known, changes = _by_key(base, keys), _by_key(patch, keys)
        if known is None or changes is None:
            return None
        merged: list[PlainValue] = []
        for key, index in known.items():
            change = changes.pop(key, None)
            if change is None:
                self.sources[*place.merged, len(merged)] = False, (*place.base, index)
                merged.append(base[index])
            elif not _is_deletion(patch[change]):
                at = place.at(len(merged), index, change)
                self.sources[at.merged] = False, at.base
                merged.append(self._one(base[index], patch[change], descriptor, at))
        for index in changes.values():
            if not _is_deletion(patch[index]):
                merged.append(self._replaced(patch[index], place.at(len(merged), 0, index)))
        return merged

    def _one(
        self, base: PlainValue, patch: PlainValue, descriptor: Descriptor | None, place: _MergePlace
    ) -> PlainValue:
        if not isinstance(base, dict) or not isinstance(patch, dict):
            return self._replaced(patch, place)
        found = self._message(base, patch, descriptor, place)
        return self._replaced(patch, place) if found is None else found


def _others_of_oneof(row: FieldDescriptor | None) -> list[str]:
    if row is None or row.containing_oneof is None:
        return []
    return [other.name for other in row.containing_oneof.fields if other is not row]


def _by_key(members: list[PlainValue], keys: tuple[str, ...]) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for index, member in enumerate(members):
        key: PlainValue = member
        for step in keys:
            key = key.get(step) if isinstance(key, dict) else None
        if not isinstance(key, str) or not key or key in found:
            return None
        found[key] = index
    return found


def _is_deletion(member: PlainValue) -> bool:
    return isinstance(member, dict) and member.get(DIRECTIVE) == DELETE


def _message_type(type_url: PlainValue) -> str:
    return str(type_url).rpartition("/")[2]


def _without_nulls(patch: PlainValue) -> PlainValue:
    """RFC 7386 drops nulls in objects, and keeps lists."""
    if not isinstance(patch, dict):
        return patch
    return {key: _without_nulls(value) for key, value in patch.items() if value is not None}
