"""Strict JSON: values, lines, and what no message can hold."""

import json

import pytest

from fsxds.formats.decoded import MAX_FAULTS, PlainDocument, UnreadableError
from fsxds.formats.json_format import read_json
from tests.formats.reading import values_of


def fault_of(text):
    """Return rule, line and column of the fault that ends a text."""
    with pytest.raises(UnreadableError) as caught:
        read_json(text)
    return caught.value.fault.rule, caught.value.fault.line, caught.value.fault.column


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "null", "12", ' "a" ', '\n{"a": [1, 2.5, true, null, {"b": "c"}]}\n', "[[], {}, [1]]"),
        *('{"a": 1}', '{ "a" : 1 , "b" : 2 }', '{"resources": {"a": 1}}', '{"resources": []}', '["\\ud83d\\ude00"]'),
        *('["\\\\ud800"]', "[123456789012345678901234567890]", '{"": ":", ":": "\\":", "a\\\\": "{"}'),
    ],
)
def test_values_are_those_of_json(text):
    """Reading gives what json gives, without faults."""
    decoded = read_json(text)

    assert ([json.loads(text)], ()) == (values_of(decoded), decoded.faults)


@pytest.mark.parametrize("text", ["", " \n\t\r "])
def test_white_space_is_no_value(text):
    """An empty file is a document without a value."""
    assert read_json(text).documents == (PlainDocument(None, 1),)


@pytest.mark.parametrize(
    ("text", "line", "item_lines"),
    [
        ("\n\n{}", 3, ()),
        ("[\n1,\n\n[2,\n3], 4\n]", 1, (2, 4, 5)),
        ('{"a": [1],\n"resources": [{"b":\n1}, 2\n,\n3]}', 1, (2, 3, 5)),
        ('{"a": {"resources": [1]}}', 1, ()),
        ('{"resources": "text"}', 1, ()),
    ],
)
def test_lines(text, line, item_lines):
    """The document and the items at the top or under `resources` know their lines."""
    (document,) = read_json(text).documents

    assert (line, item_lines) == (document.line, document.item_lines)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("{", 1),
        ("[", 1),
        ("[1", 2),
        ("[1 2]", 3),
        ("[1,]", 3),
        ('{"a"', 4),
        ('{"a" 1}', 5),
        ('{"a": 1', 7),
        ('{"a": 1 "b": 2}', 8),
        ('{"a": 1,}', 8),
        ("{1: 2}", 1),
        ('{"a": }', 6),
        ("1 2", 2),
        ("{} x", 3),
        ("tru", 0),
        ('"a', 0),
        ('["a\nb"]', 3),
        ('["\\x"]', 2),
    ],
)
def test_what_is_no_json(text, index):
    """Where the text stops being JSON is told as json itself tells it."""
    with pytest.raises(json.JSONDecodeError) as caught:
        read_json(text)
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)

    assert index == caught.value.pos


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000])
def test_numbers_that_no_message_can_hold(number):
    """Not a number, infinities, and numbers of thousands of digits are refused where they stand."""
    assert fault_of(f'["NaN 1e999",\n 1.5, {number}]') == ("bad-number", 2, 7)


@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101])
def test_depth(text):
    """A hundred and one levels are one too many."""
    rule, line, column = fault_of(text)

    assert ("too-deep", 1, len(text[: text.rindex(text[0])]) + 1) == (rule, line, column)


def test_depth_beyond_the_interpreter():
    """Levels that would exhaust Python's stack are the same fault."""
    assert fault_of("\n" + "[" * 100_000) == ("too-deep", 2, 101)


def test_a_hundred_levels_are_read():
    """The limit itself is no fault."""
    assert read_json("[" * 100 + "]" * 100).faults == ()


@pytest.mark.parametrize("text", ['["\\ud800"]', '["\\uDC00\\ud800"]', '{"\\udfff": 1}'])
def test_half_of_a_surrogate_pair(text):
    """Half a character has no UTF-8: no message could hold it."""
    assert fault_of(text)[:2] == ("bad-encoding", 1)


def test_duplicate_keys_name_both_lines():
    """All duplicates are found, wherever they are nested, and reading goes on."""
    decoded = read_json('{"a": 1,\n"b": [{"c": 1,\n "c": 2}],\n"a":\n2}')

    assert [
        ("duplicate-key", 3, 2, ("b", 0, "c"), "this key is already set on line 2"),
        ("duplicate-key", 4, 1, ("a",), "this key is already set on line 1"),
    ] == [(fault.rule, fault.line, fault.column, fault.field_path, fault.message) for fault in decoded.faults]
    assert [PlainDocument({"a": 2, "b": [{"c": 2}]}, 1)] == list(decoded.documents)


def test_duplicates_in_the_envelope_and_in_disguise():
    """A key that is spelled with an escape is the same key; `resources` twice is twice the same key."""
    decoded = read_json('{"resources": [1],\n"resour\\u0063es": [2]}')

    assert [("resources",)] == [fault.field_path for fault in decoded.faults]


def test_faults_are_counted():
    """A file of duplicates tells of the first thousand."""
    assert len(read_json("{" + '"a":1,' * 3000 + '"a":1}').faults) == MAX_FAULTS


def test_a_number_that_breaks_off() -> None:
    """A number that is too large and goes on as no number can is one fault, and no exception."""
    assert "bad-number" == fault_of("1e999.")[0]
