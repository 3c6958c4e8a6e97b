"""Liberties that Envoy takes with JSON, and those it does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.formats.json_format import make_strict


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2,]", [1, 2]),
        ('{"a": 1,\n}', {"a": 1}),
        ('{"a": [{},],}', {"a": [{}]}),
        ("{'a': 'b'}", {"a": "b"}),
        ("{'a': 'say \"no\"', 'b': 'it\\'s', 'c': '\\n\\\\'}", {"a": 'say "no"', "b": "it's", "c": "\n\\"}),
        ("{a: 1, _b : 2, c3: {d: null}}", {"a": 1, "_b": 2, "c3": {"d": None}}),
        ("{true: true, null: false}", {"true": True, "null": False}),
        ('{"a:": "b, c: \'d\',]"}', {"a:": "b, c: 'd',]"}),
        ("[1e5, -2.5E-3,]", [1e5, -2.5e-3]),
    ],
)
def test_liberties(text, value):
    """Trailing commas, single quotes and bare keys become strict JSON."""
    assert json.loads(make_strict(text).text) == value


@pytest.mark.parametrize(
    "text", ["[,]", "{,}", "[1,,]", "{'a' 1}", "{a b: 1}", "[a]", "{a: b}", "{1a: 2}", "['a]", "[1,", "{a:,}", "[1 2,]"]
)
def test_no_liberties(text):
    """What Envoy does not take does not become JSON."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(make_strict(text).text)


@pytest.mark.parametrize(
    ("text", "index"),
    [("// a", 0), ("[1, /* a */ 2]", 4), ("{} # a // b", 3), ('["// a", "#"]', None), ("['#']", None)],
)
def test_comments_are_found(text, index):
    """The first comment outside of texts is told."""
    assert make_strict(text).comment_at == index


def test_lines_stay():
    """A place in the strict text is on the same line of the author's."""
    text = "{\n'a':\n[1,\n2,\n],\nb: 3,\n}"

    assert make_strict(text).text.count("\n") == text.count("\n")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_strict_json_stays_as_it_is(value):
    """Nothing changes in a text without liberties."""
    text = json.dumps(value, ensure_ascii=False)

    assert make_strict(text).text == text
