"""Envoy's JSON dialect, and what is said of everything else."""

from typing import Any

import pytest

from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.model.values import FieldPath, PlainValue, SpelledFloat
from tests.api.samples import CLUSTER, PREFIX, SECRET, WELL_KNOWN
from tests.support.costs import cost_s

FILTER = "typed_filter_metadata"

# Each of these was accepted by Envoy 1.40 (`--mode validate`): what an author wrote, and the same in proto3 JSON.
ACCEPTED: tuple[tuple[dict[str, PlainValue], dict[str, PlainValue]], ...] = (
    ({"type": "static"}, {"type": "STATIC"}),
    ({"lb_policy": "Ring_Hash"}, {"lb_policy": "RING_HASH"}),
    ({"lb_policy": "2"}, {"lb_policy": "RING_HASH"}),
    ({"lb_policy": 2.0}, {"lb_policy": "RING_HASH"}),
    ({"lb_policy": 77}, {"lb_policy": 77}),
    ({"connect_timeout": {"seconds": 1}}, {"connect_timeout": "1s"}),
    ({"connect_timeout": {"seconds": "1", "nanos": 5}}, {"connect_timeout": "1.000000005s"}),
    ({"connect_timeout": {"seconds": -1, "nanos": None}}, {"connect_timeout": "-1s"}),
    ({"ignore_health_on_host_removal": "true"}, {"ignore_health_on_host_removal": True}),
    ({"ignore_health_on_host_removal": "True"}, {"ignore_health_on_host_removal": True}),
    ({"ignore_health_on_host_removal": "1"}, {"ignore_health_on_host_removal": True}),
    ({"per_connection_buffer_limit_bytes": "5e1"}, {"per_connection_buffer_limit_bytes": 50}),
    ({"per_connection_buffer_limit_bytes": 5.0}, {"per_connection_buffer_limit_bytes": 5}),
    ({"per_connection_buffer_limit_bytes": "+5"}, {"per_connection_buffer_limit_bytes": 5}),
    ({"per_connection_buffer_limit_bytes": {"value": 5}}, {"per_connection_buffer_limit_bytes": 5}),
    ({"per_connection_buffer_limit_bytes": {}}, {"per_connection_buffer_limit_bytes": 0}),
    ({"common_lb_config": {"healthy_panic_threshold": {"value": "5.5"}}},
     {"common_lb_config": {"healthy_panic_threshold": {"value": 5.5}}}),
    ({"common_lb_config": {"healthy_panic_threshold": {"value": SpelledFloat("5.50", 5.5)}}},
     {"common_lb_config": {"healthy_panic_threshold": {"value": 5.5}}}),
    ({"alt_stat_name": None, "health_checks": None, "type": "EDS", "cluster_type": None}, {"type": "EDS"}),
    ({"alt_stat_name": SpelledFloat("1.0", 1.0)}, {"alt_stat_name": "1.0"}),
    ({"load_assignment": {"endpoints": {"lb_endpoints": {"endpoint_name": "x"}}}},
     {"load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint_name": "x"}]}]}}),
    ({"lb_subset_config": {"subset_selectors": {"keys": "stage"}}},
     {"lb_subset_config": {"subset_selectors": [{"keys": ["stage"]}]}}),
    ({"altStatName": "x", "health_checks": []}, {"alt_stat_name": "x"}),
    ({"metadata": {"filter_metadata": {"a": None}}}, {"metadata": {"filter_metadata": {"a": {}}}}),
    ({"metadata": {"filter_metadata": {"a": {"n": SpelledFloat("1.0", 1.0), "i": 1, "f": 1.5, "z": None}}}},
     {"metadata": {"filter_metadata": {"a": {"n": "1.0", "i": 1.0, "f": 1.5, "z": None}}}}),
    ({"metadata": {FILTER: {"a": {}}}}, {"metadata": {FILTER: {"a": {}}}}),
    ({"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Struct"}}}},
     {"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Struct", "value": {}}}}}),
    ({"metadata": {FILTER: {"a": {"value": {"seconds": 1}, "@type": "x.y/google.protobuf.Duration"}}}},
     {"metadata": {FILTER: {"a": {"@type": "x.y/google.protobuf.Duration", "value": "1s"}}}}),
    ({"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Timestamp", "value": {"seconds": 1}}}}},
     {"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Timestamp", "value": "1970-01-01T00:00:01Z"}}}}),
    ({"lb_subset_config": {"default_subset": {"x": SpelledFloat(".5", 0.5)}}},
     {"lb_subset_config": {"default_subset": {"x": ".5"}}}),
)  # fmt: skip

