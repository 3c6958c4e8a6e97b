"""After a restart: resources of the process before that may be missing from the tree by mistake.

A file that is broken when a process starts was never good in it, so the tree's snapshot lacks what the file last held. The
process before served that, and so does this one until it is certain that it is meant to go:

| rule | source |
| --- | --- |
| What an incomplete, withheld or undeclared type lacks of what was restored is served on. | `Snapshot` |
| It goes as soon as a target comes in which its type is neither, or that has another resource of its name. | |
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
        uncertain = target.incomplete | target.withheld | target.undeclared
        found = {type_url: self._rows[type_url] for type_url in uncertain & self._rows.keys()}
        rows = {type_url: each.with_changes((), target.resources(type_url)) for type_url, each in found.items()}
        self._rows = {type_url: each for type_url, each in rows.items() if each}
        return _joined(target, self._rows) if self._rows else target


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
