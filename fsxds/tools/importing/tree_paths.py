"""Names of files for resources: readable, safe everywhere, different from one another, and of the right type to fsxds (pure)."""

from __future__ import annotations

import re
from itertools import count
from pathlib import PurePosixPath

from fsxds.resource_types import ResourceType, exact_type_from_path
from fsxds.settings.options import EXCLUDED
from fsxds.source.listing import Exclusion

# Beyond it, a name of 255 bytes leaves no room for what editors and copies add.
LONGEST_NAME = 120

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class TreePaths:
    """Gives each resource a file of its own: `clusters/backend.yaml`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # {path in lower case: the number to try next}
        self._exclusion = Exclusion(EXCLUDED)

    def path_of(self, row: ResourceType, name: str) -> PurePosixPath:
        """Return the path of a resource's file, without suffix.

        What is not a letter, a digit, `_`, `-` or a dot becomes `_`. Names that would be equal, also where a file system
        does not tell upper from lower case, get a number.
        """
        stem = _UNSAFE.sub("_", name)[:LONGEST_NAME].strip("-.") or "unnamed"
        if not self._is_ours(PurePosixPath(row.noun, f"{stem}.yaml"), row):
            stem = f"{row.noun.removesuffix('s')}-{stem}"
        plain = PurePosixPath(row.noun, stem)
        first = self._numbers.get(str(plain).lower(), 1)
        paths = ((number, plain.with_name(f"{stem}-{number}") if number > 1 else plain) for number in count(first))
        number, path = next((number, path) for number, path in paths if str(path).lower() not in self._taken)
        self._numbers[str(plain).lower()] = number + 1
        self._taken.add(str(path).lower())
        return path

    def _is_ours(self, file: PurePosixPath, row: ResourceType) -> bool:
        """Whether a file of this name is read, and its folder says its type: a part that is the word of a type goes first."""
        return exact_type_from_path(file) is row and not self._exclusion.covers(str(file))
