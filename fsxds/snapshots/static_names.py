"""What a bootstrap defines beside all that is discovered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsxds.values import PlainValue


@dataclass(frozen=True, slots=True)
class StaticNames:
    """Names of a bootstrap's static resources; None where nobody told them."""

    clusters: frozenset[str] | None = None
    secrets: frozenset[str] | None = None


def static_names(bootstrap: PlainValue) -> StaticNames:
    """Return what a bootstrap defines, in either spelling; what has not the form of one defines nothing."""
    static = _field(bootstrap, "static_resources", "staticResources")
    return StaticNames(
        frozenset(_names(_field(static, "clusters"))),
        frozenset(_names(_field(static, "secrets"))),
    )


def _field(value: PlainValue, *spellings: str) -> PlainValue:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in spellings if name in value), None)


def _names(resources: PlainValue) -> Iterator[str]:
    # Envoy's reader takes one object where a list is due.
    for resource in resources if isinstance(resources, list) else [resources]:
        name = _field(resource, "name")
        if isinstance(name, str):
            yield name
