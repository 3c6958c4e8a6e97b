"""Any choice of a tree's resources as one static bootstrap that means what they mean when they are served (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.local_envoy.prepared import CDS, ECDS, SDS, Prepared, Preparer
from fsxds.local_envoy.stand_ins import StandIns
from fsxds.local_envoy.static_links import Linked, Linker, static_name
from fsxds.local_envoy.stub_files import STAND_IN
from fsxds.resource_types import BY_TYPE_URL, PREFIX
from fsxds.resources import Resource

BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
_INTERNAL_LISTENER = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
_EDS = 3  # Cluster.DiscoveryType.EDS

Member = int
"""A resource, by its place in the order in which they were given."""


@dataclass(slots=True)
class Rendering:
    """A bootstrap, and which resource each part of it stands for; None where it stands for none, or for several.

    `eds` are the clusters that Envoy creates after all others. `layers` are the resources of the runtime's layers.
    """

    bootstrap: Any
    secrets: list[Member | None] = field(default_factory=list)
    clusters: dict[str, Member | None] = field(default_factory=dict)
    listeners: dict[str, Member | None] = field(default_factory=dict)
    eds: set[str] = field(default_factory=set)
    layers: list[Member] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many parts the bootstrap has."""
        return len(self.secrets) + len(self.clusters) + len(self.listeners)

    def content(self) -> bytes:
        """Return the bootstrap as bytes."""
        serialized: bytes = self.bootstrap.SerializeToString(deterministic=True)
        return serialized

    def add_secret(self, secret: Any, member: Member | None) -> None:
        """Add a static secret."""
        self.bootstrap.static_resources.secrets.append(secret)
        self.secrets.append(member)

    def add_cluster(self, cluster: Any, member: Member | None) -> None:
        """Add a cluster."""
        self.bootstrap.static_resources.clusters.append(cluster)
        self.clusters[cluster.name] = member
        if cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == _EDS:
            self.eds.add(cluster.name)

    def add_listener(self, listener: Any, member: Member | None) -> None:
        """Add a listener."""
        self.bootstrap.static_resources.listeners.append(listener)
        self.listeners[listener.name] = member

    def add_user(self, user: Any, member: Member | None) -> None:
        """Add the cluster or the listener that stands for a resource; None is neither."""
        if user is None:
            return
        (self.add_cluster if user.DESCRIPTOR.name == "Cluster" else self.add_listener)(user, member)


