"""Schemas of messages: spellings, rules, choices."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fsxds.api.catalogue import Catalogue
from fsxds.tools.json_schema import MessageSchemas, Schema, packable_types

CLUSTER = "envoy.config.cluster.v3.Cluster"
ROUTE = "envoy.config.route.v3."
PACKED = ("envoy.extensions.filters.http.router.v3.Router", "google.protobuf.StringValue", "google.protobuf.Struct")


@pytest.fixture(scope="session")
def schemas(catalogue: Catalogue) -> MessageSchemas:
    """Makes schemas in which an Any holds one of three types."""
    return MessageSchemas(catalogue, PACKED)


def properties(schemas: MessageSchemas, message_type: str) -> Schema:
    """Return the properties of a message's definition."""
    schemas.message(message_type)
    found: Schema = schemas.definitions[message_type]["properties"]
    return found


def is_valid(schemas: MessageSchemas, message_type: str, value: Any) -> bool:
    """Tell whether a message obeys its schema."""
    reference = schemas.message(message_type)
    return bool(Draft202012Validator({**reference, "$defs": schemas.definitions}).is_valid(value))


def test_both_spellings(schemas: MessageSchemas) -> None:
    """Fields may be written in snake_case and in camelCase, with the same schema."""
    fields = properties(schemas, CLUSTER)

    assert fields["connect_timeout"] == fields["connectTimeout"]
    assert "name" in fields


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

    assert "must be at least 1" in endpoint["load_balancing_weight"]["description"]
    assert endpoint["load_balancing_weight"]["anyOf"][0]["anyOf"][0]["minimum"] == 1


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


def test_what_may_be_packed(catalogue: Catalogue) -> None:
    """Extensions and well-known values, and nothing that servers only ask and answer."""
    names = packable_types(catalogue)

    assert set(PACKED) < set(names)
    assert [] == [name for name in names if name.startswith(("envoy.admin.", "envoy.service.", "validate."))]
    assert "envoy.config.cluster.v3.Cluster.EdsClusterConfig" not in names


def test_messages_that_hold_themselves(schemas: MessageSchemas) -> None:
    """A matcher of matchers is defined once."""
    matcher = {"and_matcher": {"value_matchers": [{"bool_match": True}]}}

    assert is_valid(schemas, "envoy.type.matcher.v3.ListMatcher", {"one_of": {"string_match": {"exact": "x"}}})
    assert not is_valid(schemas, "envoy.type.matcher.v3.ListMatcher", matcher)
