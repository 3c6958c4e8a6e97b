"""One pass over YAML: values, lines, and everything that can be wrong."""

import pickle
from typing import Any

import pytest

from fsxds.formats.decoded import MAX_FAULTS, Decoded, PlainDocument
from fsxds.formats.yaml_format import read_yaml
from fsxds.model.values import Severity
from tests.formats.reading import values_of


def value_of(text):
    """Return the value of a text without faults and with one document."""
    decoded = read_yaml(text)
    assert decoded.faults == ()
    (value,) = values_of(decoded)
    return value


def faults_of(text):
    """Return rule, line, column and path of every fault."""
    return [(fault.rule, fault.line, fault.column, fault.field_path) for fault in read_yaml(text).faults]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 5", {"a": 5}),
        ("a: '5'", {"a": "5"}),
        ('a: "true"', {"a": "true"}),
        ("a: ! 5", {"a": "5"}),
        ("a: ! '5'", {"a": "5"}),
        ("a: &x ! 5\nb: *x", {"a": "5", "b": "5"}),
        ("a: !!int 5", {"a": 5}),
        ("a: !!null x", {"a": "x"}),
        ("a: !!str text", {"a": "text"}),
        ("a: !!str", {"a": ""}),
        ("a: !!null ~", {"a": "~"}),
        ("a: |\n  5\n", {"a": "5\n"}),
        ("a: >-\n  true\n", {"a": "true"}),
        ("a: !!map {b: 1}\nc: !!seq [1]\nd: ! [2]", {"a": {"b": 1}, "c": [1], "d": [2]}),
        ("5: a\ny: b\n~: c\n1.0: d", {"5": "a", "y": "b", "~": "c", "1.0": "d"}),
        ("! a: 1\n!!str b: 2", {"a": 1, "b": 2}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("a: &x b\n*x : 1", {"a": "b", "b": 1}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("? a\n: 1", {"a": 1}),
        ("a:\n  - {b: [x, 'y', ~, {}, []]}", {"a": [{"b": ["x", "y", None, {}, []]}]}),
        ("{\"a\": 1, 'b': [2,], c: }", {"a": 1, "b": [2], "c": None}),
        ("- 1\n- b", [1, "b"]),
        ("text", "text"),
    ],
)
def test_values(text, value):
    """Quotes and a lone exclamation mark make texts, other core tags change nothing, keys are texts."""
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'\n\n'", ""),
        ("'a\n\n'", "a\n"),
        ("'a\n\n\n\n'", "a\n"),
        ("'a\n\n\nb'", "a\n\nb"),
        ("'it''\n\n\n\n'", "it'\n\n"),
        ('"\n\n\n"', ""),
        ('"a\\n\n\n"', "a\n\n"),
        ('"\\n\\n\\n"', "\n\n\n"),
        ('"a\\x41\r\n\r\n\r\n\r\n"', "aA\n\n"),
        ('"\\u0041a\n\n\n"', "Aa\n"),
        ('"a\\\\\n\n\n\n"', "a\\\n\n"),
        ('"a\\\n\n\n\n\n"', "a\n\n"),
        ("!!str '\n\n'", ""),
        ("&x # y\n  '\n\n'", ""),
        (">+\n  a\n\n\n", "a\n\n"),
        (">+\n  a\n   b\n\n\n", "a\n b\n\n\n"),
        (">+\n\n\n", "\n\n"),
        ("|+\n  a\n\n\n", "a\n\n\n"),
    ],
)
def test_line_breaks_at_the_end_are_read_as_by_envoy(text, value):
    """Envoy keeps fewer of them than YAML demands; of escapes and of breaks in a text it keeps all."""
    broken = text.replace("\n'", "\n  '").replace('\n"', '\n  "').replace("\nb'", "\n  b'")

    assert value_of(f"a: {broken}") == {"a": value}
    assert value_of(f"- {broken}") == [value]


def test_scalar_types_survive_the_memory_of_scalars():
    """The same letters in quotes and without stay different, wherever they come first."""
    assert value_of("- 1\n- '1'\n- 1\n- 1.0\n- '1.0'\n- true\n- 'true'") == [1, "1", 1, 1.0, "1.0", True, "true"]


