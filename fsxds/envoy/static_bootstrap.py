"""Renders any part of a tree as one static bootstrap (pure).

`Preparer` stubs files and collects names; `Linker` inlines secrets and filters; `StandIns` builds users of resources;
`Renderer` adds these, and stand-ins for missing names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.envoy.stub_files import STAND_IN, STUB_CERTIFICATE, STUB_PRIVATE_KEY, FileStubs, Reshaper
from fsxds.lint.extensions import extension_facts
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, PREFIX
from fsxds.model.resources import Resource

CDS, SDS, SRDS, ECDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "sds", "srds", "ecds"))

SECRET_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 (a message type)
EXTENSION_CONFIG_SOURCE = "envoy.config.core.v3.ExtensionConfigSource"

_CLUSTER_FIELDS = ("cluster", "clusters", "cluster_name", "cluster_names")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A resource with stubs for its files.

    Attributes:
        clusters: every name that may be a cluster's.
        secret_form: of a secret (`tls_certificate`), else empty.
        scope_key: of a scoped route as bytes, else empty.
        is_complete: all external content has a valid stub.
    """

    resource: Resource
    body: bytes
    clusters: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    static_secrets: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    secret_form: str = ""
    scope_key: bytes = b""
    is_complete: bool = True


class Preparer:
    """Prepares resources for validation."""

    def __init__(self, catalogue: Catalogue, folder: str) -> None:
        """The folder for stub files exists."""
        self._catalogue = catalogue
        self._reshaper = Reshaper(catalogue)
        self._stubs = FileStubs(folder)
        self._changes = self._stubs.changes()
        self._cluster_fields: dict[str, tuple[FieldDescriptor, ...]] = {}

    def prepare(self, resource: Resource) -> Prepared:
        """Replace external content, and note mentioned names."""
        message = self._catalogue.read(resource.type_url, resource.body)
        clusters = {one.name for one in resource.references if one.type_url == CDS}
        secrets, static_secrets, extensions = set[str](), set[str](), set[str]()
        self._stubs.is_complete = True

        def note(one: DynamicMessage) -> None:
            self._stubs.change_sources(one)
            for mention in self._mentions_in(one.DESCRIPTOR):
                value = getattr(one, mention.name)
                clusters.update(value if mention.is_repeated else (value,))
            if one.DESCRIPTOR.full_name == SECRET_CONFIG:
                (secrets if one.HasField("sds_config") else static_secrets).add(one.name)
            elif is_discovered(one):
                extensions.add(one.name)

        self._reshaper.reshape(message, self._changes, note)
        return Prepared(
            resource,
            message.SerializeToString(deterministic=True),
            frozenset(clusters - {""}),
            frozenset(secrets),
            frozenset(static_secrets - {""}),
            frozenset(extensions),
            (message.WhichOneof("type") or "") if resource.type_url == SDS else "",
            message.key.SerializeToString(deterministic=True) if resource.type_url == SRDS else b"",
            self._stubs.is_complete,
        )

    def _mentions_in(self, descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
        if (fields := self._cluster_fields.get(descriptor.full_name)) is None:
            fields = tuple(one for one in descriptor.fields if may_name_cluster(one, descriptor))
            self._cluster_fields[descriptor.full_name] = fields
        return fields


def may_name_cluster(one: FieldDescriptor, owner: Descriptor) -> bool:
    """Whether a field may name a cluster; false positives are harmless."""
    if one.type != FieldDescriptor.TYPE_STRING or owner.full_name.endswith(".ClusterLoadAssignment"):
        return False
    is_weighted = one.name == "name" and owner.name.endswith("ClusterWeight")
    return is_weighted or one.name.endswith(_CLUSTER_FIELDS)


def is_discovered(message: DynamicMessage) -> bool:
    """Whether a filter's configuration is discovered."""
    fields = message.DESCRIPTOR.fields_by_name
    if "config_discovery" not in fields or not {"name", "typed_config"}.issubset(fields.keys()):
        return False
    held = fields["config_discovery"].message_type
    return held is not None and held.full_name == EXTENSION_CONFIG_SOURCE and message.HasField("config_discovery")


_TLS = "envoy.extensions.transport_sockets.tls.v3."
_TYPED_EXTENSION = "envoy.config.core.v3.TypedExtensionConfig"


def static_name(secret: str) -> str:
    """Return a secret's static name, since static secrets may have equal names."""
    return f"fsxds-stand-in/{secret}"


@dataclass(frozen=True, slots=True)
class Linked:
    """A resource with others in place, and the filters' names."""

    body: bytes
    extensions: frozenset[str] = frozenset()


class Linker:
    """Links resources to secrets and filters."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._reshaper = Reshaper(catalogue)
        self._known: dict[tuple[str, str, frozenset[str], frozenset[str]], Linked] = {}

    def link(self, prepared: Prepared, secrets: Mapping[str, str], extensions: Mapping[str, bytes]) -> Linked:
        """Use the present others statically.

        `secrets` maps names to forms (`tls_certificate`), `extensions` to serialized TypedExtensionConfigs.
        """
        near_secrets = prepared.secrets.intersection(secrets)
        near_extensions = prepared.extensions.intersection(extensions)
        if not near_secrets and not near_extensions:
            return Linked(prepared.body)
        key = prepared.resource.type_url, prepared.resource.name, near_secrets, near_extensions
        if (linked := self._known.get(key)) is None:
            linked = self._known[key] = self._link(prepared, secrets, extensions)
        return linked

    def _link(self, prepared: Prepared, secrets: Mapping[str, str], extensions: Mapping[str, bytes]) -> Linked:
        used_extensions: set[str] = set()

        def use_secret(config: DynamicMessage, form: str) -> None:
            if config.HasField("sds_config") and secrets.get(config.name) == form:
                config.ClearField("sds_config")
                config.name = static_name(config.name)

        def change_context(context: DynamicMessage) -> None:
            for config in context.tls_certificate_sds_secret_configs:
                use_secret(config, "tls_certificate")
            # Reading an absent field gives an empty message, and changes nothing.
            use_secret(context.validation_context_sds_secret_config, "validation_context")
            combined = context.combined_validation_context
            use_secret(combined.validation_context_sds_secret_config, "validation_context")

        def change_downstream(context: DynamicMessage) -> None:
            use_secret(context.session_ticket_keys_sds_secret_config, "session_ticket_keys")

        def use_extension(message: DynamicMessage) -> None:
            if is_discovered(message) and message.name in extensions:
                used_extensions.add(message.name)
                self._place(message, extensions[message.name])

        message = self._catalogue.read(prepared.resource.type_url, prepared.body)
        changes = {f"{_TLS}CommonTlsContext": change_context, f"{_TLS}DownstreamTlsContext": change_downstream}
        self._reshaper.reshape(message, changes, use_extension)
        return Linked(message.SerializeToString(deterministic=True), frozenset(used_extensions))

    def _place(self, message: DynamicMessage, serialized: bytes) -> None:
        """An unexpected type becomes the default, which Envoy rejects."""
        extension = self._catalogue.read(_TYPED_EXTENSION, serialized)
        expected = {url.rpartition("/")[2] for url in message.config_discovery.type_urls}
        if extension.typed_config.type_url.rpartition("/")[2] in expected:
            message.typed_config.CopyFrom(extension.typed_config)
        else:
            message.config_discovery.default_config.CopyFrom(extension.typed_config)


_NETWORK = "envoy.extensions.filters.network."
_CONNECTION_MANAGER = f"{_NETWORK}http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"
_WITH_MATCHER = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
_UPSTREAM_CODEC = "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"
_TCP_PROXY = f"{_NETWORK}tcp_proxy.v3.TcpProxy"

# Fields of a validation context with the trusted authorities.
_AUTHORITIES = ("trusted_ca", "ca_certificate_provider_instance", "system_root_certs", "custom_validator_config")
_V3 = 2  # ApiVersion.V3
_GRPC = 2  # ApiConfigSource.GRPC
_SERVED: Mapping[str, object] = {
    "resource_api_version": _V3,
    "api_config_source": {
        "api_type": _GRPC,
        "transport_api_version": _V3,
        "grpc_services": [{"envoy_grpc": {"cluster_name": STAND_IN}}],
    },
}

_STUB_PAIR: Mapping[str, object] = {
    "certificate_chain": {"inline_string": STUB_CERTIFICATE},
    "private_key": {"inline_string": STUB_PRIVATE_KEY},
}

Fields = Mapping[str, object]


class StandIns:
    """Builds stand-ins with given names."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        features = catalogue.features
        self._is_terminal = {**extension_facts().is_terminal, **(features.terminal if features else {})}

    def cluster(self, name: str, **fields: object) -> DynamicMessage:
        """Return a cluster without endpoints."""
        assignment = {"cluster_name": name}
        return self._new("envoy.config.cluster.v3.Cluster", name=name, **{"load_assignment": assignment, **fields})

    def of_endpoints(self, name: str, body: bytes) -> DynamicMessage:
        """Return a cluster with fixed endpoints, as with EDS."""
        cluster = self.cluster(name)
        cluster.load_assignment.ParseFromString(body)
        for locality in cluster.load_assignment.endpoints:
            # Only EDS may request more endpoints, and not beside a list of them: that stays, so that Envoy rejects it.
            if not locality.lb_endpoints:
                locality.ClearField("leds_cluster_locality_config")
        return cluster

    def of_lb_endpoint(self, name: str, body: bytes) -> DynamicMessage:
        """Return a cluster with one endpoint."""
        cluster = self.cluster(name)
        cluster.load_assignment.endpoints.add().lb_endpoints.add().ParseFromString(body)
        return cluster

    def of_secret(self, name: str, secret: DynamicMessage) -> DynamicMessage:
        """Return a static secret's user; None for unchecked forms."""
        form, used = secret.WhichOneof("type"), {"name": secret.name}
        if form == "tls_certificate":
            return self._tls_cluster(name, {"tls_certificate_sds_secret_configs": [used]})
        if form == "validation_context":
            # Add the missing authority, as users of the secret may have one too.
            whole = any(secret.validation_context.HasField(field) for field in _AUTHORITIES)
            default = {} if whole else {"trusted_ca": {"inline_string": STUB_CERTIFICATE}}
            combined = {"default_validation_context": default, "validation_context_sds_secret_config": used}
            return self._tls_cluster(name, {"combined_validation_context": combined})
        if form == "session_ticket_keys":
            return self._ticket_listener(name, used)
        return None

    def of_route(self, name: str, body: bytes) -> DynamicMessage:
        """Return a listener with an RDS-like table: clusters are checked on demand."""
        table = self._catalogue.read("envoy.config.route.v3.RouteConfiguration", body)
        table.ClearField("vhds")
        if not table.HasField("validate_clusters"):
            table.validate_clusters.value = False
        return self.http_listener(name, route_config=table)

    def of_scope(self, name: str, body: bytes) -> DynamicMessage:
        """Return a listener with one scope."""
        fragment = {"header_value_extractor": {"name": "x", "element_separator": ",", "index": 0}}
        scopes: DynamicMessage = self._new(
            f"{_NETWORK}http_connection_manager.v3.ScopedRoutes",
            name=name,
            scope_key_builder={"fragments": [fragment]},
            rds_config_source=_SERVED,
        )
        scope = scopes.scoped_route_configurations_list.scoped_route_configurations.add()
        scope.ParseFromString(body)
        if scope.route_configuration_name:
            # Scopes within a listener cannot request their routes.
            scope.route_configuration.name = scope.route_configuration_name
            scope.ClearField("route_configuration_name")
        return self.http_listener(name, scoped_routes=scopes)

    def of_virtual_hosts(self, name: str, table_name: str, bodies: tuple[bytes, ...]) -> DynamicMessage:
        """Return a listener with one table's virtual hosts."""
        unchecked = {"value": False}
        table: DynamicMessage = self._new(
            "envoy.config.route.v3.RouteConfiguration", name=table_name, validate_clusters=unchecked
        )
        for body in bodies:
            table.virtual_hosts.add().ParseFromString(body)
        return self.http_listener(name, route_config=table)

    def of_extension(self, name: str, body: bytes) -> DynamicMessage:
        """Return a filter's user; None for an unknown kind."""
        extension = self._catalogue.read("envoy.config.core.v3.TypedExtensionConfig", body)
        message_type = extension.typed_config.type_url.rpartition("/")[2]
        if not extension.HasField("typed_config"):
            # A field for which Envoy reports that.
            return self.cluster(name, load_balancing_policy={"policies": [{"typed_extension_config": extension}]})
        used = {"name": extension.name, "typed_config": extension.typed_config}
        if message_type == _UPSTREAM_CODEC:
            return None
        if message_type.startswith("envoy.extensions.filters.http.") or message_type == _WITH_MATCHER:
            return self.http_listener(name, (used,), route_config={"name": name})
        if message_type.startswith("envoy.extensions.filters.listener."):
            return self._listener(name, [self._tcp_proxy()], listener_filters=[used])
        if message_type.startswith(_NETWORK):
            # Filters that pass on need one behind them that ends their chain.
            return self._listener(name, [used] if self._is_terminal.get(message_type) else [used, self._tcp_proxy()])
        return None

    def http_listener(self, name: str, filters: tuple[Fields, ...] = (), **routes: object) -> DynamicMessage:
        """Return a listener with filters, the router, and routes."""
        ends = any(_ROUTER in str(one["typed_config"].type_url) for one in filters)  # type: ignore[attr-defined]
        router = () if ends else ({"name": "router", "typed_config": self._packed(_ROUTER)},)
        manager = self._packed(_CONNECTION_MANAGER, stat_prefix=STAND_IN, http_filters=[*filters, *router], **routes)
        return self._listener(name, [{"name": "http", "typed_config": manager}])

    def static_secrets(self, name: str) -> tuple[DynamicMessage, ...]:
        """Return secrets of all forms for the bootstrap."""
        forms: tuple[Fields, ...] = (
            {"tls_certificate": _STUB_PAIR},
            {"validation_context": {"trusted_ca": {"inline_string": STUB_CERTIFICATE}}},
            {"session_ticket_keys": {"keys": [{"inline_bytes": bytes(80)}]}},
            {"generic_secret": {"secret": {"inline_string": STAND_IN}}},
        )
        return tuple(self._new(f"{_TLS}Secret", name=name, **form) for form in forms)

    def _tls_cluster(self, name: str, context: Fields) -> DynamicMessage:
        packed = self._packed(f"{_TLS}UpstreamTlsContext", common_tls_context=context)
        return self.cluster(name, transport_socket={"name": "tls", "typed_config": packed})

    def _ticket_listener(self, name: str, used: Fields) -> DynamicMessage:
        context = self._packed(
            f"{_TLS}DownstreamTlsContext",
            common_tls_context={"tls_certificates": [_STUB_PAIR]},
            session_ticket_keys_sds_secret_config=used,
        )
        listener = self._listener(name, [self._tcp_proxy()])
        listener.filter_chains[0].transport_socket.name = "tls"
        listener.filter_chains[0].transport_socket.typed_config.MergeFrom(context)
        return listener

    def _tcp_proxy(self) -> Fields:
        return {"name": "tcp", "typed_config": self._packed(_TCP_PROXY, stat_prefix=STAND_IN, cluster=STAND_IN)}

    def _listener(self, name: str, filters: list[Fields], **fields: object) -> DynamicMessage:
        # A private pipe: no listener of the tree has this address, and in validation nothing is bound.
        address = {"pipe": {"path": f"/{name}"}}
        chains = [{"filters": filters}]
        return self._new(
            "envoy.config.listener.v3.Listener", name=name, address=address, filter_chains=chains, **fields
        )

    def _packed(self, message_type: str, **fields: object) -> DynamicMessage:
        packed: DynamicMessage = self._new("google.protobuf.Any")
        packed.type_url = f"type.googleapis.com/{message_type}"
        packed.value = self._new(message_type, **fields).SerializeToString(deterministic=True)
        return packed

    def _new(self, message_type: str, **fields: object) -> Message:
        return self._catalogue.message_class(message_type)(**fields)


BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
_INTERNAL_LISTENER = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
_EDS = 3  # Cluster.DiscoveryType.EDS

Member = int
"""A resource, by its index in the given order."""


@dataclass(slots=True)
class Rendering:
    """A bootstrap, and the resource behind each part, or None.

    `eds` are the clusters that Envoy creates last. `layers` are the resources of the runtime's layers.
    """

    bootstrap: DynamicMessage
    secrets: list[Member | None] = field(default_factory=list)
    clusters: dict[str, Member | None] = field(default_factory=dict)
    listeners: dict[str, Member | None] = field(default_factory=dict)
    eds: set[str] = field(default_factory=set)
    layers: list[Member] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of parts."""
        return len(self.secrets) + len(self.clusters) + len(self.listeners)

    def shows(self, member: Member) -> bool:
        """Whether a part stands for a resource."""
        return member in {*self.secrets, *self.clusters.values(), *self.listeners.values(), *self.layers}

    def content(self) -> bytes:
        """Return the bootstrap as bytes."""
        serialized: bytes = self.bootstrap.SerializeToString(deterministic=True)
        return serialized

    def add_secret(self, secret: DynamicMessage, member: Member | None) -> None:
        """Add a static secret."""
        self.bootstrap.static_resources.secrets.append(secret)
        self.secrets.append(member)

    def add_cluster(self, cluster: DynamicMessage, member: Member | None) -> None:
        """Add a cluster."""
        self.bootstrap.static_resources.clusters.append(cluster)
        self.clusters[cluster.name] = member
        if cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == _EDS:
            self.eds.add(cluster.name)

    def add_listener(self, listener: DynamicMessage, member: Member | None) -> None:
        """Add a listener."""
        self.bootstrap.static_resources.listeners.append(listener)
        self.listeners[listener.name] = member

    def add_user(self, user: DynamicMessage, member: Member | None) -> None:
        """Add a resource's user, if any."""
        if user is None:
            return
        (self.add_cluster if user.DESCRIPTOR.name == "Cluster" else self.add_listener)(user, member)


class Renderer:
    """Renders any of some resources.

    Clusters and listeners are rendered with the chosen secrets and filters; every other resource is used by a made one. A
    name mentioned but not chosen becomes a cluster without endpoints, or a dummy secret: other checks report it.
    """

    def __init__(self, catalogue: Catalogue, resources: Sequence[Resource], folder: str) -> None:
        """Prepare resources, which takes longest; `folder` is empty and exists."""
        preparer = Preparer(catalogue, folder)
        self.prepared: tuple[Prepared, ...] = tuple(map(preparer.prepare, resources))
        self._catalogue = catalogue
        self._linker = Linker(catalogue)
        self._stand_ins = users = StandIns(catalogue)
        made_of = users.of_endpoints, users.of_lb_endpoint, users.of_route, users.of_scope
        self._users = dict(zip(("eds", "leds", "rds", "srds"), made_of, strict=True))

    def render(self, members: Collection[Member]) -> Rendering:
        """Render some of the resources."""
        chosen = {member: self.prepared[member] for member in sorted(members)}
        secrets = {one.resource.name: one.secret_form for one in chosen.values() if one.resource.type_url == SDS}
        extensions = {one.resource.name: one.body for one in chosen.values() if one.resource.type_url == ECDS}
        links = {member: self._linker.link(prepared, secrets, extensions) for member, prepared in chosen.items()}
        rendering = Rendering(self._frame())
        self._render_secrets(rendering, chosen)
        self._render_mentioned(rendering, chosen)
        for member, prepared in chosen.items():
            self._render_one(rendering, member, prepared, links)
        self._render_hosts(rendering, chosen)
        return rendering

    def _frame(self) -> DynamicMessage:
        extension = {"name": _INTERNAL_LISTENER, "typed_config": {"type_url": f"{PREFIX}{_INTERNAL_LISTENER}"}}
        extensions = [extension] if self._catalogue.knows(_INTERNAL_LISTENER) else []
        frame = self._catalogue.message_class(BOOTSTRAP)
        # Some filters add a page to the admin's; without one Envoy crashes of them.
        admin = {"address": {"pipe": {"path": f"/{STAND_IN}"}}}
        return frame(node={"id": STAND_IN, "cluster": STAND_IN}, admin=admin, bootstrap_extensions=extensions)

    def _render_secrets(self, rendering: Rendering, chosen: _Chosen) -> None:
        for member, prepared in _of_type(chosen, SDS):
            secret = self._catalogue.read(SDS, prepared.body)
            # The name of the resource, by which others request it.
            secret.name = static_name(prepared.resource.name)
            rendering.add_secret(secret, member)
            rendering.add_user(self._stand_ins.of_secret(_stand_in_for(member), secret), member)

    def _render_mentioned(self, rendering: Rendering, chosen: _Chosen) -> None:
        own = {prepared.resource.name for _, prepared in _of_type(chosen, CDS)}
        mentioned = {STAND_IN} | {name for prepared in chosen.values() for name in prepared.clusters}
        for name in sorted(mentioned - own):
            rendering.add_cluster(self._stand_ins.cluster(name), None)
        for name in sorted({name for prepared in chosen.values() for name in prepared.static_secrets}):
            for secret in self._stand_ins.static_secrets(name):
                rendering.add_secret(secret, None)

    def _render_one(
        self, rendering: Rendering, member: Member, prepared: Prepared, links: Mapping[Member, Linked]
    ) -> None:
        short_name, name, type_url = _short_name(prepared), _stand_in_for(member), prepared.resource.type_url
        if short_name == "cds":
            rendering.add_cluster(self._catalogue.read(type_url, links[member].body), member)
        elif short_name == "lds":
            listener = self._catalogue.read(type_url, links[member].body)
            # Envoy ignores API listeners of a server, and logs that.
            if not listener.HasField("api_listener"):
                rendering.add_listener(listener, member)
        elif short_name in self._users:
            rendering.add_user(self._users[short_name](name, prepared.body), member)
        elif short_name == "rtds":
            layer = self._catalogue.read(type_url, prepared.body).layer
            rendering.bootstrap.layered_runtime.layers.add(name=name, static_layer=layer)
            rendering.layers.append(member)
        elif short_name == "ecds" and not any(prepared.resource.name in one.extensions for one in links.values()):
            rendering.add_user(self._stand_ins.of_extension(name, prepared.body), member)

    def _render_hosts(self, rendering: Rendering, chosen: _Chosen) -> None:
        hosts: dict[str, dict[Member, bytes]] = {}
        for member, one in chosen.items():
            if _short_name(one) == "vhds":
                hosts.setdefault(one.resource.name.rpartition("/")[0], {})[member] = one.body
        for number, (table, bodies) in enumerate(hosts.items()):
            listener = self._stand_ins.of_virtual_hosts(f"{STAND_IN}-hosts-{number}", table, tuple(bodies.values()))
            rendering.add_listener(listener, next(iter(bodies)) if len(bodies) == 1 else None)


_Chosen: TypeAlias = Mapping[Member, Prepared]


def _of_type(chosen: _Chosen, type_url: str) -> Iterator[tuple[Member, Prepared]]:
    return ((member, one) for member, one in chosen.items() if one.resource.type_url == type_url)


def _short_name(prepared: Prepared) -> str:
    return BY_TYPE_URL[prepared.resource.type_url].short_name


def _stand_in_for(member: Member) -> str:
    return f"{STAND_IN}-{member}"
