"""Schemas of messages: spellings, rules, choices."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet, SourceCodeInfo
from jsonschema import Draft202012Validator

from fsxds.api.catalogue import Catalogue
from fsxds.tools.json_schema import MessageSchemas, Schema, Spelling
from fsxds.tools.packed_places import PackedTypes

CLUSTER = "envoy.config.cluster.v3.Cluster"
ROUTE = "envoy.config.route.v3."
PACKED = ("envoy.extensions.filters.http.router.v3.Router", "google.protobuf.StringValue", "google.protobuf.Struct")


@pytest.fixture(scope="session")
def schemas(catalogue: Catalogue) -> MessageSchemas:
    """Makes schemas of all that Envoy reads, in which an Any holds one of three types."""
    return MessageSchemas(catalogue, PackedTypes(catalogue, PACKED), "both")


@pytest.fixture(scope="session")
def strict(catalogue: Catalogue) -> MessageSchemas:
    """Makes schemas of one spelling, that of Envoy's documentation."""
    return MessageSchemas(catalogue, PackedTypes(catalogue, PACKED))


def properties(schemas: MessageSchemas, message_type: str) -> Schema:
    """Return the properties of a message's definition."""
    schemas.message(message_type)
    found: Schema = schemas.definitions[message_type]["properties"]
    return found


def is_valid(schemas: MessageSchemas, message_type: str, value: Any) -> bool:
    """Tell whether a message obeys its schema."""
    reference = schemas.message(message_type)
    return bool(Draft202012Validator({**reference, "$defs": schemas.finish()}).is_valid(value))


def test_both_spellings(schemas: MessageSchemas) -> None:
    """Fields may be written in snake_case and in camelCase, with the same schema."""
    fields = properties(schemas, CLUSTER)

    assert fields["connect_timeout"] == fields["connectTimeout"]
    assert "name" in fields


@pytest.mark.parametrize(
    ("spelling", "taken", "refused"),
    [
        ("snake", "connect_timeout", "connectTimeout"),
        ("camel", "connectTimeout", "connect_timeout"),
    ],
)
def test_one_spelling(spelling: Spelling, taken: str, refused: str, catalogue: Catalogue) -> None:
    """Fields in the other are unknown; what is required is so in the one."""
    schemas = MessageSchemas(catalogue, PackedTypes(catalogue, PACKED), spelling)

    assert is_valid(schemas, CLUSTER, {"name": "a", taken: "1s"})
    assert not is_valid(schemas, CLUSTER, {"name": "a", refused: "1s"})
    assert not is_valid(schemas, CLUSTER, {taken: "1s"})


@pytest.mark.parametrize(
    ("message_type", "value", "expected"),
    [
        (CLUSTER, {"name": "a", "lb_policy": "ROUND_ROBIN"}, True),
        (CLUSTER, {"name": "a", "lb_policy": 0}, True),
        (CLUSTER, {"name": "a", "lb_policy": "round_robin"}, True),
        (CLUSTER, {"name": "a", "lb_policy": "Round_robin"}, False),
        (CLUSTER, {"name": "a", "lb_policy": "1"}, False),
        (CLUSTER, {"name": "a", "lb_policy": 99}, False),
        (CLUSTER, {"name": "a", "lb_policy": 4}, False),
        (CLUSTER, {"name": "a", "health_checks": []}, True),
        (CLUSTER, {"name": "a", "health_checks": {"timeout": "1s"}}, False),
        (CLUSTER, {"name": "a", "alt_stat_name": "b", "dns_resolvers": {"pipe": {"path": "x"}}}, True),
        (CLUSTER, {"name": "a", "per_connection_buffer_limit_bytes": 5}, True),
        (CLUSTER, {"name": "a", "per_connection_buffer_limit_bytes": "5"}, True),
        (CLUSTER, {"name": "a", "per_connection_buffer_limit_bytes": {"value": 5}}, False),
        (CLUSTER, {"name": "a", "type": "STATIC", "cluster_type": {"name": "x"}}, False),
        (f"{ROUTE}Route", {"match": {"prefix": "/"}, "route": {"cluster": "c"}, "redirect": {}}, False),
        (f"{ROUTE}HeaderMatcher", {"name": "x"}, True),
        (f"{ROUTE}ScopedRouteConfiguration.Key.Fragment", {}, False),
        (f"{ROUTE}ScopedRouteConfiguration.Key.Fragment", {"string_key": "x"}, True),
        ("envoy.type.matcher.v3.ValueMatcher", {}, False),
        ("envoy.type.matcher.v3.ValueMatcher", {"bool_match": True}, True),
        ("envoy.type.matcher.v3.ValueMatcher", {"bool_match": True, "present_match": True}, False),
    ],
)
def test_values_of_one_spelling(message_type: str, value: Any, *, expected: bool, strict: MessageSchemas) -> None:
    """Names of enums as they are declared or in lower case, one item for a list, and one at most of what excludes others."""
    assert expected == is_valid(strict, message_type, value)


