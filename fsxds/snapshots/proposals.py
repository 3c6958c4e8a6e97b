"""Proposals: the served files, the changes under consideration, and the checks that judge them.

The cost depends on the changes. No name is served from two files, so the snapshot finds a name's resource. Callers pass
in the checks, `lint/linter.py`, which the server does not import.

Rules: which undefined names files may use because upstreams have or may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_not
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import camel_case
from fsxds.api.walk import Hooks
from fsxds.formats import format_of, positions
from fsxds.model.resource_names import is_structured
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Origin, ParsedFile, Resource, Rows, Snapshot, key_of
from fsxds.model.values import Fault, FieldPath, Problem, Severity, Tree, TypeUrl, pointer_of
from fsxds.snapshots.references import ANY
from fsxds.snapshots.upstream_content import UpstreamContent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The state of one file.

    Attributes:
        parsed: None if the file could not be read or was removed.
        good: the served content; None if the file was never good.
        suspects: of a removed file that is kept: the files that may be its new name.
    """

    parsed: ParsedFile | None
    good: ParsedFile | None
    problems: tuple[Problem, ...] = ()
    suspects: frozenset[PurePosixPath] = frozenset()

    @property
    def is_held(self) -> bool:
        """Whether other content is served."""
        return self.good is not self.parsed

    @property
    def sound(self) -> tuple[Resource, ...]:
        """The present resources without errors, except redirects."""
        return tuple(resource for resource, errors in self._errors_by_resource() if not errors)

    def doubted(self, rules: Container[str]) -> Iterator[tuple[Resource, tuple[Problem, ...]]]:
        """Yield resources whose errors are all of these rules and about their own content."""
        own = self.parsed.problems if self.parsed else ()
        for resource, errors in self._errors_by_resource():
            if errors and all(one.rule in rules and one in own for one in errors):
                yield resource, errors

    def _errors_by_resource(self) -> Iterator[tuple[Resource, tuple[Problem, ...]]]:
        wrong = [one for one in self.problems if one.severity is Severity.ERROR]
        for resource in self.parsed.resources if self.parsed else ():
            if not resource.redirect:
                path = resource.origin.field_path
                end = next((number for number, step in enumerate(path, 1) if isinstance(step, int)), 0)
                # The pointer of the list item with the resource; empty for a whole document.
                place = pointer_of(path[:end])
                below = f"{place}.", f"{place}["
                found = (one for one in wrong if not place or one.pointer == place or one.pointer.startswith(below))
                yield resource, tuple(found)


Records = Mapping[PurePosixPath, FileRecord]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The content that might be served of one file.

    Attributes:
        is_last_good: `parsed` is served already.
        is_gone: the file was removed; trusted last.
        was: served content of the file, or of vanished files that share names.
        is_on_trial: takes nothing from other files; its last good content may be present too.
    """

    path: PurePosixPath
    parsed: ParsedFile
    is_last_good: bool
    is_gone: bool = False
    was: tuple[ParsedFile, ...] = ()
    is_on_trial: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference between served and proposed content, each or None.

    If `now` has a name twice, it `repeats`: `lost` and `added` are all resources.
    """

    was: ParsedFile | None
    now: ParsedFile | None
    lost: tuple[Resource, ...]
    added: tuple[Resource, ...]
    repeats: bool = False


class ServedFiles:
    """The files served of the previous tree.

    `snapshot` is None before the first tree; `repeating` files define a name twice.
    """

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        records: Records | None = None,
        problems: tuple[Problem, ...] = (),
        repeating: frozenset[PurePosixPath] = frozenset(),
    ) -> None:
        self.snapshot = snapshot
        self.records: Records = {} if records is None else records
        self.problems = problems
        self.repeating = repeating
        # Each rule in each attempt examines the same few changes.
        self._changes: dict[tuple[PurePosixPath, object], FileChange] = {}

    def rows(self, type_url: TypeUrl) -> Rows:
        """Return a type's resources."""
        return Rows(type_url) if self.snapshot is None else self.snapshot.resources(type_url)

    def good(self, path: PurePosixPath) -> ParsedFile | None:
        """Return a file's served content, or None."""
        record = self.records.get(path)
        return None if record is None else record.good

    def change_to(self, path: PurePosixPath, now: ParsedFile | None) -> FileChange:
        """Return the change to `now`, at the cost of the difference."""
        key = path, None if now is None else now.mark
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = self._compare(path, self.good(path), now)
        return change

    def changes_to(self, records: Records, gone: Iterable[PurePosixPath]) -> Mapping[PurePosixPath, FileChange]:
        """Return the changes to `records`; files in `gone` lose all."""
        good = {**dict.fromkeys(gone), **{path: record.good for path, record in records.items()}}
        return {path: self.change_to(path, now) for path, now in good.items()}

    def _compare(self, path: PurePosixPath, was: ParsedFile | None, now: ParsedFile | None) -> FileChange:
        if was is now:
            return FileChange(was, now, (), (), path in self.repeating)
        old, new = was.resources if was else (), now.resources if now else ()
        is_whole = path in self.repeating
        lost, added = (old, new) if is_whole else differing(old, new)
        repeats = self._repeats(path, lost, added)
        if repeats and not is_whole:
            lost, added = old, new
        return FileChange(was, now, lost, added, repeats)

    def _repeats(self, path: PurePosixPath, lost: Collection[Resource], added: Collection[Resource]) -> bool:
        keys = {key_of(resource) for resource in added}
        if len(keys) < len(added):
            return True
        rest = (self.row(key) for key in keys) if self.good(path) is not None else ()
        gone = set(map(id, lost))
        return any(row is not None and row.origin.path == path and id(row) not in gone for row in rest)

    def row(self, key: Key) -> Resource | None:
        """Return a served resource, or None."""
        return None if self.snapshot is None else self.snapshot.resources(key[0]).get(key[1])


