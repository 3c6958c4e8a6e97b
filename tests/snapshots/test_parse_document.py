from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.resources import Origin, ParsedFile, Resource, version_of_body
from fsxds.snapshots.parse import FileParser
from fsxds.values import Severity
from tests.support.snapshots import type_url
from tests.support.trees import tree_of

CLUSTER = "envoy.config.cluster.v3.Cluster"
RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
WRAPPER = "envoy.service.discovery.v3.Resource"


def parse(parser: FileParser, path: str, content: str | bytes) -> ParsedFile:
    return parser.parse(tree_of({path: content}).files[0])


def rules(parsed: ParsedFile) -> list[str]:
    return [problem.rule for problem in parsed.problems]


def packed(catalogue: Catalogue, message: Message) -> Message:
    """Pack a message into an Any of the same catalogue."""
    any_class = catalogue.message_class("google.protobuf.Any")
    return any_class(type_url=f"type.googleapis.com/{message.DESCRIPTOR.full_name}", value=message.SerializeToString())


def response(catalogue: Catalogue, *resources: Message, **fields: str) -> bytes:
    """Serialize a DiscoveryResponse that holds these messages, each packed."""
    message = catalogue.message_class(RESPONSE)(resources=[packed(catalogue, one) for one in resources], **fields)
    return message.SerializeToString()


def test_resource_has_its_bytes_version_and_place(parser: FileParser, catalogue: Catalogue) -> None:
    """A resource is its deterministic serialization, the digest of that, and where it was written."""
    parsed = parse(parser, "cds.yaml", "version_info: '7'\nresources:\n- name: a\n  connect_timeout: 1s\n")

    body = catalogue.message_class(CLUSTER)(name="a", connect_timeout={"seconds": 1}).SerializeToString()
    cds = type_url("CDS")
    origin = Origin(PurePosixPath("cds.yaml"), 3)
    assert (Resource(cds, "a", body, version_of_body(cds, body), origin),) == parsed.resources
    assert origin == parsed.resources[0].origin
    assert parsed.documents[0].version_info == "7"
    assert (
        parsed.digest
        == tree_of({"x": "version_info: '7'\nresources:\n- name: a\n  connect_timeout: 1s\n"}).files[0].digest
    )
    assert parsed.is_good


def test_equal_meaning_is_equal_in_every_format(parser: FileParser, catalogue: Catalogue) -> None:
    """The same cluster is the same bytes, whatever format, shape and spelling it was written in."""
    cluster = catalogue.message_class(CLUSTER)(name="a", connect_timeout={"seconds": 1})
    files: dict[str, str | bytes] = {
        "cds.yaml": "resources:\n- name: a\n  connect_timeout: 1s\n",
        "cds.json": '[{"connectTimeout": "1s", "name": "a"}]',
        "clusters.txtpb": 'connect_timeout { seconds: 1 } name: "a"',
        "edge.pb": response(catalogue, cluster),
    }

    bodies = {parse(parser, path, content).resources[0].body for path, content in files.items()}

    assert {cluster.SerializeToString()} == bodies


def test_plain_decimal_is_a_version_as_it_is_spelled(parser: FileParser) -> None:
    """Envoy takes a version without quotes that has a point as text."""
    parsed = parse(parser, "cds.yaml", "version_info: 1.10\nresources:\n- name: a\n")

    assert parsed.problems == ()
    assert parsed.documents[0].version_info == "1.10"


def test_documents_of_a_file_keep_their_versions(parser: FileParser) -> None:
    """Each document has its own version and types, also where it holds nothing."""
    parsed = parse(
        parser,
        "a.yaml",
        "version_info: '1'\ntype_url: envoy.config.cluster.v3.Cluster\nresources: []\n"
        "---\n- '@type': x/envoy.config.listener.v3.Listener\n  name: l\n",
    )

    expected = [("1", frozenset({type_url("CDS")})), (None, frozenset({type_url("LDS")}))]
    assert expected == [(document.version_info, document.declared) for document in parsed.documents]


