"""Facts for the checks: an Envoy, its subscriptions, and files."""

# ruff: noqa: PTH110, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.model.values import FieldPath


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The state of a path.

    Attributes:
        swapped_in: the directory whose link is replaced when the content changes, or None.
        is_config_map: the link is the `..data` of a Kubernetes volume.
        head: the first bytes, to distinguish formats.
    """

    exists: bool
    swapped_in: str | None = None
    is_config_map: bool = False
    head: bytes = b""


LookAt = Callable[[str], FileFacts]
"""Examines a path, which may be relative to the current directory. Never raises."""


# Values of Cluster.DiscoveryType and ApiConfigSource.ApiType.
STRICT_DNS, LOGICAL_DNS, EDS = 1, 2, 3
REST, GRPC, DELTA_GRPC = 1, 2, 3


@dataclass(frozen=True, slots=True)
class StaticCluster:
    """A bootstrap's cluster and its path."""

    message: DynamicMessage
    field_path: FieldPath

    @property
    def is_eds(self) -> bool:
        """Whether its endpoints are discovered; Envoy gets no configuration from such a cluster."""
        return bool(self.message.WhichOneof("cluster_discovery_type") == "type" and self.message.type == EDS)


@dataclass(frozen=True, slots=True)
class EnvoyFacts:
    """The known facts about an Envoy.

    Attributes:
        clusters: static ones; None without a bootstrap.
        has_ads: true without a bootstrap.
        is_rewritten: Envoy gets paths into the mirror in place of config sources.
    """

    catalogue: Catalogue
    look_at: LookAt
    clusters: Mapping[str, StaticCluster] | None = None
    has_ads: bool = True
    is_rewritten: bool = False
    clusters_of_tree: frozenset[str] = frozenset()

    @classmethod
    def of(cls, bootstrap: DynamicMessage, catalogue: Catalogue, look_at: LookAt) -> EnvoyFacts:
        """Read a bootstrap, or None."""
        if bootstrap is None:
            return cls(catalogue, look_at)
        clusters = {
            cluster.name: StaticCluster(cluster, ("static_resources", "clusters", index))
            for index, cluster in enumerate(bootstrap.static_resources.clusters)
        }
        has_ads = bootstrap.dynamic_resources.HasField("ads_config")
        return cls(catalogue, look_at, MappingProxyType(clusters), has_ads)


_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3"


@dataclass(frozen=True, slots=True)
class ConfigSourceUse:
    """A config source of a private poll or stream; equal uses are one subscription.

    `asked` has the type's short name and the subscribed name.
    """

    cluster: str
    is_rest: bool
    asked: tuple[str, str]


def subscriptions_of(message: DynamicMessage, field_path: FieldPath) -> Iterator[ConfigSourceUse]:
    """Yield a message's subscriptions, without nested messages."""
    find = _FINDERS.get(message.DESCRIPTOR.full_name)
    for source, asked in find(message, field_path) if find else ():
        if source.WhichOneof("config_source_specifier") != "api_config_source":
            continue
        api = source.api_config_source
        if api.api_type == REST:
            yield from (ConfigSourceUse(name, True, asked) for name in api.cluster_names)
        else:
            yield from (
                ConfigSourceUse(service.envoy_grpc.cluster_name, False, asked)
                for service in api.grpc_services
                if service.HasField("envoy_grpc")
            )


_Found = Iterator[tuple[DynamicMessage, tuple[str, str]]]


def _of_cluster(message: DynamicMessage, _: FieldPath) -> _Found:
    if message.HasField("eds_cluster_config"):
        eds = message.eds_cluster_config
        # Each cluster has a subscription, even if two have the same service_name.
        yield eds.eds_config, ("eds", message.name)


def _of_secret(message: DynamicMessage, _: FieldPath) -> _Found:
    if message.HasField("sds_config"):
        yield message.sds_config, ("sds", message.name)


def _of_routes(message: DynamicMessage, _: FieldPath) -> _Found:
    yield message.config_source, ("rds", message.route_config_name)


def _of_scopes(message: DynamicMessage, field_path: FieldPath) -> _Found:
    yield message.scoped_rds_config_source, ("srds", str(field_path))


def _of_extension(message: DynamicMessage, field_path: FieldPath) -> _Found:
    yield message.config_source, ("ecds", str(field_path))


def _of_layer(message: DynamicMessage, _: FieldPath) -> _Found:
    yield message.rtds_config, ("rtds", message.name)


def _of_bootstrap(message: DynamicMessage, _: FieldPath) -> _Found:
    for name in ("cds", "lds"):
        if message.HasField(f"{name}_config"):
            yield getattr(message, f"{name}_config"), (name, "")


_FINDERS: Mapping[str, Callable[[DynamicMessage, FieldPath], _Found]] = MappingProxyType({
    "envoy.config.cluster.v3.Cluster": _of_cluster,
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": _of_secret,
    f"{_CONNECTION_MANAGER}.Rds": _of_routes,
    f"{_CONNECTION_MANAGER}.ScopedRds": _of_scopes,
    "envoy.config.core.v3.ExtensionConfigSource": _of_extension,
    "envoy.config.bootstrap.v3.RuntimeLayer.RtdsLayer": _of_layer,
    "envoy.config.bootstrap.v3.Bootstrap.DynamicResources": _of_bootstrap,
})  # fmt: skip


_HEAD_BYTES = 64
_CONFIG_MAP_LINK = "..data"


def look_at(path: str) -> FileFacts:
    """Examine a path, relative to the current directory."""
    if "\0" in path:
        return FileFacts(exists=False)
    swapped_in, is_config_map = _swapping(path)
    return FileFacts(os.path.exists(path), swapped_in, is_config_map, _head(path))


def _swapping(path: str) -> tuple[str | None, bool]:
    """Return the ancestor with a swapped link, as spelled in the path, and whether it is a ConfigMap."""
    folder = os.path.dirname(path)
    while True:
        if os.path.islink(os.path.join(folder, _CONFIG_MAP_LINK)):
            return folder or ".", True
        if _is_generation_link(folder):
            return os.path.dirname(folder) or ".", os.path.basename(folder) == _CONFIG_MAP_LINK
        parent = os.path.dirname(folder)
        if parent == folder:
            return None, False
        folder = parent


def _is_generation_link(folder: str) -> bool:
    """Whether a directory links to its neighbour, as in `current -> generation-7`.

    Other links (`/var/run -> /run`) are not swapped.
    """
    try:
        target = os.readlink(folder)
    except OSError:
        return False
    return "/" not in target.rstrip("/") and target not in {".", ".."}


def _head(path: str) -> bytes:
    try:
        if not os.path.isfile(path):
            return b""
        with Path(path).open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""
