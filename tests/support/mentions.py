"""Trees whose resources name one another, in a toy format of one resource a line.

`LDS edge CDS:web! RDS:r` is a listener that names a cluster, which is an error where there is none, and a route
configuration, which is a warning. `CDS:*~` may use any cluster, `=SDS:ca!` needs a secret of the bootstrap. `@1.2.3.4:80`
takes an address, `#r/web.com` a domain, `&web` the name of a virtual host, and `?` is a listener's lack of one. `LDS` alone declares that there are none,
and a line `!` does not parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from fsxds.lint.linter import Linter
from fsxds.model.resources import ADDRESS, HOST, HOST_NAME, UNNAMED, Document, Origin, ParsedFile, Reference, Resource
from fsxds.model.values import Problem, Severity, SourceFile, TypeUrl
from fsxds.snapshots.load import Acceptance, Loaded, load
from tests.support.snapshots import resource, type_url
from tests.support.trees import tree_of

WEIGHTS = {"!": Severity.ERROR, "~": Severity.NOTE}
CLAIMS = {
    "@": (ADDRESS, "address"),
    "#": (HOST, "domains"),
    "&": (HOST_NAME, "name"),
    "?": (UNNAMED, "name"),
}


def parse_file(file: SourceFile) -> ParsedFile:
    """Parse a file of the toy format."""
    resources, declared, problems = [], set(), []
    for number, line in enumerate(file.content.decode().splitlines(), 1):
        if line.startswith("!"):
            pointer = line[1:].strip()
            problems.append(Problem(file.path, number, 1, pointer, "broken", "it is broken", ""))
            continue
        short_name, *rest = line.split()
        declared.add(type_url(short_name))
        if rest:
            resources.append(_resource(file.path, number, short_name, rest))
    document = Document(file.path, tuple(resources), frozenset(declared))
    return ParsedFile(file.path, file.digest, (document,) if declared else (), tuple(problems))


def _resource(path: PurePosixPath, number: int, short_name: str, words: list[str]) -> Resource:
    name, *mentions = words
    origin = Origin(path, number, 0, (number - 1,))
    made = resource(short_name, name, " ".join(mentions))
    return replace(made, origin=origin, references=tuple(map(_reference, mentions)))


def _reference(word: str) -> Reference:
    severity = WEIGHTS.get(word[-1], Severity.WARNING)
    word = word.rstrip("!~")
    if word[0] in CLAIMS:
        sort, field = CLAIMS[word[0]]
        return Reference(sort, word[1:], (field,), Severity.ERROR)
    short_name, _, name = word.removeprefix("=").partition(":")
    return Reference(TypeUrl(type_url(short_name)), name, (name,), severity, is_static=word.startswith("="))


class MentionStory:
    """A tree and what was made of it, step by step."""

    def __init__(self, acceptance: Acceptance | None = None) -> None:
        self.files: dict[str, str] = {}
        self.loaded: Loaded | None = None
        self._acceptance = acceptance or Acceptance(check=Linter())

    def step(self, edits: Mapping[str, str | None]) -> Loaded:
        """Change files (None deletes one), and load what is then there."""
        changed = {**self.files, **edits}
        self.files = {path: content for path, content in changed.items() if content is not None}
        self.loaded = load(tree_of(self.files), self.loaded, self._parse, self._acceptance)
        return self.loaded

    def _parse(self, files: tuple[SourceFile, ...]) -> Iterable[ParsedFile]:
        return [parse_file(file) for file in files]


def load_mentions(files: Mapping[str, str], acceptance: Acceptance | None = None) -> Loaded:
    """Load a tree of the toy format for the first time."""
    return MentionStory(acceptance).step(files)


def tell(loaded: Loaded) -> list[str]:
    """Return the problems as `path: rule severity`."""
    return [f"{found.path}: {found.rule} {found.severity.value}" for found in loaded.problems]


def served(loaded: Loaded) -> set[str]:
    """Return the names that are served, whatever their types."""
    return {name for rows in loaded.snapshot.by_type.values() for name in rows}


def held(loaded: Loaded) -> list[str]:
    """Return the files that are held back."""
    return [str(file.path) for file in loaded.held]