# What an author wrote, and every fault in it: rule, field path, and a part of the message or remedy.
REFUSED: tuple[tuple[Any, list[tuple[str, FieldPath, str]]], ...] = (
    ({"name": 5}, [("wrong-value", ("name",), "expected text, found 5; quote it")]),
    ({"name": True}, [("wrong-value", ("name",), "expected text, found true; quote it")]),
    ({"name": 1.5}, [("wrong-value", ("name",), "expected text, found 1.5; quote it")]),
    ({"name": {}}, [("wrong-value", ("name",), "expected text, found an object")]),
    ({"name": "\ud800"}, [("wrong-value", ("name",), "lone half")]),
    ({"conect_timeout": "1s"}, [("unknown-field", ("conect_timeout",), 'did you mean "connect_timeout"?')]),
    ({"conectTimeout": "1s"}, [("unknown-field", ("conectTimeout",), 'did you mean "connectTimeout"?')]),
    ({"connect-timeout": "1s"}, [("unknown-field", ("connect-timeout",), 'did you mean "connect_timeout"?')]),
    ({"zzz": 1}, [("unknown-field", ("zzz",), "remove it")]),
    ({"transport_socket": {"zzz": 1}}, [("unknown-field", ("transport_socket", "zzz"), "the fields are name, typed_config")]),
    ({"original_dst_lb_config": {}, "lb_policy": "RINGHASH"},
     [("unknown-enum-value", ("lb_policy",), '"RINGHASH" is not a value of LbPolicy; did you mean "RING_HASH"?')]),
    ({"type": "x"}, [("unknown-enum-value", ("type",), "give one of STATIC, STRICT_DNS")]),
    ({"type": []}, [("wrong-value", ("type",), "found a list")]),
    ({"connect_timeout": 1}, [("wrong-value", ("connect_timeout",), 'add the unit: "1s"')]),
    ({"connect_timeout": SpelledFloat("0.50", 0.5)}, [("wrong-value", ("connect_timeout",), 'add the unit: "0.50s"')]),
    ({"connect_timeout": "100ms"}, [("wrong-value", ("connect_timeout",), 'a duration such as "1.5s", found "100ms"')]),
    ({"connect_timeout": "0.1234567891s"}, [("wrong-value", ("connect_timeout",), "nine digits")]),
    ({"connect_timeout": "315576000000.5s"}, [("wrong-value", ("connect_timeout",), "10000 years")]),
    ({"connect_timeout": {"seconds": 1, "nanos": -1}}, [("wrong-value", ("connect_timeout",), "sign of the seconds")]),
    ({"connect_timeout": {"second": 1}}, [("wrong-value", ("connect_timeout",), '"seconds" and "nanos"')]),
    ({"ignore_health_on_host_removal": 1}, [("wrong-value", ("ignore_health_on_host_removal",), "true or false, found 1")]),
    ({"per_connection_buffer_limit_bytes": -5}, [("wrong-value", ("per_connection_buffer_limit_bytes",), "from 0 to 4294967295")]),
    ({"per_connection_buffer_limit_bytes": 5.5}, [("wrong-value", ("per_connection_buffer_limit_bytes",), "whole number")]),
    ({"per_connection_buffer_limit_bytes": {"value": "x"}},
     [("wrong-value", ("per_connection_buffer_limit_bytes", "value"), "found text")]),
    ({"common_lb_config": {"healthy_panic_threshold": {"value": True}}},
     [("wrong-value", ("common_lb_config", "healthy_panic_threshold", "value"), "expected a number, found true")]),
    ({"common_lb_config": {"healthy_panic_threshold": {"value": 1e400}}},
     [("wrong-value", ("common_lb_config", "healthy_panic_threshold", "value"), "finite")]),
    ({"altStatName": "a", "alt_stat_name": "b"},
     [("duplicate-field", ("alt_stat_name",), '"altStatName" and "alt_stat_name" are the same field; remove one')]),
    ({"type": "EDS", "cluster_type": {}},
     [("oneof-conflict", ("cluster_type",), 'only one of "type" and "cluster_type" may be given')]),
    ({"health_checks": [None, {"timeout": True}, 5]},
     [("null-item", ("health_checks", 0), "null means an empty item"),
      ("wrong-value", ("health_checks", 1, "timeout"), "found true"),
      ("wrong-value", ("health_checks", 2), "envoy.config.core.v3.HealthCheck, found 5")]),
    ({"upstream_bind_config": [{}]}, [("wrong-value", ("upstream_bind_config",), "write its fields, not a list")]),
    ({"metadata": {"filter_metadata": []}}, [("wrong-value", ("metadata", "filter_metadata"), "key: value pairs")]),
    ({"metadata": {"filter_metadata": {"a": [1]}}}, [("wrong-value", ("metadata", "filter_metadata", "a"), "an object")]),
    ({"metadata": {"filter_metadata": {"a": {"b": [{"c": float("nan")}]}}}},
     [("wrong-value", ("metadata", "filter_metadata", "a", "b", 0, "c"), "a finite number, found nan")]),
    ({"transport_socket": {"typed_config": {"sni": "x"}}},
     [("missing-type", ("transport_socket", "typed_config"), 'this needs an "@type"')]),
    ({"transport_socket": {"typed_config": "x"}},
     [("wrong-value", ("transport_socket", "typed_config"), 'an object with "@type"')]),
    ({"transport_socket": {"typed_config": {"@type": "google.protobuf.Struct"}}},
     [("wrong-value", ("transport_socket", "typed_config", "@type"), "a host, a slash")]),
    ({"transport_socket": {"typed_config": {"@type": PREFIX + "envoy.config.cluster.v2.Cluster"}}},
     [("unknown-type", ("transport_socket", "typed_config", "@type"), f'did you mean "{CLUSTER}"? Else give --envoy PATH')]),
    ({"transport_socket": {"typed_config": {"@type": PREFIX + "own.Type"}}},
     [("unknown-type", ("transport_socket", "typed_config", "@type"), 'no message type "own.Type" in this Envoy; give --envoy')]),
    ({"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Struct", "b": 1}}}},
     [("unknown-field", ("metadata", FILTER, "a", "b"), 'under the key "value"')]),
    ({"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "Timestamp", "value": "today"}}}},
     [("wrong-value", ("metadata", FILTER, "a", "value"), "RFC 3339")]),
    ({"metadata": {FILTER: {"a": {"@type": WELL_KNOWN + "FieldMask", "value": 1}}}},
     [("wrong-value", ("metadata", FILTER, "a", "value"), "camelCase paths")]),
    ([], [("wrong-value", (), "found a list; write its fields, not a list")]),
    (None, [("wrong-value", (), "found null")]),
)  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), ACCEPTED)
def test_accepts_what_envoy_accepts(
    written: PlainValue, meant: PlainValue, converter: Converter, printer: Printer
) -> None:
    """What Envoy's JSON reader takes is taken with the same meaning."""
    converted = converter.convert(written, CLUSTER)

    assert converted.faults == ()
    assert converted.message is not None
    assert printer.to_plain(converted.message) == meant


