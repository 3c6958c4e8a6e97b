"""Everything that a value keeps alive, as Python's collector sees it, and what maps of rpds hold, which it does not see."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import FunctionType, ModuleType

from rpds import HashTrieMap

# What leads to all of the program.
_SHARED = (type, ModuleType, FunctionType)


def reachable(value: object) -> Iterator[object]:
    """Yield a value and all that it refers to, directly or not, each object once."""
    seen: dict[int, object] = {}
    pending = [value]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        # Kept, so that no other object gets its id.
        seen[id(one)] = one
        yield one
        pending += one.items() if isinstance(one, HashTrieMap) else gc.get_referents(one)