def test_unknown_suffix_is_a_problem(parser: FileParser) -> None:
    """A file that no format claims is no file of ours; whoever hands it in is told so."""
    parsed = parse(parser, "cds.toml", "")

    assert rules(parsed) == ["unknown-format"]
    assert not parsed.is_good


def test_unknown_fields_may_be_warnings(catalogue: Catalogue) -> None:
    """Where unknown fields are warnings they are dropped: in a resource, a wrapper and an envelope."""
    lenient = FileParser(catalogue, Severity.WARNING, check=Linter())

    parsed = parse(lenient, "cds.yaml", "zzz: 1\nresources:\n- yyy: 1\n  resource:\n    name: a\n    xxx: 1\n")

    assert rules(parsed) == ["unknown-field"] * 3
    assert {Severity.WARNING} == {problem.severity for problem in parsed.problems}
    assert [resource.name for resource in parsed.resources] == ["a"]


def test_unknown_fields_of_an_empty_document_may_be_warnings(catalogue: Catalogue) -> None:
    """An empty document with an unknown field is empty on purpose where that is a warning."""
    parsed = parse(FileParser(catalogue, Severity.WARNING, check=Linter()), "cds.yaml", "zzz: 1\nresources: []\n")

    assert {type_url("CDS")} == parsed.declared
    assert parsed.is_good


def test_problems_of_all_documents_are_told_in_one_go(parser: FileParser) -> None:
    """Every problem of every document is told at its own line and column."""
    parsed = parse(parser, "cds.yaml", "- name: a\n  x: 1\n---\n- name: b\n  y: 1\n---\n  name: c\n  z: 1\n")

    assert [(2, 3, "[0][…]"), (5, 3, "[0][…]"), (8, 3, "[…]")] == [
        (problem.line, problem.column, problem.pointer) for problem in parsed.problems
    ]


def test_problems_of_a_file_are_sorted(parser: FileParser) -> None:
    """Problems come in the order of their lines, whatever found them."""
    parsed = parse(parser, "cds.yaml", "- name: a\n- name: a\n- name: b\n  x: 1\n")

    assert [(2, "duplicate-name"), (4, "unknown-field")] == [
        (problem.line, problem.rule) for problem in parsed.problems
    ]


def test_order_of_a_map_makes_no_other_bytes(parser: FileParser) -> None:
    """A map is written in one order, so that its author's order changes no version."""
    keys = [f"key{number}" for number in range(50)]
    contents = [
        "- name: a\n  metadata:\n    filter_metadata:\n" + "".join(f"      {key}: {{}}\n" for key in order)
        for order in (keys, keys[::-1])
    ]

    versions = {parse(parser, "cds.yaml", content).resources[0].version for content in contents}

    assert len(versions) == 1


def test_many_problems_are_found_in_one_walk(parser: FileParser) -> None:
    """A file with a fault in each of a thousand places is read in a moment, each fault at its place."""
    count = 1000
    parsed = parse(parser, "cds.yaml", "".join(f"- name: a{number}\n  x: 1\n" for number in range(count)))

    assert [2 * number + 2 for number in range(count)] == [problem.line for problem in parsed.problems]


@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n", "---\n---\n", "null\n", "~\n"])
def test_file_without_a_document_is_a_problem(parser: FileParser, content: str) -> None:
    """An empty file says nothing: not that everything is to be deleted."""
    parsed = parse(parser, "cds.yaml", content)

    assert rules(parsed) == ["empty-file"]
    assert parsed.documents == ()


def test_missing_resources_are_the_only_problem(parser: FileParser) -> None:
    """Where `resources` has no value, nobody asks for the type of nothing as well."""
    assert rules(parse(parser, "a.yaml", "resources:\n")) == ["no-resources"]