def test_ignored_keys_are_dropped_with_their_values_but_keep_their_anchors():
    """`!ignore` is Envoy's way to define anchors aside; the same key may be ignored twice."""
    assert value_of("!ignore x: &a {b: 1}\n!ignore x: [1]\ny: *a") == {"y": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("- &a {x: 1, y: 2}\n- <<: *a\n  y: 3", {"x": 1, "y": 3}),
        ("- &a {x: 1, y: 2}\n- y: 3\n  <<: *a", {"x": 1, "y": 3}),
        ("- [&a {x: 1}, &b {x: 2, z: 3}]\n- <<: [*a, *b]", {"x": 1, "z": 3}),
        ("- &a {x: 1}\n- <<: {x: 5}", {"x": 5}),
        ("- &a {x: 1}\n- '<<': *a", {"<<": {"x": 1}}),
        ("- 1\n- '<<': 2", {"<<": 2}),
    ],
)
def test_merge_keys(text, merged):
    """What is written wins over what is merged, the first source over the next; in quotes the key is a key."""
    assert value_of(text)[1] == merged


def test_merging_does_not_change_the_source():
    """A source that is merged twice stays what it was."""
    text = "a: &a {x: 1}\nb:\n  <<: *a\n  z: 1\nc:\n  <<: *a"

    assert value_of(text) == {"a": {"x": 1}, "b": {"x": 1, "z": 1}, "c": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(None, 1, ())]),
        ("# nothing\n", [(None, 1, ())]),
        ("---\n---\na: 1", [(None, 2, ()), ({"a": 1}, 3, ())]),
        ("\n\na: 1\n---\n\n- b\n-\n  - c\n", [({"a": 1}, 3, ()), (["b", ["c"]], 6, (6, 8))]),
        ("resources:\n- a\n\n- b: [1]\nother: [1]", [({"resources": ["a", {"b": [1]}], "other": [1]}, 1, (2, 4))]),
        ("resources: {a: [1]}", [({"resources": {"a": [1]}}, 1, ())]),
        ("a: {resources: [1]}", [({"a": {"resources": [1]}}, 1, ())]),
        ("!ignore x: [1]\nresources: []", [({"resources": []}, 1, ())]),
        ("resources: [a,\n b]", [({"resources": ["a", "b"]}, 1, (1, 2))]),
    ],
)
def test_documents_and_lines(text, expected):
    """Every document has its line, and the lines of its items at the top or under `resources`."""
    documents: Any = read_yaml(text).documents

    assert expected == [(document.value, document.line, document.item_lines) for document in documents]


def test_duplicate_keys_name_both_lines():
    """All duplicates are found, each with its own place and the line of the first."""
    decoded = read_yaml("a: 1\nb:\n  c: 1\n  c: 2\na: 2\n---\nd: {e: 1, 'e': 2}\n")

    assert [
        ("duplicate-key", 4, 3, ("b", "c"), "this key is already set on line 3"),
        ("duplicate-key", 5, 1, ("a",), "this key is already set on line 1"),
        ("duplicate-key", 7, 11, ("d", "e"), "this key is already set on line 7"),
    ] == [(fault.rule, fault.line, fault.column, fault.field_path, fault.message) for fault in decoded.faults]
    assert [2, 1] == [len(value) for value in values_of(decoded)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: *b", ("undefined-alias", 1, 4, ("a",))),
        ("a: &x 1\n---\nb: *x", ("undefined-alias", 3, 4, ("b",))),
        ("a: &b [*b]", ("recursive-alias", 1, 8, ("a", 0))),
        ("a: &b {c: {d: *b}}", ("recursive-alias", 1, 15, ("a", "c", "d"))),
        ("a: !foo 5", ("unknown-tag", 1, 4, ("a",))),
        ("a: !ignore 5", ("unknown-tag", 1, 4, ("a",))),
        ("a: !!binary aGk=", ("unknown-tag", 1, 4, ("a",))),
        ("a: !!set {b: }", ("unknown-tag", 1, 4, ("a",))),
        ("!foo a: 5", ("unknown-tag", 1, 1, ())),
        ("? [a]\n: 5", ("bad-key", 1, 3, ())),
        ("? {a: 1}\n: 5", ("bad-key", 1, 3, ())),
        ("a: &x [1]\n*x : 5", ("bad-key", 2, 1, ())),
        ("<<: 5", ("bad-merge", 1, 5, ("<<",))),
        ("<<: [{a: 1}, 5]", ("bad-merge", 1, 5, ("<<",))),
        ("a: {b: 1}\n<<: {}\n<<: {}", ("duplicate-key", 3, 1, ("<<",))),
    ],
)
def test_faults_after_which_reading_goes_on(text, fault):
    """These faults have a place, a path and a remedy, and the document is still there."""
    decoded = read_yaml(text)

    assert faults_of(text) == [fault]
    assert decoded.faults[0].remedy
    assert decoded.documents


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: b: c", ("bad-syntax", 1, 5, ())),
        ("a: [1", ("bad-syntax", 1, 6, ())),
        ("a: 1\n\tb: 2", ("bad-syntax", 2, 1, ())),
        ("a: 'x", ("bad-syntax", 1, 6, ())),
        ("a: @b", ("bad-syntax", 1, 4, ())),
        ("%YAML 9.9\n---\na", ("bad-syntax", 1, 1, ())),
        ('a: "\\ud800"', ("bad-syntax", 1, 7, ())),
        ("ä: \x01", ("bad-syntax", 1, 4, ())),
        ("[" * 101 + "]" * 101, ("too-deep", 1, 101, (0,) * 100)),
        ("[" * 100_000, ("too-deep", 1, 101, (0,) * 100)),
        ("- " * 100_000, ("too-deep", 1, 201, (0,) * 100)),
        ("{a: " * 100_000, ("too-deep", 1, 401, ("a",) * 100)),
        ("{<<: " * 900 + "{}" + "}" * 900, ("too-deep", 1, 501, ("<<",) * 100)),
    ],
)
def test_faults_that_end_the_file(text, fault):
    """After these nothing of the file is left; the end of an unclosed text is where libyaml sees it."""
    decoded = read_yaml(text)

    assert [fault] == [(each.rule, each.line, each.column, each.field_path) for each in decoded.faults]
    assert decoded.documents == ()


