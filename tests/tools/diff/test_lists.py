from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.values import PlainValue
from fsxds.tools.diff.lists import are_alike, match_items
from tests.support.costs import cost_s

SCALARS = st.integers(0, 4) | st.text("ab", max_size=2)
MEMBERS: st.SearchStrategy[PlainValue] = SCALARS | st.dictionaries(st.sampled_from(["name", "key", "x"]), SCALARS)


@given(st.lists(MEMBERS, max_size=8), st.lists(MEMBERS, max_size=8))
def test_every_item_has_one_fate(before: list[PlainValue], after: list[PlainValue]) -> None:
    """Each item of both lists is in one pair, or removed, or added."""
    matching = match_items(before, after)

    assert sorted([*(old for old, _ in matching.pairs), *matching.removed]) == list(range(len(before)))
    assert sorted([*(new for _, new in matching.pairs), *matching.added]) == list(range(len(after)))


@given(st.lists(MEMBERS, max_size=8))
def test_a_list_is_its_own_match(members: list[PlainValue]) -> None:
    """Of equal lists every item is paired with itself."""
    matching = match_items(members, members)

    assert tuple((place, place) for place in range(len(members))) == matching.pairs
    assert not matching.is_reordered


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        (["a", "b", "c"], ["b", "c"], ((1, 0), (2, 1))),
        (["a", "c"], ["a", "b", "c"], ((0, 0), (1, 2))),
        (["a", "b"], ["a", "x"], ((0, 0), (1, 1))),
        (["a", "a"], ["a"], ((0, 0),)),
        ([{"name": "a", "v": 1}, {"name": "b"}], [{"name": "b"}, {"name": "a", "v": 2}], ((1, 0), (0, 1))),
        ([{"match": {"path": "/a"}, "x": 1}], [{"match": {"path": "/"}}, {"match": {"path": "/a"}}], ((0, 1),)),
        ([{"name": "a"}, {"name": "a", "v": 1}], [{"name": "a"}, {"name": "a", "v": 2}], ((0, 0), (1, 1))),
        ([{"header": {"key": "k", "value": "1"}}], [{"header": {"key": "k", "value": "2"}}], ((0, 0),)),
        ([{"locality": {"zone": "a"}, "priority": 1}], [{"locality": {"zone": "a"}}], ()),
        ([{"pipe": {"path": "/a"}}], [{"pipe": {"path": "/a", "mode": 1}}], ((0, 0),)),
    ],
)
def test_pairs(before: list[PlainValue], after: list[PlainValue], pairs: tuple[tuple[int, int], ...]) -> None:
    """Items are paired by name, match, key, locality or address; else equal ones, and those alike between them."""
    assert pairs == match_items(before, after).pairs


def test_another_order() -> None:
    """Equal items in another order are no removals; the order is."""
    matching = match_items(["a", "b", "c"], ["c", "a", "b"])

    assert (((2, 0), (0, 1), (1, 2)), (), (), True) == (
        matching.pairs,
        matching.removed,
        matching.added,
        matching.is_reordered,
    )


def test_alike() -> None:
    """One value may have become another if they share a field, and are no Any of two types."""
    assert are_alike({"a": 1, "b": 1}, {"a": 1, "b": 2})
    assert are_alike("a", "b")
    assert not are_alike({"a": 1, "b": 1}, {"a": 2, "b": 2})
    assert not are_alike({"@type": "a", "x": 1}, {"@type": "b", "x": 1})
    assert not are_alike("a", {})


def test_long_lists_are_quick() -> None:
    """Of items without names, every second changed and all in another order, ten times as many cost not a hundred times as much."""

    def match(count: int) -> None:
        before: list[PlainValue] = [{"a": {"b": number}, "c": [number]} for number in range(count)]
        after: list[PlainValue] = [{"a": {"b": number}, "c": [number, number % 2]} for number in range(count)]
        match_items(before, after)
        match_items(before, before[::-1])

    assert cost_s(lambda: match(10_000), 1) < 30 * cost_s(lambda: match(1000))
