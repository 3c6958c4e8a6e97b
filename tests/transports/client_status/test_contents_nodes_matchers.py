from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.status.v3 import csds_pb2
from google.protobuf import json_format

from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import Node
from fsxds.transports.client_status.contents import LONGEST_REGEX, node_filter

METADATA = {
    "role": "edge",
    "Role": "EDGE",
    "count": 3,
    "one": 1,
    "ready": True,
    "nothing": None,
    "zones": ["a", "b", 3],
    "nested": {"deep": {"role": "inner"}},
    "empty": {},
    "none": [],
}


def node(node_id: str = "edge-1", metadata: dict[str, Any] | None = None) -> Node:
    """Make a node that told its metadata."""
    told = base_pb2.Node(id=node_id)
    json_format.ParseDict(METADATA if metadata is None else metadata, told.metadata)
    return Node(node_id, serialized=told.SerializeToString())


def matches(*matchers: dict[str, Any], of: Node | None = None) -> bool:
    """Tell whether a node is asked for by matchers in JSON."""
    request = json_format.ParseDict({"node_matchers": matchers}, csds_pb2.ClientStatusRequest())
    return node_filter(request.node_matchers)(of or node())


def by_id(**matcher: Any) -> dict[str, Any]:
    """Make a matcher of ids."""
    return {"node_id": matcher}


def at(path: str, **value: Any) -> dict[str, Any]:
    """Make a matcher of a value of the metadata, such as `at("a.b", bool_match=True)`."""
    return {"node_metadatas": [{"path": [{"key": key} for key in path.split(".")], "value": value}]}


def test_without_matchers_every_node_is_asked_for() -> None:
    """A request may be empty."""
    assert matches()


def test_an_empty_matcher_matches_every_node() -> None:
    """It demands nothing."""
    assert matches({})


def test_one_of_several_matchers_suffices() -> None:
    """The proto says: OR semantics."""
    assert matches(by_id(exact="other"), by_id(exact="edge-1"))
    assert not matches(by_id(exact="other"), by_id(exact="another"))


def test_all_parts_of_a_matcher_must_match() -> None:
    """The proto says: AND semantics."""
    role = at("role", string_match={"exact": "edge"})
    wrong = at("role", string_match={"exact": "core"})

    assert matches(by_id(exact="edge-1") | role)
    assert not matches(by_id(exact="edge-2") | role)
    assert not matches(by_id(exact="edge-1") | wrong)
    assert not matches({"node_metadatas": role["node_metadatas"] + wrong["node_metadatas"]})


@pytest.mark.parametrize(
    ("matcher", "is_asked_for"),
    [
        ({"exact": "edge-1"}, True),
        ({"exact": "edge"}, False),
        ({"exact": "EDGE-1"}, False),
        ({"exact": "EDGE-1", "ignore_case": True}, True),
        ({"exact": ""}, False),
        ({"prefix": "edge"}, True),
        ({"prefix": "dge"}, False),
        ({"prefix": "EDGE", "ignore_case": True}, True),
        ({"suffix": "-1"}, True),
        ({"suffix": "-"}, False),
        ({"suffix": "GE-1", "ignore_case": True}, True),
        ({"contains": "ge-"}, True),
        ({"contains": "ge_"}, False),
        ({"contains": "GE-", "ignore_case": True}, True),
        ({"safe_regex": {"regex": "edge-[0-9]"}}, True),
        ({"safe_regex": {"google_re2": {}, "regex": "edge-[0-9]"}}, True),
        # The whole of it, not a part.
        ({"safe_regex": {"regex": "edge"}}, False),
        ({"safe_regex": {"regex": "EDGE-1"}, "ignore_case": True}, False),
    ],
)
def test_ids_are_matched_as_text(matcher: dict[str, Any], *, is_asked_for: bool) -> None:
    """In the five forms; `ignore_case` says nothing to expressions."""
    assert matches(by_id(**matcher)) is is_asked_for


def test_a_node_without_an_id_has_an_empty_one() -> None:
    """Who did not name itself can be asked for."""
    assert matches(by_id(exact=""), of=Node(""))


