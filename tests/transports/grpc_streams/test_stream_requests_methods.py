from __future__ import annotations

from google.protobuf import descriptor_pool

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.transports.grpc_streams.discovery import import_descriptors
from fsxds.transports.grpc_streams.stream_requests import AGGREGATED, METHODS, Variant


def test_methods_are_those_of_the_api() -> None:
    """Each service has the methods that its proto file declares, all of them, with their types."""
    services = {method.service for method in METHODS}
    import_descriptors(services)
    for service in services:
        declared = descriptor_pool.Default().FindServiceByName(service).methods
        ours = {method.name: method for method in METHODS if method.service == service}

        assert ours.keys() == {method.name for method in declared}
        for method in declared:
            word = "Delta" if ours[method.name].variant is Variant.DELTA else ""
            assert method.input_type.name == f"{word}DiscoveryRequest"


def test_every_type_has_its_service() -> None:
    """Every type of the table is served, by streams where it has them; ADS serves all."""
    variants = {row: {method.variant for method in METHODS if method.row is row} for row in (None, *RESOURCE_TYPES)}

    assert variants.pop(None) == {Variant.SOTW, Variant.DELTA}
    of_services = {row: set(Variant) if row.has_sotw else {Variant.DELTA} for row in RESOURCE_TYPES if row.grpc}
    assert variants == {row: of_services.get(row, set()) for row in RESOURCE_TYPES}
    assert {method.service for method in METHODS if method.is_aggregated} == {AGGREGATED}
