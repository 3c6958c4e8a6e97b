"""What the names of a subscription stand for where they replace each other: on state-of-the-world streams and in polls.

| rule | source |
| --- | --- |
| A name stands for the resource of this name, a glob `xdstp://authority/type/path/*` for all members of its directory. | xRFC TP1, "Glob" |
| The members of a glob have its authority, type, directory and parameters. | xRFC TP1, "Resource locators" |

It costs nothing where no resource of the type has a structured name. Names that stand for others on Delta streams are found
by `lookup.py`, which follows changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsxds.memo import Lru
from fsxds.name_table import NameTable
from fsxds.resource_names import GLOB, SCHEME, glob_of
from fsxds.resources import Resource, Rows

# So many sets of names are kept for the rows of a type, and so many names in all of them.
MOST_KEPT, MOST_KEPT_NAMES = 1024, 1_000_000


def expanded(rows: Rows, names: frozenset[str], globs: frozenset[str]) -> frozenset[str]:
    """Return names, and those of the members of the globs among them."""
    return rows.derive(_GlobMembers, lambda: _GlobMembers(rows.by_name)).expanded(names, globs)


def has_structured_names(rows: NameTable[Resource]) -> bool:
    """Whether any resource has a structured name."""
    return next(rows.starting_with(SCHEME), None) is not None


def members_of(rows: NameTable[Resource], glob: str) -> Iterator[str]:
    """Yield the names of the members of a canonical glob; its cost is that of its directory."""
    directory = glob.partition("?")[0].removesuffix(GLOB[1:])
    return (name for name, _ in rows.starting_with(directory) if glob_of(name) == glob)


def is_empty(rows: NameTable[Resource], glob: str) -> bool:
    """Whether a glob has no members."""
    return next(members_of(rows, glob), None) is None


class _GlobMembers:
    """Works out once what globs stand for among rows, for all clients."""

    def __init__(self, rows: NameTable[Resource]) -> None:
        self._rows = rows
        self._members: Lru[str, frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)
        self._expanded: Lru[frozenset[str], frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)

    def expanded(self, names: frozenset[str], globs: Iterable[str]) -> frozenset[str]:
        return self._expanded.find(names, lambda: names.union(*map(self._members_of, globs)))

    def _members_of(self, glob: str) -> frozenset[str]:
        return self._members.find(glob, lambda: frozenset(members_of(self._rows, glob)))
