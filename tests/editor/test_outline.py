"""Outlines: right where libyaml reads the text, and something of use everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from fsxds.editor.outline import MOST_CHARACTERS, read_outline
from fsxds.formats.yaml_format import read_events
from fsxds.model.values import FieldPath

TOP = Path(__file__).parents[2]
SAMPLES = sorted(
    path
    for folder in ("config", "tests/trees", "tests/data", "fsxds/cli")
    for path in (TOP / folder).rglob("*")
    if path.suffix in {".yaml", ".json"}
)
# A key that is there twice, of which the first counts.
DUPLICATES = {"tests/trees/syntax_errors/lds.yaml"}


class Places:
    """Where libyaml sees keys and scalars of a text."""

    def __init__(self, text: str) -> None:
        self._next = read_events(text)
        self.keys: dict[tuple[int, FieldPath], tuple[int, int]] = {}
        self.scalars: dict[tuple[int, FieldPath], Any] = {}
        document = -1
        while type(event := self._next()) is not StreamEndEvent:
            if type(event) is DocumentStartEvent:
                document += 1
                self._value(self._next(), document, ())

    def _value(self, event: Any, document: int, path: FieldPath) -> None:
        if type(event) is ScalarEvent:
            self.scalars[document, path] = event
        elif type(event) is MappingStartEvent:
            while type(key := self._next()) is not MappingEndEvent:
                inner = (*path, str(key.value))
                self.keys[document, inner] = (key.start_mark.index, key.end_mark.index)
                self._value(self._next(), document, inner)
        elif type(event) is not AliasEvent:
            number = 0
            while type(element := self._next()) is not SequenceEndEvent:
                self._value(element, document, (*path, number))
                number += 1


def readable() -> Iterator[Path]:
    """Yield the samples that libyaml reads."""
    for path in SAMPLES:
        try:
            Places(path.read_bytes().decode())
        except (yaml.YAMLError, UnicodeDecodeError, AttributeError):
            continue
        if str(path.relative_to(TOP)) not in DUPLICATES:
            yield path


@pytest.mark.parametrize("path", list(readable()), ids=lambda path: str(path.relative_to(TOP)))
def test_agrees_with_libyaml(path: Path) -> None:
    """Keys and scalars are where libyaml has them, and mean the same."""
    text = path.read_bytes().decode()
    expected, outline = Places(text), read_outline(text)

    for (document, steps), span in expected.keys.items():
        trail = outline.follow(document, steps)
        assert trail is not None
        assert trail.steps[-1].member is not None
        assert trail.steps[-1].member.span == span
    for (document, steps), event in expected.scalars.items():
        trail = outline.follow(document, steps)
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in ("|", ">") or start == end:
            continue
        assert trail is not None
        assert trail.value is not None
        assert (trail.value.start, trail.value.end) == (start, end)
        assert trail.value.text == event.value or "\n" in text[start:end]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a:\n  b: [1, 2\nc: ⌖x\n", ("c",)),
        ("a:\n  b: {x: 1\n  c: ⌖x\n", ("a", "c")),
        ('a: "open\nb: ⌖x\n', ("b",)),
        ("a:\n- b: {c: {d: ⌖", ("a", 0, "b", "c", "d")),
        ("a: |\n  text: no key\n\n  more\nb: ⌖x\n", ("b",)),
        ("- a: 1\n  b:\n  - ⌖x", (0, "b", 0)),
        ("a: b: c\nd: ⌖x", ("d",)),
        ("a:\r\n  b: 1\r\nc: ⌖x\r\n", ("c",)),
        ("---\n---\na: ⌖x\n...\n", ("a",)),
        ('{"a": {"b": [{"c": "⌖', ("a", "b", 0, "c")),
        ('{"a" 1, "b": ⌖2}', ("b",)),
        ("a: &x {b: 1}\nc: !t ⌖y", ("c",)),
        ("a: first\n  second\nb: ⌖x", ("b",)),
        ("'a': {'b': 'it''s', c: ⌖d}", ("a", "c")),
        ("- a:\n  - end\n      b: ⌖c\n", (0, "a", 0, "end", "b")),
        ("- a:\n  - end\n      b: c\n    d: ⌖1\n", (0, "a", 0, "d")),
        ("- &x\n  b: ⌖c\n", (0, "b")),
    ],
)
def test_broken_texts(text: str, path: FieldPath) -> None:
    """What is missing is taken as there, so that the place behind it is known."""
    index = text.index("⌖")
    trail = read_outline(text.replace("⌖", "\ue000")).trail_to(index)

    assert trail is not None
    assert trail.path == path


@given(st.text(alphabet="ab:-{}[],'\"#|>&*! \t\n\r?%@😀\\<", max_size=60))
def test_never_fails(text: str) -> None:
    """Any text has an outline, whose parts lie in it."""
    outline = read_outline(text)

    for index in range(len(text) + 1):
        trail = outline.trail_to(index)
        node = trail.value if trail is not None else None
        assert node is None or 0 <= node.start <= node.end <= len(text)


@pytest.mark.parametrize("text", ["{" * 5000, "[" * 5000, "- " * 3000, "a:\n" * 3, "\x00\x01", "\ufeffa: 1"])
def test_hostile_texts(text: str) -> None:
    """Depth ends no reading."""
    assert read_outline(text).documents


def test_too_long_texts() -> None:
    """A text above the limit is not read."""
    assert read_outline(" " * (MOST_CHARACTERS + 1)).documents == ()
