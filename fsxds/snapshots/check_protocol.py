"""What loading asks of whoever judges files, and what it shows them: `lint/linter.py` implements `Check`.

The server does not import the linter: callers pass it in. It decides which files are held back, and what is reported
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import camel_case
from fsxds.api.walk import Hooks
from fsxds.formats import format_of
from fsxds.model.resources import Key, Origin, ParsedFile
from fsxds.model.values import Fault, FieldPath, Problem, SourceFile, Tree, pointer_of
from fsxds.snapshots.proposals import Decision, Proposals, ServedFiles
from fsxds.snapshots.upstream_content import NOWHERE, Elsewhere

Found = TypeVar("Found", Fault, Problem)


Conflicts = Mapping[PurePosixPath, tuple[Problem, ...]]
"""Files with what is wrong with them."""

FileRule = Callable[[Proposals], Conflicts]
"""A rule between files: given proposals, it returns the files to hold back, and why. It costs what the proposals change."""


class Place(NamedTuple):
    """Where a field is written.

    Attributes:
        path: the file.
        line: counts from 1.
        column: counts from 1.
        field_path: leads to the field from the top of its document.
        below: where the layers below wrote it, if it is a field of a patched resource that the patch did not write.
    """

    path: PurePosixPath
    line: int
    column: int
    field_path: FieldPath
    below: Place | None = None


class FieldLocator:
    """Finds the lines of fields in a tree; each file costs a walk over its text, so larger ones can be left out."""

    def __init__(self, tree: Tree, up_to_bytes: int | None) -> None:
        self._tree = tree
        self._up_to_bytes = up_to_bytes

    def places(self, parsed: ParsedFile, wanted: Iterable[tuple[Origin, FieldPath]]) -> list[Place]:
        """Return the place of each field, given by the origin of its resource and its path in it.

        Where the text is not at hand, it is that of the resource.
        """
        sources = [_source_of(origin, path) for origin, path in wanted]
        file, file_format = self._tree.file_at(parsed.path), format_of(parsed.path)
        find = None if file_format is None or file is None or file.digest != parsed.digest else file_format.locate
        if file is None or find is None or not self._is_small(file):
            return [
                Place(parsed.path, source.origin.line, 1, source.field_path, self._below(source)) for source in sources
            ]
        found = find(file.content, {(source.origin.document, source.field_path) for source in sources})
        return [
            Place(parsed.path, *found[row.origin.document, row.field_path], row.field_path, self._below(row))
            for row in sources
        ]

    def _is_small(self, file: SourceFile) -> bool:
        return self._up_to_bytes is None or file.size_bytes <= self._up_to_bytes

    def _below(self, source: _Source) -> Place | None:
        """Return the place of a field that no patch wrote which is further up."""
        if source.below is None:
            return None
        below = _source_of(*source.below)
        while below.below is not None:
            below = _source_of(*below.below)
        origin, file, file_format = below.origin, self._tree.file_at(below.origin.path), format_of(below.origin.path)
        find = file_format.locate if file_format else None
        if file is None or find is None or not file.size_bytes or not self._is_small(file):
            return Place(origin.path, origin.line, 1, below.field_path)
        # What is below is known by the API's names alone. A field is written behind all that it is in.
        spelled = (
            *origin.field_path,
            *(camel_case(step) if isinstance(step, str) else step for step in source.below[1]),
        )
        places = find(file.content, {(origin.document, below.field_path), (origin.document, spelled)})
        return Place(origin.path, *max(places.values()), below.field_path)


class _Source(NamedTuple):
    """Where a field comes from: a path in the document of an origin; and another origin with a path, where that has it."""

    origin: Origin
    field_path: FieldPath
    below: tuple[Origin, FieldPath] | None = None


def _source_of(origin: Origin, path: FieldPath) -> _Source:
    if origin.patched is None:
        return _Source(origin, origin.field_path + path)
    is_written, source = False, path
    for length in range(len(path), -1, -1):
        if path[:length] in origin.patched.sources:
            is_written, start = origin.patched.sources[path[:length]]
            source = start + path[length:]
            break
    if is_written:
        return _Source(origin, origin.field_path + source)
    return _Source(origin, origin.field_path, (origin.patched.base, source))


def problem_at(place: Place, fault: Fault, pointer: Callable[[FieldPath], str] = pointer_of) -> Problem:
    """Return a fault as the problem of a place."""
    below = None if place.below is None else problem_at(place.below, fault, pointer)
    text = pointer(place.field_path)
    return Problem(
        place.path, place.line, place.column, text, fault.rule, fault.message, fault.remedy, fault.severity, below
    )


class TreeCheck(Protocol):
    """Judges the files of one tree beside one another."""

    @property
    def rules(self) -> tuple[FileRule, ...]:
        """What holds files back."""

    @property
    def memory(self) -> object:
        """What the check of the next tree is to be given, so that it looks only at what changed."""

    @property
    def wanted(self) -> frozenset[Key]:
        """What files need, served or not, and none of them defines; known after `report`, where something is elsewhere."""

    def report(self, decision: Decision) -> Conflicts:
        """Return what else is wrong with files as they were accepted; it holds none of them back.

        They are all files of the decision, and those others of which something else is wrong now than before.
        """


class Check(Protocol):
    """Judges the content of files. It can be pickled, for processes that parse; two that judge alike are equal."""

    @property
    def identity(self) -> str:
        """A text that is the same, in every process, for checks that find the same in a file by itself."""

    def is_static(self, key: Key) -> bool:
        """Whether a reference to something that is not in the tree leads to a resource of the bootstrap, as far as it is known."""

    def message_hooks(self, catalogue: Catalogue) -> Hooks:
        """Return what looks at the messages of resources, in the walk over each."""

    def adjusted(self, found: Found) -> Found | None:
        """Return a fault or a problem with the severity that its rule has here; None where the rule is off."""

    def tree_check(
        self, memory: object, locator: FieldLocator, served: ServedFiles, elsewhere: Elsewhere = NOWHERE
    ) -> TreeCheck:
        """Return the check of one tree.

        Args:
            memory: that of the tree before; None where it is not known, or is that of another check.
            locator: finds lines and columns.
            served: what is served of the tree before.
            elsewhere: what names may stand for that no file defines.
        """


@dataclass(frozen=True, slots=True)
class NoCheck:
    """Judges nothing: every file that can be read is right."""

    @property
    def identity(self) -> str:
        """The name of this class, or of one derived from it."""
        return type(self).__qualname__

    def is_static(self, _: Key) -> bool:
        """Know nothing of the bootstrap."""
        return False

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Look at no message."""
        return {}

    def adjusted(self, found: Found) -> Found | None:
        """Leave every severity as it is."""
        return found

    def tree_check(self, _: object, __: FieldLocator, ___: ServedFiles, ____: Elsewhere = NOWHERE) -> TreeCheck:
        """Check no tree."""
        return _NoTreeCheck()


@dataclass(frozen=True, slots=True)
class _NoTreeCheck:
    rules: tuple[FileRule, ...] = ()
    memory: object = None
    wanted: frozenset[Key] = frozenset()

    def report(self, _: Decision) -> Conflicts:
        return {}