def test_a_hundred_levels_are_read():
    """The limit itself is no fault."""
    assert read_yaml("[" * 100 + "]" * 100).faults == ()


def test_depth_counts_through_aliases():
    """Levels that aliases add are levels."""
    text = "a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(99))

    (fault,) = read_yaml(text).faults

    assert ("too-deep", 100) == (fault.rule, fault.line)


def test_alias_bomb():
    """A text that would grow a million times is refused before it does."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))

    decoded = read_yaml(bomb)

    assert ((), "alias-bomb") == (decoded.documents, decoded.faults[0].rule)


@pytest.mark.parametrize(
    ("text", "value", "remedy"),
    [
        ("a: yes", True, 'write true, or "yes" in quotes for a text'),
        ("a: Off", False, 'write false, or "Off" in quotes for a text'),
        ("a: 0755", 493, "remove the zero, or quote it"),
        ("a: 08", 8.0, "remove the zero, or quote it"),
        ("a: !!str 5", 5, 'write it in quotes, or with a single "!"'),
        ("a: !!str '5'", 5, 'write it in quotes, or with a single "!"'),
    ],
)
def test_ambiguous_scalars_are_warnings(text, value, remedy):
    """What Envoy reads otherwise than many expect is read as Envoy does, with a warning."""
    decoded = read_yaml(text)

    assert [("ambiguous-scalar", ("a",), remedy, Severity.WARNING)] == [
        (fault.rule, fault.field_path, fault.remedy, fault.severity) for fault in decoded.faults
    ]
    assert [PlainDocument({"a": value}, 1)] == list(decoded.documents)


def test_every_ambiguous_value_is_warned_of_and_no_key():
    """The second `yes` is as ambiguous as the first; a key `y` is a text anyway."""
    assert [2, 3] == [fault.line for fault in read_yaml("y: 1\na: yes\nb: [yes]\n").faults]


def test_warnings_do_not_crowd_out_errors():
    """However many warnings there are, the errors are told."""
    text = "".join(f"a{n}: yes\n" for n in range(MAX_FAULTS + 10)) + "b: *b\n"

    faults = read_yaml(text).faults

    assert (MAX_FAULTS + 1, "undefined-alias") == (len(faults), faults[-1].rule)


def test_reading_ends_after_too_many_errors():
    """A text with a fault on every line is not read to its end."""
    decoded = read_yaml("a: 1\n" * (MAX_FAULTS + 10))

    assert ((), MAX_FAULTS + 1, "too-many-faults") == (
        decoded.documents,
        len(decoded.faults),
        decoded.faults[-1].rule,
    )


def test_a_fault_of_syntax_keeps_the_faults_before_it():
    """What was found before the text broke is told too."""
    assert ["duplicate-key", "bad-syntax"] == [fault.rule for fault in read_yaml("a: 1\na: 2\nb: [").faults]


def test_messages_do_not_repeat_values():
    """A private key in a broken text stays there."""
    for text in (
        "a: !tag SECRET",
        "a: 'SECRET",
        "a: SECRET: b",
        "- SECRET\n a",
        "a: {b: SECRET, b: SECRET2}",
        'a: "SECRET\\q"',
    ):
        for fault in read_yaml(text).faults:
            assert "SECRET" not in fault.message + fault.remedy


def test_values_can_be_sent_to_another_process():
    """Decoded values survive pickling, spelled numbers included."""
    decoded = read_yaml("a: 1.0\nb: [yes]")
    copy: Decoded = pickle.loads(pickle.dumps(decoded))

    assert decoded == copy
    assert values_of(copy)[0]["a"].text == "1.0"
