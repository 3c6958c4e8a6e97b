"""Ask `envoy --mode validate`, where the running Envoy stumbled over its machine or over what it holds already."""

from __future__ import annotations

import re
from typing import Any

from tests.agreement.envoy_bootstrap import CLUSTERS, INTERNAL_LISTENERS, http_listener, static_cluster
from tests.support.envoy import validate

# A port in use, an address of another machine, a cache of the same name in another resource: no fault of this one.
OUTSIDE = re.compile(
    r"cannot bind|Address already in use|Cannot assign requested|setsockopt|freebind|socket option|with different settings",
    re.IGNORECASE,
)


# Files are there on one machine and not on another, ADS and static secrets in one bootstrap: no resource can tell.
AROUND = re.compile(
    r"existing path in the system|unable to open file|[Ff]ailed to open|File name too long|unable to read file"
    r"|ADS must be configured|[Uu]nknown static|Unknown tls session ticket keys|invalid (HMAC|token) secret configuration"
)


def blames_what_is_around(words: str) -> bool:
    """Tell whether Envoy's words are about its machine or its bootstrap."""
    return AROUND.search(words) is not None


def blames_others(words: str) -> bool:
    """Tell whether Envoy's words are about something else than the resource."""
    return OUTSIDE.search(words) is not None


def judge_alone(type_name: str, resource: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a resource would do by itself, and Envoy's words; for clusters, listeners and HTTP filters."""
    clusters = [static_cluster(name) for name in CLUSTERS]
    listeners = []
    if type_name == "cds":
        clusters.append(resource)
    elif type_name == "lds":
        listeners.append(resource)
    else:
        listeners.append(http_listener("alone", {"route_config": {"name": "none"}}, resource))
    return validate(
        {
            "static_resources": {"clusters": clusters, "listeners": listeners},
            "node": {"id": "judge", "cluster": "judges"},
            "bootstrap_extensions": [{"name": "internal", "typed_config": {"@type": INTERNAL_LISTENERS}}],
        }
    )
