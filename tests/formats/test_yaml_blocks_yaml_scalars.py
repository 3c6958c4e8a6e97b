"""Plain YAML scalars, each put to Envoy 1.40 as a value of node metadata and read back from its config dump."""

import pytest

from fsxds.formats.yaml_blocks import is_ambiguous, resolve_plain
from fsxds.model.values import SpelledFloat

BOOLS = {
    spelling: truth
    for words, truth in ((("y", "yes", "on", "true"), True), (("n", "no", "off", "false"), False))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}


@pytest.mark.parametrize(("text", "truth"), BOOLS.items())
def test_yaml_1_1_words_are_bools(text, truth):
    """The words of YAML 1.1 are bools in three spellings."""
    assert resolve_plain(text) is truth


@pytest.mark.parametrize("text", ["yEs", "yeS", "oN", "tRUE", "TRue", "nULL", "Y es", "truee"])
def test_other_spellings_of_words_are_texts(text):
    """A word in another spelling is a text."""
    assert resolve_plain(text) == text


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nulls(text):
    """Nothing, a tilde and three spellings of null are null."""
    assert resolve_plain(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("00", 0),
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("017", 15),
        ("-017", -15),
        ("+017", 15),
        ("0755", 493),
        ("0x1F", 31),
        ("0X1F", 31),
        ("-0x1F", -31),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("0x7fffffff", 2147483647),
        ("-0x80000000", -2147483648),
    ],
)
def test_integers_have_the_prefixes_of_c(text, number):
    """Decimal, octal and hexadecimal integers of 32 bit are numbers."""
    value = resolve_plain(text)

    assert (int, number) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2147483648", "2147483648"),
        ("-2147483649", "-2147483649"),
        ("0x80000000", "2147483648"),
        ("0xffffffff", "4294967295"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("0x8000000000000000", "0x8000000000000000"),
        ("9" * 10_000, "9" * 10_000),
    ],
)
def test_longer_integers_are_texts(text, expected):
    """An integer beyond 32 bit is a text: in decimal up to 64 bit, as it is spelled beyond."""
    assert resolve_plain(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("0o17", "0xg", "0x", "0x1G", "0b101", "1_000", "0_7", "1,000", "12:30:45", "1:30", "2024-01-01"),
        *(".inf", "-.inf", "+.inf", ".INF", ".nan", ".NaN", "inf", "nan", "NaN", "Infinity", "1e400", "1e", "e3"),
        *("+", "--5", "+-5", "5a", "1 2", "0x1p3", "0x1.8p1", "1d3", "1f", "10L", ".", "-", "-.", "٣", "²"),
    ],
)
def test_what_other_readers_make_of_texts_is_text(text):
    """Dates, sexagesimals, underscores, binary numbers, infinities and beginnings of numbers are texts."""
    assert resolve_plain(text) == text


@pytest.mark.parametrize(
    "text", ["1.0", ".5", "-.5", "+.5", "1.", "1e3", "1E3", "1e+3", "0.1e5", "1e-400", "08", "09", "0e0"]
)
def test_decimals_are_numbers_that_keep_their_spelling(text):
    """A decimal is text to Envoy and yet right for a number field: it is both."""
    value = resolve_plain(text)

    assert isinstance(value, SpelledFloat)
    assert (text, float(text)) == (value.text, value)


@pytest.mark.parametrize("text", ["yes", "N", "Off", "0755", "-017", "00", "08"])
def test_ambiguous_scalars(text):
    """The short words and numbers with a leading zero are read otherwise elsewhere."""
    assert is_ambiguous(text)


@pytest.mark.parametrize("text", ["true", "FALSE", "null", "0", "-0", "10", "0x10", "0.5", "yEs", ""])
def test_plain_scalars(text):
    """These mean the same everywhere, or are texts."""
    assert not is_ambiguous(text)
