"""The protocols of checks during loading.

Callers pass in the implementation, `lint/linter.py`, which the server does not import.
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

FileRule = Callable[[Proposals], Conflicts]
"""Returns the files to hold back, and why, at the cost of the proposed changes."""


class Place(NamedTuple):
    """The place of a field, from line and column 1.

    `below` is its place in the layers below, if a patch of the resource did not write it.
    """

    path: PurePosixPath
    line: int
    column: int
    field_path: FieldPath
    below: Place | None = None


class FieldLocator:
    """Finds lines of fields, at the cost of a pass over each file's text."""

    def __init__(self, tree: Tree, up_to_bytes: int | None) -> None:
        self._tree = tree
        self._up_to_bytes = up_to_bytes

    def places(self, parsed: ParsedFile, wanted: Iterable[tuple[Origin, FieldPath]]) -> list[Place]:
        """Return the place of each field.

        Without the text, it is that of the resource.
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
        if source.below is None:
            return None
        below = _source_of(*source.below)
        while below.below is not None:
            below = _source_of(*below.below)
        origin, file, file_format = below.origin, self._tree.file_at(below.origin.path), format_of(below.origin.path)
        find = file_format.locate if file_format else None
        if file is None or find is None or not file.size_bytes or not self._is_small(file):
            return Place(origin.path, origin.line, 1, below.field_path)
        # Fields below are known by the API's names only. A field is written after the fields that contain it.
        spelled = (
            *origin.field_path,
            *(camel_case(step) if isinstance(step, str) else step for step in source.below[1]),
        )
        places = find(file.content, {(origin.document, below.field_path), (origin.document, spelled)})
        return Place(origin.path, *max(places.values()), below.field_path)


class _Source(NamedTuple):
    """The origin and path of a field, and those below if the patch did not write it."""

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
    """Place a fault."""
    below = None if place.below is None else problem_at(place.below, fault, pointer)
    text = pointer(place.field_path)
    return Problem(
        place.path, place.line, place.column, text, fault.rule, fault.message, fault.remedy, fault.severity, below
    )


class TreeCheck(Protocol):
    """Judges the files of a tree together."""

    @property
    def rules(self) -> tuple[FileRule, ...]:
        """The rules that hold files back."""

    @property
    def memory(self) -> object:
        """The memory for the next tree's check."""

    @property
    def wanted(self) -> frozenset[Key]:
        """Undefined names in references, known after `report`; empty if names cannot be elsewhere."""

    def report(self, decision: Decision) -> Conflicts:
        """Return problems that hold no file back: of the decision's files, and changed ones of others."""


class Check(Protocol):
    """Judges the content of files. Can be pickled for parsing processes; equal if results are equal."""

    @property
    def identity(self) -> str:
        """Equal, in every process, for checks that find the same problems in a file."""

    def is_static(self, key: Key) -> bool:
        """Whether the bootstrap has the target of an undefined reference."""

    def message_hooks(self, catalogue: Catalogue) -> Hooks:
        """Return hooks for the walk over resources."""

    def adjusted(self, found: Found) -> Found | None:
        """Set the severity of a finding's rule; None if the rule is off."""

    def tree_check(
        self, memory: object, locator: FieldLocator, served: ServedFiles, elsewhere: Elsewhere = NOWHERE
    ) -> TreeCheck:
        """Return the check of one tree.

        `memory` is from the previous tree's check, or None; undefined names may be `elsewhere`.
        """


@dataclass(frozen=True, slots=True)
class NoCheck:
    """Accepts every readable file."""

    @property
    def identity(self) -> str:
        """The name of the class."""
        return type(self).__qualname__

    def is_static(self, _: Key) -> bool:
        """Return False: the bootstrap is not known."""
        return False

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Return no hooks."""
        return {}

    def adjusted(self, found: Found) -> Found | None:
        """Return the finding unchanged."""
        return found

    def tree_check(self, _: object, __: FieldLocator, ___: ServedFiles, ____: Elsewhere = NOWHERE) -> TreeCheck:
        """Return a check without rules."""
        return _NoTreeCheck()


@dataclass(frozen=True, slots=True)
class _NoTreeCheck:
    rules: tuple[FileRule, ...] = ()
    memory: object = None
    wanted: frozenset[Key] = frozenset()

    def report(self, _: Decision) -> Conflicts:
        return {}