def test_syntax_fault_is_the_only_problem(parser: FileParser) -> None:
    """A file that cannot be read is not called empty as well."""
    assert rules(parse(parser, "cds.yaml", "resources: [")) == ["bad-syntax"]


def test_binary_response(parser: FileParser, catalogue: Catalogue) -> None:
    """A binary DiscoveryResponse holds resources and wrappers, and says its version."""
    cluster = catalogue.message_class(CLUSTER)
    inner = packed(catalogue, cluster(name="b"))
    wrapper = catalogue.message_class(WRAPPER)(name="b", aliases=["x"], ttl={"nanos": 500_000_000}, resource=inner)

    parsed = parse(parser, "edge.pb", response(catalogue, cluster(name="a"), wrapper, version_info="7"))

    assert parsed.problems == ()
    assert [("a", (), None), ("b", ("x",), 0.5)] == [(row.name, row.aliases, row.ttl_s) for row in parsed.resources]
    assert parsed.documents[0].version_info == "7"
    assert {1} == {row.origin.line for row in parsed.resources}


def test_binary_any_in_any(parser: FileParser, catalogue: Catalogue) -> None:
    """An Any within an Any is unpacked as deep as it goes."""
    cluster = packed(catalogue, catalogue.message_class(CLUSTER)(name="a"))

    parsed = parse(parser, "edge.pb", response(catalogue, packed(catalogue, cluster)))

    assert [row.name for row in parsed.resources] == ["a"]
    assert parsed.documents[0].version_info is None


def test_binary_empty_response(parser: FileParser, catalogue: Catalogue) -> None:
    """A response without resources declares the type that it says, else that of the file's name."""
    by_url = parse(parser, "edge.pb", response(catalogue, type_url=type_url("CDS"), version_info="1"))
    by_name = parse(parser, "lds.pb", response(catalogue, version_info="1"))

    assert {type_url("CDS")} == by_url.declared
    assert {type_url("LDS")} == by_name.declared
    assert by_url.is_good
    assert by_name.is_good


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"version_info": "1"}, "missing-type"),
        ({"type_url": "x/envoy.config.cluster.v3.Clutser"}, "unknown-type"),
        ({"type_url": "x/envoy.config.core.v3.Node"}, "not-a-resource"),
    ],
)
def test_binary_empty_response_of_no_type(
    parser: FileParser, catalogue: Catalogue, fields: dict[str, str], rule: str
) -> None:
    """A response without resources and without a type says nothing; a wrong one is not guessed from the file's name."""
    path = "edge.pb" if rule == "missing-type" else "cds.pb"

    assert [rule] == rules(parse(parser, path, response(catalogue, **fields)))


def test_binary_damage_is_a_problem(parser: FileParser, catalogue: Catalogue) -> None:
    """A truncated file, garbage and an empty one are problems; Envoy would take them for deletions."""
    whole = response(catalogue, catalogue.message_class(CLUSTER)(name="a"))

    for content in (whole[:-1], b"garbage", b""):
        parsed = parse(parser, "cds.pb", content)
        assert len(parsed.problems) == 1
        assert parsed.resources == ()


def test_binary_problems_are_told_in_one_go(parser: FileParser, catalogue: Catalogue) -> None:
    """An unknown type, broken bytes, a heartbeat, another message and a missing name are told each at its index."""
    any_class = catalogue.message_class("google.protobuf.Any")
    message = catalogue.message_class(RESPONSE)(
        resources=[
            any_class(type_url="x/envoy.config.cluster.v3.Clutser"),
            any_class(type_url=f"x/{CLUSTER}", value=b"\xff"),
            packed(catalogue, catalogue.message_class(WRAPPER)(name="a")),
            packed(catalogue, catalogue.message_class("envoy.config.core.v3.Node")()),
            packed(catalogue, catalogue.message_class(CLUSTER)()),
        ]
    )

    parsed = parse(parser, "cds.pb", message.SerializeToString())

    expected = [
        ("resources[0]", "unknown-type"),
        ("resources[1]", "broken-message"),
        ("resources[2]", "no-resource"),
        ("resources[3]", "not-a-resource"),
        ("resources[4]", "missing-name"),
    ]
    assert expected == [(problem.pointer, problem.rule) for problem in parsed.problems]
    assert {(1, 1)} == {(problem.line, problem.column) for problem in parsed.problems}


