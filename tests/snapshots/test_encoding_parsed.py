from __future__ import annotations

import json
import zlib
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resources import ParsedFile, Resource
from fsxds.snapshots.encoding import DamagedBytesError, decode, encode
from fsxds.snapshots.parse import FileParser
from tests.support.trees import read_tree, tree_of

TREES = sorted(path for path in (Path(__file__).parent.parent / "trees").iterdir() if path.is_dir())

SMALL = ParsedFile(PurePosixPath("cds.yaml"), "digest")


def uncompared(parsed: ParsedFile) -> list[object]:
    """Return what two parsed files may differ in and be equal: places, references, severities."""
    rows: list[Resource] = list(parsed.resources)
    places = [(row.origin.document, row.origin.field_path, row.references) for row in rows]
    return [places, [problem.severity for problem in parsed.problems], parsed.unread]


@pytest.mark.parametrize("folder", TREES, ids=lambda folder: folder.name)
def test_what_is_read_is_what_was_written(folder: Path, parser: FileParser) -> None:
    """Every file of the golden trees, right or wrong, comes back as it was: resources, places, references, problems."""
    for file in read_tree(folder).files:
        parsed = parser.parse(file)
        again = decode(file.path, file.digest, encode(parsed))

        assert again == parsed
        assert uncompared(again) == uncompared(parsed)


def test_text_that_no_encoding_has_comes_back(parser: FileParser) -> None:
    """A lone surrogate, which JSON may name and UTF-8 cannot hold, is no obstacle."""
    (file,) = tree_of({"cds.json": r'[{"name": "a", "\ud800": 1}]'}).files
    parsed = parser.parse(file)

    assert decode(file.path, file.digest, encode(parsed)) == parsed


def test_path_and_digest_are_those_of_the_reader(parser: FileParser) -> None:
    """What was read from one path is what another path with the same content parses to."""
    content = (
        "- name: a\n  load_assignment: {cluster_name: a, endpoints: [{priority: 300}]}\n- {name: b, eds_cluster: c}\n"
    )
    (first,), (second,) = tree_of({"cds.yaml": content}).files, tree_of({"b/cds.yaml": content}).files

    assert decode(second.path, second.digest, encode(parser.parse(first))) == parser.parse(second)


def test_equal_texts_are_one_object(parser: FileParser) -> None:
    """Types are shared between files, so that a hundred thousand resources do not have one each."""
    first, second = (
        decode(file.path, file.digest, encode(parser.parse(file)))
        for file in tree_of({"a/cds.yaml": "- name: a\n", "b/cds.yaml": "- name: b\n"}).files
    )

    assert first.resources[0].type_url is second.resources[0].type_url


@given(st.binary() | st.binary().map(zlib.compress) | st.text().map(lambda text: zlib.compress(text.encode())))
def test_other_bytes_are_damaged(content: bytes) -> None:
    """Bytes that nobody encoded are rejected, whatever they are."""
    with pytest.raises(DamagedBytesError):
        decode(SMALL.path, SMALL.digest, content)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=5)
)


@given(st.lists(PLAIN, min_size=4, max_size=4))
def test_rows_of_another_shape_are_damaged(rows: object) -> None:
    """JSON that is no table of ours is rejected, or read as an empty file where it is one."""
    text = json.dumps(rows).encode()
    content = zlib.compress(len(text).to_bytes(4) + text)
    try:
        decode(SMALL.path, SMALL.digest, content)
    except DamagedBytesError:
        return
