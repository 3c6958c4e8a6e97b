"""Every rule of PGV is told as Envoy has it."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.model.errors import ApiError
from fsxds.source.envoy_api import read_xds_protos
from tests.api.tiny_api import field, findings, map_of, repeated, tiny_api

ONEOF = 'oneof_decl { name: "choice" options { [validate.required]: true } }'
WRAPPER = ".google.protobuf.UInt32Value"
DURATION = ".google.protobuf.Duration"
ANY = ".google.protobuf.Any"

# The field, a message as text, and what is told of it: None for nothing.
CASES = [
    # numbers
    (field("uint32", "uint32 {gte: 1}"), "", "out-of-range: must be at least 1, is 0"),
    (field("uint32", "uint32 {gte: 1}"), "f: 1", None),
    (field("uint32", "uint32 {gt: 1}"), "f: 1", "out-of-range: must be more than 1, is 1"),
    (field("uint32", "uint32 {lte: 5}"), "f: 6", "out-of-range: must be at most 5, is 6"),
    (field("uint32", "uint32 {lte: 5}"), "f: 5", None),
    (field("int64", "int64 {lt: 5}"), "f: 5", "out-of-range: must be less than 5, is 5"),
    (field("double", "double {gte: 0 lte: 100}"), "f: 100.5", "out-of-range: must be at least 0 and at most 100, is 100.5"),
    (field("double", "double {gte: 0 lte: 100}"), "f: -1", "out-of-range: must be at least 0 and at most 100, is -1"),
    (field("double", "double {gte: 0 lte: 100}"), "f: nan", None),
    (field("int32", "int32 {gt: 10 lt: 5}"), "f: 7", "out-of-range: must be less than 5 or more than 10, is 7"),
    (field("int32", "int32 {gt: 10 lt: 5}"), "f: 10", "out-of-range: must be less than 5 or more than 10, is 10"),
    (field("int32", "int32 {gt: 10 lt: 5}"), "f: 11", None),
    (field("int32", "int32 {gt: 10 lt: 5}"), "", None),
    (field("int32", "int32 {gt: 5 lt: 5}"), "f: 6", None),
    (field("uint32", "uint32 {in: 1 not_in: 1}"), "f: 1", None),
    (field("uint32", "uint32 {in: [1, 2, 4]}"), "f: 3", "not-allowed: must be one of 1, 2, 4, is 3"),
    (field("uint32", "uint32 {not_in: [0, 3]}"), "f: 3", "not-allowed: must not be 0 or 3"),
    (field("uint32", "uint32 {not_in: [0, 3]}"), "", "not-allowed: must not be 0 or 3"),
    (field("uint32", "uint32 {const: 7}"), "f: 8", "not-allowed: must be 7, is 8"),
    (field("uint32", "uint32 {gte: 5 ignore_empty: true}"), "", None),
    (field("uint32", "uint32 {gte: 5 ignore_empty: true}"), "f: 1", "out-of-range: must be at least 5, is 1"),
    (field("bool", "bool {const: true}"), "", "not-allowed: must be true, is false"),
    # wrappers
    (field(WRAPPER, "uint32 {gte: 1}"), "", None),
    (field(WRAPPER, "uint32 {gte: 1}"), "f {}", "out-of-range: must be at least 1, is 0"),
    (field(WRAPPER, "uint32 {gte: 1} message {required: true}"), "", "required-field: is required"),
    # texts
    (field("string", "string {min_len: 1}"), "", "wrong-length: must not be empty"),
    (field("string", "string {min_len: 2}"), "f: 'é'", "wrong-length: must have at least 2 characters, has 1"),
    (field("string", "string {max_len: 1}"), "f: 'é'", None),
    (field("string", "string {max_bytes: 1}"), "f: 'é'", "wrong-length: must have at most 1 byte, has 2"),
    (field("string", "string {min_bytes: 3}"), "f: 'é'", "wrong-length: must have at least 3 bytes, has 2"),
    (field("string", "string {len: 2}"), "f: 'a'", "wrong-length: must have exactly 2 characters, has 1"),
    (field("string", "string {len_bytes: 2}"), "f: 'é'", None),
    (field("string", "string {min_len: 2 max_len: 3}"), "f: 'abcd'", "wrong-length: must have from 2 to 3 characters, has 4"),
    (field("string", "string {prefix: '/'}"), "f: 'a'", 'wrong-pattern: must begin with "/"'),
    (field("string", "string {suffix: '.so'}"), "f: 'a'", 'wrong-pattern: must end with ".so"'),
    (field("string", "string {contains: 'b'}"), "f: 'a'", 'wrong-pattern: must contain "b"'),
    (field("string", "string {not_contains: 'a'}"), "f: 'bad'", 'wrong-pattern: must not contain "a"'),
    (field("string", "string {in: ['a', 'b']}"), "f: 'c'", 'not-allowed: must be one of "a", "b"'),
    (field("string", "string {pattern: '^a*$'}"), "f: 'aab'", "wrong-pattern: must match the regular expression ^a*$"),
    (field("string", "string {pattern: '^a*$'}"), "f: 'a\\n'", "wrong-pattern: must match the regular expression ^a*$"),
    (field("string", "string {pattern: 'a'}"), "f: 'ab'", "wrong-pattern: must match the regular expression a"),
    (field("string", "string {min_len: 3 ignore_empty: true}"), "", None),
    (field("string", "string {well_known_regex: HTTP_HEADER_NAME}"), "f: 'x+,-.y'", None),
    (field("string", "string {well_known_regex: HTTP_HEADER_NAME}"), "f: 'a b'", "wrong-pattern: must be a name of an HTTP header"),
    (field("string", "string {well_known_regex: HTTP_HEADER_NAME}"), "", "wrong-pattern: must be a name of an HTTP header"),
    (field("string", "string {well_known_regex: HTTP_HEADER_NAME strict: false}"), "f: 'a b'", None),
    (field("string", "string {well_known_regex: HTTP_HEADER_NAME strict: false}"), "f: 'a\\nb'", "wrong-pattern: must not contain a line break or a zero byte"),
    (field("string", "string {well_known_regex: HTTP_HEADER_VALUE}"), "f: 'a\\tb'", None),
    (field("string", "string {well_known_regex: HTTP_HEADER_VALUE}"), "f: 'a\\001b'", "wrong-pattern: must not contain control characters other than tabs"),
    (field("string", "string {well_known_regex: HTTP_HEADER_VALUE}"), "f: '\\177'", "wrong-pattern: must not contain control characters other than tabs"),
    (field("string", "string {well_known_regex: HTTP_HEADER_VALUE strict: false}"), "f: 'a\\001b'", None),
    # bytes
    (field("bytes", "bytes {min_len: 1}"), "", "wrong-length: must not be empty"),
    (field("bytes", "bytes {max_len: 1}"), "f: 'é'", "wrong-length: must have at most 1 byte, has 2"),
    (field("bytes", "bytes {prefix: 'a'}"), "f: 'b'", "wrong-pattern: must begin with the bytes 61"),
    # enums
    (field(".tiny.E", "enum {defined_only: true}"), "f: 2", None),
    (field(".tiny.E", "enum {defined_only: true}"), "f: 7", "undefined-enum-value: must be a value of E, is 7"),
    (field(".tiny.E", "enum {not_in: 0}"), "", "not-allowed: must not be ZERO"),
    (field(".tiny.E", "enum {in: [1, 2]}"), "", "not-allowed: must be one of ONE, TWO, is ZERO"),
    (field(".tiny.E", "enum {const: 1}"), "f: TWO", "not-allowed: must be ONE, is TWO"),
    # messages
    (field(".tiny.M", "message {required: true}"), "f {}", "required-field: is required"),
    (field(DURATION, "duration {required: true}"), "", "required-field: is required"),
    (field(DURATION, "duration {gt {}}"), "", None),
    (field(DURATION, "duration {gt {}}"), "f {}", "out-of-range: must be more than 0s, is 0s"),
    (field(DURATION, "duration {gte {nanos: 1000000}}"), "f {nanos: 500000}", "out-of-range: must be at least 0.001s, is 0.0005s"),
    (field(DURATION, "duration {gt {} lte {seconds: 5}}"), "f {seconds: -6}", "out-of-range: must be more than 0s and at most 5s, is -6s"),
    (field(DURATION, "duration {gt {} lte {seconds: 5}}"), "f {seconds: 5}", None),
    (field(DURATION, "duration {in {seconds: 5}}"), "f {seconds: 6}", "not-allowed: must be 5s, is 6s"),
    (field(DURATION, "duration {gt {}}"), "f {nanos: 1000000000}", "out-of-range: must be a valid duration, is 1s"),
    (field(".google.protobuf.Timestamp", "timestamp {required: true}"), "", "required-field: is required"),
    (field(".google.protobuf.Timestamp", "timestamp {gt {seconds: 5}}"), "f {seconds: 5}", "out-of-range: must be more than 5s, is 5s"),
    (field(ANY, "any {required: true}"), "", "required-field: is required"),
    (field(ANY, "any {in: 'a/b'}"), "f {type_url: 'a/c'}", "not-allowed: must be a/b"),
    (field(ANY, "any {not_in: 'a/b'}"), "f {type_url: 'a/b'}", "not-allowed: must not be a/b"),
    # lists
    (repeated("uint32", "repeated {min_items: 1}"), "", "wrong-count: must not be empty"),
    (repeated("uint32", "repeated {min_items: 2}"), "f: 1", "wrong-count: must have at least 2 items, has 1"),
    (repeated("uint32", "repeated {max_items: 1}"), "f: [1, 2]", "wrong-count: must have at most 1 item, has 2"),
    (repeated("uint32", "repeated {min_items: 2 max_items: 2}"), "f: 1", "wrong-count: must have exactly 2 items, has 1"),
    (repeated("uint32", "repeated {min_items: 0 max_items: 1}"), "f: [1, 2]", "wrong-count: must have at most 1 item, has 2"),
    (repeated("uint32", "repeated {min_items: 2 ignore_empty: true}"), "", None),
    (repeated("uint32", "repeated {items {uint32 {gte: 1}}}"), "", None),
    # maps
    (map_of("string", "uint32", "map {min_pairs: 1}"), "", "wrong-count: must not be empty"),
    (map_of("string", "uint32", "map {max_pairs: 1}"), "f {key: 'a'} f {key: 'b'}", "wrong-count: must have at most 1 pair, has 2"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "text", "expected"), CASES, ids=lambda value: None if value is None else value[-60:])
def test_rules_are_told(catalogue: Catalogue, body: str, text: str, expected: str | None) -> None:
    """Each rule is found broken exactly when it is, with a message that names the demand and the value."""
    found = findings(catalogue, body, text)

    assert ([] if expected is None else [expected]) == [told for path, told in found if path in {"f", "f.f"}]
    assert {path for path, _ in found} <= {"f", "f.f"}


def test_elements_are_told_with_their_place(catalogue: Catalogue) -> None:
    """An index or a key leads to the element, and a fault of a key says that it is one."""
    low = "must be at least 1, is 0"
    items = repeated("uint32", "repeated {items {uint32 {gte: 1}}}")
    pairs = map_of("string", "uint32", "map {keys {string {max_len: 1}} values {uint32 {gte: 1}}}")

    assert [("f.1", f"out-of-range: {low}")] == findings(catalogue, items, "f: [1, 0, 2]")
    assert [("f.a", f"out-of-range: {low}")] == findings(catalogue, pairs, "f {key: 'a'} f {key: 'b' value: 1}")
    assert [("f.long", "wrong-length: its key must have at most 1 character, has 4")] == findings(
        catalogue, pairs, "f {key: 'long' value: 1}"
    )


def test_only_the_second_of_two_is_too_many(catalogue: Catalogue) -> None:
    """Of equal elements, all but the first are told."""
    body = repeated("string", "repeated {unique: true}")
    text = "not-unique: is duplicated"

    assert [("f.1", text), ("f.3", text)] == findings(catalogue, body, "f: ['a', 'a', 'b', 'a']")


def test_oneofs(catalogue: Catalogue) -> None:
    """Rules of a member hold when it is chosen, `required` of a member says nothing, and one has to be chosen."""
    body = (
        ONEOF
        + field("string", "string {min_len: 1}", "oneof_index: 0", name="a")
        + field(".tiny.M", "message {required: true}", "oneof_index: 0", name="b", number=2)
    )

    assert [("", 'required-choice: one of "a" and "b" is required')] == findings(catalogue, body, "")
    assert [] == findings(catalogue, body, "a: 'x'")
    assert [("a", "wrong-length: must not be empty")] == findings(catalogue, body, "a: ''")
    assert [] == findings(catalogue, body, "b {b {a: 'x'}}")


def test_skipped_and_switched_off_messages(catalogue: Catalogue) -> None:
    """Where Envoy does not go, no rule is broken."""
    low = field("uint32", "uint32 {gte: 1}", name="n", number=2)

    assert [("n", "out-of-range: must be at least 1, is 0")] == findings(
        catalogue, field(".tiny.M", "message {skip: true}") + low, "f {}"
    )
    assert [] == findings(catalogue, low + "options { [validate.disabled]: true }", "")
    assert [] == findings(catalogue, low + "options { [validate.ignored]: true }", "")


def test_disallowed_fields(catalogue: Catalogue) -> None:
    """A deprecated field that is disallowed is refused, a merely deprecated one is not."""
    disallowed = "options { deprecated: true [envoy.annotations.disallowed_by_default]: true }"
    text = "disallowed-field: was taken out of use, and Envoy rejects it"

    assert [("f", text)] == findings(catalogue, field("uint32", more=disallowed), "f: 1")
    assert [] == findings(catalogue, field("uint32", more=disallowed), "")
    assert [] == findings(catalogue, field("uint32", more="options { deprecated: true }"), "f: 1")
    assert [] == findings(catalogue, field("uint32", more=disallowed.replace("deprecated: true", "")), "f: 1")


def test_disallowed_defaults(catalogue: Catalogue) -> None:
    """A value that is out of use is refused as the default too, as Envoy does with api_type."""
    source: Any = catalogue.message_class("envoy.config.core.v3.ApiConfigSource")()
    (fault,) = FieldRules(catalogue).check(source).faults

    assert ("disallowed-field", ("api_type",)) == (fault.rule, fault.field_path)
    source.api_type = 1
    assert [] == FieldRules(catalogue).check(source).faults


UNKNOWN = [
    (field("string", "string {email: true}"), "string.email"),
    (field("string", "string {pattern: '('}"), "missing )"),
    (field(".google.protobuf.Timestamp", "timestamp {gt_now: true}"), "timestamp.gt_now"),
    (field("uint32", "string {min_len: 1}"), "string, on a field of another type"),
    (repeated("string", "repeated {items {string {uuid: true}}}"), "string.uuid"),
    (map_of("string", "string", "map {no_sparse: true}"), "map.no_sparse"),
    (repeated(".tiny.M", "repeated {unique: true}"), "repeated.unique, of messages"),
]


@pytest.mark.parametrize(("body", "named"), UNKNOWN, ids=[named for _, named in UNKNOWN])
def test_unknown_rules_are_refused(catalogue: Catalogue, body: str, named: str) -> None:
    """A rule that is not understood is not passed over: there are no field rules then, and the field is named."""
    with pytest.raises(ApiError) as caught:
        FieldRules(tiny_api(catalogue, body))

    assert str(caught.value).startswith("tiny.M.f: ")
    assert named in str(caught.value)


@pytest.mark.parametrize("source", ["envoy", "xds-protos"])
def test_all_rules_of_the_real_apis_compile(catalogue: Catalogue, source: str) -> None:
    """No message of either API has a rule that cannot be checked, and empty messages of all types can be."""
    api = catalogue if source == "envoy" else Catalogue.of(read_xds_protos().SerializeToString(), "xds-protos")
    field_rules = FieldRules(api)
    rules = set()
    for descriptor in api.descriptors():
        walk = field_rules.check(api.message_class(descriptor.full_name)())
        rules |= {fault.rule for fault in walk.faults}

    assert {"required-field", "required-choice", "out-of-range", "wrong-length", "wrong-count"} <= rules
