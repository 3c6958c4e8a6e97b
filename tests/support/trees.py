"""Trees of files made by hand, and what became of them as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource
from fsxds.model.values import Problem, Severity, SourceFile, SourceTree
from fsxds.snapshots.load import Loaded

EXPECTED = "expected.txt"


def tree_of(files: Mapping[str, str | bytes], problems: Iterable[Problem] = ()) -> SourceTree:
    """Make a tree of files by their paths."""
    return SourceTree(
        tuple(
            SourceFile.of(PurePosixPath(path), content.encode() if isinstance(content, str) else content)
            for path, content in sorted(files.items(), key=lambda file: PurePosixPath(file[0]).parts)
        ),
        tuple(problems),
    )


def read_tree(folder: Path) -> SourceTree:
    """Read a folder of golden files; what is expected of it is not one of them."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != EXPECTED]
    return tree_of({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


def written(loaded: Loaded) -> str:
    """Write what is served, by type and name with its place, and the problems as they are printed, but for notes.

    Notes say what nothing uses, which is nearly all of these small trees.
    """
    told = (problem for problem in loaded.problems if problem.severity is not Severity.NOTE)
    return "".join(f"{line}\n" for line in (*_served(loaded), *map(str, told)))


def _served(loaded: Loaded) -> Iterator[str]:
    for row in RESOURCE_TYPES:
        resources = loaded.snapshot.resources(row.type_url)
        yield from (f"{row.short_name} {_described(resource)}" for resource in resources.values())
        if not resources and row.type_url not in loaded.snapshot.undeclared:
            yield f"{row.short_name} none, on purpose"


def _described(resource: Resource) -> str:
    aliases = f" aliases={','.join(resource.aliases)}" if resource.aliases else ""
    ttl = f" ttl={resource.ttl_s:g}s" if resource.ttl_s is not None else ""
    return f"{resource.name} {resource.origin}{aliases}{ttl}"
