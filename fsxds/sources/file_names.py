"""Which names are never read: hidden files, what editors leave beside the file they save, and what the user excludes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

# vim writes `4913` to learn whether it may create files in a directory, and removes it at once.
_VIM_PROBE = "4913"
_SUFFIXES_OF_LEFTOVERS = ("~", ".swp", ".tmp")


def is_passed_over(name: str) -> bool:
    """Tell whether a file or directory of this name is neither read, walked nor worth a word.

    A leading dot covers hidden files, emacs' lock `.#cds.yaml`, and the `..data` and `..2026_01_31` of a Kubernetes
    volume, whose files are reached by links with ordinary names. `#cds.yaml#` is what emacs saves by itself.
    """
    return name.startswith((".", "#")) or name.endswith(_SUFFIXES_OF_LEFTOVERS) or name == _VIM_PROBE


class Exclusion:
    """The names and paths that the user wants to be left out.

    A pattern without a slash is one of names, of files and directories at any depth. One with a slash is one of paths
    from the top of the tree; `**` stands for any directories. What is below an excluded directory is excluded with it.

    >>> exclusion = Exclusion(["README*", "charts/**/values.yaml"])
    >>> [exclusion.covers(path) for path in ("edge/README.yaml", "charts/a/b/values.yaml", "edge/values.yaml")]
    [True, True, False]
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        texts = [pattern.removeprefix("./").rstrip("/") for pattern in patterns]
        names = [fnmatch.translate(text) for text in texts if "/" not in text]
        self._name = re.compile("|".join(names)) if names else None
        self._paths = [text.removeprefix("/").split("/") for text in texts if "/" in text]

    def matches(self, relative: str) -> bool:
        """Tell whether a path of the tree is excluded itself, and not by a directory above it."""
        if self._name is not None and self._name.match(relative, relative.rfind("/") + 1):
            return True
        return any(_is_match(relative.split("/"), pattern) for pattern in self._paths)

    def covers(self, relative: str) -> bool:
        """Tell whether a path of the tree is excluded, by itself or by a directory above it."""
        ends = [match.start() for match in re.finditer("/", relative)]
        return any(self.matches(relative[:end]) for end in [*ends, len(relative)])


def _is_match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_is_match(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _is_match(parts[1:], pattern[1:])


def is_text(name: str) -> bool:
    """Tell whether a name that the operating system gave is valid UTF-8."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    """Write a name or path of any bytes as printable text."""
    return name if is_text(name) else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
