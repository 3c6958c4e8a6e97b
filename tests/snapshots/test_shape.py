from __future__ import annotations

import pytest

from fsxds.model.values import PlainValue, Severity
from fsxds.snapshots.shape import Piece, TypeClaim, shape_of

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
RESPONSE = "type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER = "type.googleapis.com/envoy.service.discovery.v3.Resource"


def rules(value: PlainValue) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(fault.rule, fault.field_path) for fault in shape_of(value).faults]


def test_envelope_gives_its_resources() -> None:
    """A DiscoveryResponse is its resources, under the type and version that it says."""
    shape = shape_of({"version_info": "7", "type_url": CLUSTER, "resources": [{"name": "a"}, {"name": "b"}]})

    claim = TypeClaim(CLUSTER, ("type_url",))
    expected = [
        Piece({"name": "a"}, ("resources", 0), claim=claim, position=0),
        Piece({"name": "b"}, ("resources", 1), claim=claim, position=1),
    ]
    assert expected == shape.pieces
    assert shape.version_info == "7"
    assert claim == shape.claim
    assert shape.faults == []


def test_envelope_in_camel_case() -> None:
    """Both spellings are read, and the author's own stands in the path."""
    shape = shape_of(
        {"versionInfo": "7", "typeUrl": CLUSTER, "controlPlane": {}, "resourceErrors": [], "resources": []}
    )

    assert shape.version_info == "7"
    assert TypeClaim(CLUSTER, ("typeUrl",)) == shape.claim
    assert shape.faults == []


def test_envelope_is_known_by_its_type_too() -> None:
    """A DiscoveryResponse that names itself needs no `resources` to be known as one."""
    assert rules({"@type": RESPONSE}) == [("no-resources", ())]


def test_resource_with_a_field_named_resources_is_no_envelope() -> None:
    """What names another type is that, whatever its fields are called."""
    value: dict[str, PlainValue] = {"@type": "type.googleapis.com/my.Type", "resources": []}

    assert [Piece(value, ())] == shape_of(value).pieces


def test_one_resource_may_stand_where_a_list_is_due() -> None:
    """A single object under `resources` is a list of one."""
    assert [Piece({"name": "a"}, ("resources",), position=0)] == shape_of({"resources": {"name": "a"}}).pieces


def test_list_gives_its_elements() -> None:
    """A list holds resources, wrappers and envelopes; each piece keeps its place in the list."""
    shape = shape_of([{"name": "a"}, {"resource": {"name": "b"}}, {"resources": [{"name": "c"}]}])

    expected = [
        Piece({"name": "a"}, (0,), position=0),
        Piece({"name": "b"}, (1, "resource"), {}, (1,), position=1),
        Piece({"name": "c"}, (2, "resources", 0), position=2),
    ]
    assert expected == shape.pieces


def test_wrapper_gives_what_it_holds() -> None:
    """A `Resource` is known by its type or by its field `resource`, and keeps what stands around that."""
    shape = shape_of({"@type": WRAPPER, "name": "a", "ttl": "5s", "resource": {"name": "b"}})

    assert [Piece({"name": "b"}, ("resource",), {"name": "a", "ttl": "5s"}, ())] == shape.pieces


def test_heartbeat_holds_nothing() -> None:
    """A `Resource` without `resource` is a piece without a value, at its own place."""
    assert [Piece(None, (), {"name": "a"}, ())] == shape_of({"@type": WRAPPER, "name": "a"}).pieces


def test_resource_with_another_type_is_no_wrapper() -> None:
    """What names another type is no wrapper, though it has a field `resource`."""
    value: dict[str, PlainValue] = {"@type": "type.googleapis.com/my.Type", "resource": {}}

    assert [Piece(value, ())] == shape_of(value).pieces


@pytest.mark.parametrize("value", [5, "text", None, {}, {"@type": 5, "name": "a"}, {"name": "a"}])
def test_anything_else_is_one_piece(value: PlainValue) -> None:
    """A document of no known shape is one piece, to be judged as a resource."""
    shape = shape_of(value)

    assert [Piece(value, ())] == shape.pieces
    assert shape.faults == []


@pytest.mark.parametrize(
    ("value", "field_path"),
    [({"resources": None}, ("resources",)), ({"version_info": "1"}, ()), ([{"nonce": "1"}], (0,))],
)
def test_envelope_without_resources_is_a_fault(value: PlainValue, field_path: tuple[str | int, ...]) -> None:
    """No value under `resources` would delete everything in Envoy; none on purpose is an empty list."""
    assert [("no-resources", field_path)] == rules(value)
    assert not shape_of(value).is_empty_on_purpose


def test_empty_list_is_empty_on_purpose() -> None:
    """`resources: []` and `[]` hold nothing, and mean it."""
    assert shape_of({"resources": []}).is_empty_on_purpose
    assert shape_of([]).is_empty_on_purpose
    assert not shape_of([{}]).is_empty_on_purpose


def test_unknown_field_of_an_envelope_is_a_fault() -> None:
    """A field that no DiscoveryResponse has is told, with the nearest that it has."""
    faults = shape_of({"resources": [], "version_inf": "1", "zzz": 1}).faults

    assert [("unknown-field", ("version_inf",)), ("unknown-field", ("zzz",))] == [
        (fault.rule, fault.field_path) for fault in faults
    ]
    assert [fault.remedy for fault in faults] == ['did you mean "version_info"?', "remove it"]
    assert {Severity.ERROR} == {fault.severity for fault in faults}


def test_unknown_field_of_an_envelope_may_be_a_warning() -> None:
    """Where unknown fields are warnings, those of an envelope are too, and do not make its emptiness a mistake."""
    shape = shape_of({"resources": [], "zzz": 1}, Severity.WARNING)

    assert [Severity.WARNING] == [fault.severity for fault in shape.faults]
    assert shape.is_empty_on_purpose


@pytest.mark.parametrize(("field", "value"), [("version_info", 1), ("versionInfo", True), ("type_url", ["x"])])
def test_envelope_needs_text(field: str, value: PlainValue) -> None:
    """A number where Envoy wants text is refused by Envoy, and here."""
    assert [("wrong-value", (field,))] == rules({field: value, "resources": []})


def test_null_fields_of_an_envelope_are_absent() -> None:
    """Null means that a field is not set."""
    shape = shape_of({"version_info": None, "type_url": None, "resources": []})

    assert shape.version_info is None
    assert shape.claim is None
    assert shape.faults == []


def test_last_envelope_of_a_list_says_the_version() -> None:
    """Of several envelopes in one list the last that says a version or type says it for the document."""
    shape = shape_of(
        [
            {"version_info": "1", "type_url": "x", "resources": []},
            {"version_info": "2", "type_url": CLUSTER, "resources": []},
            {"resources": []},
        ]
    )

    assert shape.version_info == "2"
    assert TypeClaim(CLUSTER, (1, "type_url")) == shape.claim