def test_wrong_type_url_is_told_once(parser: FileParser) -> None:
    """A type URL that no resource has is told at its own place, however many resources need it."""
    parsed = parse(
        parser, "cds.yaml", "resources:\n- name: a\n- name: b\ntype_url: x/envoy.config.cluster.v3.Clutser\n"
    )

    assert [("unknown-type", 4)] == [(problem.rule, problem.line) for problem in parsed.problems]


def test_wrong_type_url_that_nobody_needs(parser: FileParser) -> None:
    """Envoy does not look at a response's type URL; where resources name their own types, neither do we."""
    parsed = parse(parser, "a.yaml", f"type_url: x/y\nresources:\n- '@type': x/{CLUSTER}\n  name: a\n")

    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        ("cds.yaml", '- type: STATIC\n  name: ""\n', (2, 3, "[0].name")),
        ("eds.yaml", "- endpoints: []\n  clusterName: ''\n", (2, 3, "[0].clusterName")),
        ("cds.yaml", "- name: a\n  resource:\n    type: STATIC\n    name:\n", (4, 5, "[0].resource.name")),
        ("cds.json", '[{"type": "STATIC",\n  "name": ""}]', (2, 3, "[0].name")),
        ("cds.yaml", "- type: STATIC\n", (1, 3, "[0]")),
    ],
)
def test_empty_name_has_its_own_place(parser: FileParser, path: str, text: str, place: tuple[int, int, str]) -> None:
    """A name that is written and empty is told where it is written; one that is not there, where its resource is."""
    (found,) = parse(parser, path, text).problems

    assert ("missing-name", *place) == (found.rule, found.line, found.column, found.pointer)


def test_name_twice_in_a_file_names_both_places(parser: FileParser) -> None:
    """The second place of a name has the problem, and its text names the first."""
    parsed = parse(parser, "cds.yaml", "- name: a\n- name: a\n  type: STATIC\n")

    assert [str(problem) for problem in parsed.problems] == [
        'cds.yaml:2:1: error: Cluster "a" is already defined at cds.yaml:1; rename or remove one of the two'
    ]


def test_equal_content_twice_is_harmless_by_name(parser: FileParser) -> None:
    """A repeated resource is a warning where clients ask by name, and an error where they get the whole list."""
    endpoints = parse(parser, "eds.yaml", "- cluster_name: a\n- cluster_name: a\n")
    other = parse(parser, "eds.yaml", "- cluster_name: a\n- cluster_name: a\n  policy: {}\n")
    clusters = parse(parser, "cds.yaml", "- name: a\n- name: a\n")

    assert [Severity.WARNING] == [problem.severity for problem in endpoints.problems]
    assert [Severity.ERROR] == [problem.severity for problem in other.problems]
    assert [Severity.ERROR] == [problem.severity for problem in clusters.problems]


def test_problems_are_bounded(catalogue: Catalogue) -> None:
    """Of a file of nothing but mistakes, the first thousand are told, and that there are more; it is not read to its end."""
    text = "".join(f"- {{name: a{number}, connect_timeout: -1s}}\n" for number in range(20_000))

    parsed = parse(FileParser(catalogue, check=Linter()), "cds.yaml", text)

    assert 1001 == len(parsed.problems)
    assert {"wrong-duration", "out-of-range", "too-many-problems"} >= {problem.rule for problem in parsed.problems}
    assert 1 == sum(problem.rule == "too-many-problems" for problem in parsed.problems)
