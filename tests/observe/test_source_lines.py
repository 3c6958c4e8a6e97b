from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.model.values import Problem
from fsxds.observe.source_lines import LONGEST_LINE, Excerpt, Source
from tests.lint.findings import problem

# What no field and no value of an enum is called.
UNKNOWN = frozenset({"hunter2", "hunter3"})


def excerpt(content: str | bytes, found: Problem) -> Excerpt | None:
    """Return what is shown of a file."""
    raw = content.encode() if isinstance(content, str) else content
    return Source(found.path, raw, lambda word: word not in UNKNOWN).excerpt(found)


def drawn(content: str | bytes, found: Problem) -> list[str]:
    """Return the line and the marks below it."""
    shown = excerpt(content, found)
    return [] if shown is None else [shown.text, " " * shown.indent + "^" * shown.marked]


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("  type: [STATIC]", 3, "  ^^^^"),
        ("- name: web", 1, "  ^^^^"),
        ("  - - name", 3, "      ^^^^"),
        ('  "name": "web"', 3, "  ^^^^^^"),
        ("  [a, b]", 3, "  ^"),
        ("  a: -5", 6, "     ^^"),
        ("a: [", 5, "    ^"),
        ("a: [", 99, "    ^"),
        ("日本: 本: x", 5, "      ^^"),
        ("\tname: x", 2, "    ^^^^"),
    ],
)
def test_marks_stand_under_the_place(line: str, column: int, expected: str) -> None:
    """The marks stand under the word at the place, past the dash of a list item, tabs and wide characters counted."""
    assert [line.replace("\t", "    "), expected] == drawn(f"{line}\n", problem("cds.textproto", 1, column))


def test_a_long_line_is_cut_around_its_place() -> None:
    """What does not fit into a terminal is left out at both sides, never the place."""
    line = "x " * 100 + "here: " + "y " * 100
    shown = excerpt(line, problem("cds.textproto", 1, 201))

    assert shown is not None
    assert LONGEST_LINE >= len(shown.text)
    assert "here" == shown.text[shown.indent : shown.indent + shown.marked]
    assert ("…", "…") == (shown.text[0], shown.text[-1])


def test_a_long_word_is_cut() -> None:
    """A word wider than a terminal is marked as far as it is shown."""
    shown = excerpt("日" * 300, problem("cds.textproto", 1, 1))

    assert shown is not None
    assert (0, True) == (shown.indent, 60 <= shown.marked <= LONGEST_LINE)


def test_unknown_fields_are_shown_without_their_values() -> None:
    """A field that the API does not know may be a secret of another API: only its name is repeated."""
    found = problem(line=1, column=3, rule="unknown-field", pointer="[0].handshake")

    assert ["  handshake: …", "  ^^^^^^^^^"] == drawn("  handshake: hunter2\n", found)
    assert ["  handshake:", "  ^^^^^^^^^"] == drawn("  handshake:\n    a: 1\n", found)
    assert ["{ handshake: …, b: c }", "  ^^^^^^^^^"] == drawn("{ handshake: hunter2, b: c }\n", found)


@pytest.mark.parametrize("value", ["5s", "70000", "-1", "true", "192.0.2.1", "'8080'"])
def test_numbers_and_the_like_are_shown_at_the_end_of_a_line(value: str) -> None:
    """Behind a name of the API; behind another name, and in place of a name, they may be a credential."""
    shown = []
    for text in (f"  port_value: {value}", f"  password: {value}", f"  hunter2: {value}", f"  - {value}"):
        found = problem(line=1, column=3, pointer="[0].x")
        line = Source(found.path, text.encode(), {"port_value", "password"}.__contains__).excerpt(found)
        shown.append("" if line is None else line.text)

    assert shown == [f"  port_value: {value}", "  password: …", "  …: …", "  - …"]


def test_problems_of_whole_files_have_no_line() -> None:
    """The first line of a file is only shown where it is what the problem is about."""
    assert [] == drawn("# comment\n", problem(line=1, column=1, pointer="", rule="no-version"))
    assert ["]", "^"] == drawn("]\n", problem(line=1, column=1, pointer="", rule="bad-syntax"))
    assert ["a: 1", "^"] == drawn("a: 1\n", problem(line=1, column=1, pointer="a"))


@pytest.mark.parametrize(
    ("path", "content"),
    [("cds.pb", b"\x0a\x01a\n\n\n"), ("README.md", b"a\nb\n"), ("cds.yaml", b"a\n\xffb\n"), ("cds.yaml", b"a\n")],
)
def test_what_is_no_text_has_no_lines(path: str, content: bytes) -> None:
    """Binary files, files of no format, broken encodings and lines that do not exist are not shown."""
    assert [] == drawn(content, problem(path, 2, 1))


def test_lines_are_counted_as_the_readers_do() -> None:
    """YAML ends lines at more characters than JSON does."""
    assert ["b: 2", "^"] == drawn("a: 1\rb: 2\n", problem(line=2, column=1))
    assert ["c: 2", "^"] == drawn("a: 1\r\nb: 1\x85c: 2\r\n", problem(line=3, column=1))
    assert ["{", "^"] == drawn('{\r\n"b": 2}', problem("cds.json", 1, 1, pointer="", rule="bad-syntax"))
    assert ['"b": 2}', "^^^"] == drawn('{"a": "\u2028",\r\n"b": 2}', problem("cds.json", 2, 1))
    assert ["\ufeffa: 1".lstrip("\ufeff"), "^"] == drawn("\ufeffa: 1\n", problem(line=1, column=1))


def test_control_characters_are_spelled_out() -> None:
    """A line cannot forge colours, and the marks stay under their place."""
    assert ["a \\x1b[31m ab", " " * 11 + "^^"] == drawn("a \x1b[31m ab\n", problem("cds.textproto", 1, 9))


def test_lines_that_may_hold_secrets_are_not_shown() -> None:
    """Behind the name of a secret nothing is shown, of a field that is one no line, and words that are no names are cut."""
    assert ["  password: …", "  ^^^^^^^^"] == drawn("a:\n  password: 12345\n", problem(line=2, pointer="a"))
    assert ["  b: {c: 1, token: …", "      ^"] == drawn(
        "a:\n  b: {c: 1, token: x, d: 5}\n", problem(column=7, pointer="a")
    )
    assert [] == drawn("a:\n  - 12345\n", problem(line=2, pointer="a.private_key[0]"))
    assert [] == drawn("a:\n  - 12345\n", problem("sds.yaml", line=2, pointer="a"))
    assert [] == drawn("a:\n  b: |\n    hunter2\n", problem(line=3, pointer="a"))
    assert ["  b: {…: …}", "     ^"] == drawn("a:\n  b: {hunter2: hunter2}\n", problem(line=2, column=6, pointer="a"))
    assert ["  hunter2: …", "  ^^^^^^^"] == drawn(
        "a:\n  hunter2: hunter3\n", problem(line=2, column=3, pointer="a", message='a has no field "hunter2"')
    )


def test_only_names_are_shown() -> None:
    """Without the words of the API, of a line only numbers, times, and what the problem itself names are shown."""
    line = "  {connect: 1, timeout: 5s, address: 127.0.0.1, name: web, b: 'type'}  # hunter2"
    shown = Source(PurePosixPath("cds.yaml"), f"a:\n{line}\n".encode()).excerpt(problem(column=4))

    assert shown is not None
    assert "  {…: 1, …: 5s, …: 127.0.0.1, …: …, …: 'type'}  # …" == shown.text
