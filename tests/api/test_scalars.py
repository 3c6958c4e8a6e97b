"""Scalars one by one, those of rare kinds too."""

import copy
import pickle

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.model.values import PlainValue, SpelledFloat
from tests.api.samples import WELL_KNOWN

LARGEST = 3.4028234663852886e38


@pytest.mark.parametrize(
    ("kind", "written", "printed"),
    [
        ("BoolValue", "no", False),
        ("BoolValue", None, False),
        ("StringValue", "1.0", "1.0"),
        ("BytesValue", "A-_=", "A+8="),
        ("BytesValue", "AAA", "AAA="),
        ("BytesValue", SpelledFloat("1e3", 1000.0), "1e0="),
        ("BytesValue", SpelledFloat("08", 8.0), "0w=="),
        ("Int32Value", "-2147483648", -2147483648),
        ("Int64Value", "9223372036854775807", "9223372036854775807"),
        ("UInt64Value", 2**64 - 1, "18446744073709551615"),
        ("FloatValue", 3.4028235e38, 3.4028235e38),
        ("FloatValue", "-3.4028235e38", -3.4028235e38),
        ("FloatValue", "Infinity", "Infinity"),
        ("FloatValue", {"value": "NaN"}, "NaN"),
        ("DoubleValue", "1e-3", 0.001),
        ("DoubleValue", {"value": "-Infinity"}, "-Infinity"),
        ("DoubleValue", "1e999", "Infinity"),
        ("DoubleValue", " -INF\n", "-Infinity"),
        ("DoubleValue", "nan", "NaN"),
        ("DoubleValue", "0x1.8p3", 12.0),
        ("Int32Value", "0x10", 16),
        ("Int64Value", "-0X1f", "-31"),
        ("Duration", {"seconds": 0, "nanos": -5}, "-0.000000005s"),
        ("Value", SpelledFloat("1e3", 1000.0), "1e3"),
        ("Value", {"a": [True, None, SpelledFloat("1.0", 1.0)]}, {"a": [True, None, "1.0"]}),
        ("ListValue", None, []),
    ],
)
def test_taken(kind: str, written: PlainValue, printed: PlainValue, converter: Converter, printer: Printer) -> None:
    """What is taken means this."""
    actual = converter.convert_any({"@type": WELL_KNOWN + kind, "value": written})

    assert actual.message is not None
    assert {"value": printed} == printer.to_plain(actual.message) or printed == printer.to_plain(actual.message)


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        ("BoolValue", "maybe", "true or false"),
        ("BytesValue", "A", "bytes in base64"),
        ("BytesValue", "not base64!", "bytes in base64"),
        ("BytesValue", 5, "bytes in base64"),
        ("Int32Value", 2**31, "a whole number from -2147483648 to 2147483647"),
        ("Int64Value", "9223372036854775808", "a whole number"),
        ("UInt32Value", "1_0", "a whole number"),
        ("UInt32Value", 10**500, "a whole number from 0 to 4294967295"),
        ("FloatValue", 3.5e38, "a finite number"),
        ("FloatValue", "", "a number"),
        ("DoubleValue", 10**400, "a finite number"),
        ("DoubleValue", "0x.p1", "a number"),
        ("DoubleValue", "5f", "a number"),
        ("Int32Value", " 0x10", "a whole number"),
        ("DoubleValue", [1], "a number"),
        ("ListValue", {"a": 1}, "a list"),
        ("Timestamp", {"seconds": 10**12}, "a timestamp"),
        ("FieldMask", "a_b", "a field mask"),
    ],
)
def test_refused(kind: str, written: PlainValue, expected: str, converter: Converter) -> None:
    """What is refused is told with what was expected."""
    actual = converter.convert_any({"@type": WELL_KNOWN + kind, "value": written})

    assert actual.message is None
    assert ["wrong-value"] == [fault.rule for fault in actual.faults]
    assert actual.faults[0].message.startswith(f"expected {expected}")


@pytest.mark.parametrize(("written", "is_taken"), [(None, True), ("NULL_VALUE", True), (0, True), ("null", False)])
def test_null_value(written: PlainValue, catalogue: Catalogue, is_taken: bool) -> None:
    """The one value of the enum NullValue is null, or its name, or its number."""
    message_type = "google.api.expr.v1alpha1.Constant"

    actual = Converter(catalogue).convert({"null_value": written}, message_type)

    assert is_taken == (actual.message is not None)


def test_spelled_floats_can_be_copied() -> None:
    """A spelled float keeps its text where it is copied, or sent to another process."""
    number = SpelledFloat("1.50", 1.5)

    for again in (copy.deepcopy(number), pickle.loads(pickle.dumps(number))):
        assert (1.5, "1.50") == (again, again.text)
