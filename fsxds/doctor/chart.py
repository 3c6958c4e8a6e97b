"""What a bootstrap offers to the config sources that rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.doctor.files import LookAt
from fsxds.values import FieldPath

# Of Cluster.DiscoveryType and of ApiConfigSource.ApiType.
STRICT_DNS, LOGICAL_DNS, EDS = 1, 2, 3
REST, GRPC, DELTA_GRPC = 1, 2, 3


@dataclass(frozen=True, slots=True)
class StaticCluster:
    """A cluster of the bootstrap, and the path that leads to it there."""

    message: Any
    field_path: FieldPath

    @property
    def is_eds(self) -> bool:
        """Whether its endpoints are discovered: then no configuration can come from it."""
        return bool(self.message.WhichOneof("cluster_discovery_type") == "type" and self.message.type == EDS)


@dataclass(frozen=True, slots=True)
class Chart:
    """What is known of the Envoy.

    Attributes:
        catalogue: the message types that exist.
        look_at: tells what stands at a path.
        clusters: the static clusters by name; None where no bootstrap is known.
        has_ads: there is an `ads_config`; true where no bootstrap is known.
        is_rewritten: the sources in what is looked at, apart from paths, are not what Envoy gets: they are mirrored as
            paths into the mirror.
        clusters_of_tree: the names of the clusters that the tree has.
    """

    catalogue: Catalogue
    look_at: LookAt
    clusters: Mapping[str, StaticCluster] | None = None
    has_ads: bool = True
    is_rewritten: bool = False
    clusters_of_tree: frozenset[str] = frozenset()

    @classmethod
    def of(cls, bootstrap: Any, catalogue: Catalogue, look_at: LookAt) -> Chart:
        """Read the chart off a bootstrap; None where there is none."""
        if bootstrap is None:
            return cls(catalogue, look_at)
        clusters = {
            cluster.name: StaticCluster(cluster, ("static_resources", "clusters", index))
            for index, cluster in enumerate(bootstrap.static_resources.clusters)
        }
        has_ads = bootstrap.dynamic_resources.HasField("ads_config")
        return cls(catalogue, look_at, MappingProxyType(clusters), has_ads)
