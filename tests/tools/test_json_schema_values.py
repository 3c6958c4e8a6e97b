"""Schemas of values: as wide as Envoy's reader, as narrow as the rules."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from jsonschema import Draft202012Validator

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraint_options import ApiRules
from fsxds.tools.json_schema import (
    SHARED,
    any_case,
    is_special,
    scalar_schema,
    well_known_type_schema,
)


def is_valid(schema: Any, value: Any) -> bool:
    return bool(Draft202012Validator({**schema, "$defs": dict(SHARED)}).is_valid(value))


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("bool", [True, "true", "Yes", "0", "off"], [1, "maybe", None]),
        ("int32", [0, -5, 5.0, "5", "+5", "5.0"], [1 << 31, 1.5, "five", True]),
        ("uint32", [0, (1 << 32) - 1, "7"], [-1, 1 << 32, ""]),
        ("int64", [-(1 << 63), "9223372036854775807"], [1 << 63]),
        ("uint64", [(1 << 64) - 1], [-1]),
        ("number", [1, 1.5, "1.5", ".5", "NaN", "-Infinity", "1e5"], ["one", "inf", None]),
        ("bytes", ["", "YQ==", "YQ", "-_"], ["a b", 5]),
        ("duration", ["1s", "1.5s", "-1s", {"seconds": 1}, {"nanos": "5"}], ["1", "1m", "1.s", {"second": 1}]),
        ("duration-positive", ["1s", "0.5s", {"seconds": 1}], ["0s", "0.0s", "-1s"]),
        ("bool-value", [True, "yes", {"value": True}], [1, "maybe", {"vaule": True}]),
        ("uint32-value", [5, "5", {"value": 5}], [-1, {"vaule": 5}]),
        ("timestamp", ["2026-01-02T03:04:05Z", {"seconds": 1}], [5]),
    ],
)
def test_shared_definitions(name: str, taken: list[Any], refused: list[Any]) -> None:
    """Each takes what Envoy's reader takes."""
    assert taken == [value for value in taken if is_valid(SHARED[name], value)]
    assert [] == [value for value in refused if is_valid(SHARED[name], value)]


def field_of(catalogue: Catalogue, message_type: str, name: str) -> FieldDescriptor:
    """Return a field."""
    descriptor = catalogue.descriptor(message_type)
    assert descriptor is not None
    return descriptor.fields_by_name[name]


def schema_of(catalogue: Catalogue, message_type: str, name: str) -> Any:
    """Return the schema of a field, with its rules."""
    field = field_of(catalogue, message_type, name)
    rules = catalogue.once(ApiRules).rules_of(field)
    if field.message_type is None:
        return scalar_schema(field, rules)
    special = well_known_type_schema(field.message_type.full_name, rules)
    return special or scalar_schema(field.message_type.fields_by_name["value"], rules)


CORE, ROUTE = "envoy.config.core.v3", "envoy.config.route.v3"


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        (f"{CORE}.SocketAddress.port_value", [0, 65535, "80"], [65536, -1]),
        (f"{CORE}.SocketAddress.address", ["a"], ["", 5]),
        (f"{ROUTE}.DirectResponseAction.status", [200], [199.5, 600]),
        (f"{CORE}.HeaderValue.key", ["x-a", "a b"], ["", "a\nb"]),
        (f"{ROUTE}.RouteMatch.path_separated_prefix", ["/a"], ["/a/", "/a?b"]),
        (f"{CORE}.ApiConfigSource.request_timeout", ["1s", "0.5s", {"seconds": 1}], ["0s", "0.000s", "-1s", "1"]),
        (f"{CORE}.HealthCheck.interval", ["1s"], ["0s"]),
        (f"{ROUTE}.HeaderMatcher.present_match", [True, "yes"], ["maybe"]),
        ("envoy.config.endpoint.v3.LbEndpoint.load_balancing_weight", [1, "1"], [0]),
    ],
)
def test_rules(field: str, taken: list[Any], refused: list[Any], catalogue: Catalogue) -> None:
    """Ranges, lengths, patterns and durations become keywords."""
    message_type, _, name = field.rpartition(".")
    schema = schema_of(catalogue, message_type, name)

    assert taken == [value for value in taken if is_valid(schema, value)]
    assert [] == [value for value in refused if is_valid(schema, value)]


