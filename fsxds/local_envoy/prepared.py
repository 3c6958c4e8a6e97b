"""A resource made ready to be judged on any machine: its files replaced, its mentions of others noted (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.local_envoy.reshaping import Reshaper
from fsxds.local_envoy.stub_files import FileStubs
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Resource

CDS, SDS, SRDS, ECDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "sds", "srds", "ecds"))

SECRET_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 (a message type)
EXTENSION_CONFIG_SOURCE = "envoy.config.core.v3.ExtensionConfigSource"

_CLUSTER_FIELDS = ("cluster", "clusters", "cluster_name", "cluster_names")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A resource whose files are stubs.

    Attributes:
        resource: as it is served.
        body: the same with stubs.
        clusters: every name that may be meant as a cluster's.
        secrets: the names of the secrets that it asks a server for.
        static_secrets: the names of secrets that it expects in the bootstrap.
        extensions: the names of the filters that it asks a server for.
        secret_form: what a secret is (`tls_certificate`), empty for other resources.
        scope_key: the key of a scoped route as bytes, empty for other resources.
        is_complete: everything that Envoy would load from elsewhere has a valid stub.
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
    """Makes resources ready to be judged."""

    def __init__(self, catalogue: Catalogue, folder: str) -> None:
        """Take message types from a catalogue; files are looked for in a folder that exists."""
        self._catalogue = catalogue
        self._reshaper = Reshaper(catalogue)
        self._stubs = FileStubs(folder)
        self._changes = self._stubs.changes()
        self._cluster_fields: dict[str, tuple[FieldDescriptor, ...]] = {}

    def prepare(self, resource: Resource) -> Prepared:
        """Replace what is elsewhere, and note what is mentioned."""
        message: Any = self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
        notes = _Notes({one.name for one in resource.references if one.type_url == CDS})
        self._stubs.is_complete = True

        def note(one: Any) -> None:
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

    def _note(self, message: Any, notes: _Notes) -> None:
        descriptor = message.DESCRIPTOR
        for mention in self._mentions_in(descriptor):
            value = getattr(message, mention.name)
            notes.clusters.update(value if mention.is_repeated else (value,))
        if descriptor.full_name == SECRET_CONFIG:
            (notes.secrets if message.HasField("sds_config") else notes.static_secrets).add(message.name)
        elif is_discovered(message):
            notes.extensions.add(message.name)

    def _mentions_in(self, descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
        if (fields := self._cluster_fields.get(descriptor.full_name)) is None:
            fields = tuple(one for one in descriptor.fields if _may_name_cluster(one, descriptor))
            self._cluster_fields[descriptor.full_name] = fields
        return fields


def _may_name_cluster(one: FieldDescriptor, owner: Descriptor) -> bool:
    """Tell by its name whether a field may hold the name of a cluster; too many do no harm."""
    if one.type != FieldDescriptor.TYPE_STRING or owner.full_name.endswith(".ClusterLoadAssignment"):
        return False
    is_weighted = one.name == "name" and owner.name.endswith("ClusterWeight")
    return is_weighted or one.name.endswith(_CLUSTER_FIELDS)


def is_discovered(message: Any) -> bool:
    """Tell whether a message is a filter whose configuration is asked for by its name."""
    fields = message.DESCRIPTOR.fields_by_name
    if "config_discovery" not in fields or not {"name", "typed_config"}.issubset(fields.keys()):
        return False
    held = fields["config_discovery"].message_type
    return held is not None and held.full_name == EXTENSION_CONFIG_SOURCE and message.HasField("config_discovery")
