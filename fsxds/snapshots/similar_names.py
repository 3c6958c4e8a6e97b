"""Which name was probably meant, where the one that was written is nobody's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from fsxds.rules.mentions import ANY
from fsxds.snapshots.parsed import Key

# Comparing one name with ten thousand takes some milliseconds; whoever misses more names than this has another problem
# than a typo.
MOST_LOOKED_UP = 20

_LARGEST_DIFFERENCE = 3


def similar_names(missing: AbstractSet[Key], defined: AbstractSet[Key], before: Mapping[Key, str]) -> Mapping[Key, str]:
    """Return a near name for each missing one, empty where none is; for the first few that are new.

    Args:
        missing: types and names that are not defined.
        defined: those that are.
        before: what was found in the tree before; it is kept as long as it is true.
    """
    hints = {key: name for key, name in before.items() if key in missing and (not name or (key[0], name) in defined)}
    new = sorted(key for key in missing if key not in hints and key[1] != ANY)
    for key in new[: max(0, MOST_LOOKED_UP - len(hints))]:
        hints[key] = nearest(key, defined)
    return MappingProxyType(hints)


def nearest(key: Key, defined: AbstractSet[Key]) -> str:
    """Return the defined name of this type that is most like the one in `key`, empty where none is."""
    type_url, name = key
    names = [
        other
        for other_type, other in defined
        if other_type == type_url and abs(len(other) - len(name)) <= _LARGEST_DIFFERENCE and other != ANY
    ]
    return next(iter(difflib.get_close_matches(name, names, 1, cutoff=0.6)), "")
