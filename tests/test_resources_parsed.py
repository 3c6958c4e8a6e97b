from __future__ import annotations

from fsxds.resources import ParsedFile, key_of
from fsxds.values import SourceFile
from tests.support.snapshots import resource, type_url
from tests.support.stories import parse_file
from tests.support.trees import tree_of


def parsed(content: str) -> ParsedFile:
    file: SourceFile = tree_of({"a.yaml": content}).files[0]
    return parse_file(file)


def test_file_without_errors_is_good() -> None:
    """Warnings do not keep a file from being served, errors do."""
    assert parsed("CDS a=1").is_good
    assert parsed("CDS a=1\n?").is_good
    assert not parsed("CDS a=1\n?\n!").is_good


def test_file_holds_what_its_documents_hold() -> None:
    """The resources of a file come in the order of its documents, and it declares all that they declare."""
    file = parsed("LDS l=1\nCDS b=1 a=1\nEDS")

    assert [resource.name for resource in file.resources] == ["l", "b", "a"]
    assert {type_url("LDS"), type_url("CDS"), type_url("EDS")} == file.declared


def test_file_without_documents_declares_nothing() -> None:
    """What could not be read speaks of no type."""
    assert frozenset() == parsed("!").declared


def test_key_is_type_and_name() -> None:
    """Resources of one name are told apart by their type, and by nothing else."""
    assert key_of(resource("CDS", "a")) == key_of(resource("CDS", "a", "2", "b.yaml", 7))
    assert key_of(resource("CDS", "a")) != key_of(resource("EDS", "a"))
