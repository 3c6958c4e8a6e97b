"""List collections in files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.formats.decoded import PlainDocument
from fsxds.lint.linter import make_field_rules
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import version_of_body
from fsxds.model.values import PlainValue, Severity
from fsxds.settings.naming_rules import NamingRules
from fsxds.snapshots.document import DocumentDraft, DocumentReader, Tools
from tests.snapshots.test_document import PATH

LISTENER = BY_SHORT_NAME["lds"]
COLLECTION = BY_SHORT_NAME["lcds"]
NAME = f"xdstp://example.com/{COLLECTION.message_type}/edge"
CLUSTERS = "envoy.config.cluster.v3.Cluster"


@pytest.fixture(scope="module")
def tools(catalogue: Catalogue) -> Tools:
    """A reader's tools."""
    return Tools(catalogue, Converter(catalogue), make_field_rules(catalogue))


def listener(name: str | None, port: int = 80) -> dict[str, PlainValue]:
    """A listener as it is written inline."""
    address: PlainValue = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"@type": LISTENER.type_url, **({"name": name} if name else {}), "address": address}


def inline(resource: PlainValue, **fields: PlainValue) -> PlainValue:
    """An entry with its resource."""
    return {"inline_entry": {**fields, "resource": resource}}


def locator(path: str, message_type: str = LISTENER.message_type, **fields: PlainValue) -> PlainValue:
    """An entry that says where its resource is."""
    return {"locator": {"authority": "example.com", "resource_type": message_type, "id": path, **fields}}


def read(tools: Tools, *entries: PlainValue, name: str = NAME) -> DocumentDraft:
    """Read a collection of these entries."""
    collection: PlainValue = {"@type": COLLECTION.type_url, "entries": list(entries)}
    return DocumentReader(tools, PATH, PlainDocument({"name": name, "resource": collection}, 1), None).read(0)


def told(draft: DocumentDraft) -> list[tuple[str, str]]:
    """Return rule and place of each fault, but for those of listeners that do nothing."""
    faults = [fault for fault in draft.faults if fault.rule != "filter-chain"]
    return [(fault.rule, ".".join(map(str, fault.field_path))) for fault in faults]


def entries_of(draft: DocumentDraft, catalogue: Catalogue) -> list[Any]:
    """Return the entries of the one collection that was read."""
    (resource,) = draft.resources
    return list(catalogue.message_class(COLLECTION.message_type).FromString(resource.body).entries)  # type: ignore[attr-defined]


def test_entries_are_completed(tools: Tools, catalogue: Catalogue) -> None:
    """A listener without a name gets that of its entry; an entry without a version that of its content."""
    draft = read(tools, inline(listener(None), name="a/b"), inline(listener("l", 81), version="7"), locator("x"))

    assert [] == told(draft)
    first, second, third = entries_of(draft, catalogue)
    packed = first.inline_entry.resource
    assert packed.type_url == LISTENER.type_url
    assert catalogue.message_class(LISTENER.message_type).FromString(packed.value).name == "a/b"  # type: ignore[attr-defined]
    assert first.inline_entry.version == version_of_body(LISTENER.type_url, packed.value)
    assert second.inline_entry.version == "7"
    assert third.locator.id == "x"
    assert [resource.name for resource in draft.resources] == [NAME]


def test_references_of_entries(tools: Tools) -> None:
    """What an inline listener refers to counts, and so do the listeners that locators name; nothing has to be there."""
    tcp: PlainValue = {
        "name": "tcp",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "t",
            "cluster": "web",
        },
    }
    chains: PlainValue = [{"filters": [tcp]}]
    alternative: PlainValue = {"authority": "b", "resource_type": LISTENER.message_type, "id": "y"}
    draft = read(
        tools,
        inline({**listener("l"), "filter_chains": chains}),
        locator("x", directives=[{"alt": alternative}]),
        locator("z/*"),
    )

    (resource,) = draft.resources
    names = [(one.type_url.rpartition(".")[2], one.name, one.severity) for one in resource.references]
    assert names == [
        ("Cluster", "web", Severity.WARNING),
        ("Listener", f"xdstp://example.com/{LISTENER.message_type}/x", Severity.NOTE),
        ("Listener", f"xdstp://b/{LISTENER.message_type}/y", Severity.NOTE),
    ]


@pytest.mark.parametrize(
    ("entries", "faults"),
    [
        ([inline(listener("a"), name="x y")], [("entry-name", "resource.entries.0.inline_entry.name")]),
        (
            [inline(listener("a"), name="x"), inline(listener("b", 81), name="x")],
            [("entry-name", "resource.entries.1.inline_entry.name")],
        ),
        (
            [inline(listener("a")), inline(listener("a", 81))],
            [("duplicate-name", "resource.entries.1.inline_entry.resource.name")],
        ),
        ([inline(listener(None))], [("missing-name", "resource.entries.0.inline_entry.resource")]),
        ([{}], [("wrong-entry", "resource.entries.0")]),
        ([{"inline_entry": {"name": "a"}}], [("wrong-entry", "resource.entries.0.inline_entry")]),
        (
            [inline({"@type": f"type.googleapis.com/{CLUSTERS}", "name": "c"})],
            [("wrong-entry", "resource.entries.0.inline_entry")],
        ),
        ([locator("x", CLUSTERS)], [("wrong-entry", "resource.entries.0.locator")]),
        ([locator("x", COLLECTION.message_type)], [("wrong-entry", "resource.entries.0.locator")]),
        ([locator("../../x")], [("malformed-name", "resource.entries.0.locator")]),
        ([locator("x", scheme="HTTP")], [("malformed-name", "resource.entries.0.locator")]),
        ([locator("x", COLLECTION.message_type, directives=[{"entry": "e"}])], []),
        ([locator("/etc/passwd", scheme="FILE")], []),
        (
            [inline(listener("a")), inline(listener("b"))],
            [("listener-address", "resource.entries.1.inline_entry.resource")],
        ),
        ([], []),
    ],
)
def test_what_is_wrong_with_entries(tools: Tools, entries: list[PlainValue], faults: list[tuple[str, str]]) -> None:
    """Each fault is where its author wrote it, and a collection with one is not served."""
    draft = read(tools, *entries)

    assert told(draft) == faults
    assert bool(faults) == bool(draft.broken)


