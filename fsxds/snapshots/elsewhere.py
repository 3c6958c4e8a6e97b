"""What names may stand for that no file of the tree defines: the resources of upstreams. Immutable, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fsxds.resource_names import is_structured
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Key
from fsxds.snapshots.references import ANY
from fsxds.snapshots.upstream_content import UpstreamContent
from fsxds.values import TypeUrl


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
