"""The converter against protobuf's own json_format, and against whatever a file may hold."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert_lenient import LenientReader
from fsxds.api.converter import CompiledConverter, Converter
from fsxds.api.printing import Printer
from fsxds.model.values import PlainValue, Severity, SpelledFloat
from tests.api.samples import CLUSTER, PREFIX, SAMPLES, WELL_KNOWN

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 99, 3.0, 3.5, 1e39, 1e400, float("nan"), 2**31, 2**32, 2**63, 2**64, 10**400),
    *(
        "",
        "x",
        "1",
        "-1",
        "3.0",
        " 1",
        "0x10",
        "01",
        "+1",
        "1_0",
        "\u0661",
        "true",
        "NaN",
        "high",
        "\ud800",
        "AAA",
        "A-_=",
    ),
    *("1s", "-1s", "1ms", "0.0000000001s", "315576000000.5s", "2026-01-01T00:00:00.1234567890Z"),
    *([], [1], [None], [[1]], {}, {"a": 1}, {"value": 1}, {"values": [1]}, {"seconds": 1}, {"seconds": 1, "nanos": -1}),
    *({"fields": {"a": 1}}, {"fields": {"a": {"string_value": "x"}}}, {"@type": "x"}, {"@type": WELL_KNOWN + "Empty"}),
)
KEYS = ("nope", "name", "value", "seconds", "prefix", "path", "@type", "\ud800")

# What protobuf for Python takes and Envoy's JSON reader refuses: two spellings of a field, nulls and empty lists where
# an object is due, digits that are none, bytes that are no base64, an infinite number, too many digits.
STRICTER_THAN_PROTOBUF = frozenset(
    ("duplicate-field", "wrong-value", "unknown-enum-value", "unknown-field", "nested-list")
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _mutated(sample: Any, chance: random.Random) -> Any:
    value = copy.deepcopy(sample)
    *way, last = chance.choice(list(_places(value)))
    parent = value
    for step in way:
        parent = parent[step]
    luck = chance.random()
    if luck < 0.7 or isinstance(parent, list):
        parent[last] = copy.deepcopy(chance.choice(ODD))
    elif luck < 0.8:
        parent[_camel(last)] = copy.deepcopy(parent[last])
    elif luck < 0.9:
        parent[chance.choice(KEYS)] = copy.deepcopy(chance.choice(ODD))
    else:
        parent[_camel(last)] = parent.pop(last)
    return value


def _judged(value: Any, catalogue: Catalogue) -> Message | None:
    """What json_format makes of a value with an "@type"; None when it refuses."""
    packed = catalogue.message_class(WELL_KNOWN.rpartition("/")[2] + "Any")()
    try:
        json_format.ParseDict(copy.deepcopy(value), packed, descriptor_pool=catalogue.pool)
    except Exception:  # noqa: BLE001, whatever it raises is a refusal
        return None
    type_url: str = packed.type_url  # type: ignore[attr-defined]  # its class is made at run time
    if not type_url:
        return None
    return catalogue.message_class(type_url.rpartition("/")[2]).FromString(packed.value)  # type: ignore[attr-defined]  # as above


def _same(one: Message | None, other: Message, printer: Printer) -> bool:
    """NaN is unequal to itself, and the bytes of an Any are in any order: so what is printed is compared too."""
    return one == other or (one is not None and repr(printer.to_plain(one)) == repr(printer.to_plain(other)))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["@type"].rpartition(".")[2])
def test_samples_convert_as_json_format_does(
    sample: Any, catalogue: Catalogue, converter: Converter, printer: Printer
) -> None:
    """A proper resource becomes the very message that json_format makes of it."""
    expected = _judged(sample, catalogue)

    actual = converter.convert_any(sample)

    assert actual.faults == ()
    assert expected is not None
    assert _same(actual.message, expected, printer)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_resources_against_json_format(seed: int, catalogue: Catalogue, printer: Printer) -> None:
    """The fast path never takes what the lenient one rejects, and neither ever means something else than json_format."""
    chance = random.Random(seed)
    compiled, converter = CompiledConverter(catalogue), Converter(catalogue)
    lenient = LenientReader(catalogue, Severity.ERROR)
    for _ in range(400):
        value = _mutated(chance.choice(SAMPLES), chance)
        expected, fast, careful = _judged(value, catalogue), compiled.build_any(value), converter.convert_any(value)

        assert fast is None or lenient.read_any(value)[1] == (), value
        assert (careful.message is None) == any(fault.severity is Severity.ERROR for fault in careful.faults)
        # Envoy takes a list within a list for its items; json_format does not.
        is_flat = all(fault.rule != "nested-list" for fault in careful.faults)
        if expected is not None and careful.message is not None and is_flat:
            assert _same(careful.message, expected, printer), value
        elif expected is not None:
            assert {fault.rule for fault in careful.faults} <= STRICTER_THAN_PROTOBUF, value
        for fault in careful.faults:
            assert "protobuf rejects" not in fault.message, value
            assert (fault.message + fault.remedy).encode()


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.builds(SpelledFloat, st.text(), st.floats()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("name", "type", "metadata", "filter_metadata", "@type", "value", "load_assignment", "endpoints")
            )
            | st.text(st.characters()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=PLAIN)
def test_no_value_raises(converter: Converter, value: PlainValue) -> None:
    """Whatever a file holds, the converter answers with a message or with faults."""
    actual = converter.convert(value, CLUSTER)

    assert (actual.message is None) == any(fault.severity is Severity.ERROR for fault in actual.faults)
    assert converter.convert_any(value) is not None


NESTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "struct": (lambda inner: {"k": inner}, lambda value: {"@type": WELL_KNOWN + "Struct", "value": value}),
    "list": (lambda inner: [inner], lambda value: {"@type": WELL_KNOWN + "Value", "value": value}),
    "any": (lambda inner: {"@type": WELL_KNOWN + "Any", "value": inner}, lambda value: value),
    "message": (
        lambda inner: {"and_rules": {"rules": [inner]}},
        lambda value: {"@type": PREFIX + "envoy.config.rbac.v3.Permission", **value},
    ),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("levels", [20, 60, 200, 600])
def test_deep_nesting_is_a_fault(kind: str, levels: int, converter: Converter) -> None:
    """What protobuf could not read back is refused, and Python's own limit is never met."""
    wrap, finish = NESTED[kind]
    value: Any = {}
    for _ in range(levels):
        value = wrap(value)
    resource = finish(value)

    actual = converter.convert_any(resource)

    if actual.message is None:
        assert {fault.rule for fault in actual.faults} == {"too-deep"}
    else:
        assert type(actual.message).FromString(actual.message.SerializeToString()) == actual.message
        assert levels < 100


