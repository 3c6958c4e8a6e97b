"""Bytes that are text, and bytes that are not."""

import codecs

import pytest

from fsxds.formats.decoded import UnreadableError, place_after, read_text


def fault_of(content, **options):
    """Return rule, line and column of what is wrong."""
    with pytest.raises(UnreadableError) as caught:
        read_text(content, **options)
    return caught.value.fault.rule, caught.value.fault.line, caught.value.fault.column


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", ""), (b"a\xc3\xa4", "aä"), (codecs.BOM_UTF8 + b"a", "a"), ("a\r\nb😀".encode(), "a\r\nb😀")],
)
def test_text(content, text):
    """UTF-8 is text, with or without a byte order mark."""
    assert read_text(content) == text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be", "utf-32-le"])
def test_other_encodings(encoding):
    """UTF-16 and UTF-32 are refused, with a mark by name and without one for their NUL bytes."""
    assert fault_of("a: 1".encode(encoding))[:2] == ("bad-encoding", 1)


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE])
def test_other_marks(mark):
    """Every byte order mark but that of UTF-8 is refused."""
    assert fault_of(mark) == ("bad-encoding", 1, 1)


def test_bad_bytes_have_a_place():
    """The place counts characters, not bytes."""
    assert fault_of("ä\nää".encode() + b"\xff") == ("bad-encoding", 2, 3)


def test_nul_has_a_place():
    """A NUL character is refused where it stands."""
    assert fault_of(b"a\n\0") == ("bad-encoding", 2, 1)


def test_the_mark_may_be_forbidden():
    """Envoy refuses a byte order mark in JSON."""
    assert fault_of(codecs.BOM_UTF8 + b"{}", allow_mark=False) == ("bad-encoding", 1, 1)


def test_place_after():
    """What follows a line break is in column 1 of the next line."""
    assert [(1, 1), (1, 2), (2, 1), (2, 3)] == [place_after(before) for before in ("", "a", "a\n", "a\nbc")]