@pytest.mark.parametrize(
    ("rules", "taken", "refused"),
    [
        ({"string": {"in": ["a", "b"]}}, ["a"], ["c"]),
        ({"string": {"const": "a"}}, ["a"], ["b"]),
        ({"string": {"not_in": ["a"]}}, ["b"], ["a"]),
        ({"string": {"len": 2}}, ["ab"], ["a", "abc"]),
        ({"string": {"min_bytes": 3, "max_bytes": 4}}, ["äb", "abcd"], ["", "abcde"]),
        ({"string": {"prefix": "a.", "suffix": ".c"}}, ["a.c", "a.b.c"], ["ab.c", "a.bc"]),
        ({"string": {"contains": "."}}, ["a.b"], ["ab"]),
        ({"string": {"pattern": "^(?i)a$"}}, ["b"], [5]),
        ({"string": {"well_known_regex": 2}}, ["a b", ""], ["a\nb"]),
        ({"string": {"well_known_regex": 2, "strict": False}}, ["a\tb"], ["a\nb"]),
        ({"string": {"well_known_regex": 1}}, [":path", "x-a"], ["", "a b", "ä"]),
        ({"string": {"min_len": 3, "max_len": 4, "ignore_empty": True}}, ["", "abcd"], ["abcde"]),
    ],
)
def test_rules_of_texts(rules: Any, taken: list[str], refused: list[Any], catalogue: Catalogue) -> None:
    """What JSON Schema cannot say in the same sense is left to words: it refuses nothing that is right."""
    field = field_of(catalogue, f"{CORE}.Node", "id")
    schema = scalar_schema(field, rules)

    assert taken == [value for value in taken if is_valid(schema, value)]
    assert [] == [value for value in refused if is_valid(schema, value)]


@pytest.mark.parametrize(
    ("rules", "taken", "refused"),
    [
        ({"uint32": {"gt": 1, "lt": 5}}, [2, 4], [1, 5, -1]),
        ({"uint32": {"lte": 5}}, [0, 5], [6, -1]),
        ({"uint32": {"gte": 5, "lte": 1}}, [0, 3, 7], [-1]),
        ({"uint32": {"gte": 5, "ignore_empty": True}}, [0, 3], [-1]),
        ({"uint32": {"in": [1, 2]}}, [1], [3]),
        ({"uint32": {"const": 3}}, [3], [4]),
    ],
)
def test_rules_of_numbers(rules: Any, taken: list[int], refused: list[int], catalogue: Catalogue) -> None:
    """Bounds that are turned around mean "outside", which is left to words."""
    field = field_of(catalogue, f"{CORE}.SocketAddress", "port_value")
    schema = scalar_schema(field, rules)

    assert taken == [value for value in taken if is_valid(schema, value)]
    assert [] == [value for value in refused if is_valid(schema, value)]


def test_bounds_of_fractions(catalogue: Catalogue) -> None:
    """A number with bounds may still be written as text."""
    field = field_of(catalogue, "envoy.type.v3.Percent", "value")
    schema = scalar_schema(field, {"double": {"gte": 0.0, "lte": 100.0}})

    assert [True, True, False] == [is_valid(schema, value) for value in (50, "50", 101)]


def test_a_switch_that_must_be_on(catalogue: Catalogue) -> None:
    """The words for it are taken as well."""
    field = field_of(catalogue, "google.protobuf.BoolValue", "value")
    schema = scalar_schema(field, {"bool": {"const": True}})

    assert [True, True, False] == [is_valid(schema, value) for value in (True, "yes", False)]


@pytest.mark.parametrize(
    ("rules", "taken", "refused"),
    [
        ({"string": {"in": ["a"]}}, ["a", {"value": "a"}], ["b", {"vaule": "a"}, 5]),
        ({"string": {"min_len": 2}}, ["ab", {"value": "a"}], ["a"]),
    ],
)
def test_rules_of_texts_that_may_be_wrapped(
    rules: Any, taken: list[Any], refused: list[Any], catalogue: Catalogue
) -> None:
    """They judge the text alone."""
    schema = scalar_schema(field_of(catalogue, "google.protobuf.StringValue", "value"), rules, "-value")

    assert taken == [value for value in taken if is_valid(schema, value)]
    assert [] == [value for value in refused if is_valid(schema, value)]


def test_words_in_any_case() -> None:
    """Letters in either case; what has a meaning in patterns has none."""
    assert any_case("A_1", "b.") == r"^([aA]_1|[bB]\.)$"


@pytest.mark.parametrize(("message_type", "expected"), [("google.protobuf.Struct", True), (f"{CORE}.Node", False)])
def test_special_messages(message_type: str, *, expected: bool) -> None:
    """Their JSON is no object of their fields."""
    assert expected == is_special(message_type)
