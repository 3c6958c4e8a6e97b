"""Scoped routes of one key, which Envoy refuses of a server only, and so does not when it validates (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from fsxds.local_envoy.bisection import Culprits
from fsxds.local_envoy.prepared import SRDS, Prepared


def repeated_scopes(prepared: Sequence[Prepared]) -> tuple[Culprits, ...]:
    """Return each scoped route whose key an earlier one has."""
    found: list[Culprits] = []
    first: dict[bytes, int] = {}
    for member, one in enumerate(prepared):
        if one.resource.type_url == SRDS:
            other = first.setdefault(one.scope_key, member)
            if other != member:
                names = prepared[other].resource.name, one.resource.name
                reason = "scope key conflict found, first scope is '{}', second scope is '{}'".format(*names)
                found.append(Culprits((other, member), reason))
    return tuple(found)
