"""The table of xDS resource types: everything about a type is in its row, and adding a type means adding a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from fsxds.model.values import TypeUrl

Value = TypeVar("Value")

PREFIX = "type.googleapis.com/"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """What is particular about one resource type.

    Attributes:
        short_name: what users call its discovery service, such as `cds`.
        message_type: the full name of its message.
        noun: what users call its resources, such as `clusters`; also a word that names its files.
        rest_path: the last part of `/v3/discovery:…`, None where the type has no REST form.
        name_field: the field that holds the resource's name, None where only a `Resource` wrapper has it.
        full_state_in_sotw: a SotW response has all resources, and what is not in it is removed.
        may_be_empty: Envoy takes a response without resources as "there is none"; else it rejects it (ENVOY.md E15).
        file_words: more words that name its files.
        grpc: the package of its gRPC service below `envoy.service`, the service, and the noun of its methods; empty
            where ADS alone serves it.
        has_sotw: its service has the SotW method and the unary one beside the Delta one.
        is_user: in a rollout its resources change after what they use was added and before that is removed. The others are
            used.
        followed_by: the short name of the type whose resources an Envoy needs again with a resource of this one, by
            Delta; empty for none.
        comes_and_goes: an Envoy lets go of its resources, and takes them up again within one flight without a request that
            shows it (ENVOY.md E36): of a route configuration that another scope uses now, it requests only what else it
            wants. Endpoints follow their clusters anyway, and runtime layers stay as long as the Envoy runs.
        absence_hangs_envoy: when Delta reports that a name which it waits for does not exist, Envoy 1.40 waits for ever, and
            its start with it; without a report, it goes on after `initial_fetch_timeout`.
        lets_go_of_removed: that holds for names that it waits for: of one that it has, it lets go (ENVOY.md E86).
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
    is_user: bool = False
    followed_by: str = ""
    comes_and_goes: bool = False
    absence_hangs_envoy: bool = False
    lets_go_of_removed: bool = False
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
        """Every word by which the name of a file or folder means this type."""
        return frozenset((self.short_name, self.noun, *self.file_words))


# In push order: what is used comes before what uses it. Source: xDS protocol, "Eventual consistency considerations".
RESOURCE_TYPES: tuple[ResourceType, ...] = (
    ResourceType("rtds", "envoy.service.runtime.v3.Runtime", "runtime", "runtime",
                 grpc="runtime.v3.RuntimeDiscoveryService Runtime", survives_expiry=True,
                 file_words=("runtimes",), file_order=10),
    ResourceType("sds", "envoy.extensions.transport_sockets.tls.v3.Secret", "secrets", "secrets",
                 grpc="secret.v3.SecretDiscoveryService Secrets", comes_and_goes=True, is_secret=True, file_order=20),
    ResourceType("cds", "envoy.config.cluster.v3.Cluster", "clusters", "clusters",
                 grpc="cluster.v3.ClusterDiscoveryService Clusters", full_state_in_sotw=True, may_be_empty=True,
                 followed_by="eds", survives_expiry=True, holds_config_sources=True, file_order=40),
    ResourceType("eds", "envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints", "endpoints",
                 grpc="endpoint.v3.EndpointDiscoveryService Endpoints", name_field="cluster_name", may_be_empty=True,
                 followed_by="leds"),
    ResourceType("leds", "envoy.config.endpoint.v3.LbEndpoint", "lb-endpoints", None,
                 grpc="endpoint.v3.LocalityEndpointDiscoveryService LocalityEndpoints", has_sotw=False, name_field=None,
                 file_words=("lb_endpoints",)),
    ResourceType("ecds", "envoy.config.core.v3.TypedExtensionConfig", "extension-configs", "extension_configs",
                 grpc="extension.v3.ExtensionConfigDiscoveryService ExtensionConfigs", is_user=True,
                 comes_and_goes=True, absence_hangs_envoy=True, lets_go_of_removed=True, holds_config_sources=True,
                 file_words=("extension_configs",), file_order=50, new_file_order=35),
    ResourceType("lds", "envoy.config.listener.v3.Listener", "listeners", "listeners",
                 grpc="listener.v3.ListenerDiscoveryService Listeners", full_state_in_sotw=True, may_be_empty=True,
                 is_user=True, survives_expiry=True, holds_config_sources=True, file_order=80),
    ResourceType("lcds", "envoy.config.listener.v3.ListenerCollection", "listener-collections", None, name_field=None,
                 has_sotw=False, is_user=True, holds_config_sources=True, file_words=("listener_collections",),
                 file_order=90),
    ResourceType("rds", "envoy.config.route.v3.RouteConfiguration", "routes", "routes",
                 grpc="route.v3.RouteDiscoveryService Routes", may_be_empty=True, is_user=True,
                 followed_by="vhds", comes_and_goes=True, absence_hangs_envoy=True, holds_config_sources=True,
                 file_order=60),
    ResourceType("srds", "envoy.config.route.v3.ScopedRouteConfiguration", "scoped-routes", "scoped-routes",
                 grpc="route.v3.ScopedRoutesDiscoveryService ScopedRoutes", full_state_in_sotw=True, may_be_empty=True,
                 is_user=True, file_words=("scoped_routes",), file_order=70),
    ResourceType("vhds", "envoy.config.route.v3.VirtualHost", "virtual-hosts", None,
                 grpc="route.v3.VirtualHostDiscoveryService VirtualHosts", has_sotw=False, is_user=True,
                 file_words=("virtual_hosts",)),
)  # fmt: skip

