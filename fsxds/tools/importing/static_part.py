"""Decides which static resources stay in a bootstrap, and why (pure).

Resources that Envoy needs before it can reach a server, or never requests, cannot be served:

* clusters that the bootstrap names outside of its static resources, such as for stats sinks;
* clusters that configuration comes from (ENVOY.md E6), and others that only the bootstrap may define;
* API listeners, which Envoy takes from no server;
* resources that these name in turn, and secrets that they use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.api.walk import messages_in
from fsxds.envoy.static_bootstrap import SECRET_CONFIG, may_name_cluster
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Reference

CLUSTER, SECRET = (BY_SHORT_NAME[name].type_url for name in ("cds", "sds"))

# Its `cluster` is the name of a group of Envoys.
_NODE = "envoy.config.core.v3.Node"


@dataclass(frozen=True, slots=True)
class StaticPart:
    """Reasons to stay: by name for clusters and secrets, by index for listeners."""

    clusters: Mapping[str, str]
    secrets: Mapping[str, str]
    listeners: Mapping[int, str]


def find_static_part(bootstrap: DynamicMessage, rules: FieldRules, catalogue: Catalogue) -> StaticPart:
    """Return the resources that stay."""
    return _StaticSearch(bootstrap, rules, catalogue).run()


class _StaticSearch:
    def __init__(self, bootstrap: DynamicMessage, rules: FieldRules, catalogue: Catalogue) -> None:
        self._static = bootstrap.static_resources
        self._bootstrap = bootstrap
        self._rules = rules
        self._catalogue = catalogue
        self._clusters: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self._listeners: dict[int, str] = {}
        self._fields: dict[str, tuple[FieldDescriptor, ...]] = {}
        self._by_name = {cluster.name: cluster for cluster in self._static.clusters}

    def run(self) -> StaticPart:
        self._keep_what_the_rest_names()
        for noun, resources in (("cluster", self._static.clusters), ("listener", self._static.listeners)):
            for resource in resources:
                self._keep_static_references(noun, resource)
        for index, listener in enumerate(self._static.listeners):
            if listener.HasField("api_listener"):
                self._listeners[index] = "Envoy takes API listeners from no server"
                self._keep_all_of(listener, f"the API listener {listener.name} uses it")
        return StaticPart(self._clusters, self._secrets, self._listeners)

    def _keep_what_the_rest_names(self) -> None:
        for field, value in self._bootstrap.ListFields():
            if field.name == "static_resources":
                continue
            for part in _messages(value):
                self._keep_all_of(part, f"{field.name} of the bootstrap uses it")

    def _keep_static_references(self, noun: str, resource: DynamicMessage) -> None:
        name = resource.name or "without a name"
        for reference in self._rules.check(resource).references:
            if _is_from_the_bootstrap(reference):
                self._keep_cluster(reference.name, f"the {noun} {name} needs it in the bootstrap")

    def _keep_all_of(self, message: Message, reason: str) -> None:
        """A superfluous cluster or secret is harmless."""
        for _, part in messages_in(message, self._catalogue):
            descriptor = part.DESCRIPTOR
            if descriptor.full_name == _NODE:
                continue
            for field in self._fields_of(descriptor):
                value = getattr(part, field.name)
                for name in value if field.is_repeated else (value,):
                    self._keep_cluster(name, reason)
            if descriptor.full_name == SECRET_CONFIG and part.name and not part.HasField("sds_config"):
                self._secrets.setdefault(part.name, reason)

    def _keep_cluster(self, name: str, reason: str) -> None:
        if name in self._by_name and name not in self._clusters:
            self._clusters[name] = reason
            self._keep_all_of(self._by_name[name], f"the cluster {name}, which stays, uses it")

    def _fields_of(self, descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
        fields = self._fields.get(descriptor.full_name)
        if fields is None:
            fields = tuple(field for field in descriptor.fields if may_name_cluster(field, descriptor))
            self._fields[descriptor.full_name] = fields
        return fields


def _messages(value: object) -> Iterator[Message]:
    if isinstance(value, Message):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        members = value.values() if isinstance(value, Mapping) else value
        yield from (member for member in members if isinstance(member, Message))


def _is_from_the_bootstrap(reference: Reference) -> bool:
    return reference.is_static and reference.type_url == CLUSTER
