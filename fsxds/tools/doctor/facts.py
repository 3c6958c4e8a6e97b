"""Facts for the checks: an Envoy, its bootstrap with positions, its subscriptions, and files."""

# ruff: noqa: PTH110, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120
from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.formats import FORMATS, format_of
from fsxds.formats.decoded import PlainDocument
from fsxds.formats.positions import Locate
from fsxds.model.resource_types import type_from_path
from fsxds.model.resources import Resource
from fsxds.model.values import Fault, FieldPath, PlainValue, Problem, SourceFile
from fsxds.snapshots.document import authored_path
from fsxds.snapshots.parse import problems_of


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The state of a path.

    Attributes:
        swapped_in: the directory whose link is replaced on a change, or None.
        is_config_map: the link is the `..data` of a Kubernetes volume.
        head: the first bytes.
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
        """Envoy gets no configuration from an EDS cluster."""
        return bool(self.message.WhichOneof("cluster_discovery_type") == "type" and self.message.type == EDS)


@dataclass(frozen=True, slots=True)
class EnvoyFacts:
    """The known facts about an Envoy.

    Attributes:
        clusters: static ones; None without a bootstrap.
        has_ads: true without a bootstrap.
        is_rewritten: Envoy gets paths into the mirror for config sources.
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
    for field, short_name, name in _SOURCES.get(message.DESCRIPTOR.full_name, ()):
        # An absent source has no specifier.
        source = attrgetter(field)(message)
        if source.WhichOneof("config_source_specifier") != "api_config_source":
            continue
        asked, api = (short_name, getattr(message, name) if name else str(field_path)), source.api_config_source
        if api.api_type == REST:
            yield from (ConfigSourceUse(name, True, asked) for name in api.cluster_names)
        else:
            yield from (
                ConfigSourceUse(service.envoy_grpc.cluster_name, False, asked)
                for service in api.grpc_services
                if service.HasField("envoy_grpc")
            )


# The fields with a source, the types that come from it, and the fields with the subscribed name, else its path counts.
_SOURCES: Mapping[str, tuple[tuple[str, str, str], ...]] = MappingProxyType({
    # Each cluster has a subscription, even if two have the same service_name.
    "envoy.config.cluster.v3.Cluster": (("eds_cluster_config.eds_config", "eds", "name"),),
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": (("sds_config", "sds", "name"),),
    f"{_CONNECTION_MANAGER}.Rds": (("config_source", "rds", "route_config_name"),),
    f"{_CONNECTION_MANAGER}.ScopedRds": (("scoped_rds_config_source", "srds", ""),),
    "envoy.config.core.v3.ExtensionConfigSource": (("config_source", "ecds", ""),),
    "envoy.config.bootstrap.v3.RuntimeLayer.RtdsLayer": (("rtds_config", "rtds", "name"),),
    "envoy.config.bootstrap.v3.Bootstrap.DynamicResources": (("cds_config", "cds", ""), ("lds_config", "lds", "")),
})  # fmt: skip


_HEAD_BYTES = 64
_CONFIG_MAP_LINK = "..data"


def look_at(path: str) -> FileFacts:
    """Examine a path."""
    if "\0" in path:
        return FileFacts(exists=False)
    swapped_in, is_config_map = _swapping(path)
    head = b""
    if os.path.isfile(path):
        with suppress(OSError), Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    return FileFacts(os.path.exists(path), swapped_in, is_config_map, head)


def _swapping(path: str) -> tuple[str | None, bool]:
    """The ancestor with a swapped link, and whether it is a ConfigMap."""
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


@dataclass(frozen=True, slots=True)
class Written:
    """One document as authored; `value` may be None."""

    catalogue: Catalogue
    file: SourceFile
    locate: Locate | None
    document: int = 0
    value: PlainValue = None

    def authored(self, fault: Fault) -> Fault:
        """Return the fault with the author's path."""
        return replace(fault, field_path=authored_path(self.value, fault.field_path))

    def problems(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield faults with authored paths as problems."""
        return problems_of(self.file, self.locate, [(self.document, fault) for fault in faults], self.catalogue)


def resource_problems(
    findings: Iterable[tuple[Resource, Fault]], catalogue: Catalogue, sources: Mapping[PurePosixPath, bytes]
) -> Iterator[Problem]:
    """Yield faults of resources; paths have the API's names, from the resource on."""
    by_file: defaultdict[PurePosixPath, defaultdict[int, list[tuple[Resource, Fault]]]]
    by_file = defaultdict(lambda: defaultdict(list))
    for resource, fault in findings:
        by_file[resource.origin.path][resource.origin.document].append((resource, fault))
    for path, by_document in by_file.items():
        for number, found in by_document.items():
            written = _written(path, sources.get(path, b""), number, catalogue)
            faults = []
            for resource, fault in found:
                start = resource.origin.field_path
                inner = authored_path(_value_at(written.value, start), fault.field_path)
                faults.append(replace(fault, field_path=(*start, *inner)))
            yield from written.problems(one_of_each(faults))


def one_of_each(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yield the first of equal faults, with their number."""
    alike: defaultdict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in faults:
        alike[fault.rule, fault.message].append(fault)
    for first, *others in alike.values():
        more = f" (and {len(others)} more like this here)" if others else ""
        yield replace(first, message=first.message + more)


def _written(path: PurePosixPath, content: bytes, number: int, catalogue: Catalogue) -> Written:
    file, file_format = SourceFile.of(path, content), format_of(path)
    if file_format is None or file_format.name == "binary":
        return Written(catalogue, file, None, number)
    hint = type_from_path(path)
    documents = file_format.decode(content, catalogue, hint.message_type if hint else None).documents
    document = documents[number] if number < len(documents) else None
    value = document.value if isinstance(document, PlainDocument) else None
    return Written(catalogue, file, file_format.locate, number, value)


def _value_at(value: PlainValue, field_path: FieldPath) -> PlainValue:
    for step in field_path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """A read bootstrap; `message` may be None after a mistake."""

    message: Message | None
    problems: tuple[Problem, ...]
    written: Written

    def problems_of(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield faults with the API's paths."""
        return self.written.problems(one_of_each(self.written.authored(fault) for fault in faults))


def read_bootstrap(path: PurePosixPath, content: bytes, catalogue: Catalogue, rules: FieldRules) -> BootstrapFile:
    """Read a bootstrap as Envoy does; an unknown suffix means YAML."""
    file_format = format_of(path) or FORMATS[0]
    written = Written(catalogue, SourceFile.of(path, content), file_format.locate)
    message: Message | None = None
    faults: list[Fault] = []
    if file_format.name == "binary":
        try:
            message = catalogue.message_class(BOOTSTRAP).FromString(content)
        except DecodeError:
            faults.append(Fault("broken-message", f"the bytes are no {BOOTSTRAP}", "write the file again"))
    else:
        decoded = file_format.decode(content, catalogue, BOOTSTRAP)
        faults += decoded.faults
        if decoded.documents:
            value = getattr(decoded.documents[0], "value", None)
            if isinstance(value, dict):
                # A document in text format has an `@type`, like a resource.
                value = {key: element for key, element in value.items() if key != "@type"}
            written = replace(written, value=value)
            if value is None:
                faults.append(Fault("empty-file", "the file is empty", "`fsxds bootstrap` prints a bootstrap"))
            else:
                converted = Converter(catalogue).convert(value, BOOTSTRAP)
                message = converted.message
                faults += converted.faults
    if message is not None:
        faults += (written.authored(fault) for fault in rules.check(message).faults)
    return BootstrapFile(message, tuple(written.problems(faults)), written)
