"""Positions of editors and of problems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.editor.text_positions import UNITS, EditorPosition, ProblemPositions, TextPositions

TEXT = "a: 😀x\r\nb: é\rc: \u2028d\n\n"


@pytest.mark.parametrize(("encoding", "character"), [("utf-16", 5), ("utf-8", 7), ("utf-32", 4)], ids=str)
def test_units(encoding: str, character: int) -> None:
    """An emoji counts as many units as the encoding that was negotiated has for it."""
    positions = TextPositions(TEXT, encoding)

    assert positions.position(TEXT.index("x")) == EditorPosition(0, character)
    assert positions.index(EditorPosition(0, character)) == TEXT.index("x")


def test_lines() -> None:
    """Lines end with CRLF, CR and LF, and with nothing else."""
    positions = TextPositions(TEXT)

    assert [positions.position(TEXT.index(letter)).line for letter in "abcd"] == [0, 1, 2, 2]


@pytest.mark.parametrize(("line", "character"), [(0, 4), (0, 999), (99, 0), (1, 4), (0, 0)])
def test_positions_beyond_the_text(line: int, character: int) -> None:
    """A position within a character is before it; one behind its line is the end of the line, never in its break."""
    index = TextPositions(TEXT).index(EditorPosition(line, character))

    assert index in {TEXT.index("😀"), TEXT.index("\r"), len(TEXT), TEXT.index("\rc"), 0}


@given(st.text(alphabet="ab \r\n\t😀é\u2028\x85\ufeff", max_size=30), st.sampled_from(sorted(UNITS)), st.data())
def test_there_and_back(text: str, encoding: str, data: st.DataObject) -> None:
    """Every index that is not within a line break comes back from its position."""
    index = data.draw(st.integers(0, len(text)))
    positions = TextPositions(text, encoding)
    is_in_break = text[index - 1 : index + 1] == "\r\n"

    assert positions.index(positions.position(index)) == (index - 1 if is_in_break else index)


def test_places_of_problems() -> None:
    """YAML counts more characters as the end of a line, and no format counts a byte order mark."""
    text = "\ufeffa\u2028b\nc"

    yaml, other = ProblemPositions(text, is_yaml=True), ProblemPositions(text, is_yaml=False)
    assert yaml.index(1, 1) == 1
    assert yaml.index(2, 1) == text.index("b")
    assert other.index(2, 1) == text.index("c")
    assert yaml.index(99, 1) == len(text)
