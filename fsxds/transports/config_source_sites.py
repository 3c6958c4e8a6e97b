"""Where in a resource a config source stands, and what it is asked for: to be made a mirrored file, or ADS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.values import TypeUrl

CDS, EDS, RDS, SDS, SRDS, ECDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "eds", "rds", "sds", "srds", "ecds"))
WITH_CONFIG_SOURCES = tuple(row.type_url for row in RESOURCE_TYPES if row.holds_config_sources)
"""The types whose resources may hold config sources."""

ANY = "google.protobuf.Any"
CLUSTER = "envoy.config.cluster.v3.Cluster"
CONFIG_SOURCE = "envoy.config.core.v3.ConfigSource"
EXTENSION_CONFIG_SOURCE = "envoy.config.core.v3.ExtensionConfigSource"
HTTP_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3."
SDS_SECRET_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 (a message type)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a config source is asked for: the resources `names` of a type.

    No names at all stand for the whole type, as Envoy asks for SRDS. `names` is None for the routes behind a scoped RDS:
    those that the ScopedRouteConfigurations name.
    """

    type_url: TypeUrl
    names: tuple[str, ...] | None


Site = tuple[Message, Reference]
"""A ConfigSource inside of a message, and what it is asked for."""


class SiteFinder:
    """Walks messages, and what is packed into them, to the config sources of Envoy's subscriptions.

    Only fields that can lead to one are entered; which these are is worked out once per message type. What stands in a
    TypedStruct, or in a message that the catalogue does not know, is not seen.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._roads: dict[str, tuple[FieldDescriptor, ...]] = {}

    def visit(self, message: Any, change: Callable[[Message, Reference], bool]) -> bool:
        """Call `change` with each site, and tell whether any call said that it changed its message."""
        if message.DESCRIPTOR.full_name == ANY:
            return self._visit_packed(message, change)
        changed = False
        for source, reference in _sites_of(message):
            changed |= change(source, reference)
        for field in self._roads_from(message.DESCRIPTOR):
            for inner in _messages_in(message, field):
                changed |= self.visit(inner, change)
        return changed

    def _visit_packed(self, packed: Any, change: Callable[[Message, Reference], bool]) -> bool:
        message_type = packed.type_url.rpartition("/")[2]
        if not self._catalogue.knows(message_type):
            return False
        try:
            inner = self._catalogue.message_class(message_type).FromString(packed.value)
        except DecodeError:  # Envoy's to refuse: this content was packed by its author, and nobody has looked inside.
            return False
        if not self.visit(inner, change):
            return False
        packed.value = inner.SerializeToString(deterministic=True)
        return True

    def _roads_from(self, descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
        """Return the fields of a message type that can lead to a site, or to an Any."""
        if (roads := self._roads.get(descriptor.full_name)) is None:
            roads = tuple(field for field in descriptor.fields if _leads_somewhere(field.message_type))
            self._roads[descriptor.full_name] = roads
        return roads


def _leads_somewhere(start: Descriptor | None) -> bool:
    """Tell whether a message of this type can hold, at any depth, a config source or an Any; None is no message."""
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


def _messages_in(message: Any, field: FieldDescriptor) -> Iterator[Any]:
    """Yield the messages that a field holds: of a list, of a map, or the one that is set."""
    value = getattr(message, field.name)
    if not field.is_repeated:
        yield from (value,) if message.HasField(field.name) else ()
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        # The roads only have maps whose values are messages: their keys never are.
        yield from value.values()
    else:
        yield from value


def eds_name_of(cluster: Any) -> str | None:
    """Return the ClusterLoadAssignment that a cluster takes its endpoints from, None for one that is not of type EDS."""
    if not cluster.HasField("eds_cluster_config"):
        return None
    return str(cluster.eds_cluster_config.service_name or cluster.name)


def _sites_of(message: Any) -> Iterator[Site]:
    """Yield the sites that a message has in fields of its own."""
    full_name = message.DESCRIPTOR.full_name
    if full_name == CLUSTER:
        if (name := eds_name_of(message)) is not None and message.eds_cluster_config.HasField("eds_config"):
            yield message.eds_cluster_config.eds_config, Reference(EDS, (name,))
    elif full_name == SDS_SECRET_CONFIG:
        if message.HasField("sds_config"):
            yield message.sds_config, Reference(SDS, (message.name,))
    elif full_name.startswith(HTTP_CONNECTION_MANAGER):
        yield from _sites_of_routes(full_name.removeprefix(HTTP_CONNECTION_MANAGER), message)
    yield from _sites_of_extension(message)


def _sites_of_routes(word: str, message: Any) -> Iterator[Site]:
    if word == "Rds" and message.HasField("config_source"):
        yield message.config_source, Reference(RDS, (message.route_config_name,))
    elif word == "ScopedRds" and message.HasField("scoped_rds_config_source") and not message.srds_resources_locator:
        yield message.scoped_rds_config_source, Reference(SRDS, ())
    elif word == "ScopedRoutes" and message.HasField("rds_config_source"):
        scopes = message.scoped_route_configurations_list.scoped_route_configurations
        inline = sorted({scope.route_configuration_name for scope in scopes})
        yield message.rds_config_source, Reference(RDS, None if message.HasField("scoped_rds") else tuple(inline))


def _sites_of_extension(message: Any) -> Iterator[Site]:
    """Yield the site of a filter that is discovered: it is asked for by the name of the filter."""
    field = message.DESCRIPTOR.fields_by_name.get("config_discovery")
    if field is None or field.message_type is None or field.message_type.full_name != EXTENSION_CONFIG_SOURCE:
        return
    if "name" in message.DESCRIPTOR.fields_by_name and message.config_discovery.HasField("config_source"):
        yield message.config_discovery.config_source, Reference(ECDS, (message.name,))
