"""What loading asks of whoever judges files, and what it shows them: `lint/linter.py` implements `Check`.

The server does not import the linter: callers pass it in. It decides which files are held back, and what is reported
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hooks
from fsxds.formats import format_of
from fsxds.resources import ParsedFile, Resource
from fsxds.snapshots.proposals import Decision, Proposals, ServedFiles
from fsxds.values import Fault, FieldPath, Problem, SourceTree

Found = TypeVar("Found", Fault, Problem)


Conflicts = Mapping[PurePosixPath, tuple[Problem, ...]]
"""Files with what is wrong with them."""

FileRule = Callable[[Proposals], Conflicts]
"""A rule between files: given proposals, it returns the files to hold back, and why. It costs what the proposals change."""


class FieldLocator:
    """Finds the lines of fields in a tree; each file costs a walk over its text, so larger ones can be left out."""

    def __init__(self, tree: SourceTree, up_to_bytes: int | None) -> None:
        self._tree = tree
        self._up_to_bytes = up_to_bytes

    def locate(self, parsed: ParsedFile, wanted: Collection[tuple[Resource, FieldPath]]) -> list[tuple[int, int]]:
        """Return line and column, from 1, of each field, given by its resource and its path in it; else of the resource."""
        file, file_format = self._tree.file_at(parsed.path), format_of(parsed.path)
        find = None if file_format is None else file_format.locate
        is_small = self._up_to_bytes is None or (file is not None and file.size_bytes <= self._up_to_bytes)
        if file is None or find is None or file.digest != parsed.digest or not is_small:
            return [(resource.origin.line, 1) for resource, _ in wanted]
        paths = [(resource.origin.document, resource.origin.field_path + path) for resource, path in wanted]
        places = find(file.content, set(paths))
        return [places[path] for path in paths]


class TreeCheck(Protocol):
    """Judges the files of one tree beside one another."""

    @property
    def rules(self) -> tuple[FileRule, ...]:
        """What holds files back."""

    @property
    def memory(self) -> object:
        """What the check of the next tree is to be given, so that it looks only at what changed."""

    def report(self, decision: Decision) -> Conflicts:
        """Return what else is wrong with files as they were accepted; it holds none of them back.

        They are all files of the decision, and those others of which something else is wrong now than before.
        """


class Check(Protocol):
    """Judges the content of files. It can be pickled, for processes that parse; two that judge alike are equal."""

    @property
    def identity(self) -> str:
        """A text that is the same, in every process, for checks that find the same in a file by itself."""

    def message_hooks(self, catalogue: Catalogue) -> Hooks:
        """Return what looks at the messages of resources, in the walk over each."""

    def adjusted(self, found: Found) -> Found | None:
        """Return a fault or a problem with the severity that its rule has here; None where the rule is off."""

    def tree_check(self, memory: object, locator: FieldLocator, served: ServedFiles) -> TreeCheck:
        """Return the check of one tree.

        Args:
            memory: that of the tree before; None where it is not known, or is that of another check.
            locator: finds lines and columns.
            served: what is served of the tree before.
        """


@dataclass(frozen=True, slots=True)
class NoCheck:
    """Judges nothing: every file that can be read is right."""

    @property
    def identity(self) -> str:
        """The name of this class, or of one derived from it."""
        return type(self).__qualname__

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Look at no message."""
        return {}

    def adjusted(self, found: Found) -> Found | None:
        """Leave every severity as it is."""
        return found

    def tree_check(self, _: object, __: FieldLocator, ___: ServedFiles) -> TreeCheck:
        """Check no tree."""
        return _NoTreeCheck()


@dataclass(frozen=True, slots=True)
class _NoTreeCheck:
    rules: tuple[FileRule, ...] = ()
    memory: object = None

    def report(self, _: Decision) -> Conflicts:
        return {}
