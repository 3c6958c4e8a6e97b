"""Where in a text a field stands."""

import json

import pytest

from fsxds.formats.positions import locate_all
from tests.formats.reading import locate

YAML = b"""\
# a comment
resources:
- name: a
  filters:
    name: single
    typed:
      x: 1
- <<: &m {merged: {deep: 1}}
  name: b
  "quoted": [1, {k: v},
    3]
- *m
---
other:
  !ignore name: x
  name: {first: 1}
  name: {first: 2}
"""
JSON = b"""{
  "resources": [
    {"name": "a", "list": [1,
      {"k": ["]", 2]}]},
    {"name": "b"}
  ],
  "x": {"y": {"z": 1}}
}"""


@pytest.mark.parametrize(
    ("document", "path", "place"),
    [
        (0, (), (2, 1)),
        (0, ("resources",), (2, 1)),
        (0, ("resources", 0), (3, 3)),
        (0, ("resources", 0, "name"), (3, 3)),
        (0, ("resources", 0, "filters", "typed", "x"), (7, 7)),
        (0, ("resources", 0, "filters", 0), (4, 3)),
        (0, ("resources", 0, "filters", 0, "typed", "x"), (7, 7)),
        (0, ("resources", 0, "filters", 1, "typed"), (4, 3)),
        (0, ("resources", 1, "quoted", 1, "k"), (10, 18)),
        (0, ("resources", 1, "quoted", 2), (11, 5)),
        (0, ("resources", 1, "quoted", 7), (10, 3)),
        (0, ("resources", 1, "merged", "deep"), (8, 3)),
        (0, ("resources", 2, "merged"), (12, 3)),
        (0, ("resources", 9, "name"), (2, 1)),
        (0, ("nothing",), (2, 1)),
        (1, ("other", "name", "first"), (16, 10)),
        (1, ("other", "x"), (14, 1)),
        (2, ("other",), (1, 1)),
    ],
)
def test_yaml(document, path, place):
    """A key or list item is found in its document; what is not there is sought at its nearest ancestor."""
    assert place == locate(YAML, document, path)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("resources",), (2, 3)),
        (("resources", 0), (3, 5)),
        (("resources", 0, "list", 1, "k", 1), (4, 19)),
        (("resources", 0, "name", "x"), (3, 6)),
        (("resources", 1, "name"), (5, 6)),
        (("x", "y", "z"), (7, 15)),
        (("x", 0, "y"), (7, 9)),
    ],
)
def test_json(path, place):
    """The same in JSON."""
    assert place == locate(JSON, 0, path)


def test_lenient_json():
    """Lines are right where Envoy's liberties are taken."""
    assert locate(b"{\na: 'x',\n'b': [1,\n {c: 2,},],\n}", 0, ("b", 1, "c"))[0] == 4


def test_flow_yaml_is_no_json():
    """A text that begins like JSON and is YAML is found as YAML."""
    assert locate(b"{a: &x [1, *x], b: {c: 1}}", 0, ("b", "c")) == (1, 21)


@pytest.mark.parametrize("content", [b"", b"a: [", b"\xff", b"a: b: c", b"{", b"[" * 10_000, b"{a: " * 10_000])
def test_broken_texts(content):
    """A broken text gives the nearest place before the break."""
    assert locate(content, 0, ("a", 0, "b"))[0] == 1


def test_what_stands_before_a_break_is_found():
    """A fault below a broken place does not hide those above."""
    assert locate(b"a:\n  b: 1\nc: [", 0, ("a", "b")) == (2, 3)


def test_many_at_once():
    """Many paths of several documents are found together as they are alone."""
    paths = [(0, ("resources", 1, "name")), (1, ("other",)), (0, ()), (0, ("resources", 0, "filters", 0, "name"))]

    assert {path: locate(YAML, *path) for path in paths} == locate_all(YAML, paths)


def test_every_place_of_a_json_text_is_its_own():
    """All keys of a text with one member per line are found on their lines."""
    content = json.dumps({f"k{n}": {"x": [n]} for n in range(20)}, indent=1).encode()

    lines = [locate(content, 0, (f"k{n}", "x", 0))[0] for n in range(20)]

    assert [4 + 5 * n for n in range(20)] == lines