@pytest.mark.parametrize(
    ("message_type", "value", "expected"),
    [
        (CLUSTER, {"name": "a", "lb_policy": "ROUND_ROBIN"}, True),
        (CLUSTER, {"name": "a", "lb_policy": "round_Robin"}, True),
        (CLUSTER, {"name": "a", "lb_policy": 0}, True),
        (CLUSTER, {"name": "a", "lb_policy": "1"}, True),
        (CLUSTER, {"name": "a", "lb_policy": "ROUND_ROBBIN"}, False),
        (CLUSTER, {"name": "a", "lb_policy": 99}, False),
        (CLUSTER, {"name": "a", "lb_policy": 4}, False),
        (CLUSTER, {"name": "a", "per_connection_buffer_limit_bytes": {"value": 5}}, True),
        (CLUSTER, {"name": "a", "per_connection_buffer_limit_bytes": {"vaule": 5}}, False),
        (CLUSTER, {"name": "a", "lb_policy": "99"}, False),
        (CLUSTER, {"name": "a", "type": "STATIC", "lb_policy": 0}, True),
        (CLUSTER, {"name": "a", "type": "STATIC", "cluster_type": {"name": "x"}}, False),
        (CLUSTER, {"name": "a", "type": "STATIC", "clusterType": {"name": "x"}}, False),
        ("envoy.config.core.v3.Locality", {"region": "x"}, True),
        (CLUSTER, {"lb_policy": "ROUND_ROBIN"}, False),
        (CLUSTER, {"name": ""}, False),
        (CLUSTER, {"name": "a", "health_checks": []}, True),
        (CLUSTER, {"name": "a", "metadata": {"filter_metadata": {"x": {"any": ["thing", 1.5, None]}}}}, True),
        (CLUSTER, {"name": "a", "metadata": {"filter_metadata": {"x": 5}}}, False),
    ],
)
def test_values(message_type: str, value: Any, *, expected: bool, schemas: MessageSchemas) -> None:
    """Enums in any case, required fields, open structures."""
    assert expected == is_valid(schemas, message_type, value)