class Renderer:
    """Renders any of some resources.

    Clusters and listeners stand for themselves, with the secrets and filters that are chosen too in the places where they
    are asked for; whatever else they ask a server for stays so, as Envoy contacts none when it validates. Every other
    resource is used by a cluster or a listener made for it. What is mentioned and not chosen is there as a cluster without
    endpoints, or a secret from nowhere: that it is missing is for others to tell.
    """

    def __init__(self, catalogue: Catalogue, resources: Sequence[Resource], folder: str) -> None:
        """Make resources ready, which takes most of the time; `folder` is an empty one that exists."""
        preparer = Preparer(catalogue, folder)
        self.prepared: tuple[Prepared, ...] = tuple(map(preparer.prepare, resources))
        self._catalogue = catalogue
        self._linker = Linker(catalogue)
        self._stand_ins = StandIns(catalogue)

    def render(self, members: Collection[Member]) -> Rendering:
        """Render some of the resources."""
        chosen = {member: self.prepared[member] for member in sorted(members)}
        links = self._links(chosen)
        rendering = Rendering(self._frame())
        self._render_secrets(rendering, chosen)
        self._render_mentioned(rendering, chosen)
        for member, prepared in chosen.items():
            self._render_one(rendering, member, prepared, links)
        self._render_hosts(rendering, chosen)
        return rendering

    def _frame(self) -> Any:
        """Return what every bootstrap has: a node, as subscriptions demand one, and what internal listeners need."""
        extension = {"name": _INTERNAL_LISTENER, "typed_config": {"type_url": f"{PREFIX}{_INTERNAL_LISTENER}"}}
        extensions = [extension] if self._catalogue.knows(_INTERNAL_LISTENER) else []
        frame = self._catalogue.message_class(BOOTSTRAP)
        # Some filters add a page to the admin's; without one Envoy crashes of them.
        admin = {"address": {"pipe": {"path": f"/{STAND_IN}"}}}
        return frame(node={"id": STAND_IN, "cluster": STAND_IN}, admin=admin, bootstrap_extensions=extensions)

    def _links(self, chosen: _Chosen) -> dict[Member, Linked]:
        secrets = {one.resource.name: one.secret_form for one in chosen.values() if one.resource.type_url == SDS}
        extensions = {one.resource.name: one.body for one in chosen.values() if one.resource.type_url == ECDS}
        return {member: self._linker.link(prepared, secrets, extensions) for member, prepared in chosen.items()}

    def _render_secrets(self, rendering: Rendering, chosen: _Chosen) -> None:
        for member, prepared in _of_type(chosen, SDS):
            secret = self._parsed(prepared.resource, prepared.body)
            # The name of the resource, which is that by which others ask for it.
            secret.name = static_name(prepared.resource.name)
            rendering.add_secret(secret, member)
            rendering.add_user(self._stand_ins.of_secret(_stand_in_for(member), secret), member)

    def _render_mentioned(self, rendering: Rendering, chosen: _Chosen) -> None:
        """Render what is not chosen, but has to be there for those who mention it."""
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
        """Render a resource that stands for itself, or alone for a part that is made for it."""
        short_name, name = _short_name(prepared), _stand_in_for(member)
        if short_name == "cds":
            rendering.add_cluster(self._parsed(prepared.resource, links[member].body), member)
        elif short_name == "lds":
            listener = self._parsed(prepared.resource, links[member].body)
            # Envoy takes no API listener from a server: it leaves it out, and says so in its log.
            if not listener.HasField("api_listener"):
                rendering.add_listener(listener, member)
        elif short_name == "eds":
            rendering.add_cluster(self._stand_ins.of_endpoints(name, prepared.body), member)
        elif short_name == "leds":
            rendering.add_cluster(self._stand_ins.of_lb_endpoint(name, prepared.body), member)
        elif short_name == "rds":
            rendering.add_listener(self._stand_ins.of_route(name, prepared.body), member)
        elif short_name == "srds":
            rendering.add_listener(self._stand_ins.of_scope(name, prepared.body), member)
        elif short_name == "rtds":
            layer = self._parsed(prepared.resource, prepared.body).layer
            rendering.bootstrap.layered_runtime.layers.add(name=name, static_layer=layer)
            rendering.layers.append(member)
        elif short_name == "ecds" and not any(prepared.resource.name in one.extensions for one in links.values()):
            rendering.add_user(self._stand_ins.of_extension(name, prepared.body), member)

    def _render_hosts(self, rendering: Rendering, chosen: _Chosen) -> None:
        """Render the virtual hosts of each route table together, as Envoy looks at them."""
        hosts: dict[str, list[bytes]] = {}
        for one in chosen.values():
            if _short_name(one) == "vhds":
                hosts.setdefault(one.resource.name.rpartition("/")[0], []).append(one.body)
        for number, (table, bodies) in enumerate(hosts.items()):
            listener = self._stand_ins.of_virtual_hosts(f"{STAND_IN}-hosts-{number}", table, tuple(bodies))
            rendering.add_listener(listener, None)

    def _parsed(self, resource: Resource, body: bytes) -> Any:
        return self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(body)


_Chosen: TypeAlias = Mapping[Member, Prepared]


def _of_type(chosen: _Chosen, type_url: str) -> Iterator[tuple[Member, Prepared]]:
    return ((member, one) for member, one in chosen.items() if one.resource.type_url == type_url)


def _short_name(prepared: Prepared) -> str:
    return BY_TYPE_URL[prepared.resource.type_url].short_name


def _stand_in_for(member: Member) -> str:
    return f"{STAND_IN}-{member}"
