"""Which clients are told a resource's time to live, and how it is renewed.

Source: xDS protocol, "TTL"; ENVOY.md D4 (what an expiry or a heartbeat does to an Envoy, up to a crash of it).
"""

from __future__ import annotations

from enum import Enum

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import TypeUrl

TTL_FEATURE = "xds.config.supports-resource-ttl"
SOTW_TTL_FEATURE = "xds.config.supports-resource-in-sotw"
# As the specification has it, and as gRPC's own clients say it.
SOTW_TTL_FEATURES = frozenset((SOTW_TTL_FEATURE, "xds.config.resource-in-sotw"))

# A heartbeat may be late by as much as the time between two of them.
HEARTBEATS_PER_TTL = 2


class TtlMode(Enum):
    """Whose behaviour the clients are taken to have."""

    ENVOY = "envoy"
    SPECIFICATION = "spec"


class TtlUse(Enum):
    """How the time to live of a type's resources goes to a client.

    NONE: it is left out. FULL: it is told, and the whole resource again renews it. HEARTBEAT: it is told, and the name,
    the version and the time to live alone renew it.
    """

    NONE = "none"
    FULL = "full"
    HEARTBEAT = "heartbeat"


# Where an expiry has an effect on an Envoy, and the Envoy survives it.
_SURVIVED = frozenset(BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rtds"))


def ttl_use(type_url: TypeUrl, features: frozenset[str], mode: TtlMode, *, is_delta: bool) -> TtlUse:
    """Return how a client with these `client_features` is told the time to live of a type's resources."""
    if TTL_FEATURE not in features or not (is_delta or features & SOTW_TTL_FEATURES):
        return TtlUse.NONE
    if mode is TtlMode.SPECIFICATION:
        return TtlUse.HEARTBEAT
    if type_url not in _SURVIVED:
        return TtlUse.NONE
    # On a state-of-the-world stream an Envoy takes a heartbeat for the whole content.
    return TtlUse.HEARTBEAT if is_delta else TtlUse.FULL


def heartbeat_s(ttl_s: float) -> float:
    """Return the seconds between two heartbeats of a resource, so that one of them may be late."""
    return ttl_s / HEARTBEATS_PER_TTL
