"""Snapshots for streams whose clients follow redirects themselves: their rows have locators in place of content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from xds.core.v3.resource_locator_pb2 import ResourceLocator

from fsxds.api.locator_messages import fill_locator
from fsxds.name_table import Chunk
from fsxds.resource_names import Locator
from fsxds.resources import Resource, Rows, Snapshot, version_of_body
from fsxds.values import TypeUrl

_Unresolved = Mapping[str, Resource]


class PassedRedirects:
    """Puts locators in place of content, each time on top of the snapshot before: rows without redirects stay the same object.

    What leads to nothing that is here is there, too: its clients may find it elsewhere. The version of a redirect is that of
    its locator, so that what it leads to may change without it.
    """

    def __init__(self) -> None:
        # As served otherwise, with what is unresolved of the type, and as rewritten.
        self._rows: dict[TypeUrl, tuple[Rows, _Unresolved, Rows]] = {}

    async def rewrite(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot for streams."""
        by_type = {type_url: self._rewrite_rows(type_url, snapshot) for type_url in snapshot.by_type}
        return replace(snapshot, by_type=MappingProxyType(by_type))

    def _rewrite_rows(self, type_url: TypeUrl, snapshot: Snapshot) -> Rows:
        rows, empty = snapshot.by_type[type_url], Rows(type_url)
        unresolved = {key[1]: resource for key, resource in snapshot.unresolved.items() if key[0] == type_url}
        before, unresolved_before, rewritten_before = self._rows.get(type_url) or (empty, {}, empty)
        if before is rows and unresolved_before == unresolved:
            return rewritten_before
        if before is rewritten_before:
            # Nothing was rewritten so far: names are asked of chunks, which remember the answer.
            names = {name for chunk in rows.chunks for name in chunk.once(_redirects_of_chunk)}
            base, removed = rows, set[str]()
        else:
            change = rows.changes_since(before)
            names, removed = set(change.names - change.removed), set(change.removed)
            base = rewritten_before
        gone = unresolved_before.keys() - unresolved.keys()
        names |= unresolved.keys() | rows.among(gone)
        updated = [_with_locator(rows.get(name) or unresolved[name]) for name in sorted(names)]
        rewritten = base.with_changes(updated, (removed | gone) - names)
        self._rows[type_url] = rows, unresolved, rewritten
        return rewritten


def _redirects_of_chunk(chunk: Chunk[Resource]) -> tuple[str, ...]:
    return tuple(name for name, resource in zip(chunk.names, chunk.values, strict=True) if resource.redirect)


def _with_locator(resource: Resource) -> Resource:
    if not resource.redirect:
        return resource
    message = ResourceLocator()
    fill_locator(message, Locator.parse(resource.redirect))
    body = message.SerializeToString(deterministic=True)
    return replace(resource, body=body, version=version_of_body(resource.type_url, body))
