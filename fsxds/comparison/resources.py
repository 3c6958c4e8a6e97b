"""Compare what two snapshots serve: resources by type and name, by their versions first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.host_names import name_of_domain, route_configuration_of
from fsxds.api.printing import Printer
from fsxds.comparison.changes import Act, Difference, FieldChange, Gap, ResourceChange, TypeDifference
from fsxds.comparison.fields import FieldComparer
from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.resources import Resource, Snapshot
from fsxds.values import PlainValue, TypeUrl

Gaps = Sequence[Gap]

_VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url


class Comparer:
    """Compares snapshots whose resources are messages of one catalogue."""

    def __init__(self, catalogue: Catalogue, *, over_rest: bool = False) -> None:
        """Compare by this catalogue.

        Args:
            catalogue: the messages that the resources are.
            over_rest: compare what REST tells alone: no types without a REST form, no TTL, no aliases.
        """
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._fields = FieldComparer(catalogue)
        self._over_rest = over_rest
        self._rows = tuple(row for row in RESOURCE_TYPES if row.rest_path or not over_rest)

    def compare(self, before: Snapshot, after: Snapshot, gaps: tuple[Gaps, Gaps] = ((), ())) -> Difference:
        """Return what became of the resources of one snapshot in the other; `gaps` are what of each could not be read."""
        found = (_without_gaps(self._compare_type(row.type_url, before, after), gaps) for row in self._rows)
        return Difference(tuple(row for row in found if row.added or row.removed or row.changed or row.unknown))

    def _compare_type(self, type_url: TypeUrl, earlier: Snapshot, later: Snapshot) -> TypeDifference:
        before, after = earlier.resources(type_url), later.resources(type_url)
        return TypeDifference(
            type_url,
            tuple(resource for name, resource in sorted(after.items()) if name not in before),
            tuple(resource for name, resource in sorted(before.items()) if name not in after),
            tuple(
                self._change(before[name], resource)
                for name, resource in sorted(after.items())
                if name in before and not self._are_equal(before[name], resource)
            ),
        )

    def _are_equal(self, before: Resource, after: Resource) -> bool:
        if before.version != after.version:
            return False
        return self._over_rest or (before.ttl_s == after.ttl_s and before.aliases == after.aliases)

    def _change(self, before: Resource, after: Resource) -> ResourceChange:
        fields = self._fields.compare(self._plain(before), self._plain(after)) if before.body != after.body else ()
        around = () if self._over_rest else self._around(before, after)
        return ResourceChange(before, after, (*around, *fields))

    def _around(self, before: Resource, after: Resource) -> tuple[FieldChange, ...]:
        """Compare what stands in the `Resource` around a resource."""
        ttl = _around_field("ttl", _ttl(before), _ttl(after))
        if before.aliases == after.aliases:
            return tuple(ttl)
        return (*ttl, *_around_field("aliases", self._aliases(before), self._aliases(after)))

    def _aliases(self, resource: Resource) -> PlainValue:
        """Return the aliases that an author gave: those of a virtual host that are its domains are compared as such."""
        if resource.type_url != _VIRTUAL_HOST:
            return [*resource.aliases] or None
        message: Any = self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
        table = route_configuration_of(resource.name)
        of_domains = {name_of_domain(table, domain) for domain in message.domains}
        return [alias for alias in resource.aliases if alias not in of_domains] or None

    def _plain(self, resource: Resource) -> dict[str, PlainValue]:
        plain: dict[str, PlainValue] = json.loads(self._printer.any_json(resource.type_url, resource.body))
        return plain


def _without_gaps(found: TypeDifference, gaps: tuple[Gaps, Gaps]) -> TypeDifference:
    """Return a difference in which nothing counts as added or removed that may stand in what could not be read."""
    added, maybe_added = _parted(found.added, gaps[0])
    removed, maybe_removed = _parted(found.removed, gaps[1])
    return replace(found, added=added, removed=removed, maybe_added=maybe_added, maybe_removed=maybe_removed)


def _parted(resources: tuple[Resource, ...], gaps: Gaps) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    unknown = [any(gap.may_hold(resource) for gap in gaps) for resource in resources]
    return (
        tuple(resource for resource, is_unknown in zip(resources, unknown, strict=True) if not is_unknown),
        tuple(resource for resource, is_unknown in zip(resources, unknown, strict=True) if is_unknown),
    )


def _around_field(name: str, before: PlainValue, after: PlainValue) -> Iterator[FieldChange]:
    if before != after:
        act = Act.ADDED if before is None else Act.REMOVED if after is None else Act.CHANGED
        yield FieldChange(f"(Resource).{name}", act, before, after)


def _ttl(resource: Resource) -> PlainValue:
    return None if resource.ttl_s is None else f"{resource.ttl_s:g}s"