HOST = {"name": "h", "domains": ["*"]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (HOST, True),
        ({"name": "h", "domains": "*"}, True),
        ({"name": "h", "domains": []}, False),
        ({"name": "h"}, False),
        ({**HOST, "routes": {"match": {"prefix": "/"}, "route": {"cluster": "c"}}}, True),
        ({**HOST, "routes": [{"match": {"prefix": "/"}}]}, False),
        ({**HOST, "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "redirect": {}}]}, False),
        ({**HOST, "routes": [{"match": {"prefix": "/"}, "directResponse": {"status": 200}}]}, True),
        ({**HOST, "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 99}}]}, False),
        ({**HOST, "routes": [{"match": {}, "direct_response": {"status": 200}}]}, False),
    ],
)
def test_lists_and_choices(value: Any, *, expected: bool, schemas: MessageSchemas) -> None:
    """One item for a list of one, lists that may not be empty, and choices of which exactly one is due."""
    assert expected == is_valid(schemas, f"{ROUTE}VirtualHost", value)


def test_required_fields_have_two_spellings(schemas: MessageSchemas) -> None:
    """Either satisfies."""
    scope = {"name": "s", "key": {"fragments": [{"string_key": "x"}]}}

    assert not is_valid(schemas, f"{ROUTE}ScopedRouteConfiguration.Key.Fragment", {})
    assert is_valid(schemas, f"{ROUTE}ScopedRouteConfiguration.Key.Fragment", {"stringKey": "x"})
    assert is_valid(schemas, f"{ROUTE}ScopedRouteConfiguration", scope)
    weighted = f"{ROUTE}HeaderMatcher"
    assert is_valid(schemas, weighted, {"name": "x", "presentMatch": True})


def test_rules_are_told_in_words(schemas: MessageSchemas) -> None:
    """What the keywords cannot say, and what they can, is in the description."""
    endpoint = properties(schemas, "envoy.config.endpoint.v3.LbEndpoint")

    assert endpoint["load_balancing_weight"]["description"] == "at least 1"
    assert endpoint["load_balancing_weight"]["minimum"] == 1


def test_defaults_of_enums(schemas: MessageSchemas) -> None:
    """What counts where nothing is written is in the description."""
    properties(schemas, CLUSTER)

    assert schemas.definitions[f"{CLUSTER}.LbPolicy:defined"]["description"] == "default ROUND_ROBIN"


def test_deprecated_fields(schemas: MessageSchemas) -> None:
    """Editors strike them out."""
    fields = properties(schemas, CLUSTER)

    assert fields["http2_protocol_options"]["deprecated"]
    assert "deprecated" not in fields["name"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "x"}, True),
        ({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": 5}, False),
        ({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": 1}}, True),
        ({"@type": "type.googleapis.com/google.protobuf.Struct", "a": 1}, False),
        ({"@type": f"type.googleapis.com/{PACKED[0]}", "start_child_span": True}, True),
        ({"@type": f"type.googleapis.com/{PACKED[0]}", "start": True}, False),
    ],
)
def test_packed_messages(value: Any, *, expected: bool, schemas: MessageSchemas) -> None:
    """Those with a JSON form of their own stand under `value`."""
    assert expected == is_valid(schemas, "google.protobuf.Any", value)


def test_messages_that_hold_themselves(schemas: MessageSchemas) -> None:
    """A matcher of matchers is defined once."""
    matcher = {"and_matcher": {"value_matchers": [{"bool_match": True}]}}

    assert is_valid(schemas, "envoy.type.matcher.v3.ListMatcher", {"one_of": {"string_match": {"exact": "x"}}})
    assert not is_valid(schemas, "envoy.type.matcher.v3.ListMatcher", matcher)


def test_extensions_in_progress(catalogue: Catalogue) -> None:
    """Without drafts, they are open to any field."""
    key = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth"
    closed, opened = (
        MessageSchemas(catalogue, PackedTypes(catalogue), has_drafts=has_drafts) for has_drafts in (True, False)
    )

    assert not is_valid(closed, key, {"what": 1})
    assert is_valid(opened, key, {"what": 1})
    assert not is_valid(opened, CLUSTER, {"name": "a", "what": 1})


def test_comments_of_the_api() -> None:
    """Where descriptors carry them, they stand before the rules."""
    files = FileDescriptorSet()
    file = files.file.add(name="mine.proto", package="mine", syntax="proto3")
    enum = file.enum_type.add(name="Colour")
    enum.value.add(name="NONE", number=0)
    message = file.message_type.add(name="Outer")
    message.field.add(name="colour", number=1, label=1, type=14, type_name=".mine.Colour", json_name="colour")
    texts = {(4, 0): "A message.", (4, 0, 2, 0): "Its colour.", (5, 0): "Colours.", (5, 0, 2, 0): "No colour."}
    locations = file.source_code_info.location
    locations.extend(SourceCodeInfo.Location(path=path, leading_comments=text) for path, text in texts.items())
    catalogue = Catalogue.of(files.SerializeToString(), "mine")
    schemas = MessageSchemas(catalogue, PackedTypes(catalogue))
    schemas.message("mine.Outer")

    assert schemas.definitions["mine.Outer"]["description"] == "A message."
    assert schemas.definitions["mine.Outer"]["properties"]["colour"]["description"] == "Its colour."
    assert schemas.definitions["mine.Colour"]["description"] == "Colours.\ndefault NONE\nNONE: No colour."
