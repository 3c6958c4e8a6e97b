"""Projects the files below a layer: the same files without the resources that the layer replaces.

A file counts with its present content if that is good by itself, else with its last good content.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from fsxds.model.resources import Key, ParsedFile, Resource, key_of
from fsxds.model.values import HeldFile, Problem, ProjectedFile, SourceFile, TypeUrl
from fsxds.snapshots.load import Loaded, may_define
from fsxds.snapshots.proposals import FileRecord


@dataclass(frozen=True, slots=True)
class Carried:
    """Problems of a projected file, which no load finds again."""

    held: HeldFile | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """The files below that differ in the layer above.

    `carried` ones are held back, so their served content was projected.
    """

    files: Mapping[PurePosixPath, SourceFile] = field(default_factory=dict)
    parsed: Mapping[PurePosixPath, ParsedFile] = field(default_factory=dict)
    carried: Mapping[PurePosixPath, Carried] = field(default_factory=dict)


def keys_of(parsed: ParsedFile) -> frozenset[Key]:
    """Return the resources that a file replaces, deletes or patches."""
    return frozenset((*map(key_of, parsed.resources), *parsed.takes, *(edit.key for edit in parsed.edits)))


def resources_below(below: Loaded, keys: Iterable[Key]) -> Mapping[Key, Resource]:
    """Return the resources below, as `project` takes them out."""
    keys = frozenset(keys)
    contents = (_content(below.records[path], is_served=False) for path in _found(below, keys))
    found = (one for content in contents if content is not None for one in content.resources)
    return {key_of(one): one for one in found if key_of(one) in keys}


def without(parsed: ParsedFile, keys: AbstractSet[Key]) -> ParsedFile:
    """Leave out some resources, with a private digest."""
    documents = tuple(
        replace(document, resources=tuple(one for one in document.resources if key_of(one) not in keys))
        for document in parsed.documents
    )
    text = repr((parsed.digest, sorted(keys)))
    return replace(parsed, documents=documents, digest=hashlib.sha256(text.encode()).hexdigest())


def may_exist_below(below: Loaded) -> Callable[[Key], bool]:
    """Test whether a held file may define an unserved resource."""
    known: set[Key] = set()
    types: set[TypeUrl] = set()
    for path in (file.path for file in below.held):
        held = below.records[path].parsed
        if held is not None:
            known.update(map(key_of, held.resources))
            known.update((one.type_url, one.name) for one in held.unread)
        if held is None or not held.documents:
            types |= may_define(path)
    return lambda key: key in known or key[0] in types


def project(below: Loaded, keys: Collection[Key], as_served: Collection[PurePosixPath]) -> Projection:
    """Take resources out of files.

    `as_served` files count with their served content, though their present content is good.
    """
    files: dict[PurePosixPath, SourceFile] = {}
    parsed: dict[PurePosixPath, ParsedFile] = {}
    carried: dict[PurePosixPath, Carried] = {}
    for path, taken in _found(below, keys).items():
        record = below.records[path]
        content = _content(record, is_served=path in as_served)
        if content is None:
            continue
        projected = without(content, taken)
        parsed[path] = projected
        original = below.memory.tree.file_at(path) if below.memory else None
        if content is record.parsed and original is not None:
            files[path] = ProjectedFile(original, projected.digest)
        else:
            # The text has other content, so no place is searched for in it.
            carried[path] = _carried(below, path)
            files[path] = ProjectedFile(SourceFile.of(path, b""), f"served {projected.digest}")
    return Projection(files, parsed, carried)


def _found(below: Loaded, keys: Collection[Key]) -> Mapping[PurePosixPath, set[Key]]:
    found: defaultdict[PurePosixPath, set[Key]] = defaultdict(set)
    for key in keys:
        row = below.snapshot.resources(key[0]).get(key[1])
        if row is not None:
            found[row.origin.path].add(key)
    for path in (file.path for file in below.held) if keys else ():
        held = below.records[path].parsed
        for key in keys_of(held).intersection(keys) if held is not None else ():
            found[path].add(key)
    return found


def _content(record: FileRecord, *, is_served: bool) -> ParsedFile | None:
    is_good = record.parsed is not None and record.parsed.is_good
    return record.parsed if is_good and not (is_served and record.good) else record.good


def _carried(below: Loaded, path: PurePosixPath) -> Carried:
    held = next((file for file in below.held if file.path == path), None)
    return Carried(held, tuple(problem for problem in below.problems if problem.path == path))


def with_carried(loaded: Loaded, carried: Mapping[PurePosixPath, Carried]) -> Loaded:
    """Add the problems of carried files."""
    if not carried:
        return loaded
    problems: set[Problem] = set(loaded.problems)
    held = {file.path: file for file in loaded.held}
    for path, row in carried.items():
        problems.update(row.problems)
        if row.held is not None:
            held[path] = row.held
    ordered = _by_path(held.values())
    return replace(loaded, problems=tuple(sorted(problems)), held=ordered)


def _by_path(held: Iterable[HeldFile]) -> tuple[HeldFile, ...]:
    return tuple(sorted(held, key=lambda file: file.path.parts))
