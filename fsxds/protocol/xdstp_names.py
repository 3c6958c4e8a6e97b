"""Names of the form `xdstp://authority/type/path?key=value`, and the collections that they are in.

Source: ENVOY.md C2; xDS Transport Next Steps (xRFC TP1), "Glob collections".
"""

from __future__ import annotations

SCHEME = "xdstp://"
MEMBERS = "/*"


def is_glob(name: str) -> bool:
    """Whether a name stands for all members of a collection."""
    return name.startswith(SCHEME) and name.partition("?")[0].endswith(MEMBERS)


def collection_of(name: str) -> str:
    """Return the collection that a resource of this name is a member of, or that this glob stands for.

    Its members have its directory, and nothing deeper, and its parameters, in any order.
    """
    path, mark, parameters = name.partition("?")
    return f"{path.rpartition('/')[0]}{MEMBERS}{mark}{'&'.join(sorted(parameters.split('&')))}"
