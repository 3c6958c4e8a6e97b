"""Whether the time to live of a resource gets to the Envoy of a bootstrap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE
from fsxds.resources import Resource
from fsxds.values import Fault, Severity

_GRPC, _DELTA_GRPC, _AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC = 2, 3, 5, 6  # ApiConfigSource.ApiType
_SOTW, _DELTA = frozenset({_GRPC, _AGGREGATED_GRPC}), frozenset({_DELTA_GRPC, _AGGREGATED_DELTA_GRPC})


def expiry_faults(resource: Resource, bootstrap: Any) -> Iterator[Fault]:
    """Note a time to live that comes to nothing; None is no bootstrap. Source: ENVOY.md A6, B6.

    By REST and from files Envoy does not heed one. On streams it is told one only if its bootstrap announces that it
    understands it: Envoy says nothing of that by itself.
    """
    if resource.ttl_s is None or bootstrap is None:
        return
    streams = _streams(bootstrap)
    if not streams & (_SOTW | _DELTA):
        yield _note("a ttl has no effect by REST or from files", "remove it, or serve by gRPC")
        return
    wanted = [TTL_FEATURE] if streams & _DELTA else [TTL_FEATURE, SOTW_TTL_FEATURE]
    missing = [feature for feature in wanted if feature not in bootstrap.node.client_features]
    if missing:
        fact = "a ttl is told to those who announce that they understand it, and the bootstrap does not"
        yield _note(fact, f"add {' and '.join(missing)} to node.client_features, or remove the ttl")


def _streams(bootstrap: Any) -> frozenset[int]:
    """Return the types of API by which the bootstrap has resources come."""
    dynamic = bootstrap.dynamic_resources
    sources = [dynamic.ads_config, dynamic.cds_config.api_config_source, dynamic.lds_config.api_config_source]
    return frozenset(source.api_type for source in sources if source.ByteSize())


def _note(fact: str, remedy: str) -> Fault:
    return Fault("ttl-without-effect", fact, remedy, (), severity=Severity.NOTE)
