"""What in a tree an Envoy can get by gRPC streams alone (pure)."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.doctor.chart import REST
from fsxds.doctor.messages import messages_in
from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.resources import Resource, Snapshot
from fsxds.values import Fault, FieldPath

_RULE = "stream-need"
_WITH_CONFIG_SOURCES = tuple(BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rds", "ecds"))
_STREAMS_ALONE = tuple(row for row in RESOURCE_TYPES if row.rest_path is None)
_CONFIG_SOURCE = "envoy.config.core.v3.ConfigSource"


def find_stream_need(snapshot: Snapshot, catalogue: Catalogue, xds_cluster: str) -> tuple[Resource, Fault] | None:
    """Return the first resource for which REST does not do, with the field and why; None where it does for all.

    Args:
        snapshot: the tree.
        catalogue: the message types that exist.
        xds_cluster: the static cluster by which the Envoy reaches REST.
    """
    for row in _STREAMS_ALONE:
        for resource in snapshot.resources(row.type_url).values():
            return resource, Fault(_RULE, f"is one of the {row.noun}, which have no REST form", "")
    for type_url in _WITH_CONFIG_SOURCES:
        message_class = catalogue.message_class(type_url.rpartition("/")[2])
        for resource in snapshot.resources(type_url).values():
            for field_path, message in messages_in(message_class.FromString(resource.body), catalogue):
                if message.DESCRIPTOR.full_name == _CONFIG_SOURCE and (found := _need_of(message, xds_cluster)):
                    fact, inner = found
                    return resource, Fault(_RULE, fact, "", (*field_path, *inner))
    return None


def _need_of(source: Any, xds_cluster: str) -> tuple[str, FieldPath] | None:
    """Return what a config source asks for that REST does not have, and the field that does."""
    chosen = source.WhichOneof("config_source_specifier")
    if chosen == "ads":
        return "asks for ADS", ("ads",)
    if chosen != "api_config_source":
        return None
    api = source.api_config_source
    if api.api_type != REST:
        return "asks for a gRPC stream", (chosen, "api_type")
    others = [index for index, name in enumerate(api.cluster_names) if name != xds_cluster]
    if others:
        fact = f'asks the cluster "{api.cluster_names[others[0]]}", which stands for fsxds on streams alone'
        return fact, (chosen, "cluster_names", others[0])
    return None
