"""What judges the content of files, as loading needs it: `lint/linter.py` implements it, and callers pass it in.

The server does not import the linter. What `Check` says decides which files are held back, and what is reported of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hooks
from fsxds.snapshots.accept import Conflicts, Places, Records, Rule
from fsxds.values import Fault, Problem

Found = TypeVar("Found", Fault, Problem)


class TreeCheck(Protocol):
    """Judges the files of one tree beside one another."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What holds files back."""

    @property
    def memory(self) -> object:
        """What the check of the next tree is to be given, so that it looks only at what changed."""

    def report(self, records: Records) -> Conflicts:
        """Return what is wrong with files as they were accepted; it holds none of them back."""


class Check(Protocol):
    """Judges what files say. It can be pickled, for processes that parse; two that judge alike are equal."""

    def message_hooks(self, catalogue: Catalogue) -> Hooks:
        """Return what looks at the messages of resources, in the walk over each."""

    def adjusted(self, found: Found) -> Found | None:
        """Return a fault or a problem with the severity that its rule has here; None where the rule is off."""

    def tree_check(self, memory: object, places: Places) -> TreeCheck:
        """Return the check of one tree.

        Args:
            memory: that of the tree before, None for the first.
            places: finds lines and columns.
        """


@dataclass(frozen=True, slots=True)
class NoCheck:
    """Judges nothing: every file that can be read is right."""

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Look at no message."""
        return {}

    def adjusted(self, found: Found) -> Found | None:
        """Leave every severity as it is."""
        return found

    def tree_check(self, _: object, __: Places) -> TreeCheck:
        """Check no tree."""
        return _NoTreeCheck()


@dataclass(frozen=True, slots=True)
class _NoTreeCheck:
    rules: tuple[Rule, ...] = ()
    memory: object = None

    def report(self, _: Records) -> Conflicts:
        return {}
