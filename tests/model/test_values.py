from __future__ import annotations

import hashlib
import pickle
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.values import SMALLEST_PACKED_BYTES, FieldPath, Problem, Severity, SourceFile, TypeUrl, pointer_of

TYPE = TypeUrl("type.googleapis.com/my.Type")
OTHER_TYPE = TypeUrl("type.googleapis.com/my.OtherType")
PATH = PurePosixPath("edge/routes.yaml")


def test_problem_prints_place_fact_and_remedy() -> None:
    """A problem is printed as one line that editors can follow."""
    problem = Problem(PATH, 3, 5, "resources[2].name", "missing-name", "the name is missing", "name it")

    expected = "edge/routes.yaml:3:5: error: resources[2].name: the name is missing; name it"

    assert expected == str(problem)


def test_problem_prints_only_what_there_is() -> None:
    """A problem without a pointer or a remedy leaves them out; its severity is always told."""
    problem = Problem(PATH, 1, 1, "", "odd", "it is odd", "", Severity.WARNING)

    assert str(problem) == "edge/routes.yaml:1:1: warning: it is odd"


def test_problems_sort_by_place() -> None:
    """Problems sort by path, line and column; numbers count as numbers."""
    places = [("b.yaml", 1, 1), ("a.yaml", 10, 1), ("a.yaml", 9, 30), ("a.yaml", 9, 4)]
    problems = [Problem(PurePosixPath(path), line, column, "", "x", "x", "") for path, line, column in places]

    expected = [("a.yaml", 9, 4), ("a.yaml", 9, 30), ("a.yaml", 10, 1), ("b.yaml", 1, 1)]

    assert expected == [(str(problem.path), problem.line, problem.column) for problem in sorted(problems)]


@pytest.mark.parametrize(
    ("field_path", "expected"),
    [
        ((), ""),
        (("name",), "name"),
        (("resources", 2, "virtual_hosts", 0, "name"), "resources[2].virtual_hosts[0].name"),
        ((0, "name"), "[0].name"),
        ((0, 1), "[0][1]"),
    ],
)
def test_pointer_is_a_path_as_people_write_it(field_path: FieldPath, expected: str) -> None:
    """Keys are joined by dots, indexes stand in brackets."""
    assert expected == pointer_of(field_path)


def test_file_has_the_digest_of_its_content() -> None:
    """A file's digest is SHA-256 of its bytes, and its content does not flood logs."""
    file = SourceFile.of(PATH, b"content")

    assert hashlib.sha256(b"content").hexdigest() == file.digest
    assert "content" not in repr(file)


TEXTS = st.sampled_from([b"", b"a", b"ab", b"b", b"ab" * SMALLEST_PACKED_BYTES, b"ab" * SMALLEST_PACKED_BYTES + b"c"])


@given(TEXTS, TEXTS, st.booleans(), st.booleans())
def test_a_packed_file_is_the_same(one: bytes, other: bytes, is_one_packed: bool, is_other_packed: bool) -> None:
    """To keep a file compressed changes nothing about it, in this process and in one that it is sent to."""
    files = [SourceFile.of(PATH, content) for content in (one, other)]
    for file, is_packed in zip(files, (is_one_packed, is_other_packed), strict=True):
        if is_packed:
            file.pack()
            file.pack()
    first, second = files

    assert (first.content, first.size_bytes) == (one, len(one))
    assert (first == second, hash(first) == hash(second)) == (one == other, one == other)
    assert first.begins_with(second) == one.startswith(other)
    sent = pickle.loads(pickle.dumps(first))
    assert (sent, sent.content) == (first, one)
    assert first != SourceFile.of(PATH / "other", one)


def test_a_packed_file_takes_less_memory() -> None:
    """Text of some size is kept compressed, of little it is not worth it."""
    large, small = (SourceFile.of(PATH, b"name: a\n" * count) for count in (SMALLEST_PACKED_BYTES, 10))
    for file in (large, small):
        file.pack()

    assert large._content is None
    assert len(large._packed) * 10 < large.size_bytes
    assert small._content is not None
