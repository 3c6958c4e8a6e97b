"""Renders any part of a tree as one static bootstrap (pure).

`Preparer` stubs files and collects names; `Linker` inlines secrets and filters; `Renderer` adds stand-ins for missing
names, and users of resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.envoy.stand_ins import StandIns
from fsxds.envoy.stub_files import STAND_IN, FileStubs, Reshaper
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


@dataclass(slots=True)
class _Notes:
    clusters: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    static_secrets: set[str] = field(default_factory=set)
    extensions: set[str] = field(default_factory=set)


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
        notes = _Notes({one.name for one in resource.references if one.type_url == CDS})
        self._stubs.is_complete = True

        def note(one: DynamicMessage) -> None:
            self._stubs.change_sources(one)
            self._note(one, notes)

        self._reshaper.reshape(message, self._changes, note)
        return Prepared(
            resource,
            message.SerializeToString(deterministic=True),
            frozenset(notes.clusters - {""}),
            frozenset(notes.secrets),
            frozenset(notes.static_secrets - {""}),
            frozenset(notes.extensions),
            (message.WhichOneof("type") or "") if resource.type_url == SDS else "",
            message.key.SerializeToString(deterministic=True) if resource.type_url == SRDS else b"",
            self._stubs.is_complete,
        )

    def _note(self, message: DynamicMessage, notes: _Notes) -> None:
        descriptor = message.DESCRIPTOR
        if (fields := self._cluster_fields.get(descriptor.full_name)) is None:
            fields = tuple(one for one in descriptor.fields if may_name_cluster(one, descriptor))
            self._cluster_fields[descriptor.full_name] = fields
        for mention in fields:
            value = getattr(message, mention.name)
            notes.clusters.update(value if mention.is_repeated else (value,))
        if descriptor.full_name == SECRET_CONFIG:
            (notes.secrets if message.HasField("sds_config") else notes.static_secrets).add(message.name)
        elif is_discovered(message):
            notes.extensions.add(message.name)


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