@pytest.mark.parametrize(
    ("path", "value", "is_asked_for"),
    [
        ("role", {"string_match": {"exact": "edge"}}, True),
        ("role", {"string_match": {"prefix": "core"}}, False),
        ("nested.deep.role", {"string_match": {"exact": "inner"}}, True),
        ("nested.role", {"string_match": {"exact": "inner"}}, False),
        ("role.deep", {"string_match": {"exact": "edge"}}, False),
        ("count", {"string_match": {"exact": "3"}}, False),
        ("count", {"double_match": {"exact": 3}}, True),
        ("count", {"double_match": {"exact": 4}}, False),
        ("count", {"double_match": {"range": {"start": 3, "end": 4}}}, True),
        ("count", {"double_match": {"range": {"start": 2, "end": 3}}}, False),
        ("role", {"double_match": {"exact": 3}}, False),
        ("ready", {"double_match": {"exact": 1}}, False),
        ("ready", {"bool_match": True}, True),
        ("ready", {"bool_match": False}, False),
        ("one", {"bool_match": True}, False),
        ("absent", {"bool_match": False}, False),
        ("nothing", {"null_match": {}}, True),
        ("absent", {"null_match": {}}, False),
        ("role", {"null_match": {}}, False),
        ("role", {"present_match": True}, True),
        ("nothing", {"present_match": True}, True),
        ("absent", {"present_match": True}, False),
        ("absent", {"present_match": False}, False),
        ("zones", {"present_match": True}, False),
        ("nested", {"present_match": True}, False),
        ("nested.absent.role", {"present_match": True}, False),
        ("zones", {"list_match": {"one_of": {"string_match": {"exact": "b"}}}}, True),
        ("zones", {"list_match": {"one_of": {"double_match": {"exact": 3}}}}, True),
        ("zones", {"list_match": {"one_of": {"string_match": {"exact": "c"}}}}, False),
        ("none", {"list_match": {"one_of": {"present_match": True}}}, False),
        ("role", {"list_match": {"one_of": {"string_match": {"exact": "edge"}}}}, False),
        ("count", {"or_match": {"value_matchers": [{"bool_match": True}, {"double_match": {"exact": 3}}]}}, True),
        ("count", {"or_match": {"value_matchers": [{"bool_match": True}, {"null_match": {}}]}}, False),
    ],
)
def test_metadata_are_matched_by_value(path: str, value: dict[str, Any], *, is_asked_for: bool) -> None:
    """A value of another nature than the matcher's never matches; objects match nothing."""
    assert matches(at(path, **value)) is is_asked_for


def test_a_node_that_told_nothing_has_no_metadata() -> None:
    """It is not asked for by any."""
    assert not matches(at("role", present_match=True), of=Node("edge-1"))


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        (by_id(), r"node_matchers\[0\]\.node_id: has no form"),
        (by_id(ignore_case=True), r"node_id: has no form"),
        (by_id(custom={"name": "x"}), r"node_id: has no form"),
        (by_id(prefix=""), r"node_id\.prefix: is empty"),
        (by_id(suffix=""), r"node_id\.suffix: is empty"),
        (by_id(contains=""), r"node_id\.contains: is empty"),
        (by_id(safe_regex={"regex": "("}), r"node_id\.safe_regex\.regex: .*missing"),
        (by_id(safe_regex={"regex": "(?=x)"}), r"node_id\.safe_regex\.regex: .*for RE2"),
        (by_id(safe_regex={}), r"node_id\.safe_regex\.regex: is empty"),
        (by_id(safe_regex={"regex": "x" * (LONGEST_REGEX + 1)}), r"regex: is empty, or longer than"),
        ({"node_metadatas": [{"value": {"bool_match": True}}]}, r"node_metadatas\[0\]\.path: is empty"),
        (at("a..b", bool_match=True), r"node_metadatas\[0\]\.path: is empty, or one of its keys"),
        (at("role"), r"node_metadatas\[0\]\.value: is empty"),
        (at("role", string_match={}), r"value\.string_match: has no form"),
        (at("count", double_match={}), r"value\.double_match: is empty"),
        (at("zones", list_match={}), r"value\.list_match: is empty"),
        (at("zones", list_match={"one_of": {}}), r"value\.list_match\.one_of: is empty"),
        (at("zones", or_match={"value_matchers": [{"bool_match": True}]}), r"or_match\.value_matchers: has less"),
        (at("a", or_match={"value_matchers": [{"bool_match": True}, {}]}), r"value_matchers\[1\]: is empty"),
    ],
)
def test_what_cannot_be_matched_is_refused(matcher: dict[str, Any], message: str) -> None:
    """With the place, whatever nodes there are."""
    with pytest.raises(ProtocolError, match=message) as refused:
        matches(matcher)

    assert refused.value.code == "INVALID_ARGUMENT"
