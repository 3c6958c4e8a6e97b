"""Ask fsxds what it thinks of a file, down the path on which it loads a tree."""

from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.lint.tree_names import StaticNames
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Document, Origin, ParsedFile, Resource, version_of_body
from fsxds.model.values import Problem, Severity, SourceFile, SourceTree, TypeUrl
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.references import ANY, CLUSTER
from tests.agreement.envoy_bootstrap import CLUSTERS

COMPANIONS = PurePosixPath("companions.json")


class FsxdsJudge:
    """Loads one file after the other; unknown fields are errors, as for an Envoy that rejects them.

    Beside each file the tree has all that it refers to, except clusters: those are the static ones that Envoy has.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._parser = FileParser(catalogue, Severity.ERROR, check=Linter())
        self._acceptance = Acceptance(check=Linter(static=StaticNames(frozenset(CLUSTERS))))

    def parse(self, name: str, text: str) -> ParsedFile:
        """Return what becomes of a file by itself."""
        return self._parser.parse(SourceFile.of(PurePosixPath(name), text.encode()))

    def judge(self, name: str, text: str) -> tuple[Problem, ...]:
        """Return the errors of a file of this name, in a tree of its own."""
        parsed = self.parse(name, text)
        files = (SourceFile(parsed.path, b"", parsed.digest), SourceFile(COMPANIONS, b"", ""))
        loaded = load(SourceTree(files), None, lambda _: (parsed, _companions(parsed)), self._acceptance)
        return tuple(problem for problem in loaded.problems if problem.severity is Severity.ERROR)


def _companions(parsed: ParsedFile) -> ParsedFile:
    """Define what the resources of a file refer to."""
    own = {(one.type_url, one.name) for one in parsed.resources}
    named = {
        (mention.type_url, mention.name)
        for one in parsed.resources
        for mention in one.references
        if mention.type_url in BY_TYPE_URL and mention.type_url != CLUSTER and mention.name != ANY
    }
    resources = tuple(_nothing_but_a_name(type_url, name) for type_url, name in sorted(named - own))
    document = Document(COMPANIONS, resources, frozenset(one.type_url for one in resources))
    return ParsedFile(COMPANIONS, "", (document,))


def _nothing_but_a_name(type_url: TypeUrl, name: str) -> Resource:
    return Resource(type_url, name, b"", version_of_body(type_url, b""), Origin(COMPANIONS, 1))
