"""libyaml's complaints in an author's words."""

import pytest
from yaml import YAMLError

from fsxds.formats import yaml_format
from fsxds.formats.yaml_format import read_events, require_libyaml, syntax_fault
from fsxds.model.errors import UsageError


def complaint_of(text):
    """Return the fault that libyaml finds in a text."""
    events = iter(read_events(text), None)
    with pytest.raises(YAMLError) as caught:
        list(events)
    return syntax_fault(caught.value, text)


@pytest.mark.parametrize(
    ("text", "place", "message", "remedy"),
    [
        ("a: b: c", (1, 5), "mapping values are not allowed in this context", "quote a value that holds ': '"),
        ("a:\n\tb: 1", (2, 1), "expected spaces, found a tab", "indent with spaces"),
        ("a: 1\nb\n", (2, 2), "that begins on line 2: could not find expected ':'", "add the colon"),
        ("a:\n  b: 1\n c: 2", (3, 2), "that begins on line 1: did not find expected key", "like its neighbours"),
        ("- a\nb: 1", (2, 1), "did not find expected '-' indicator", "like the other items"),
        ("a: [1, 2", (1, 9), "did not find expected ',' or ']'", "close the bracket"),
        ("a: 'b", (1, 6), "found unexpected end of stream", "close the quote"),
        ('a: "\\q"', (1, 5), "found unknown escape character", "use single quotes"),
        ("a: `b`", (1, 4), "found character that cannot start any token", "quote the value"),
        ("a: - b", (1, 4), "block sequence entries are not allowed in this context", "on a line of its own"),
        ("%YAML 2.0\n---\na", (1, 1), "found incompatible YAML document", "remove the %YAML line"),
        ("a: !x!y b", (1, 4), "found undefined tag handle", "remove the tag"),
        ("ä: \x07", (1, 4), "YAML does not allow this control character", '"\\u0001"'),
    ],
)
def test_complaints(text, place, message, remedy):
    """A complaint has its place, libyaml's words and a remedy."""
    fault = complaint_of(text)

    assert ("bad-syntax", *place) == (fault.rule, fault.line, fault.column)
    assert message in fault.message
    assert remedy in fault.remedy


def test_other_complaints():
    """An error without a place is still a fault."""
    assert syntax_fault(YAMLError(), "").rule == "bad-syntax"


def test_libyaml_is_there():
    """The PyYAML that the tests run with has libyaml."""
    require_libyaml()


def test_without_libyaml(monkeypatch):
    """A PyYAML without libyaml is wrong use, and the message tells how to get the other."""
    monkeypatch.setattr(yaml_format, "__with_libyaml__", False)

    with pytest.raises(UsageError, match="pip install"):
        require_libyaml()
