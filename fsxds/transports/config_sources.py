"""Config sources inside resources, and the rewriting of snapshots for streams.

Rules: which resources clients get that follow redirects themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Never

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from xds.core.v3.resource_locator_pb2 import ResourceLocator

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.locator_messages import fill_locator
from fsxds.api.walk import MessageVisitor
from fsxds.events.event import Observer
from fsxds.events.process_events import SnapshotSetAside
from fsxds.model.memo import Lru
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import Locator
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Resource, Rows, Snapshot, TypeChange, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.runtime.channels import Channel
from fsxds.runtime.supervisor import Attempts
from fsxds.settings.options import Settings

CDS, EDS, RDS, SDS, SRDS, ECDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "eds", "rds", "sds", "srds", "ecds"))
WITH_CONFIG_SOURCES = tuple(row.type_url for row in RESOURCE_TYPES if row.holds_config_sources)
"""Types with config sources."""

ANY = "google.protobuf.Any"
CLUSTER = "envoy.config.cluster.v3.Cluster"
CONFIG_SOURCE = "envoy.config.core.v3.ConfigSource"
EXTENSION_CONFIG_SOURCE = "envoy.config.core.v3.ExtensionConfigSource"
HTTP_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3."
SDS_SECRET_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 (a message type)


# `envoy.config.core.v3.ApiVersion.V3`, the only one that Envoy accepts.
API_V3 = 2


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """Resources that a config source requests.

    Empty `names`: the whole type, as Envoy requests SRDS; None: the routes behind a scoped RDS.
    """

    type_url: TypeUrl
    names: tuple[str, ...] | None


Change = Callable[[DynamicMessage, RequestedResources], bool]
"""Takes a ConfigSource and its request; returns whether it changed the ConfigSource."""


class ConfigSourceFinder:
    """Finds config sources, also in packed messages, except in TypedStructs and unknown messages."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._visitor = MessageVisitor(catalogue, lambda field: _leads_to_source(field.message_type))

    def parse(self, resource: Resource) -> Message:
        """Parse a resource."""
        return self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)

    def rewrite(self, resource: Resource, change: Change) -> bytes | None:
        """Call `change` with config sources; return the new body, or None."""

        def change_sources(message: DynamicMessage) -> bool:
            # A list, because `any` would stop at the first change.
            return True in [change(source, requested) for source, requested in _sources_of(message)]

        message = self.parse(resource)
        is_changed = self._visitor.visit(message, change_sources)
        return message.SerializeToString(deterministic=True) if is_changed else None


def _leads_to_source(start: Descriptor | None) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        descriptor = waiting.pop()
        if descriptor is None or descriptor.full_name in seen:
            continue
        if descriptor.full_name in {ANY, CONFIG_SOURCE}:
            return True
        seen.add(descriptor.full_name)
        waiting += [field.message_type for field in descriptor.fields]
    return False


def eds_name_of(cluster: DynamicMessage) -> str | None:
    """Return an EDS cluster's ClusterLoadAssignment name, or None."""
    if not cluster.HasField("eds_cluster_config"):
        return None
    return str(cluster.eds_cluster_config.service_name or cluster.name)


def _sources_of(message: DynamicMessage) -> Iterator[tuple[DynamicMessage, RequestedResources]]:
    full_name = message.DESCRIPTOR.full_name
    if full_name == CLUSTER:
        if (name := eds_name_of(message)) is not None and message.eds_cluster_config.HasField("eds_config"):
            yield message.eds_cluster_config.eds_config, RequestedResources(EDS, (name,))
    elif full_name == SDS_SECRET_CONFIG:
        if message.HasField("sds_config"):
            yield message.sds_config, RequestedResources(SDS, (message.name,))
    elif full_name.startswith(HTTP_CONNECTION_MANAGER):
        yield from _sources_of_routes(full_name.removeprefix(HTTP_CONNECTION_MANAGER), message)
    yield from _sources_of_extension(message)


