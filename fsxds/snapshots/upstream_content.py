"""The content of another xDS server, as merged into snapshots. Immutable, no I/O.

Rules: which undefined names files may use because upstreams have or may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

from rpds import HashTrieSet

from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import is_structured
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Origin, Resource, Rows
from fsxds.model.values import TypeUrl
from fsxds.snapshots.references import ANY

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


@dataclass(frozen=True, slots=True)
class UpstreamScope:
    """Further names that an upstream may have.

    Attributes:
        covers: whether it is asked for a name.
        complete: the types with completely known plain names.
    """

    covers: Callable[[str], bool]
    complete: frozenset[TypeUrl] = frozenset()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Resources beside the tree.

    Attributes:
        contents: in order of precedence.
        scopes: further names that an upstream may have.
        denied: names that no upstream has, as they reported.
        is_unknown: upstreams are not queried, as by commands: they may have any name.
    """

    contents: tuple[UpstreamContent, ...] = ()
    scopes: tuple[UpstreamScope, ...] = field(default=(), compare=False, repr=False)
    denied: frozenset[Key] = frozenset()
    is_unknown: bool = False

    def __bool__(self) -> bool:
        return bool(self.contents) or self.is_unknown

    def may_have(self, key: Key) -> bool:
        """Whether a resource may exist; any of the type for `ANY`."""
        type_url, name = key
        if type_url not in BY_TYPE_URL:
            return False
        if self.is_unknown:
            return True
        rows = [content.rows[type_url] for content in self.contents if type_url in content.rows]
        if any(name in each or name == ANY for each in rows):
            return True
        if key in self.denied:
            return False
        may_be_new = is_structured(name)
        return any((may_be_new or type_url not in scope.complete) and scope.covers(name) for scope in self.scopes)


NOWHERE = Elsewhere()
