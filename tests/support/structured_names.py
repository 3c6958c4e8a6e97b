"""Structured names, the messages that have them, and Envoys and grpcio's clients that ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from google.protobuf import json_format
from google.protobuf.message import Message

AUTHORITY = "example.com"
TYPES = {
    "Cluster": "envoy.config.cluster.v3.Cluster",
    "ClusterLoadAssignment": "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "LbEndpoint": "envoy.config.endpoint.v3.LbEndpoint",
    "Listener": "envoy.config.listener.v3.Listener",
    "ListenerCollection": "envoy.config.listener.v3.ListenerCollection",
    "RouteConfiguration": "envoy.config.route.v3.RouteConfiguration",
    "Secret": "envoy.extensions.transport_sockets.tls.v3.Secret",
}


def type_url(short: str) -> str:
    """Return the URL of a type, such as `Cluster`."""
    return f"type.googleapis.com/{TYPES[short]}"


def structured(short: str, path: str, authority: str = AUTHORITY) -> str:
    """Return `xdstp://authority/type/path`; the path may have parameters."""
    return f"xdstp://{authority}/{TYPES[short]}/{path}"


def message(item: str, made: type[Message]) -> Any:
    """Return what `tests.support.resources` writes, as a message."""
    ((fields),) = yaml.safe_load(item)
    return json_format.ParseDict({name: value for name, value in fields.items() if name != "@type"}, made())


def following(
    bootstrap: Mapping[str, Any], *, clusters: str = "", listeners: str = "", node_params: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a bootstrap that asks for collections in place of `*`.

    Args:
        bootstrap: any that asks for clusters and listeners.
        clusters: the locator of a collection of clusters.
        listeners: the same for listeners.
        node_params: the fields of the node that are written into the names of collections.
    """
    locators = {"cds_resources_locator": clusters, "lds_resources_locator": listeners}
    dynamic = {**bootstrap["dynamic_resources"], **{name: locator for name, locator in locators.items() if locator}}
    return {**bootstrap, "dynamic_resources": dynamic, "node_context_params": list(node_params)}