def _sources_of_routes(word: str, message: DynamicMessage) -> Iterator[tuple[DynamicMessage, RequestedResources]]:
    if word == "Rds" and message.HasField("config_source"):
        yield message.config_source, RequestedResources(RDS, (message.route_config_name,))
    elif word == "ScopedRds" and message.HasField("scoped_rds_config_source") and not message.srds_resources_locator:
        yield message.scoped_rds_config_source, RequestedResources(SRDS, ())
    elif word == "ScopedRoutes" and message.HasField("rds_config_source"):
        scopes = message.scoped_route_configurations_list.scoped_route_configurations
        inline = sorted({scope.route_configuration_name for scope in scopes})
        yield (
            message.rds_config_source,
            RequestedResources(RDS, None if message.HasField("scoped_rds") else tuple(inline)),
        )


def _sources_of_extension(message: DynamicMessage) -> Iterator[tuple[DynamicMessage, RequestedResources]]:
    field = message.DESCRIPTOR.fields_by_name.get("config_discovery")
    if field is None or field.message_type is None or field.message_type.full_name != EXTENSION_CONFIG_SOURCE:
        return
    if "name" in message.DESCRIPTOR.fields_by_name and message.config_discovery.HasField("config_source"):
        yield message.config_discovery.config_source, RequestedResources(ECDS, (message.name,))


# About ten milliseconds on the event loop.
RESOURCES_PER_STEP = 200
# Sets of undeclared types with kept rows: views may differ in them, and earlier ones hold old resources.
MOST_UNDECLARED = 8


class AdsConfigSources:
    """Points config sources at ADS, on top of the snapshot before.

    Channels share the work; rows without rewritten resources stay the same object.

    A REST, gRPC or `self` source becomes `ads: {}` if the tree defines its type; others and `initial_fetch_timeout`
    stay. A rewritten resource has a version of its own.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._finder = ConfigSourceFinder(catalogue)
        self._undeclared: frozenset[TypeUrl] = frozenset()
        # The authored and the rewritten rows of the last snapshot with these undeclared types.
        self._rows: Lru[tuple[frozenset[TypeUrl], TypeUrl], tuple[Rows, Rows]] = Lru(
            MOST_UNDECLARED * len(WITH_CONFIG_SOURCES)
        )

    async def rewrite(self, snapshot: Snapshot) -> Snapshot:
        """Return the streams' snapshot. Not concurrent; yields to the event loop."""
        by_type, changes = dict(snapshot.by_type), dict(snapshot.changes)
        if snapshot.undeclared != self._undeclared:
            # Any resource may differ from its last rewriting.
            self._undeclared = snapshot.undeclared
            for type_url in WITH_CONFIG_SOURCES:
                change = changes.get(type_url, TypeChange(snapshot.generation))
                changes[type_url] = replace(change, generation=snapshot.generation)
        for type_url in WITH_CONFIG_SOURCES:
            by_type[type_url] = await self._rewrite_rows(type_url, snapshot.resources(type_url))
        return replace(snapshot, by_type=MappingProxyType(by_type), changes=MappingProxyType(changes))

    async def _rewrite_rows(self, type_url: TypeUrl, authored: Rows) -> Rows:
        key = self._undeclared, type_url
        before, rewritten_before = self._rows.get(key) or (Rows(type_url),) * 2
        if before is authored:
            return rewritten_before
        change = authored.changes_since(before)
        updated = []
        # Moved resources too: a NACK is reported with the file of the resource.
        for count, name in enumerate(change.fresh | change.renewed | change.moved, 1):
            updated.append(self._rewrite(authored[name]))
            if count % RESOURCES_PER_STEP == 0:
                await asyncio.sleep(0)
        is_as_authored = before is rewritten_before and all(each is authored[each.name] for each in updated)
        rewritten = authored if is_as_authored else rewritten_before.with_changes(updated, change.removed)
        self._rows.put(key, (authored, rewritten))
        return rewritten

    def _rewrite(self, resource: Resource) -> Resource:
        body = self._finder.rewrite(resource, self._point_at_ads)
        return (
            resource if body is None else replace(resource, body=body, version=version_of_body(resource.type_url, body))
        )

    def _point_at_ads(self, source: DynamicMessage, requested: RequestedResources) -> bool:
        if requested.type_url in self._undeclared:
            return False
        if source.WhichOneof("config_source_specifier") not in {"self", "api_config_source"}:
            return False
        source.ads.SetInParent()
        source.resource_api_version = API_V3
        return True


