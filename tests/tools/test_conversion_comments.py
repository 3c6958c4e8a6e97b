from __future__ import annotations

import pytest

from fsxds.tools.conversion import has_comments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1 # x", True),
        ("# x\na: 1", True),
        ("a:\n# x\n- b", True),
        ("a: |\n  text\n# x\n", True),
        ("a: 1\n...\n# x", True),
        ("a: x#y", False),
        ("a: '#'\nb: \"# no\"", False),
        ("a: |\n  # text\n  more\n", False),
        ("a: 1", False),
        ("ä: '😀 #'\nb: 1", False),
    ],
)
def test_yaml(text: str, expected: bool) -> None:
    """A # within a text is no comment; anywhere else it begins one."""
    assert expected == has_comments(text.encode(), "yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# proto-message: a.B\nname: 'x'", False),
        ("# proto-file: a.proto\n# proto-message: a.B\n", False),
        ("name: \"#x\" other: '#y'", False),
        ('name: "a\\"#"', False),
        ("name: 'x' # why", True),
        ("# Why.\nname: 'x'", True),
    ],
)
def test_textproto(text: str, expected: bool) -> None:
    """The header that names the message is no comment to miss."""
    assert expected == has_comments(text.encode(), "textproto")


def test_other_formats() -> None:
    """JSON and binary have no comments."""
    assert not has_comments(b'{"a": "# x"}', "json")
    assert not has_comments(b"\x0a\x01#", "binary")
