"""What brackets and colons tell."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.formats.json_format import find_level, structure_of

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\[]{}:,\n', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='b"\\[]{}:', max_size=4), inner, max_size=4)
    ),
    max_leaves=30,
)


def depth_of(value):
    """Return the levels of containers."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth_of(child) for child in inner), default=0)


def members_of(value):
    """Return the number of keys."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (len(value) if isinstance(value, dict) else 0) + sum(members_of(child) for child in inner)


@given(VALUES, st.integers(1, 8), st.sampled_from([None, 1]))
def test_structure_is_that_of_the_value(value, limit, indent):
    """Members and depth are those of the value, whatever marks its texts hold."""
    structure = structure_of(json.dumps(value, indent=indent), limit)

    assert (members_of(value), depth_of(value) > limit) == (structure.members, structure.too_deep_at is not None)


def test_duplicates_count_as_they_are_written():
    """A key that is written twice is two members."""
    assert structure_of('{"a": 1, "a": {"b": 2}}', 10).members == 3


@pytest.mark.parametrize(("text", "depth", "index"), [("[[1]]", 1, 1), ("[[1]]", 2, None), ('["[", {}, [[]]]', 2, 11)])
def test_find_level(text, depth, index):
    """The first bracket beyond the depth is found, and none inside of a text."""
    assert find_level(text, depth) == index