class Rewriting:
    """Publishes followed channels' snapshots, rewritten, to their streams.

    One that failed three times in a row is skipped: streams keep the one before.
    """

    def __init__(self, rewriters: Iterable[AdsConfigSources | PassedRedirects], observer: Observer) -> None:
        """`rewriters` apply in order."""
        self._rewriters = tuple(rewriters)
        self._attempts = Attempts(lambda error: observer(SnapshotSetAside("ADS rewriting", error)))
        # Channels with a newer snapshot.
        self._published: asyncio.Queue[Channel] = asyncio.Queue()

    def follow(self, channel: Channel) -> None:
        """Rewrite a channel's newer snapshots."""
        channel.store.listeners[self] = partial(self._published.put_nowait, channel)

    async def keep_rewritten(self) -> Never:
        """Rewrite published snapshots until cancelled; the next call retries failures."""
        while True:
            channel = await self._published.get()
            is_done = False
            try:
                await self._rewrite(channel)
                is_done = True
            finally:
                if not is_done:
                    self._published.put_nowait(channel)

    async def _rewrite(self, channel: Channel) -> None:
        snapshot, before = channel.store.current, channel.streams.current
        if snapshot is None or (before is not None and before.generation >= snapshot.generation):
            return
        subject = channel, snapshot.generation
        if not self._attempts.are_over(subject):
            with self._attempts.on(subject):
                for rewriter in self._rewriters:
                    snapshot = await rewriter.rewrite(snapshot)
                channel.streams.publish(snapshot)


class PassedRedirects:
    """Serves locators in place of redirected content, on top of the snapshot before.

    Rows without redirects stay the same object. Unresolved redirects are included: clients may resolve them. A redirect
    has its locator's version.
    """

    def __init__(self) -> None:
        # By type: the last rows and unresolved resources, and the rewritten rows.
        self._rows: dict[TypeUrl, tuple[Rows, Mapping[str, Resource], Rows]] = {}

    async def rewrite(self, snapshot: Snapshot) -> Snapshot:
        """Return the streams' snapshot."""
        by_type = {type_url: self._rewrite_rows(type_url, snapshot) for type_url in snapshot.by_type}
        return replace(snapshot, by_type=MappingProxyType(by_type))

    def _rewrite_rows(self, type_url: TypeUrl, snapshot: Snapshot) -> Rows:
        rows, empty = snapshot.by_type[type_url], Rows(type_url)
        unresolved = {key[1]: resource for key, resource in snapshot.unresolved.items() if key[0] == type_url}
        before, unresolved_before, rewritten_before = self._rows.get(type_url) or (empty, {}, empty)
        if before is rows and unresolved_before == unresolved:
            return rewritten_before
        if before is rewritten_before:
            # Nothing was rewritten so far; chunks cache the result.
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


def rewriting_of(settings: Settings, catalogue: Catalogue, observer: Observer) -> Rewriting:
    """Return streamed snapshots' rewriters; `Application` loads this module only if there is one."""
    rewriters: list[AdsConfigSources | PassedRedirects] = (
        [AdsConfigSources(catalogue)] if settings.ads_config_sources else []
    )
    rewriters += [PassedRedirects()] if settings.redirects == "client" else []
    return Rewriting(rewriters, observer)
