"""What another xDS server holds, as it is merged into what is served. Immutable, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

from rpds import HashTrieSet

from fsxds.name_table import NameTable
from fsxds.resources import Origin, Resource, Rows
from fsxds.values import TypeUrl

LetGo: TypeAlias = "Mapping[TypeUrl, HashTrieSet[str]]"


@dataclass(frozen=True, slots=True, eq=False)
class UpstreamContent:
    """What is held of one upstream; equal to itself alone, for it is replaced only where something in it changed.

    Attributes:
        name: what the upstream is called.
        rows: the resources, by type; only types that have some. A type of which nothing changed has the same object.
        pending: the types of which an answer is awaited, so that what is missing from them may exist.
        answered: the types about which the upstream said anything, or that were kept from an earlier process.
        let_go: by type, names that are not held any more because nobody asks for them, or because their time to live is over:
            the upstream did not remove them.
        sequence: counts the responses that were taken in; what was published of a snapshot that has this holds them all.
    """

    name: str
    rows: Mapping[TypeUrl, Rows] = field(default_factory=lambda: MappingProxyType({}))
    pending: frozenset[TypeUrl] = frozenset()
    answered: frozenset[TypeUrl] = frozenset()
    sequence: int = 0
    let_go: LetGo = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class HeldResource:
    """A resource that is held of an upstream, and what the upstream said with it.

    Attributes:
        resource: what is served; its version is the digest of its body.
        version: the one that the server gave it, which may be any text.
        server: the address of that server, as in the rule.
        received_s: when this content came first, in seconds since 1970.
        expires_s: when its time to live is over, in seconds since 1970; None for never.
    """

    resource: Resource
    version: str
    server: str
    received_s: float
    expires_s: float | None = None


Held: TypeAlias = Mapping[TypeUrl, NameTable[HeldResource]]
"""All that is held of an upstream, by type and name; never changed. A type of which nothing changed has the same table."""


def origin_of(upstream: str) -> Origin:
    """Return where the resources of an upstream are from, as users read it.

    >>> str(origin_of("10.0.0.1:18000").path)
    'upstream 10.0.0.1:18000'
    """
    return Origin(PurePosixPath(f"upstream {upstream.replace('://', ':').replace('/', '_')}"), 0)