BY_TYPE_URL = {row.type_url: row for row in RESOURCE_TYPES}
BY_MESSAGE_TYPE = {row.message_type: row for row in RESOURCE_TYPES}
BY_SHORT_NAME = {row.short_name: row for row in RESOURCE_TYPES}
BY_REST_PATH = {row.rest_path: row for row in RESOURCE_TYPES if row.rest_path}


def in_push_order(by_type: Mapping[TypeUrl, Value]) -> dict[TypeUrl, Value]:
    """Return the same, in the order of the table."""
    return {row.type_url: by_type[row.type_url] for row in RESOURCE_TYPES if row.type_url in by_type}


def type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type that a file's name means, else its nearest folder's, else None.

    Names of which a whole part between dots is a word of the table come first, that of the file before those of folders.
    Only where there is none, dots, hyphens and underscores alike separate words, and a word may be in the singular:
    `prod-clusters.yaml`, `my_cluster.yaml`. The last word decides: `cluster-routes.yaml` means routes.
    """
    exact = exact_type_from_path(path)
    if exact is not None:
        return exact
    names = (path.name.rpartition(".")[0], *reversed(path.parts[:-1]))
    return next((row for name in names if (row := _loose_type(name))), None)


def exact_type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type that a name made for fsxds means, None for others; such a file is taken to hold no other.

    `cds.yaml`, `clusters.yaml`, `edge.clusters.yaml` and `clusters/edge.yaml` mean clusters. A name is cut at its
    dots, and the last part before the suffix that is a word of the table decides.
    """
    parts = path.name.split(".")[:-1]
    words = (*reversed(parts), *reversed(path.parts[:-1]))
    return next((row for word in words if (row := _WORDS.get(word.lower()))), None)


def _loose_type(name: str) -> ResourceType | None:
    words = re.split("[._-]+", name.lower())
    for end in range(len(words), 0, -1):
        # The longer one first: virtual-hosts, before a word for its second half.
        for start in (end - 2, end - 1):
            if start >= 0 and (row := _LOOSE_WORDS.get("-".join(words[start:end]))):
                return row
    return None


_WORDS = {word: row for row in reversed(RESOURCE_TYPES) for word in row.words}
_LOOSE_WORDS = {
    form: row
    for row in RESOURCE_TYPES
    for word in row.words
    for form in (word.replace("_", "-"), row.noun.removesuffix("s"))
}


# Envoy asks for virtual hosts one by one: by `<route configuration>/<domain in lower case>` (ENVOY.md E46).


def route_configuration_of(name: str) -> str:
    """Return the route configuration that a virtual host belongs to, by its name; it may have slashes itself."""
    return name.rpartition("/")[0]


def name_of_domain(route_configuration: str, domain: str) -> str:
    """Return the name by which a domain of a route configuration is asked for."""
    return f"{route_configuration}/{lowered(domain)}"


def lowered(domain: str) -> str:
    """Return a domain in lower case as Envoy understands it: the letters of ASCII alone."""
    return domain.encode().lower().decode()
