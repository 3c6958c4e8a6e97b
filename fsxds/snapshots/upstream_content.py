"""The content of another xDS server, as merged into snapshots. Immutable, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

from rpds import HashTrieSet

from fsxds.model.name_table import NameTable
from fsxds.model.resources import Origin, Resource, Rows
from fsxds.model.values import TypeUrl

ReleasedNames: TypeAlias = "Mapping[TypeUrl, HashTrieSet[str]]"


@dataclass(frozen=True, slots=True, eq=False)
class UpstreamContent:
    """One upstream's content. Equals only itself: it is replaced only if changed.

    Attributes:
        rows: without empty types. An unchanged type keeps its object.
        pending: types with an awaited response: missing names may exist.
        answered: the types in responses, or kept from an earlier process.
        released: names dropped not by the upstream, but as unneeded or at the end of their TTL.
        sequence: the number of responses taken in: a snapshot with it includes them all.
    """

    name: str
    rows: Mapping[TypeUrl, Rows] = field(default_factory=lambda: MappingProxyType({}))
    pending: frozenset[TypeUrl] = frozenset()
    answered: frozenset[TypeUrl] = frozenset()
    sequence: int = 0
    released: ReleasedNames = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class HeldResource:
    """An upstream's resource.

    Attributes:
        resource: its version is its body's digest.
        version: the server's, any text.
        server: the address, as in the rule.
        received_s: when this content first came, since 1970.
        expires_s: the end of its TTL, since 1970; None for never.
    """

    resource: Resource
    version: str
    server: str
    received_s: float
    expires_s: float | None = None


Held: TypeAlias = Mapping[TypeUrl, NameTable[HeldResource]]
"""All resources of an upstream; immutable. An unchanged type keeps its table."""


def origin_of(upstream: str) -> Origin:
    """Return the origin of an upstream's resources.

    >>> str(origin_of("10.0.0.1:18000").path)
    'upstream 10.0.0.1:18000'
    """
    return Origin(PurePosixPath(f"upstream {upstream.replace('://', ':').replace('/', '_')}"), 0)
