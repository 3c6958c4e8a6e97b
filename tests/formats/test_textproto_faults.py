"""text_format's errors without what they quote."""

from google.protobuf.text_format import ParseError

from fsxds.formats.textproto_faults import explain


def test_known_words():
    """Names are taken over from the errors that are known."""
    explained = explain(ParseError('Message type "a.b.C" has no field named "d".', 2, 3))

    assert ('"C" has no field "d"', 2, 3) == (explained.fault.message, explained.fault.line, explained.fault.column)


def test_missing_types_are_told_apart():
    """The error that comes without a place brings the type instead."""
    explained = explain(ParseError("Type a.b.C not found in descriptor pool"))

    assert ("a.b.C", None) == (explained.unknown_type, explained.fault.line)


def test_unknown_words_are_not_repeated():
    """An error of a later protobuf says only that something is wrong."""
    explained = explain(ParseError("'password: \"x\"': something new", 1, 1))

    assert ("bad-syntax", "this is not text format") == (explained.fault.rule, explained.fault.message)
