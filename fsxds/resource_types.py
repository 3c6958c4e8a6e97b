"""The table of xDS resource types; adding a type means adding one row.

By which names Envoy asks for virtual hosts one by one: `<route configuration>/<domain in lower case>` (ENVOY.md E46).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from fsxds.values import TypeUrl


def route_configuration_of(name: str) -> str:
    """Return the route configuration that a virtual host belongs to, by its name; it may have slashes itself."""
    return name.rpartition("/")[0]


def name_of_domain(route_configuration: str, domain: str) -> str:
    """Return the name by which a domain of a route configuration is asked for."""
    return f"{route_configuration}/{lowered(domain)}"


def lowered(domain: str) -> str:
    """Return a domain in lower case as Envoy understands it: the letters of ASCII alone."""
    return domain.encode().lower().decode()


Value = TypeVar("Value")

PREFIX = "type.googleapis.com/"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """What is particular about one resource type.

    Attributes:
        short_name: what people call its discovery service, such as `cds`.
        message_type: the full name of its message.
        noun: what people call one of them in the plural, such as `clusters`; also a word that names its files.
        rest_path: the last part of `/v3/discovery:…`, None where the type has no REST form.
        name_field: the field that holds the resource's name, None where only a `Resource` wrapper has it.
        full_state_in_sotw: a state-of-the-world answer holds all resources, and what is not in it is removed.
        may_be_empty: Envoy takes an answer without resources as "there is none"; elsewhere it rejects it
            (ENVOY.md E15).
        file_words: more words that name its files.
        grpc: the package of its gRPC service below `envoy.service`, the service, and the noun of its methods; empty
            where ADS alone serves it.
        has_sotw: its service has the state-of-the-world method and the unary one beside the Delta one.
        absence_hangs_envoy: told by Delta that there is none of a name which it waits for, Envoy 1.40 waits for good, and
            its start with it; told nothing, it goes on after `initial_fetch_timeout`.
        survives_expiry: Envoy 1.40 survives the end of a time to live of its resources (ENVOY.md E40).
        is_secret: nothing of its resources is shown, and their mirrored files are for the user of fsxds alone.
        holds_config_sources: its resources may say from where Envoy is to get others.
        file_order: where its files come among those that the mirror writes: what others name by path must exist first
            (ENVOY.md E26), so it is below that of clusters; what may come to name new clusters is above it.
        new_file_order: the same of a file that is not there yet, None where that makes no difference.
    """

    short_name: str
    message_type: str
    noun: str
    rest_path: str | None
    name_field: str | None = "name"
    full_state_in_sotw: bool = False
    may_be_empty: bool = False
    file_words: tuple[str, ...] = ()
    grpc: str = ""
    has_sotw: bool = True
    absence_hangs_envoy: bool = False
    survives_expiry: bool = False
    is_secret: bool = False
    holds_config_sources: bool = False
    file_order: int = 30
    new_file_order: int | None = None

    # The type URL that requests and responses carry: made once, because it is asked for with every push.
    type_url: TypeUrl = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_url", TypeUrl(PREFIX + self.message_type))

    @property
    def words(self) -> frozenset[str]:
        """Every word that makes a file or folder name speak of this type."""
        return frozenset((self.short_name, self.noun, *self.file_words))


# In push order: what is used comes before what uses it. Source: xDS protocol, "Eventual consistency considerations".
RESOURCE_TYPES: tuple[ResourceType, ...] = (
    ResourceType("rtds", "envoy.service.runtime.v3.Runtime", "runtime", "runtime", file_words=("runtimes",), file_order=10,
                 survives_expiry=True,
                 grpc="runtime.v3.RuntimeDiscoveryService Runtime"),
    ResourceType("sds", "envoy.extensions.transport_sockets.tls.v3.Secret", "secrets", "secrets",
                 grpc="secret.v3.SecretDiscoveryService Secrets", is_secret=True, file_order=20),
    ResourceType("cds", "envoy.config.cluster.v3.Cluster", "clusters", "clusters",
                 full_state_in_sotw=True, may_be_empty=True, grpc="cluster.v3.ClusterDiscoveryService Clusters",
                 survives_expiry=True, holds_config_sources=True, file_order=40),
    ResourceType("eds", "envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints", "endpoints",
                 name_field="cluster_name", may_be_empty=True,
                 grpc="endpoint.v3.EndpointDiscoveryService Endpoints"),
    ResourceType("leds", "envoy.config.endpoint.v3.LbEndpoint", "lb-endpoints", None, name_field=None,
                 file_words=("lb_endpoints",), has_sotw=False,
                 grpc="endpoint.v3.LocalityEndpointDiscoveryService LocalityEndpoints"),
    ResourceType("ecds", "envoy.config.core.v3.TypedExtensionConfig", "extension-configs", "extension_configs",
                 file_words=("extension_configs",), absence_hangs_envoy=True, holds_config_sources=True,
                 grpc="extension.v3.ExtensionConfigDiscoveryService ExtensionConfigs", file_order=50, new_file_order=35),
    ResourceType("lds", "envoy.config.listener.v3.Listener", "listeners", "listeners",
                 full_state_in_sotw=True, may_be_empty=True, grpc="listener.v3.ListenerDiscoveryService Listeners",
                 survives_expiry=True, holds_config_sources=True, file_order=80),
    ResourceType("rds", "envoy.config.route.v3.RouteConfiguration", "routes", "routes", may_be_empty=True,
                 absence_hangs_envoy=True, grpc="route.v3.RouteDiscoveryService Routes", holds_config_sources=True,
                 file_order=60),
    ResourceType("srds", "envoy.config.route.v3.ScopedRouteConfiguration", "scoped-routes", "scoped-routes",
                 full_state_in_sotw=True, may_be_empty=True, file_words=("scoped_routes",), file_order=70,
                 grpc="route.v3.ScopedRoutesDiscoveryService ScopedRoutes"),
    ResourceType("vhds", "envoy.config.route.v3.VirtualHost", "virtual-hosts", None,
                 file_words=("virtual_hosts",), has_sotw=False,
                 grpc="route.v3.VirtualHostDiscoveryService VirtualHosts"),
)  # fmt: skip

BY_TYPE_URL = {row.type_url: row for row in RESOURCE_TYPES}
BY_MESSAGE_TYPE = {row.message_type: row for row in RESOURCE_TYPES}
BY_SHORT_NAME = {row.short_name: row for row in RESOURCE_TYPES}
BY_REST_PATH = {row.rest_path: row for row in RESOURCE_TYPES if row.rest_path}


def in_push_order(by_type: Mapping[TypeUrl, Value]) -> dict[TypeUrl, Value]:
    """Return the same, in the order of the table."""
    return {row.type_url: by_type[row.type_url] for row in RESOURCE_TYPES if row.type_url in by_type}


def type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type that a file's name speaks of, else its nearest folder's, else None.

    Names of which a whole part between dots is a word of the table come first, that of the file before those of folders.
    Only where there is none, dots, hyphens and underscores alike separate words, and a word may be in the singular:
    `prod-clusters.yaml`, `my_cluster.yaml`. The last word decides: `cluster-routes.yaml` speaks of routes.
    """
    exact = exact_type_from_path(path)
    if exact is not None:
        return exact
    names = (path.name.rpartition(".")[0], *reversed(path.parts[:-1]))
    return next((row for name in names if (row := _loose_type(name))), None)


def exact_type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type that a name made for fsxds speaks of, None for others; such a file is taken to hold no other.

    `cds.yaml`, `clusters.yaml`, `edge.clusters.yaml` and `clusters/edge.yaml` speak of clusters. A name is cut at its
    dots, and the last part before the suffix that is a word of the table decides.
    """
    parts = path.name.split(".")[:-1]
    for word in (*reversed(parts), *reversed(path.parts[:-1])):
        for row in RESOURCE_TYPES:
            if word.lower() in row.words:
                return row
    return None


def _loose_type(name: str) -> ResourceType | None:
    words = re.split("[._-]+", name.lower())
    for end in range(len(words), 0, -1):
        # The longer one first: virtual-hosts, before a word for its second half.
        for start in (end - 2, end - 1):
            if start >= 0 and (row := _LOOSE_WORDS.get("-".join(words[start:end]))):
                return row
    return None


_LOOSE_WORDS = {
    form: row
    for row in RESOURCE_TYPES
    for word in row.words
    for form in (word.replace("_", "-"), row.noun.removesuffix("s"))
}
