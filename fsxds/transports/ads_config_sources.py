"""Make the config sources inside of resources ADS, for clients that get everything by one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Never

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.resources import Resource, Snapshot, TypeChange, version_of_body, version_of_set
from fsxds.store import SnapshotStore
from fsxds.supervisor import Attempts
from fsxds.transports.config_source_sites import WITH_CONFIG_SOURCES, Reference, SiteFinder
from fsxds.values import TypeUrl

Rows = Mapping[str, Resource]

# So many resources are rewritten in one step of the event loop: some ten milliseconds.
RESOURCES_PER_STEP = 200

# The generation that a change follows of which nothing is said of what was before.
UNKNOWN = -1


class AdsConfigSources:
    """Rewrites snapshots; each resource is worked on once, and rows in which nothing changed stay the same object.

    A source becomes `ads: {}` where it is REST, gRPC or `self` and asks for a type that the tree speaks of; paths, and
    what asks for other types, stay as they were written. `initial_fetch_timeout` stays. A resource that is rewritten has
    the version of what it is then, so that nobody takes it for what the author wrote.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._finder = SiteFinder(catalogue)
        self._undeclared: frozenset[TypeUrl] = frozenset()
        # {type: (as authored, as rewritten)} of the snapshot before.
        self._rows: dict[TypeUrl, tuple[Rows, Rows]] = {}

    async def rewrite(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot for streams. One call at a time; the event loop goes on meanwhile."""
        by_type, versions, changes = dict(snapshot.by_type), dict(snapshot.versions), dict(snapshot.changes)
        if snapshot.undeclared != self._undeclared:
            # Other types can be asked for now: anything may be rewritten in another way than before.
            self._rows, self._undeclared = {}, snapshot.undeclared
            for type_url in WITH_CONFIG_SOURCES:
                change = changes.get(type_url, TypeChange(snapshot.generation))
                changes[type_url] = replace(change, generation=snapshot.generation, follows=UNKNOWN)
        for type_url in WITH_CONFIG_SOURCES:
            by_type[type_url] = rows = await self._rewrite_rows(type_url, snapshot.resources(type_url))
            versions[type_url] = version_of_set(type_url, ((name, row.version) for name, row in rows.items()))
        return replace(
            snapshot,
            by_type=MappingProxyType(by_type),
            versions=MappingProxyType(versions),
            changes=MappingProxyType(changes),
        )

    async def _rewrite_rows(self, type_url: TypeUrl, authored: Rows) -> Rows:
        before, rewritten_before = self._rows.get(type_url, ({}, {}))
        if before is authored:
            return rewritten_before
        rewritten: dict[str, Resource] = {}
        fresh = 0
        for name, resource in authored.items():
            if before.get(name) is resource:
                rewritten[name] = rewritten_before[name]
                continue
            rewritten[name] = self._rewrite(resource)
            fresh += 1
            if fresh % RESOURCES_PER_STEP == 0:
                await asyncio.sleep(0)
        rows = MappingProxyType(rewritten)
        self._rows[type_url] = authored, rows
        return rows

    def _rewrite(self, resource: Resource) -> Resource:
        message = self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
        if not self._finder.visit(message, self._point_at_ads):
            return resource
        body = message.SerializeToString(deterministic=True)
        return replace(resource, body=body, version=version_of_body(resource.type_url, body))

    def _point_at_ads(self, source: Message, reference: Reference) -> bool:
        found: Any = source
        if reference.type_url in self._undeclared:
            return False
        if found.WhichOneof("config_source_specifier") not in {"self", "api_config_source"}:
            return False
        found.ads.SetInParent()
        found.resource_api_version = 2  # ApiVersion.V3: the only one that Envoy takes.
        return True


class Rewriting:
    """Keeps `target` in step with `store`, rewritten; what was rewritten survives a failure.

    A snapshot on which it failed three times in a row is skipped: `target` stays as it is until the next one.
    """

    def __init__(
        self,
        store: SnapshotStore,
        target: SnapshotStore,
        sources: AdsConfigSources,
        set_aside: Callable[[BaseException], None],
    ) -> None:
        """Rewrite by `sources`; `set_aside` is called with the last error when a snapshot is skipped."""
        self._store = store
        self._target = target
        self._sources = sources
        self._attempts = Attempts(set_aside)
        self._generation = 0

    async def keep_rewritten(self) -> Never:
        """Rewrite each newer snapshot, until cancelled."""
        while True:
            snapshot = await self._store.newer_than(self._generation)
            if not self._attempts.are_over(snapshot.generation):
                with self._attempts.on(snapshot.generation):
                    self._target.publish(await self._sources.rewrite(snapshot))
            self._generation = snapshot.generation
