"""What can be wrong with a bootstrap, by itself and for the tree that it is to be served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fsxds.doctor.chart import DELTA_GRPC, GRPC, Chart
from fsxds.doctor.paths import path_faults
from fsxds.values import Fault, FieldPath, Severity

_EVERYWHERE = ("0.0.0.0", "::", "::0")  # noqa: S104, not bound
_STREAMS = {GRPC, DELTA_GRPC}


@dataclass(frozen=True, slots=True)
class TreeFacts:
    """What a tree holds, as far as a bootstrap has to ask for it.

    Attributes:
        clusters: how many clusters.
        listeners: how many listeners.
        runtime_names: the runtime layers.
    """

    clusters: int = 0
    listeners: int = 0
    runtime_names: tuple[str, ...] = ()


def bootstrap_faults(bootstrap: Any, chart: Chart, tree: TreeFacts) -> Iterator[Fault]:
    """Check what config sources do not say: node, admin page, subscriptions and runtime layers."""
    yield from _check_node(bootstrap)
    yield from _check_admin(bootstrap)
    yield from _check_streams(bootstrap.dynamic_resources)
    yield from _check_locators(bootstrap.dynamic_resources, chart)
    yield from _check_subscriptions(bootstrap.dynamic_resources, tree)
    yield from _check_layers(bootstrap.layered_runtime, tree)


def _check_node(bootstrap: Any) -> Iterator[Fault]:
    dynamic = bootstrap.dynamic_resources
    sources = [getattr(dynamic, name) for name in ("cds_config", "lds_config") if dynamic.HasField(name)]
    is_asked = any(source.WhichOneof("config_source_specifier") in {"ads", "api_config_source"} for source in sources)
    missing = [f"node.{name}" for name in ("id", "cluster") if not getattr(bootstrap.node, name)]
    if is_asked and missing:
        yield Fault(
            "no-node",
            f"{' and '.join(missing)} is missing; without both, Envoy does not start",
            "write node: {id: …, cluster: …}, unless Envoy is started with --service-node and --service-cluster",
            ("node",),
            severity=Severity.WARNING,
        )


def _check_admin(bootstrap: Any) -> Iterator[Fault]:
    address = bootstrap.admin.address.socket_address.address
    if address in _EVERYWHERE:
        yield Fault(
            "open-admin",
            f"the admin page listens on {address}: whoever reaches it can read the configuration and stop Envoy",
            "listen on 127.0.0.1, unless something else keeps others away",
            ("admin", "address", "socket_address", "address"),
            severity=Severity.WARNING,
        )


def _check_streams(dynamic: Any) -> Iterator[Fault]:
    if dynamic.HasField("ads_config") and dynamic.ads_config.api_type not in _STREAMS:
        yield Fault(
            "impossible-transport",
            "ADS is a gRPC stream; Envoy refuses any other api_type here",
            "write api_type: GRPC or DELTA_GRPC, or give cds_config and lds_config REST sources of their own",
            ("dynamic_resources", "ads_config", "api_type"),
        )


def _check_locators(dynamic: Any, chart: Chart) -> Iterator[Fault]:
    clusters: FieldPath = ("dynamic_resources", "cds_resources_locator")
    listeners: FieldPath = ("dynamic_resources", "lds_resources_locator")
    if dynamic.cds_resources_locator.startswith("file:"):
        yield Fault(
            "cluster-collection-file",
            "Envoy 1.40 cannot read a collection of clusters from a file",
            "use cds_config with a path_config_source",
            clusters,
        )
    if dynamic.lds_resources_locator.startswith("file:///"):
        path = dynamic.lds_resources_locator.removeprefix("file://").partition("#")[0]
        yield from (f for f in path_faults(path, None, listeners, chart) if f.rule != "unwatched-directory")


def _check_subscriptions(dynamic: Any, tree: TreeFacts) -> Iterator[Fault]:
    for name, count, noun in (("cds", tree.clusters, "clusters"), ("lds", tree.listeners, "listeners")):
        is_asked = dynamic.HasField(f"{name}_config") or getattr(dynamic, f"{name}_resources_locator")
        if count and not is_asked:
            yield Fault(
                "not-asked-for",
                f"the tree has {noun}, and without {name}_config Envoy never asks for them",
                f"add {name}_config to dynamic_resources, as `fsxds bootstrap DIR` writes it",
                ("dynamic_resources",),
                severity=Severity.WARNING,
            )


def _check_layers(runtime: Any, tree: TreeFacts) -> Iterator[Fault]:
    asked: set[str] = set()
    for index, layer in enumerate(runtime.layers):
        if not layer.HasField("rtds_layer"):
            continue
        asked.add(layer.rtds_layer.name)
        if layer.rtds_layer.name not in tree.runtime_names:
            yield Fault(
                "missing-runtime-layer",
                f'the tree has no runtime layer "{layer.rtds_layer.name}"; the start waits for it until '
                "initial_fetch_timeout",
                "write such a layer into the tree, or remove this one",
                ("layered_runtime", "layers", index, "rtds_layer", "name"),
                severity=Severity.WARNING,
            )
    for name in tree.runtime_names:
        if name not in asked:
            yield Fault(
                "unused-runtime-layer",
                f'nothing asks for the runtime layer "{name}" of the tree',
                f"add {{name: {name}, rtds_layer: {{name: {name}, rtds_config: …}}}} to the layers",
                ("layered_runtime",),
                severity=Severity.WARNING,
            )