def test_equal_values_give_equal_bytes(catalogue: Catalogue) -> None:
    """The order of keys, and what was converted before, leave no trace in the bytes, not even within an Any."""
    resource: dict[str, PlainValue] = {"@type": PREFIX + CLUSTER, "name": "a"}
    entries: dict[str, PlainValue] = {
        f"k{number}": {"@type": WELL_KNOWN + "Struct", "value": {str(n): n for n in range(9)}} for number in range(9)
    }
    forth = resource | {"typed_extension_protocol_options": entries}
    back = resource | {"typed_extension_protocol_options": dict(reversed(entries.items()))}

    bodies = set()
    for value in (forth, back, {**back, "type": "eds"}, {**forth, "type": "EDS"}):
        message = Converter(catalogue).convert_any(value).message
        assert message is not None
        bodies.add(message.SerializeToString(deterministic=True))

    assert len(bodies) == 2


def test_unknown_fields_can_be_dropped(catalogue: Catalogue) -> None:
    """With warnings asked for, unknown fields and enum names are left out, each with a fault of that severity."""
    tolerant = Converter(catalogue, unknown_fields=Severity.WARNING)

    actual = tolerant.convert({"name": "a", "nope": 1, "lb_policy": "MINE"}, CLUSTER)

    assert actual.message == catalogue.message_class(CLUSTER)(name="a")
    assert [("unknown-field", Severity.WARNING), ("unknown-enum-value", Severity.WARNING)] == [
        (fault.rule, fault.severity) for fault in actual.faults
    ]


def test_unknown_message_type_is_the_callers_mistake(converter: Converter) -> None:
    """Converting to a type that the catalogue does not know raises KeyError."""
    with pytest.raises(KeyError):
        converter.convert({}, "no.such.Type")
