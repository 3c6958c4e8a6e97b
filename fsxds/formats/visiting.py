"""What a walk through a text tells, whatever the format."""

from __future__ import annotations

from typing import Protocol

from fsxds.values import FieldPath


class Visitor(Protocol):
    """Is shown the places of a text in their order."""

    def meet(self, path: FieldPath, line: int, column: int) -> None:
        """Hear where the key or the list item of a path stands, from 1; the empty path is the top."""

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Return the path to tell of what is inside the container at `path`, None to have it skipped.

        `opener` is `{` or `[`. The path is mostly the same one; a visitor may take an object for a list of one.
        """
