"""Times to live: who receives them, and their renewal.

| rule | source |
| --- | --- |
| A time to live goes to clients that announce the feature, over SotW only with that of SotW. | xDS protocol, "TTL"; ENVOY.md E42 |
| Name, version and time alone (a heartbeat) renew it before it ends; one that may be too late carries the resource: a client NACKs a heartbeat of a resource that it lacks. | xDS protocol, "TTL"; ENVOY.md E41 |
| An Envoy on a SotW stream takes a heartbeat for an empty resource, so is sent the whole one. | ENVOY.md E41 |
| An Envoy receives it only for types whose expiry has an effect, and does not crash it. | ENVOY.md E40 |
"""

from __future__ import annotations

from enum import Enum

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import TypeUrl

TTL_FEATURE = "xds.config.supports-resource-ttl"
SOTW_TTL_FEATURE = "xds.config.supports-resource-in-sotw"
# As the specification spells it, and as gRPC's own clients do.
SOTW_TTL_FEATURES = frozenset((SOTW_TTL_FEATURE, "xds.config.resource-in-sotw"))

# A heartbeat may be late by up to the time between two of them.
HEARTBEATS_PER_TTL = 2


class TtlMode(Enum):
    """The assumed behavior of clients."""

    ENVOY = "envoy"
    SPECIFICATION = "spec"


class TtlUse(Enum):
    """How a type's times to live are sent to a client.

    NONE: not at all. FULL: the whole resource renews it. HEARTBEAT: name, version and time to live alone do.
    """

    NONE = "none"
    FULL = "full"
    HEARTBEAT = "heartbeat"


def ttl_use(type_url: TypeUrl, features: frozenset[str], mode: TtlMode, *, is_delta: bool) -> TtlUse:
    """Return the use for these `client_features`."""
    if TTL_FEATURE not in features or not (is_delta or features & SOTW_TTL_FEATURES):
        return TtlUse.NONE
    if mode is TtlMode.SPECIFICATION:
        return TtlUse.HEARTBEAT
    if not BY_TYPE_URL[type_url].survives_expiry:
        return TtlUse.NONE
    return TtlUse.HEARTBEAT if is_delta else TtlUse.FULL


def heartbeat_s(ttl_s: float) -> float:
    """Return the seconds between heartbeats: one may be late."""
    return ttl_s / HEARTBEATS_PER_TTL


class Heartbeats:
    """One type's next heartbeat on one stream, at `at_s`; None for never."""

    __slots__ = ("at_s",)

    def __init__(self) -> None:
        self.at_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether to renew times to live now."""
        return self.at_s is not None and self.at_s <= now_s

    def may_be_too_late(self, shortest_ttl_s: float | None, now_s: float) -> bool:
        """Whether the resource with the shortest time to live may have expired."""
        if self.at_s is None or shortest_ttl_s is None:
            return False
        return now_s >= self.at_s + shortest_ttl_s - heartbeat_s(shortest_ttl_s)

    def plan(self, shortest_ttl_s: float | None, now_s: float, *, is_all: bool) -> None:
        """Plan the next heartbeat by the shortest time to live, or None.

        Unless `is_all` were sent now, an earlier one stays.
        """
        next_at_s = None if shortest_ttl_s is None else now_s + heartbeat_s(shortest_ttl_s)
        self.at_s = next_at_s if is_all or next_at_s is None else earliest(self.at_s, next_at_s)


def earliest(*times_s: float | None) -> float | None:
    """Return the earliest time, or None."""
    return min((time_s for time_s in times_s if time_s is not None), default=None)
