"""Health checks of clusters: what can be sent, what is expected, and by which protocol."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.clusters import HTTP_OPTIONS

_RULE = "wrong-health-check"
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_LOWEST_STATUS, _HIGHEST_END = 100, 600

# Of envoy.config.core.v3.RequestMethod: POST, PUT, PATCH and OPTIONS.
_WITH_BODY = frozenset({3, 4, 7, 9})


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over health checks."""
    protocols = _Protocols(catalogue)
    return {
        "envoy.config.cluster.v3.Cluster": (_check_names, protocols.check_grpc),
        "envoy.config.core.v3.HealthCheck.Payload": (_check_payload,),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck": (_check_sending,),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck.expected_statuses": (_check_statuses,),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck.retriable_statuses": (_check_statuses,),
    }


def _check_names(cluster: Any, path: Path, walk: Walk) -> None:
    """Check the names of several health checks; versions of the API without them let them be."""
    checks = cluster.health_checks
    if len(checks) < 2 or not hasattr(checks[0], "name"):
        return
    seen: set[str] = set()
    for index, check in enumerate(checks):
        place = (((path, "health_checks"), index), "name")
        if not check.name:
            walk.tell(place, _RULE, "is missing: each of several health checks needs one", "give each its own name")
        elif check.name in seen:
            walk.tell(place, _RULE, f'"{check.name}" is the name of two health checks', "give each its own name")
        seen.add(check.name)


def _check_payload(payload: Any, path: Path, walk: Walk) -> None:
    if payload.WhichOneof("payload") == "text" and payload.text and _HEX.fullmatch(payload.text) is None:
        walk.tell((path, "text"), _RULE, "is not hex", 'write pairs of hex digits, such as "70696e67" for "ping"')


def _check_statuses(ranges: Any, path: Path, walk: Walk) -> None:
    for index, statuses in enumerate(ranges):
        fact, start, end = None, statuses.start, statuses.end
        if start >= end:
            fact = f"start ({start}) must be below end ({end}), which does not belong to it"
        elif start < _LOWEST_STATUS:
            fact = f"must start at {_LOWEST_STATUS} or above, starts at {start}"
        elif end > _HIGHEST_END:
            fact = f"must end at {_HIGHEST_END} or below, ends at {end}"
        if fact is not None:
            walk.tell((path, index), _RULE, fact, "write such as {start: 200, end: 300} for all of 2xx")


def _check_sending(check: Any, path: Path, walk: Walk) -> None:
    if check.HasField("send") and check.method not in _WITH_BODY:
        message = "a request of this method has no body to send"
        walk.tell((path, "send"), _RULE, message, "write method: POST, or remove send")


class _Protocols:
    """Knows whether a cluster speaks HTTP/2."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._options: type[Message] | None = (
            catalogue.message_class(HTTP_OPTIONS) if catalogue.knows(HTTP_OPTIONS) else None
        )

    def check_grpc(self, cluster: Any, path: Path, walk: Walk) -> None:
        """Check that a cluster with a health check by gRPC speaks HTTP/2."""
        for index, check in enumerate(cluster.health_checks):
            if check.WhichOneof("health_checker") == "grpc_health_check" and not self._speaks_http2(cluster):
                place = (((path, "health_checks"), index), "grpc_health_check")
                remedy = "add http2_protocol_options under the cluster's HttpProtocolOptions"
                walk.tell(place, _RULE, "a health check by gRPC needs a cluster that speaks HTTP/2", remedy)

    def _speaks_http2(self, cluster: Any) -> bool:
        """Tell it, true where it cannot be known."""
        if HTTP_OPTIONS not in cluster.typed_extension_protocol_options:
            return bool(cluster.HasField("http2_protocol_options"))
        packed = cluster.typed_extension_protocol_options[HTTP_OPTIONS]
        if self._options is None or packed.type_url.rpartition("/")[2] != HTTP_OPTIONS:
            return True
        try:
            options: Any = self._options.FromString(packed.value)
        except DecodeError:
            return True
        chosen = options.WhichOneof("upstream_protocol_options")
        if chosen == "auto_config" or chosen is None:
            return True
        config = getattr(options, chosen)
        return bool(config.HasField("http2_protocol_options"))
