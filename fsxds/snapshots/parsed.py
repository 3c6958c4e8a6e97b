"""What became of one file when it was parsed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.resources import Document, Resource
from fsxds.values import Problem, Severity, TypeUrl

Key = tuple[TypeUrl, str]
"""Type and name, of which there may be one resource."""


def key_of(resource: Resource) -> Key:
    """Return what makes a resource one and the same, whatever it holds."""
    return resource.type_url, resource.name


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The documents of one file and the problems found in it; `digest` is that of the content that was parsed."""

    path: PurePosixPath
    digest: str
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing in it is so wrong that it must not be served."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of all its documents, in the order of the file."""
        return tuple(resource for document in self.documents for resource in document.resources)

    @property
    def declared(self) -> frozenset[TypeUrl]:
        """The types that its documents speak of."""
        return frozenset[TypeUrl]().union(*(document.declared for document in self.documents))
