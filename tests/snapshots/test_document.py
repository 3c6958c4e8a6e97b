from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.formats.decoded import MessageDocument, PlainDocument
from fsxds.lint.linter import make_field_rules
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES, ResourceType
from fsxds.model.values import FieldPath, PlainValue, Severity
from fsxds.snapshots.document import DocumentDraft, DocumentReader, Tools, authored_path
from tests.support.snapshots import type_url

CLUSTER = "envoy.config.cluster.v3.Cluster"
WRAPPER = "envoy.service.discovery.v3.Resource"
PATH = PurePosixPath("a.yaml")


@pytest.fixture(scope="module")
def tools(catalogue: Catalogue) -> Tools:
    """A reader's tools, strict about unknown fields."""
    return Tools(catalogue, Converter(catalogue), make_field_rules(catalogue))


def read(tools: Tools, document: PlainDocument | MessageDocument, hint: str | None = "cds") -> DocumentDraft:
    return DocumentReader(tools, PATH, document, BY_SHORT_NAME[hint] if hint else None).read(0)


def plain(value: PlainValue, *item_lines: int) -> PlainDocument:
    return PlainDocument(value, 10, item_lines)


def told(draft: DocumentDraft) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(fault.rule, fault.field_path) for fault in draft.faults]


def test_single_resource_stands_on_its_documents_line(tools: Tools) -> None:
    """A resource that is a document of its own begins where that begins."""
    draft = read(tools, plain({"name": "a"}))

    assert [10] == [resource.origin.line for resource in draft.resources]


def test_resource_of_a_list_stands_on_its_own_line(tools: Tools) -> None:
    """A resource in a list begins where its element begins; where that is not known, the document's line has to do."""
    draft = read(tools, plain({"resources": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}, 11, 14))

    assert [11, 14, 10] == [resource.origin.line for resource in draft.resources]


def test_faults_stand_below_their_resource(tools: Tools) -> None:
    """The path of a fault leads from the top of the document, through wrapper and envelope."""
    draft = read(
        tools,
        plain({"resources": [{"name": "a", "x": 1}, {"y": 1, "resource": {"name": "b", "type": "NONE"}}]}),
    )

    expected = [
        ("unknown-field", ("resources", 0, "x")),
        ("unknown-field", ("resources", 1, "y")),
        ("unknown-enum-value", ("resources", 1, "resource", "type")),
    ]
    assert expected == told(draft)


def test_wrapper_gives_aliases_and_ttl(tools: Tools) -> None:
    """What a wrapper says is kept beside the resource; its name may be left out."""
    draft = read(tools, plain({"aliases": ["x"], "ttl": "1.5s", "resource": {"name": "a"}}))

    assert [("a", ("x",), 1.5)] == [(one.name, one.aliases, one.ttl_s) for one in draft.resources]


def test_name_of_a_wrapper_is_that_of_its_resource(tools: Tools) -> None:
    """Two names that differ are a fault, and an equal one is none."""
    other = read(tools, plain({"name": "b", "resource": {"name": "a"}}))
    equal = read(tools, plain({"name": "a", "resource": {"name": "a"}}))

    assert told(other) == [("name-mismatch", ("resource", "name"))]
    assert told(equal) == []


def test_name_of_a_wrapper_does_not_replace_a_missing_one(tools: Tools) -> None:
    """A resource needs its own name: what Envoy makes of it has that name, and no other."""
    assert told(read(tools, plain({"name": "a", "resource": {"type": "STATIC"}}))) == [("missing-name", ("resource",))]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}}}, "unnamed-127.0.0.1:80"),
        (
            {"address": {"socket_address": {"address": "::", "port_value": 80, "protocol": "UDP"}}},
            "unnamed-:::80/udp",
        ),
        ({"address": {"pipe": {"path": "/run/a.sock"}}}, "unnamed-/run/a.sock"),
        ({"internal_listener": {}}, "unnamed-internal"),
    ],
)
def test_listener_without_a_name_has_one_of_its_address(tools: Tools, fields: dict[str, PlainValue], name: str) -> None:
    """A listener without a name is served by one that stays the same as long as its address does, and a note says which."""
    draft = read(tools, plain({**fields, "name": "", "filter_chains": [{}]}), "lds")

    (listener,) = draft.resources
    made = tools.catalogue.message_class("envoy.config.listener.v3.Listener").FromString(listener.body)
    assert (name, name) == (listener.name, made.name)  # type: ignore[attr-defined]  # its class is made at run time
    (note,) = [fault for fault in draft.faults if fault.rule == "unnamed-listener"]
    assert (Severity.NOTE, ("name",)) == (note.severity, note.field_path)
    assert f'"{name}"' in note.message


