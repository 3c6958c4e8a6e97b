"""The table of xDS resource types: adding a type means adding a row.

Rules: which types are sent completely in SotW; the push order of one snapshot.
"""

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
    """One resource type.

    Attributes:
        short_name: its discovery service's, such as `cds`.
        noun: such as `clusters`; a word in file names, like `file_words`.
        rest_path: the end of `/v3/discovery:...`, None without a REST form.
        name_field: None if only a `Resource` wrapper has the name.
        full_state_in_sotw: a SotW response removes missing resources.
        may_be_empty: else Envoy rejects a response without resources (ENVOY.md E15).
        grpc: its service's package below `envoy.service`, name, and methods' noun; empty if only ADS serves it.
        has_sotw: the service has the SotW and unary methods.
        is_user: it uses other types: a rollout changes it after additions to these and before removals.
        followed_by: the short name of the type that an Envoy needs again, by Delta, after this, or empty.
        is_reused_without_request: an Envoy drops its resources, and uses them again without a request (ENVOY.md E36), such as
            a route configuration for another scope.
        absence_hangs_envoy: after a Delta report that an awaited name does not exist, Envoy 1.40 waits for ever; without
            one, until `initial_fetch_timeout`.
        drops_removed: that holds for awaited names; Envoy drops a resource that it has (ENVOY.md E86).
        survives_expiry: Envoy 1.40 survives a time to live's end (ENVOY.md E40).
        is_secret: never shown, and mirrored into files that only fsxds's user can read.
        holds_config_sources: its resources may name others' sources.
        file_order: its place in mirror writes: before clusters, files that others name by path, which must exist first
            (ENVOY.md E26); after them, types that may reference new clusters.
        new_file_order: the same for a new file, None if equal.
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
    is_reused_without_request: bool = False
    absence_hangs_envoy: bool = False
    drops_removed: bool = False
    survives_expiry: bool = False
    is_secret: bool = False
    holds_config_sources: bool = False
    file_order: int = 30
    new_file_order: int | None = None

    # The type URL in requests and responses: computed once, because every push needs it.
    type_url: TypeUrl = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_url", TypeUrl(PREFIX + self.message_type))

    @property
    def message_name(self) -> str:
        """The message type without its package."""
        return self.message_type.rpartition(".")[2]

    @property
    def words(self) -> frozenset[str]:
        """All words in names of files or folders."""
        return frozenset((self.short_name, self.noun, *self.file_words))


# In push order: used types before their users. Source: xDS protocol, "Eventual consistency considerations".
RESOURCE_TYPES: tuple[ResourceType, ...] = (
    ResourceType("rtds", "envoy.service.runtime.v3.Runtime", "runtime", "runtime",
                 grpc="runtime.v3.RuntimeDiscoveryService Runtime", survives_expiry=True,
                 file_words=("runtimes",), file_order=10),
    ResourceType("sds", "envoy.extensions.transport_sockets.tls.v3.Secret", "secrets", "secrets",
                 grpc="secret.v3.SecretDiscoveryService Secrets", is_reused_without_request=True, is_secret=True, file_order=20),
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
                 is_reused_without_request=True, absence_hangs_envoy=True, drops_removed=True, holds_config_sources=True,
                 file_words=("extension_configs",), file_order=50, new_file_order=35),
    ResourceType("lds", "envoy.config.listener.v3.Listener", "listeners", "listeners",
                 grpc="listener.v3.ListenerDiscoveryService Listeners", full_state_in_sotw=True, may_be_empty=True,
                 is_user=True, survives_expiry=True, holds_config_sources=True, file_order=80),
    ResourceType("lcds", "envoy.config.listener.v3.ListenerCollection", "listener-collections", None, name_field=None,
                 has_sotw=False, is_user=True, holds_config_sources=True, file_words=("listener_collections",),
                 file_order=90),
    ResourceType("rds", "envoy.config.route.v3.RouteConfiguration", "routes", "routes",
                 grpc="route.v3.RouteDiscoveryService Routes", may_be_empty=True, is_user=True,
                 followed_by="vhds", is_reused_without_request=True, absence_hangs_envoy=True, holds_config_sources=True,
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
    """Sort by the table's order."""
    return {row.type_url: by_type[row.type_url] for row in RESOURCE_TYPES if row.type_url in by_type}


def type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type that a file's, else its nearest folder's name means, else None.

    Names with a word of the table as a whole part between dots come first. Otherwise dots, hyphens and underscores
    alike separate words, also in the singular: `my_cluster.yaml`. The last word decides: `cluster-routes.yaml` means
    routes.
    """
    exact = exact_type_from_path(path)
    if exact is not None:
        return exact
    names = (path.name.rpartition(".")[0], *reversed(path.parts[:-1]))
    return next((row for name in names if (row := _loose_type(name))), None)


def exact_type_from_path(path: PurePosixPath) -> ResourceType | None:
    """Return the type if a name was made for fsxds; the file holds no other.

    The last word of the table between dots, without the suffix, decides: `cds.yaml`, `edge.clusters.yaml` and
    `clusters/edge.yaml` mean clusters.
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
    """Return the route configuration, which may contain slashes."""
    return name.rpartition("/")[0]


def name_of_domain(route_configuration: str, domain: str) -> str:
    """Return Envoy's name for requesting a domain."""
    return f"{route_configuration}/{lowered(domain)}"


def lowered(domain: str) -> str:
    """Lower ASCII letters only, as Envoy."""
    return domain.encode().lower().decode()
