"""Trees that change step by step, in a toy format that says no more than a test needs.

A file's lines are its documents: `CDS a=1 b=2`, `CDS@7 a=1` with an author's version, `CDS` for none on purpose. A
resource `a=1+60s+x` has a time to live and an alias. A file with a line `!` does not parse, one with a line `?` has a
warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Document, ParsedFile, Resource, Snapshot
from fsxds.model.values import Problem, Severity, SourceFile
from fsxds.snapshots.load import MOST_RESOURCES, Acceptance, Loaded, load
from tests.support.snapshots import resource, type_url
from tests.support.trees import tree_of

UNREADABLE = object()
"""Stands for the content of a file that exists and cannot be read."""


def parse_file(file: SourceFile) -> ParsedFile:
    """Parse a file of the toy format."""
    documents, problems = [], []
    for number, line in enumerate(file.content.decode().splitlines(), 1):
        if line in "!?":
            severity = Severity.ERROR if line == "!" else Severity.WARNING
            problems.append(problem(file.path, number, "broken" if line == "!" else "odd", severity))
        else:
            documents.append(_document(file.path, number, line))
    return ParsedFile(file.path, file.digest, tuple(documents), tuple(problems))


def _document(path: PurePosixPath, number: int, line: str) -> Document:
    head, *words = line.split()
    short_name, _, version = head.partition("@")
    resources = tuple(_resource(short_name, word, path, number) for word in words)
    return Document(path, resources, frozenset({type_url(short_name)}), version or None)


def _resource(short_name: str, word: str, path: PurePosixPath, number: int) -> Resource:
    name, _, text = word.partition("=")
    content, *around = text.split("+")
    ttl_s = next((float(one[:-1]) for one in around if one[0].isdigit()), None)
    aliases = tuple(one for one in around if not one[0].isdigit())
    return replace(resource(short_name, name, content, str(path), number), ttl_s=ttl_s, aliases=aliases)


def problem(path: PurePosixPath, line: int, rule: str, severity: Severity = Severity.ERROR) -> Problem:
    """Make a problem of a toy file."""
    return Problem(path, line, 1, "", rule, f"it is {rule}", "", severity)


def served(snapshot: Snapshot) -> set[str]:
    """Return what a snapshot serves, each resource as `CDS a=1`."""
    return {
        f"{BY_TYPE_URL[url].short_name.upper()} {row.body.decode()}"
        for url, rows in snapshot.by_type.items()
        for row in rows.values()
    }


class Story:
    """A tree and what was made of it, step by step."""

    def __init__(
        self, *, whole_trees: bool = False, authored_versions: bool = False, max_resources: int = MOST_RESOURCES
    ) -> None:
        self.files: dict[str, object] = {}
        self.loaded: Loaded | None = None
        self.parsed: list[str] = []
        self._acceptance = Acceptance(whole_trees, authored_versions, Linter(), max_resources=max_resources)

    def step(self, edits: Mapping[str, object]) -> Loaded:
        """Change files (None deletes one), and load what is then there."""
        changed = {**self.files, **edits}
        self.files = {path: content for path, content in changed.items() if content is not None}
        readable = {path: content for path, content in self.files.items() if isinstance(content, str)}
        unreadable = [PurePosixPath(path) for path in self.files.keys() - readable.keys()]
        tree = tree_of(readable, (problem(path, 1, "unreadable") for path in unreadable))
        self.loaded = load(tree, self.loaded, self._parse, self._acceptance)
        return self.loaded

    def _parse(self, files: tuple[SourceFile, ...]) -> Iterable[ParsedFile]:
        self.parsed = [str(file.path) for file in files]
        return [parse_file(file) for file in files]


def tell(loaded: Loaded) -> list[str]:
    """Return the problems as `path: rule`."""
    return [f"{found.path}: {found.rule}" for found in loaded.problems]


def held(loaded: Loaded) -> dict[str, bool]:
    """Return the files that are held back: whether something older of them is served."""
    return {str(file.path): file.has_last_good for file in loaded.held}