def test_listener_without_name_and_address_is_a_fault(tools: Tools) -> None:
    """Where nothing gives a listener a name, it is missing; that of a wrapper will do."""
    bare: dict[str, PlainValue] = {"filter_chains": [{}]}

    assert [("missing-name", ())] == told(read(tools, plain({**bare}), "lds"))
    assert ["a"] == [one.name for one in read(tools, plain({"name": "a", "resource": bare}), "lds").resources]


def test_virtual_host_is_named_by_its_wrapper(tools: Tools) -> None:
    """A virtual host goes by the name of its wrapper; without one, by its own."""
    wrapped = read(tools, plain({"name": "r/a", "resource": {"name": "all"}}), "vhds")
    nameless = read(tools, plain({"name": "r/a", "resource": {"domains": ["*"]}}), "vhds")
    bare = read(tools, plain({"name": "r/b"}), "vhds")

    assert [resource.name for draft in (wrapped, nameless, bare) for resource in draft.resources] == [
        "r/a",
        "r/a",
        "r/b",
    ]


def test_virtual_host_is_found_by_its_domains(tools: Tools) -> None:
    """The aliases of a virtual host are its domains, in its route configuration, and those around it."""
    host: PlainValue = {"name": "r/a", "domains": ["A.com", "*"]}
    draft = read(tools, plain({"aliases": ["r/x"], "resource": host}), "vhds")

    assert [("r/a.com", "r/*", "r/x")] == [one.aliases for one in draft.resources]
    assert [] == told(draft)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"name": "a"}, ("name",)),
        ({"name": "a", "resource": {"name": "r/a"}}, ("name",)),
        ({"resources": [{"resource": {"name": "a"}}]}, ("resources", 0, "resource", "name")),
    ],
)
def test_virtual_host_without_a_table(tools: Tools, value: PlainValue, place: FieldPath) -> None:
    """A virtual host whose name does not say of which table it is is told where that name stands."""
    draft = read(tools, plain(value), "vhds")

    assert [("virtual-host-name", place)] == told(draft)
    assert draft.broken == 1
    assert [] == draft.resources


def test_endpoint_of_a_collection_is_named_by_its_wrapper(tools: Tools) -> None:
    """A LbEndpoint has no name of its own, so that it needs one around it."""
    endpoint: PlainValue = {"endpoint_name": "x"}

    assert ["a"] == [one.name for one in read(tools, plain({"name": "a", "resource": endpoint}), "leds").resources]
    assert [("missing-name", ())] == told(read(tools, plain(endpoint), "leds"))
    assert [("missing-name", ("resource",))] == told(read(tools, plain({"ttl": "60s", "resource": endpoint}), "leds"))


@pytest.mark.parametrize(
    ("ttl", "rule"),
    [("60s", None), ("0.5s", None), ("0.49s", "short-ttl"), ("0s", "wrong-duration"), ("-1s", "wrong-duration"),
     ("9223372035s", None), ("9223372036s", "wrong-duration")],
)  # fmt: skip
def test_times_to_live(tools: Tools, ttl: str, rule: str | None) -> None:
    """A time to live is more than nothing, and long enough to be renewed; what is wrong stands where it does."""
    draft = read(tools, plain({"ttl": ttl, "resource": {"name": "a"}}))

    assert ([(rule, ("ttl",))] if rule else []) == told(draft)
    assert draft.broken == (rule == "wrong-duration")


