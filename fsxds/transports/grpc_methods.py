"""The methods of the discovery services: which there are, and what each of them speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fsxds.resource_types import RESOURCE_TYPES, ResourceType

AGGREGATED = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class Variant(Enum):
    """How a method speaks; its value is the first word of the method's name."""

    SOTW = "Stream"
    DELTA = "Delta"
    FETCH = "Fetch"


@dataclass(frozen=True, slots=True)
class DiscoveryMethod:
    """One method of one service. `row` is the type that it serves, None for all of them (ADS)."""

    service: str
    name: str
    variant: Variant
    row: ResourceType | None

    @property
    def is_aggregated(self) -> bool:
        """Whether all types share its streams."""
        return self.row is None


def _methods() -> Iterator[DiscoveryMethod]:
    yield DiscoveryMethod(AGGREGATED, "StreamAggregatedResources", Variant.SOTW, None)
    yield DiscoveryMethod(AGGREGATED, "DeltaAggregatedResources", Variant.DELTA, None)
    for row in RESOURCE_TYPES:
        if not row.grpc:
            continue
        service, noun = row.grpc.split()
        for variant in Variant if row.has_sotw else (Variant.DELTA,):
            yield DiscoveryMethod(f"envoy.service.{service}", f"{variant.value}{noun}", variant, row)


METHODS = tuple(_methods())
