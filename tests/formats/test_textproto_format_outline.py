"""The outline of a text format file."""

import pytest

from fsxds.formats.textproto_format import outline_of
from fsxds.formats.textproto_tokens import Cursor


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ()),
        ("a: 1 b { c: 2 } d < e: 3 >\nf: [{ g: 1 }]", (("a", 1), ("b", 1), ("d", 1), ("f", 2))),
        ('# a: 1\n\nb: \'c: " {\' "d: \\" {"\ne {}', (("b", 3), ("e", 4))),
        ("a\n:\n1 b # {\n{}", (("a", 1), ("b", 3))),
        ("a } } b: 1", (("b", 1),)),
        ("a: enum_value b: 1", (("a", 1), ("b", 1))),
        ("[type.googleapis.com/a.b] { c: 1 }", ()),
    ],
)
def test_fields(text, fields):
    """Top-level fields are found with their lines, past texts, comments and blocks, however broken the text is."""
    assert fields == outline_of(Cursor(text)).fields


def test_depth():
    """A hundred levels are fine; the bracket of the next one has a place."""
    assert outline_of(Cursor("a{" * 100)).too_deep_at is None
    assert outline_of(Cursor("\n" + "a{" * 101)).too_deep_at == (2, 202)