def test_an_empty_collection_is_written_on_purpose(tools: Tools) -> None:
    """One whose `entries` have no value is not taken for an empty one."""
    collection: PlainValue = {"name": NAME, "resource": {"@type": COLLECTION.type_url, "entries": None}}
    draft = DocumentReader(tools, PATH, PlainDocument(collection, 1), None).read(0)

    assert told(draft) == [("no-resources", "resource")]
    assert not draft.resources


def test_its_name_is_structured(tools: Tools) -> None:
    """A plain name is none for a list collection; without any, that of the `Resource` is missing."""
    assert told(read(tools, name="edge")) == [("collection-name", "name")]
    assert told(read(tools, name="")) == [("missing-name", "resource")]


@pytest.mark.parametrize("message_type", [f"{CLUSTERS}Collection", "envoy.config.endpoint.v3.LbEndpointCollection"])
def test_other_collections(tools: Tools, message_type: str) -> None:
    """Those of clusters and endpoints hold one entry in the API: the remedy is a glob."""
    written: tuple[dict[str, PlainValue], ...] = ({}, {"entries": []}, {"entries": [locator("x")]})
    for fields in written:
        resource: PlainValue = {"@type": f"type.googleapis.com/{message_type}", **fields}
        document = PlainDocument({"name": "x", "resource": resource}, 1)
        (fault,) = DocumentReader(tools, PATH, document, None).read(0).faults

        assert fault.rule == "singular-collection"
        assert "by the glob" in fault.remedy


def test_locators_get_the_authority_of_the_tree(tools: Tools, catalogue: Catalogue) -> None:
    """A locator without an authority gets that of the settings, as names do."""
    entry: PlainValue = {"locator": {"resource_type": LISTENER.message_type, "id": "x"}}
    collection: PlainValue = {"@type": COLLECTION.type_url, "entries": [entry]}
    wrapper: PlainValue = {"name": f"xdstp:///{COLLECTION.message_type}/edge", "resource": collection}
    own = replace(tools, naming=NamingRules("example.com"))
    draft = DocumentReader(own, PATH, PlainDocument(wrapper, 1), None).read(0)

    (resource,) = draft.resources
    assert resource.name == NAME
    assert [one.name for one in resource.references] == [f"xdstp://example.com/{LISTENER.message_type}/x"]
    assert entries_of(draft, catalogue)[0].locator.authority == "example.com"


AUTHORITY = "xdstp://example.com"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (f"{AUTHORITY}/{LISTENER.message_type}/bar", {}),
        (f"{AUTHORITY}/{LISTENER.message_type}/bar?b=2&a=1", {"exact_context": {"params": {"a": "1", "b": "2"}}}),
        (
            f"{AUTHORITY}/{LISTENER.message_type}/bar#alt=file:///xds/lds.yaml",
            {"directives": [{"alt": {"scheme": "FILE", "id": "/xds/lds.yaml"}}]},
        ),
    ],
)
def test_locator_as_text(tools: Tools, text: str, fields: dict[str, Any]) -> None:
    """A locator as text becomes the very message that its fields would be; also where one entry stands for a list."""
    as_text, as_fields = read(tools, {"locator": text}), read(tools, locator("bar", **fields))

    assert not told(as_text)
    assert as_text.resources[0].body == as_fields.resources[0].body
    assert as_text.resources[0].references == as_fields.resources[0].references
    collection: PlainValue = {"@type": COLLECTION.type_url, "entries": {"locator": text}}
    alone = DocumentReader(tools, PATH, PlainDocument({"name": NAME, "resource": collection}, 1), None).read(0)
    assert alone.resources[0].body == as_text.resources[0].body


def test_wrong_locators_as_text(tools: Tools) -> None:
    """Those that are none are reported at their places, and so are those of other types, as all locators are."""
    good = f"{AUTHORITY}/{LISTENER.message_type}/x"
    wrong: list[PlainValue] = [
        {"locator": text} for text in ("web", "http://a/b", "", f"{good}#entry=a,entry=b", "file://there/x")
    ]
    draft = read(tools, {"locator": good}, *wrong)

    assert [("malformed-name", f"resource.entries.{index}.locator") for index in range(1, 6)] == told(draft)
    assert not draft.resources
    of_clusters = read(tools, {"locator": f"{AUTHORITY}/{CLUSTERS}/x"})
    assert [("wrong-entry", "resource.entries.0.locator")] == told(of_clusters)