@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=lambda row: row.short_name)
def test_time_to_live_that_is_not_told(tools: Tools, row: ResourceType) -> None:
    """That a time to live is kept from Envoy is a note, once for a type in a document; the resource has it all the same."""
    resource: PlainValue = {row.name_field: "r/a"} if row.name_field else {}
    name = "r/a"
    if row.short_name == "lcds":
        resource, name = {"entries": []}, f"xdstp:///{row.message_type}/r/a"
    value: PlainValue = {"ttl": "60s", "name": name, "resource": resource}
    draft = read(tools, plain([value, value]), row.short_name)

    notes = [(fault.rule, fault.field_path) for fault in draft.faults if fault.severity is Severity.NOTE]
    assert notes == ([] if row.short_name in {"cds", "lds", "rtds"} else [("ttl-dropped", (0, "ttl"))])
    assert [60.0, 60.0] == [one.ttl_s for one in draft.resources]


def test_wrapper_in_a_wrapper_is_no_resource(tools: Tools) -> None:
    """A wrapper holds a resource, not another wrapper."""
    inner: PlainValue = {"@type": f"x/{WRAPPER}", "name": "a"}

    assert told(read(tools, plain({"resource": inner}))) == [("not-a-resource", ("resource",))]


def test_faulty_resource_declares_its_type(tools: Tools) -> None:
    """A resource that is named wrongly speaks of its type all the same."""
    assert {type_url("CDS")} == read(tools, plain({"type": "STATIC"})).declared


@pytest.fixture(scope="module")
def cluster(catalogue: Catalogue) -> type[Message]:
    """The class of clusters."""
    return catalogue.message_class(CLUSTER)


def test_bare_message_is_a_resource(tools: Tools, cluster: type[Message]) -> None:
    """A message document may be the resource itself."""
    draft = read(tools, MessageDocument(cluster(name="a"), 3), None)

    assert [("a", 3)] == [(one.name, one.origin.line) for one in draft.resources]


def test_wrapper_message_holds_a_resource(tools: Tools, catalogue: Catalogue, cluster: type[Message]) -> None:
    """A message document may be a wrapper."""
    packed = catalogue.message_class("google.protobuf.Any")(
        type_url=f"x/{CLUSTER}", value=cluster(name="a").SerializeToString()
    )
    wrapper = catalogue.message_class(WRAPPER)(name="a", resource=packed)

    assert [one.name for one in read(tools, MessageDocument(wrapper, 3), None).resources] == ["a"]


def test_fault_of_a_message_has_a_line(tools: Tools, cluster: type[Message]) -> None:
    """Where no text tells the place of a field, the line of the document does."""
    draft = read(tools, MessageDocument(cluster(), 3), None)

    assert [("missing-name", 3)] == [(fault.rule, fault.line) for fault in draft.faults]


def test_what_nobody_can_print_is_no_resource(tools: Tools, cluster: type[Message]) -> None:
    """An Any of an unknown type deep in a binary resource is refused with its place; REST could not write it."""
    message: Any = cluster(name="a")
    message.transport_socket.typed_config.type_url = "type.googleapis.com/no.Such"
    draft = read(tools, MessageDocument(message, 1))

    assert [] == draft.resources
    assert [("unknown-type", ("transport_socket", "typed_config"))] == told(draft)


WRITTEN: PlainValue = {
    "connectTimeout": "1s",
    "load_assignment": {"endpoints": [{"lbEndpoints": {"healthStatus": 1}}]},
    "metadata": {"filter_metadata": {"a_b": {}}},
}


@pytest.mark.parametrize(
    ("field_path", "expected"),
    [
        ((), ()),
        (("connect_timeout",), ("connectTimeout",)),
        (
            ("load_assignment", "endpoints", 0, "lb_endpoints", 0, "health_status"),
            ("load_assignment", "endpoints", 0, "lbEndpoints", "healthStatus"),
        ),
        (("metadata", "filter_metadata", "a_b"), ("metadata", "filter_metadata", "a_b")),
        (("lb_policy",), ("lb_policy",)),
        (("load_assignment", "endpoints", 3, "priority"), ("load_assignment", "endpoints", 3, "priority")),
        (("connect_timeout", "seconds"), ("connectTimeout", "seconds")),
    ],
)
def test_authored_path(field_path: FieldPath, expected: FieldPath) -> None:
    """Fields are found in either spelling, and in an object that stands for a list of one; what is missing keeps its name."""
    assert expected == authored_path(WRITTEN, field_path)
