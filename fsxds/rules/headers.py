"""Headers to add and to remove: names that Envoy keeps for itself."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_REMOVALS = {
    "envoy.config.route.v3.RouteConfiguration": ("request_headers_to_remove", "response_headers_to_remove"),
    "envoy.config.route.v3.VirtualHost": ("request_headers_to_remove", "response_headers_to_remove"),
    "envoy.config.route.v3.Route": ("request_headers_to_remove", "response_headers_to_remove"),
    "envoy.config.route.v3.WeightedCluster.ClusterWeight": ("request_headers_to_remove", "response_headers_to_remove"),
    "envoy.config.core.v3.HealthCheck.HttpHealthCheck": ("request_headers_to_remove",),
}
_RESERVED_REMEDY = "change the path by a rewrite, the host by host_rewrite_literal; others of these stay as they are"


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over headers to add and remove."""
    removals: dict[str, tuple[Hook, ...]] = {
        f"{message_type}.{field}": (_check_removals,) for message_type, fields in _REMOVALS.items() for field in fields
    }
    return removals | {
        "envoy.config.core.v3.HeaderValueOption": (_check_addition,),
        "envoy.config.route.v3.InternalRedirectPolicy": (_check_copies,),
        "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest": (_check_request,),
    }


def is_reserved(name: str) -> bool:
    """Tell whether a header is one of HTTP/2's own, or the host: those are not changed by adding and removing."""
    return name[:1] == ":" or (len(name) == 4 and name.lower() == "host")


def _check_removals(names: Any, path: Path, walk: Walk) -> None:
    _check_names(names, path, walk, "cannot be removed")


def _check_names(names: Any, path: Path, walk: Walk, fact: str) -> None:
    for index, name in enumerate(names):
        if is_reserved(name):
            walk.tell((path, index), "wrong-header", f"this header {fact}", _RESERVED_REMEDY)


def _check_addition(option: Any, path: Path, walk: Walk) -> None:
    if is_reserved(option.header.key):
        message = "this header cannot be added or changed here"
        walk.tell(((path, "header"), "key"), "wrong-header", message, _RESERVED_REMEDY)
    if option.append_action and option.HasField("append"):
        message = "append and append_action cannot both be set"
        walk.tell((path, "append"), "wrong-header", message, "keep append_action alone: append is deprecated")


def _check_copies(policy: Any, path: Path, walk: Walk) -> None:
    _check_names(policy.response_headers_to_copy, (path, "response_headers_to_copy"), walk, "cannot be copied")


def _check_request(request: Any, path: Path, walk: Walk) -> None:
    for index, header in enumerate(request.headers_to_add):
        if is_reserved(header.key):
            place = (((path, "headers_to_add"), index), "key")
            walk.tell(place, "wrong-header", "this header cannot be added here", _RESERVED_REMEDY)
