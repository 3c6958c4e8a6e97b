"""What is known of a file that a config source names, on the machine where the question is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What stands at a path.

    Attributes:
        exists: there is a file or a directory.
        swapped_in: the directory whose link is replaced when the content changes, None where no such link is on the way.
        is_config_map: that link is the `..data` of a Kubernetes volume.
        head: the first bytes of a file, as many as tell formats apart; empty for anything else.
    """

    exists: bool
    swapped_in: str | None = None
    is_config_map: bool = False
    head: bytes = b""


LookAt = Callable[[str], FileFacts]
"""Looks at a path, which may be relative to the current directory. Never raises."""
