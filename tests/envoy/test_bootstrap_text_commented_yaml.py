"""YAML for people: layout, comments and anchors, and nothing lost."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from fsxds.envoy.bootstrap_text import LINE_LENGTH, as_yaml
from fsxds.model.values import PlainValue

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["yes", "Null", "12:30", "1.0", "30s", "127.0.0.1", "::1", "@type", "a: b", "x #y", "", "-", "/run/a.sock"]
)
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS
VALUES: st.SearchStrategy[PlainValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_other_readers_read_the_same(value: dict[str, PlainValue]) -> None:
    """Any value comes back from PyYAML as it was."""
    assert value == yaml.safe_load(as_yaml(value, {"a": "one\ntwo", "b": "three"}))


def test_sections_are_set_apart() -> None:
    """Small mappings fit on a line; top-level keys have an empty line between them."""
    assert as_yaml({"a": {"b": 1}, "c": ["x", True]}, {}) == "a: {b: 1}\n\nc: [x, true]\n"


def test_comments_stand_above_the_first_such_key() -> None:
    """A key with a comment opens the mappings around it; the comment is not repeated."""
    value: dict[str, PlainValue] = {"a": {"b": 1}, "list": [{"x": 1, "b": 2}]}
    expected = "a:\n  # why\n  # because\n  b: 1\n\nlist: [{x: 1, b: 2}]\n"

    assert expected == as_yaml(value, {"b": "why\nbecause"})


def test_comment_of_a_list_item() -> None:
    """The comment of an item's first key stands above the item."""
    assert as_yaml({"a": [{"b": 1}]}, {"b": "why"}) == "a:\n# why\n- b: 1\n"


def test_shared_mappings_are_written_once() -> None:
    """The same object twice is an anchor and an alias, also within a list; equal objects are not."""
    source: PlainValue = {"path": "x"}
    value: dict[str, PlainValue] = {"a": source, "b": [{"c": source}], "d": {"path": "x"}}
    expected = "a: &source {path: x}\n\nb: [{c: *source}]\n\nd: {path: x}\n"

    assert expected == as_yaml(value, {}, "source")


def test_an_anchor_within_a_list_has_a_line() -> None:
    """The first of two shared mappings can be edited where it stands."""
    source: PlainValue = {"path": "x"}

    assert as_yaml({"a": [{"b": source}, {"b": source}]}, {}, "s") == "a:\n- b: &s {path: x}\n- {b: *s}\n"


def test_long_lines_are_broken() -> None:
    """A mapping that does not fit on a line has one for each of its keys."""
    text = as_yaml({"a": {f"key_{number}": "value" for number in range(20)}}, {})

    assert max(map(len, text.splitlines())) <= LINE_LENGTH
    assert len(text.splitlines()) == 21
