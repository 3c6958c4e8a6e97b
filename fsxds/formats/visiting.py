"""What a walk through a text tells, whatever the format."""

from __future__ import annotations

from typing import Protocol

from fsxds.values import FieldPath


class EnoughError(Exception):
    """A visitor has seen what it came for: the rest of the text need not be walked."""


class Visitor(Protocol):
    """Is shown the places of a text in their order."""

    def meet(self, path: FieldPath, line: int, column: int) -> None:
        """Hear where the key or the list item of a path stands, from 1; the empty path is the top.

        Raises:
            EnoughError: to end the walk; who began it has to catch it.
        """

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Return the path to tell of what is inside the container at `path`, None to have it skipped.

        `opener` is `{` or `[`. The path is mostly the same one; a visitor may take an object for a list of one.
        """
