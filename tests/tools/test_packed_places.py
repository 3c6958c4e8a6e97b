"""Which message types may stand in an Any where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.tools import packed_places
from fsxds.tools.packed_places import ANYTHING, PackedTypes, ends_of, is_packed, packable_types

CORS = "envoy.extensions.filters.http.cors.v3.Cors"
HCM = "envoy.extensions.filters.network.http_connection_manager.v3"


def field_of(catalogue: Catalogue, full_name: str) -> FieldDescriptor | None:
    """Return a field, None where there is none."""
    message_type, _, name = full_name.rpartition(".")
    descriptor = catalogue.descriptor(message_type)
    return None if descriptor is None else descriptor.fields_by_name.get(name)


def test_what_may_be_packed(catalogue: Catalogue) -> None:
    """Extensions and well-known values, and nothing that servers only ask and answer."""
    names = packable_types(catalogue)

    assert {CORS, "google.protobuf.StringValue", "google.protobuf.Struct"} < set(names)
    assert [] == [name for name in names if name.startswith(("envoy.admin.", "envoy.service.", "validate."))]
    assert "envoy.config.cluster.v3.Cluster.EdsClusterConfig" not in names


@pytest.mark.parametrize("places", [packed_places._CHECKED, packed_places._OPEN], ids=["checked", "open"])
def test_every_place_and_word_exists(places: dict[str, str], catalogue: Catalogue) -> None:
    """Fields, extension categories and message types are those of the API."""
    assert catalogue.features is not None
    words = {word for row in places.values() for word in row.split()}

    assert [] == [field for field in places if field_of(catalogue, field) is None]
    assert [] == [word for word in words if word not in catalogue.features.extensions and not catalogue.knows(word)]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (f"{HCM}.HttpConnectionManager.http_filters", ("envoy.filters.http",)),
        ("envoy.config.cluster.v3.Cluster.transport_socket", ("envoy.transport_sockets.upstream",)),
        ("envoy.config.cluster.v3.LoadBalancingPolicy.Policy.typed_extension_config", (ANYTHING, "envoy.load_balancing_policies")),
        (f"{HCM}.HttpFilter.typed_config", ("of", "the", "holder")),
    ],
)  # fmt: skip
def test_places(field: str, words: tuple[str, ...], catalogue: Catalogue) -> None:
    """A field has a place of its own, or that of the message that it is in."""
    found = field_of(catalogue, field)
    assert found is not None

    assert words == PackedTypes(catalogue).place_of(found, ("of", "the", "holder"))


@pytest.mark.parametrize(
    ("message_type", "expected"),
    [
        ("envoy.config.core.v3.TypedExtensionConfig", True),
        (f"{HCM}.HttpFilter", True),
        ("envoy.config.cluster.v3.Cluster", False),
        ("envoy.config.route.v3.Route", False),
    ],
)
def test_holders(message_type: str, *, expected: bool, catalogue: Catalogue) -> None:
    """Of some messages, the field that holds them says what may be packed in them."""
    descriptor = catalogue.descriptor(message_type)
    assert descriptor is not None

    assert expected == PackedTypes(catalogue).is_holder(descriptor)


def test_types_of_places(catalogue: Catalogue) -> None:
    """Those of a category, a message type itself, and plain values where anything may stand."""
    types = PackedTypes(catalogue)

    assert CORS in types.types("envoy.filters.http")
    assert types.types(CORS) == (CORS,)
    assert types.types("no.such.Type") == ()
    assert "google.protobuf.StringValue" in types.types(ANYTHING)
    assert "xds.type.v3.TypedStruct" in types.types_of_all_places()


def test_chosen_types(catalogue: Catalogue) -> None:
    """They alone may be packed, each where it can stand."""
    types = PackedTypes(catalogue, [CORS])

    assert types.is_chosen
    assert types.types("envoy.filters.http") == (CORS,)
    assert types.types("envoy.transport_sockets.upstream") == ()
    assert types.types_of_all_places() == ()


@pytest.mark.parametrize("is_known", [True, False])
def test_an_envoy_of_which_less_is_known(catalogue: Catalogue, *, is_known: bool) -> None:
    """Where it is not certain which extensions it has, others may stand everywhere."""
    features = replace(catalogue.features, is_exact=False) if is_known and catalogue.features is not None else None
    types = PackedTypes(Catalogue(catalogue.pool, catalogue.serialized, "another", features))
    field = field_of(catalogue, f"{HCM}.HttpConnectionManager.http_filters")
    assert field is not None

    assert types.place_of(field, ()) == (ANYTHING, "envoy.filters.http")
    assert CORS in types.types("envoy.filters.http")


def test_ends_of_names(catalogue: Catalogue) -> None:
    """The shortest end that tells a type from all others."""
    types = PackedTypes(catalogue)

    assert list(ends_of("a.b.C")) == ["C", "b.C", "a.b.C"]
    assert types.end_of("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy") == "TcpProxy"
    assert types.end_of("envoy.extensions.filters.http.router.v3.Router") == "http.router.v3.Router"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("envoy.config.core.v3.TypedExtensionConfig.typed_config", True),
        ("envoy.config.route.v3.Route.typed_per_filter_config", True),
        ("envoy.config.core.v3.TypedExtensionConfig.name", False),
        ("envoy.config.route.v3.Route.match", False),
    ],
)
def test_packed_fields(field: str, *, expected: bool, catalogue: Catalogue) -> None:
    """An Any itself, and a map of them."""
    found = field_of(catalogue, field)
    assert found is not None

    assert expected == is_packed(found)