@pytest.mark.parametrize(
    ("written", "rule", "meant"),
    [
        ([["a"], "b"], "nested-list", ["a", "b"]),
        ([[["a", "b"]]], "nested-list", ["a", "b"]),
        (["a", None], "null-item", ["a", ""]),
    ],
)
def test_lists_that_authors_hardly_mean(
    written: PlainValue, rule: str, meant: PlainValue, converter: Converter, printer: Printer
) -> None:
    """A list within a list stands for its items and null for an empty one, as in Envoy; both are told."""
    converted = converter.convert({"lb_subset_config": {"subset_selectors": {"keys": written}}}, CLUSTER)

    assert {rule} == {fault.rule for fault in converted.faults}
    assert converted.message is not None
    assert {"lb_subset_config": {"subset_selectors": [{"keys": meant}]}} == printer.to_plain(converted.message)


@pytest.mark.parametrize(("written", "expected"), REFUSED)
def test_every_fault_is_told(written: Any, expected: list[tuple[str, FieldPath, str]], converter: Converter) -> None:
    """Each fault names its rule and its place, the fact and the remedy."""
    actual = converter.convert(written, CLUSTER)

    assert actual.message is None
    assert [(rule, path) for rule, path, _ in expected] == [(fault.rule, fault.field_path) for fault in actual.faults]
    for (_, _, words), fault in zip(expected, actual.faults, strict=True):
        assert words in f"{fault.message}; {fault.remedy}"


