"""Redirects in files of every format, and what is wrong with those that are none."""

from __future__ import annotations

import json

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format, text_format
from google.protobuf.any_pb2 import Any as PackedAny
from xds.core.v3.resource_locator_pb2 import ResourceLocator
from xds.core.v3.resource_name_pb2 import ResourceName

from fsxds.model.resources import ParsedFile
from fsxds.snapshots.parse import FileParser
from tests.support.trees import tree_of

CDS = "envoy.config.cluster.v3.Cluster"
FIELDS = {"authority": "far", "resource_type": CDS, "id": "a/b"}
TARGET = f"xdstp://far/{CDS}/a/b"


def wrapped(payload: ResourceLocator | ResourceName | None) -> discovery_pb2.Resource:
    """Return a `Resource` named `one` with a payload, or with the name of another resource alone."""
    if payload is None:
        return discovery_pb2.Resource(name="one", resource_name={"name": TARGET})
    packed = PackedAny()
    packed.Pack(payload)
    return discovery_pb2.Resource(name="one", resource=packed)


PAYLOADS = {
    "locator": ResourceLocator(**FIELDS),
    "name": ResourceName(**FIELDS),
    "resource_name": None,
}


def parse(parser: FileParser, path: str, content: str | bytes) -> ParsedFile:
    """Parse one file."""
    (file,) = tree_of({path: content}).files
    return parser.parse(file)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=list(PAYLOADS))
@pytest.mark.parametrize("suffix", ["yaml", "json", "textproto", "pb"])
def test_every_format_has_every_form(parser: FileParser, suffix: str, payload: ResourceLocator | None) -> None:
    """A `Resource` with a locator, a name, or no payload and the name of another one, is a redirect of its type."""
    wrapper = wrapped(payload)
    in_any = PackedAny()
    in_any.Pack(wrapper)
    response = discovery_pb2.DiscoveryResponse(resources=[in_any])
    content = {
        "yaml": json_format.MessageToJson(response),
        "json": json_format.MessageToJson(response, preserving_proto_field_name=True),
        "textproto": text_format.MessageToString(response),
        "pb": response.SerializeToString(),
    }[suffix]
    parsed = parse(parser, f"cds.{suffix}", content)

    assert parsed.problems == ()
    (one,) = parsed.resources
    assert (one.type_url, one.name, one.redirect, one.body) == (f"type.googleapis.com/{CDS}", "one", TARGET, b"")


def test_directives_are_read(parser: FileParser) -> None:
    """Alternatives and entries of a locator message are those of its text."""
    text = "{name: one, resource: {'@type': type.googleapis.com/xds.core.v3.ResourceLocator, "
    text += f"authority: far, resource_type: {CDS}, id: a/b, directives: [{{alt: {{resource_type: {CDS}, id: c}}}}]}}}}"

    (one,) = parse(parser, "cds.yaml", text).resources
    assert one.redirect == f"{TARGET}#alt=xdstp:///{CDS}/c"


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (f"{{resource_name: {{name: {TARGET}}}}}", "a redirect has no name"),
        ("{name: one, resource_name: {name: 'xdstp://far/x'}}", "the locator is no structured name"),
        (f"{{name: one, resource_name: {{name: {TARGET}/*}}}}", "a redirect leads to a collection"),
        ("{name: one, resource_name: {name: 'xdstp:///envoy.config.core.v3.Node/x'}}", "is not a type that xDS serves"),
        (
            f"{{name: one, resource_name: {{name: '{TARGET}#alt=xdstp:///envoy.config.listener.v3.Listener/x'}}}}",
            "leads to one",
        ),
        (
            f"{{name: 'xdstp:///envoy.config.listener.v3.Listener/x', resource_name: {{name: {TARGET}}}}}",
            "leads to one of",
        ),
        (f"{{name: 'xdstp:///{CDS}/x/*', resource_name: {{name: {TARGET}}}}}", "is the name of a collection"),
        ("{name: one, resource_name: {name: 'file://host/x'}}", "the locator is no file of this machine"),
        ("{name: one, resource_name: {name: 'file:///tree/%2e%2e/x'}}", "has a part that is . or .."),
        ("{name: one, resource_name: {}}", "a Resource without `resource`"),
        ("{name: one, resource_name: {nam: x}}", 'no field "nam"'),
        ("{name: one, resource_name: 7}", "expected an object"),
    ],
)
def test_what_is_no_redirect_is_an_error_with_its_place(parser: FileParser, content: str, fact: str) -> None:
    """The file is not served, and says why."""
    parsed = parse(parser, "cds.yaml", f"- name: good\n- {content}\n")

    assert not parsed.is_good
    assert any(fact in problem.message for problem in parsed.problems), parsed.problems
    assert {problem.line for problem in parsed.problems} == {2}


def test_a_file_without_a_type_needs_one_in_the_locator(parser: FileParser) -> None:
    """A plain name for a file is of the type that the file is of; where that has none, it is asked for."""
    content = "- {name: one, resource_name: {name: 'file:///tree/x.yaml'}}"

    assert parse(parser, "cds.yaml", content).is_good
    (problem,) = parse(parser, "mixed.yaml", content).problems
    assert "this redirect has no type" in problem.message


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("locator", [TARGET, f"{TARGET}#alt=xdstp:///{CDS}/c", "file:///xds/cds.yaml"])
def test_a_locator_as_text_in_place_of_the_resource(parser: FileParser, suffix: str, locator: str) -> None:
    """What stands where the resource would be is read as the same locator in a message would be."""
    parsed = parse(parser, f"cds.{suffix}", json.dumps({"name": "one", "resource": locator}))

    assert parsed.problems == ()
    (one,) = parsed.resources
    assert (one.name, one.redirect, one.body) == ("one", locator, b"")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{TARGET}#at=b", "malformed-redirect"),
        (f"xdstp://far/{CDS}/a/*", "malformed-redirect"),
        ("web", "wrong-value"),
    ],
)
def test_wrong_texts_in_place_of_the_resource(parser: FileParser, text: str, rule: str) -> None:
    """A malformed locator is told of at its place; any other text is no resource."""
    (problem,) = parse(parser, "cds.yaml", json.dumps({"name": "one", "resource": text})).problems
    assert (problem.rule, problem.pointer) == (rule, "resource")
