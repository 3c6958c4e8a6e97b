"""After a restart: resources of the process before that may be missing from the tree by mistake.

A file that is broken when a process starts was never good in it, so the tree's snapshot lacks what the file last held. The
process before served that, and so does this one until it is certain that it is meant to go:

| rule | source |
| --- | --- |
| What an incomplete, withheld or undeclared type lacks of what was restored is served on. | `Snapshot` |
| So is what a redirect stood for that leads nowhere now. | `Snapshot` |
| It goes as soon as a target comes in which it is neither, or that has another resource of its name. | |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fsxds.resources import Rows, Snapshot
from fsxds.values import TypeUrl


class Restored:
    """The resources of a restored target that no target of this process had yet."""

    def __init__(self, target: Snapshot | None = None) -> None:
        self._rows: dict[TypeUrl, Rows] = {} if target is None else dict(target.by_type)

    def complete(self, target: Snapshot) -> Snapshot:
        """Return a target with what it may lack by mistake; from then on, what it has or certainly lacks is forgotten."""
        if not self._rows:
            return target
        rows = {type_url: _lacking(each, type_url, target) for type_url, each in self._rows.items()}
        self._rows = {type_url: each for type_url, each in rows.items() if each}
        return _joined(target, self._rows) if self._rows else target


def _lacking(rows: Rows, type_url: TypeUrl, target: Snapshot) -> Rows:
    """Return those of a type's restored resources that a target may lack by mistake."""
    if type_url in target.incomplete | target.withheld | target.undeclared:
        return rows.with_changes((), target.resources(type_url))
    names = {name for unresolved_type, name in target.unresolved if unresolved_type == type_url}
    return Rows(type_url, {name: rows[name] for name in rows.among(names - target.resources(type_url).keys())})


def _joined(target: Snapshot, more: Mapping[TypeUrl, Rows]) -> Snapshot:
    rows = {
        type_url: each.with_changes(more[type_url].values(), ()) if type_url in more else each
        for type_url, each in target.by_type.items()
    }
    authored = {type_url: version for type_url, version in target.authored.items() if type_url not in more}
    return replace(
        target,
        by_type=MappingProxyType(rows),
        authored=MappingProxyType(authored),
        withheld=target.withheld - more.keys(),
        undeclared=target.undeclared - more.keys(),
    )
