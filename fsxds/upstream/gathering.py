"""When the first answers on a connection are published: together, as one change. Pure.

Another server, or one that restarted, may have another tree. Types are answered one by one: published so, a cluster would be
gone before the route to it has moved. The rollout of one change adds clusters, moves routes, then removes clusters.

| rule | why |
| --- | --- |
| Each type is awaited of which resources are published; nothing, where none are. | |
| So is each type of a name that a resource refers to and that has no answer. | A listener came, its routes did not yet. |
| `QUIET_S` after the last answer of a type that was awaited, no other type is awaited. | Delta is silent about what did not change, SotW about names that do not exist. |
| `LONGEST_S` after the connection, no type is awaited. | A server may send new references without end. |
| When the connection is lost before that, what is published stays until the next one. | Half of a tree is no state that its server ever had. |
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from fsxds.values import TypeUrl

QUIET_S = 2.0
LONGEST_S = 15.0


class Gathering:
    """The types that are awaited on one connection.

    Attributes:
        until_s: when none is awaited any longer, in seconds since 1970; None without a connection.
    """

    def __init__(self, types: Iterable[TypeUrl], now_s: float) -> None:
        """Await an answer of each type."""
        self.until_s: float | None = now_s + QUIET_S
        self._awaited = set(types)
        self._longest_s = now_s + LONGEST_S

    def answer(self, type_url: TypeUrl, referred: AbstractSet[TypeUrl], now_s: float) -> None:
        """Note an answer.

        Args:
            type_url: the type that it is about.
            referred: the types of names that resources referred to before it, and that had no answer.
            now_s: in seconds since 1970.
        """
        if type_url in self._awaited or type_url in referred:
            self._awaited.discard(type_url)
            self.until_s = min(now_s + QUIET_S, self._longest_s)

    def unanswered(self, referred: AbstractSet[TypeUrl]) -> frozenset[TypeUrl]:
        """Return the types that are awaited."""
        return frozenset(referred | self._awaited)

    def is_over(self, referred: AbstractSet[TypeUrl], now_s: float) -> bool:
        """Whether what came is to be published; `referred` are the types of names that resources refer to, without an answer."""
        return self.until_s is not None and (now_s >= self.until_s or not self.unanswered(referred))
