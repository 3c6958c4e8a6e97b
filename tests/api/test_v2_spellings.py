"""What API v2 wrote otherwise: the table is complete, and the API's own words are used."""

from __future__ import annotations

import importlib
from pathlib import Path

import envoy
import pytest
from google.protobuf import descriptor_pool

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.v2_spellings import PATTERNS, remedy_for, similar_type, successor_of

V2 = ("envoy.api.v2.", "envoy.config.filter.", "envoy.type.matcher.", "envoy.config.bootstrap.v2.")


@pytest.fixture(scope="module")
def pool() -> descriptor_pool.DescriptorPool:
    """The messages of API v2, as `xds-protos` has them."""
    for folder in envoy.__path__:
        for path in Path(folder).rglob("*_pb2.py"):
            parts = path.relative_to(Path(folder).parent).with_suffix("").parts
            if any(part.startswith("v2") for part in parts) or parts[:2] == ("envoy", "type"):
                importlib.import_module(".".join(parts))
    return descriptor_pool.Default()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("envoy.api.v2.Cluster", "envoy.config.cluster.v3.Cluster"),
        ("envoy.api.v2.auth.UpstreamTlsContext", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
        ("envoy.config.filter.http.router.v2.Router", "envoy.extensions.filters.http.router.v3.Router"),
        ("envoy.config.filter.http.ext_authz.v2.ExtAuthz", "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"),
        ("envoy.config.accesslog.v2.FileAccessLog", "envoy.extensions.access_loggers.file.v3.FileAccessLog"),
        ("envoy.config.cluster.v3.Cluster", None),
        ("example.Nothing", None),
    ],
)
def test_types(before: str, after: str | None, catalogue: Catalogue) -> None:
    """The API names the predecessor of each message type."""
    assert after == successor_of(catalogue, before)
    assert after is None or after == similar_type(catalogue, before)


def test_each_field_of_v2_that_configurations_have_is_known(
    catalogue: Catalogue, pool: descriptor_pool.DescriptorPool
) -> None:
    """Of each field that v3 has not under its name, it is known what to write: nobody is left with "remove it"."""
    unknown: list[str] = []
    for descriptor in catalogue.descriptors():
        names = frozenset(field.name for field in descriptor.fields)
        predecessor = next((one for one in _predecessors(catalogue, descriptor.full_name) if one.startswith(V2)), None)
        if predecessor is None or not _has(pool, predecessor):
            continue
        before = {field.name for field in pool.FindMessageTypeByName(predecessor).fields} - names
        lacking = (name for name in before if remedy_for(descriptor.full_name, name, names) is None)
        unknown += (f"{descriptor.full_name}.{name}" for name in lacking)

    # Of these, v2 said itself that they do nothing, or they were renamed within v3.
    assert {
        "envoy.config.cluster.v3.LoadBalancingPolicy.Policy.name",
        "envoy.config.cluster.v3.LoadBalancingPolicy.Policy.config",
        "envoy.config.cluster.v3.LoadBalancingPolicy.Policy.typed_config",
        "envoy.config.listener.v3.QuicProtocolOptions.max_concurrent_streams",
        "envoy.config.listener.v3.UdpListenerConfig.config",
        "envoy.config.listener.v3.UdpListenerConfig.typed_config",
    } >= set(unknown)


def _predecessors(catalogue: Catalogue, message_type: str) -> list[str]:
    options = catalogue.options_of(catalogue.descriptor(message_type))  # type: ignore[arg-type]  # it is there
    extension = catalogue.extension("udpa.annotations.versioning")
    return [options.Extensions[extension].previous_message_type] if options.HasExtension(extension) else []


def _has(pool: descriptor_pool.DescriptorPool, message_type: str) -> bool:
    try:
        pool.FindMessageTypeByName(message_type)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize(("message_type", "field"), PATTERNS)
def test_patterns_name_fields_of_v3(message_type: str, field: str, catalogue: Catalogue) -> None:
    """What a pattern writes is a field of the message, and what it replaces is none."""
    descriptor = catalogue.descriptor(message_type)

    assert descriptor is not None
    assert PATTERNS[message_type, field].partition(":")[0] in descriptor.fields_by_name
    assert field not in descriptor.fields_by_name


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"hosts": []}, "API v2 wrote it so; write load_assignment: {"),
        ({"tls_context": {}}, "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
        ({"transport_socket": {"name": "tls", "config": {}}}, 'write typed_config: {"@type": …, …}'),
    ],
)
def test_remedies_name_the_spelling_of_v3(value: dict[str, object], said: str, catalogue: Catalogue) -> None:
    """An unknown field of v2 is reported with what v3 writes."""
    (fault,) = Converter(catalogue).convert(value, "envoy.config.cluster.v3.Cluster").faults  # type: ignore[arg-type]

    assert "unknown-field" == fault.rule
    assert said in fault.remedy


def test_a_type_of_v2_is_reported_with_its_successor(catalogue: Catalogue) -> None:
    """So is an unknown message type."""
    value = {"name": "a", "typed_config": {"@type": "type.googleapis.com/envoy.api.v2.auth.UpstreamTlsContext"}}
    (fault,) = Converter(catalogue).convert(value, "envoy.config.core.v3.TransportSocket").faults  # type: ignore[arg-type]

    assert 'there is no message type "envoy.api.v2.auth.UpstreamTlsContext" any more: it is of API v2' == fault.message
    assert 'write "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"' == fault.remedy