def differing(was: tuple[T, ...], now: tuple[T, ...]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the items only in one of both, by identity."""
    shortest = min(len(was), len(now))
    start = next(compress(count(), map(is_not, was, now)), shortest)
    end = next(compress(count(), map(is_not, reversed(was), reversed(now))), shortest)
    end = min(end, shortest - start)
    was, now = was[start : len(was) - end], now[start : len(now) - end]
    kept = set(map(id, was)).intersection(map(id, now))
    return tuple(one for one in was if id(one) not in kept), tuple(one for one in now if id(one) not in kept)


class Proposals:
    """The served files, with proposals for some.

    `changed` begins with the most trusted; unchanged files are trusted more. `files` are changed or removed; `added`
    resources are new or on trial.
    """

    def __init__(self, served: ServedFiles, changed: Iterable[Proposal], gone: Iterable[PurePosixPath] = ()) -> None:
        self.served = served
        self.changed = tuple(sorted(changed, key=_trust))
        counted = {proposal.path: proposal.parsed for proposal in self.changed if not proposal.is_on_trial}
        self.files = frozenset((*counted, *gone))
        self.changes_by_path = {path: served.change_to(path, counted.get(path)) for path in self.files}
        self.changes = tuple(self.changes_by_path.values())
        self.lost = tuple(resource for change in self.changes for resource in change.lost)
        self.added = tuple(resource for change in self.changes for resource in change.added)
        self.on_trial = tuple(proposal for proposal in self.changed if proposal.is_on_trial)
        for proposal in self.on_trial:
            self.added += served.change_to(proposal.path, proposal.parsed).added
        self._lost = set(map(id, self.lost))
        self._added: dict[Key, list[Resource]] = {}
        for resource in self.added:
            self._added.setdefault(key_of(resource), []).append(resource)

    def __iter__(self) -> Iterator[Proposal]:
        return iter(self.changed)

    def defining(self, key: Key) -> tuple[Resource, ...]:
        """Return the resources with a type and name."""
        added, row = self._added.get(key, ()), self.served.row(key)
        return (*added,) if row is None or id(row) in self._lost else (row, *added)

    def is_defined(self, key: Key) -> bool:
        """Whether such a resource exists."""
        if key in self._added:
            return True
        row = self.served.row(key)
        return row is not None and id(row) not in self._lost

    def names_of(self, type_url: TypeUrl) -> Iterator[str]:
        """Yield a type's names; some may occur twice."""
        rows = self.served.rows(type_url)
        yield from (name for name, row in rows.items() if id(row) not in self._lost)
        yield from (name for one, name in self._added if one == type_url)

    def of_files(self, paths: Collection[PurePosixPath]) -> tuple[Proposal, ...]:
        """Return proposals, most trusted first; unchanged files as served."""
        found = [proposal for proposal in self.changed if proposal.path in paths]
        for path in paths:
            good = None if path in self.files else self.served.good(path)
            if good is not None:
                found.append(Proposal(path, good, is_last_good=True, was=(good,)))
        return tuple(sorted(found, key=_trust))

    def all_files(self) -> tuple[Proposal, ...]:
        """Return proposals for all files, at a cost per file."""
        return self.of_files({*self.served.records, *(proposal.path for proposal in self.changed)})


def _trust(proposal: Proposal) -> tuple[bool, bool, bool, tuple[str, ...]]:
    # Same order as the paths themselves, in a tenth of the time.
    return proposal.is_gone, proposal.is_on_trial, not proposal.is_last_good, proposal.path.parts


@dataclass(frozen=True, slots=True)
class Decision:
    """`records` includes vanished files that are kept."""

    records: dict[PurePosixPath, FileRecord]
    proposals: Proposals


Found = TypeVar("Found", Fault, Problem)


Conflicts = Mapping[PurePosixPath, tuple[Problem, ...]]

FileRule = Callable[[Proposals], Conflicts]
"""Returns the files to hold back, and why, at the cost of the proposed changes."""


class Place(NamedTuple):
    """A field's place, from line and column 1.

    `below` is its place in the layers below, if no patch wrote it.
    """

    path: PurePosixPath
    line: int
    column: int
    field_path: FieldPath
    below: Place | None = None


class FieldLocator:
    """Finds lines of fields, in a pass over each text."""

    def __init__(self, tree: Tree, up_to_bytes: int | None) -> None:
        self._tree = tree
        self._up_to_bytes = up_to_bytes

    def places(self, parsed: ParsedFile, wanted: Iterable[tuple[Origin, FieldPath]]) -> list[Place]:
        """Return each field's place, or without the text its resource's."""
        sources = [_source_of(origin, path) for origin, path in wanted]
        found = self._find(parsed.path, {(row.origin.document, row.field_path) for row in sources}, parsed.digest)
        at = ((row.origin.line, 1) if found is None else found[row.origin.document, row.field_path] for row in sources)
        rows = zip(sources, at, strict=True)
        return [Place(parsed.path, *place, row.field_path, self._below(row)) for row, place in rows]

    def _find(self, path: PurePosixPath, wanted: positions.Wanted, digest: str | None = None) -> positions.Found | None:
        """Return None without a text, or of another digest; an empty one matches no text."""
        file, file_format = self._tree.file_at(path), format_of(path)
        if file is None or file_format is None or file_format.locate is None or digest not in (None, file.digest):
            return None
        if not file.size_bytes or (self._up_to_bytes is not None and file.size_bytes > self._up_to_bytes):
            return None
        return file_format.locate(file.content, wanted)

    def _below(self, source: _Source) -> Place | None:
        if source.below is None:
            return None
        below = _source_of(*source.below)
        while below.below is not None:
            below = _source_of(*below.below)
        origin = below.origin
        # Fields below are known by the API's names only. A field is written after the fields that contain it.
        spelled = (
            *origin.field_path,
            *(camel_case(step) if isinstance(step, str) else step for step in source.below[1]),
        )
        found = self._find(origin.path, {(origin.document, below.field_path), (origin.document, spelled)})
        return Place(origin.path, *((origin.line, 1) if found is None else max(found.values())), below.field_path)


class _Source(NamedTuple):
    """`below` is the place below, if the patch did not write the field."""

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


@dataclass(frozen=True, slots=True)
class UpstreamScope:
    """Further names that an upstream may have.

    Attributes:
        covers: whether it is asked for a name.
        complete: the types with completely known plain names.
    """

    covers: Callable[[str], bool]
    complete: frozenset[TypeUrl] = frozenset()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Resources beside the tree.

    Attributes:
        contents: in order of precedence.
        scopes: further names that an upstream may have.
        denied: names that no upstream has, as they reported.
        is_unknown: upstreams are not queried, as by commands: they may have any name.
    """

    contents: tuple[UpstreamContent, ...] = ()
    scopes: tuple[UpstreamScope, ...] = field(default=(), compare=False, repr=False)
    denied: frozenset[Key] = frozenset()
    is_unknown: bool = False

    def __bool__(self) -> bool:
        return bool(self.contents) or self.is_unknown

    def may_have(self, key: Key) -> bool:
        """Whether a resource may exist; any of the type for `ANY`."""
        type_url, name = key
        if type_url not in BY_TYPE_URL:
            return False
        if self.is_unknown:
            return True
        rows = [content.rows[type_url] for content in self.contents if type_url in content.rows]
        if any(name in each or name == ANY for each in rows):
            return True
        if key in self.denied:
            return False
        may_be_new = is_structured(name)
        return any((may_be_new or type_url not in scope.complete) and scope.covers(name) for scope in self.scopes)


NOWHERE = Elsewhere()


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
        """Undefined names, known after `report`; empty if names cannot be elsewhere."""

    def report(self, decision: Decision) -> Conflicts:
        """Return problems that hold no file back: of the decision's files, and changed ones of others."""


class Check(Protocol):
    """Judges the content of files. Pickled for parsing processes; equal if results are."""

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

        `memory` is from the previous tree, or None; undefined names may be `elsewhere`.
        """


@dataclass(frozen=True, slots=True)
class NoCheck:
    """Accepts every readable file."""

    @property
    def identity(self) -> str:
        """The name of the class."""
        return type(self).__qualname__

    def is_static(self, _: Key) -> bool:
        """Return False: unknown."""
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