@pytest.mark.parametrize(
    ("written", "rule"),
    [({}, "missing-type"), ([], "wrong-value"), ({"@type": None}, "missing-type"), ({"@type": "x/y"}, "unknown-type")],
)
def test_a_resource_needs_a_known_type(written: PlainValue, rule: str, converter: Converter) -> None:
    """Where the "@type" has to tell the type, it must be there and be known."""
    actual = converter.convert_any(written)

    assert actual.message is None
    assert [rule] == [fault.rule for fault in actual.faults]


def test_many_unknown_types(converter: Converter) -> None:
    """A similar name is looked for the first few only: that takes milliseconds each."""

    def convert(count: int) -> None:
        types: dict[str, PlainValue] = {str(number): {"@type": f"{PREFIX}{CLUSTER}{number}"} for number in range(count)}
        assert len(converter.convert({"metadata": {FILTER: types}}, CLUSTER).faults) == count

    assert cost_s(lambda: convert(1000), 1) < 5 * cost_s(lambda: convert(100), 1)


def test_maps_with_numbers_for_keys(converter: Converter, printer: Printer) -> None:
    """JSON's keys are text; those of such a map must read as numbers, and two spellings of one number are one key."""
    message_type = "google.api.expr.v1alpha1.SourceInfo"

    good = converter.convert({"positions": {"1": 10, "+2": None, "-3": "30"}}, message_type)
    bad = converter.convert({"positions": {"1": 10, "+1": 11, "x": 1, "4": "y"}}, message_type)

    assert good.message is not None
    assert printer.to_plain(good.message) == {"positions": {"-3": 30, "1": 10, "2": 0}}
    assert [
        ("duplicate-field", ("positions", "+1")),
        ("wrong-value", ("positions", "x")),
        ("wrong-value", ("positions", "4")),
    ] == [(fault.rule, fault.field_path) for fault in bad.faults]


@pytest.mark.parametrize(
    "secret",
    [
        {"tls_certificate": {"private_key": {"inline_string": 271828}}},
        {"tls_certificate": {"private_key": {"inline_bytes": "271828!"}}},
        {"tls_certificate": {"password": 271828}},
        {"tls_certificate": {"private_key": "271828"}},
        {"generic_secret": {"secret": {"inline_string": ["271828"], "inline_bytes": 271828}}},
        {"session_ticket_keys": {"keys": [271828, {"inline_string": 271828}]}},
    ],
)
def test_secrets_are_not_quoted(secret: dict[str, PlainValue], converter: Converter) -> None:
    """The value of a secret is in no message and no remedy, though its fault is told."""
    actual = converter.convert(secret, SECRET)

    assert actual.faults
    assert "271828" not in repr(actual.faults)


def test_long_values_are_not_quoted(converter: Converter) -> None:
    """A value of many characters is named by its kind, so that a message stays one line."""
    (fault,) = converter.convert({"connect_timeout": "x" * 100}, CLUSTER).faults

    assert 'expected a duration such as "1.5s", found text' == fault.message
