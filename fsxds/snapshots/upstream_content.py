"""What another xDS server holds, as it is merged into what is served. Immutable, no I/O."""

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


@dataclass(frozen=True, slots=True)
class UpstreamScope:
    """Which names an upstream may have that it is not known to have.

    Attributes:
        covers: whether a name is one that it is asked for.
        complete: the types of which it said all plain names that it has.
    """

    covers: Callable[[str], bool]
    complete: frozenset[TypeUrl] = frozenset()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What there is beside the tree.

    Attributes:
        contents: what each upstream holds, in the order of their precedence.
        scopes: what each of them may have beside that.
        denied: what files need, and of which every upstream said that it has none.
        is_unknown: there are upstreams, and none is asked, as by commands: they may have anything.
    """

    contents: tuple[UpstreamContent, ...] = ()
    scopes: tuple[UpstreamScope, ...] = field(default=(), compare=False, repr=False)
    denied: frozenset[Key] = frozenset()
    is_unknown: bool = False

    def __bool__(self) -> bool:
        """Whether there is any upstream."""
        return bool(self.contents) or self.is_unknown

    def may_have(self, key: Key) -> bool:
        """Whether there is a resource of this type and name, or may be one, as far as is known; or any, where it is `ANY`."""
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
