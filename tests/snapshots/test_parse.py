"""Whatever stands in a file, there is a result or a problem, soon, and no exception."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from random import Random

import pytest
import yaml
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats import FORMATS
from fsxds.lint.linter import Linter
from fsxds.model.resource_types import type_from_path
from fsxds.model.resources import Origin, ParsedFile, Resource, version_of_body
from fsxds.model.values import Severity, SourceFile
from fsxds.snapshots.parse import ChunkParser, FileParser
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


TOP = Path(__file__).parent.parent.parent
SAMPLES = sorted(path for path in (TOP / "config" / "xds").rglob("*.*") if path.is_file())
SUFFIXES = (".yaml", ".json", ".textproto", ".pb")
# An eighth of what `python -m tests.bench` measures, and more than twice what it may take: here, a cost out of all proportion
# shall be found, and not a busy machine.
HOSTILE_BYTES = 1 << 17
MOST_SECONDS = 2.0
MOST_MIB = 250.0
MUTANTS_PER_SAMPLE = 25

# What the formats are made of; random text would hardly ever get past the first character.
MARKS = (
    "{ } [ ] < > ( ) : , ; - ? | > & * ! % # ~ = / \\ \" ' ` @ . $ << --- ... \n \t \r \x00 \ufeff \u2028 é \U0001f642 a b null true y 1 "
    "1.5 -1 0x1 1e999 .inf NaN 2024-01-01 name resources version_info @type type_url value &a *a !!str !!binary !x "
    "'' \"\" //x /*x*/ #x 1_0 [x.y/Z] type.googleapis.com/envoy.config.cluster.v3.Cluster connect_timeout load_assignment"
)
PIECES = MARKS.split(" ")


def _parse(parser: FileParser, content: bytes, suffix: str) -> ParsedFile:
    return parser.parse(SourceFile.of(PurePosixPath(f"clusters{suffix}"), content))


def _says_something(parsed: ParsedFile) -> bool:
    return bool(parsed.documents or parsed.problems)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(content=st.binary(max_size=300))
def test_any_bytes(parser: FileParser, suffix: str, content: bytes) -> None:
    """Bytes without any sense are told as a problem, if they are no resources."""
    assert _says_something(_parse(parser, content, suffix))


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40), glue=st.sampled_from(["", " ", "\n", "\n  ", ": "]))
def test_any_tokens(parser: FileParser, suffix: str, pieces: list[str], glue: str) -> None:
    """The marks and words of the formats, in any order, are told as a problem, if they are no resources."""
    assert _says_something(_parse(parser, glue.join(pieces).encode(), suffix))


def _broken(rng: random.Random, content: bytes) -> bytes:
    """Return the content with one to three things done to it."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        to = min(to, at + 50)
        content = rng.choice(
            [
                content[:at] + content[to:],
                content[:at] + content[at:to] * 2 + content[to:],
                content[:at] + rng.randbytes(rng.randint(1, 4)) + content[at:],
                content[:at] + rng.choice(b"{}[]:,\"'-&*!#\n\t \\\0").to_bytes(1, "big") + content[at + 1 :],
                content[:at],
                content[:at]
                + bytes(byte ^ (1 << rng.randrange(8)) for byte in content[at : at + 1])
                + content[at + 1 :],
            ]
        )
    return content


def _in_format(sample: Path, suffix: str, parser: FileParser, catalogue: Catalogue) -> list[bytes]:
    """Write what a sample file holds in another format."""
    if sample.suffix == suffix:
        return [sample.read_bytes()]
    if suffix == ".json" and sample.suffix == ".yaml":
        return [json.dumps(one, indent=1).encode() for one in yaml.safe_load_all(sample.read_text(encoding="utf-8"))]
    parsed = parser.parse(SourceFile.of(PurePosixPath(sample.name), sample.read_bytes()))
    row = next(row for row in FORMATS if suffix in row.suffixes)
    messages = [
        catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
        for resource in parsed.resources
    ]
    return [row.encode(message, Printer(catalogue)) for message in messages]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_samples(parser: FileParser, catalogue: Catalogue, suffix: str) -> None:
    """Sample files with some bytes lost, doubled or changed are read, or are told as a problem."""
    rng = random.Random(3)
    contents = [content for sample in SAMPLES for content in _in_format(sample, suffix, parser, catalogue)]
    silent = []
    for content in contents:
        for _ in range(MUTANTS_PER_SAMPLE):
            broken = _broken(rng, content)
            silent += [] if _says_something(_parse(parser, broken, suffix)) else [broken]

    assert len(contents) >= len(SAMPLES)
    assert [] == silent


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_hostile_files(suffix: str) -> None:
    """Whatever is in a file of 128 KiB, reading it does not take out of all proportion, and 250 MiB at most."""
    argv = [sys.executable, "-m", "tests.support.parse_hostile", suffix, str(HOSTILE_BYTES)]
    done = subprocess.run(argv, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    cost = json.loads(done.stdout)

    slow = {name: seconds for name, seconds in cost["seconds"].items() if seconds > MOST_SECONDS * cost["slowness"]}
    assert {} == slow
    assert cost["mib"] <= MOST_MIB


PATH = PurePosixPath("clusters.yaml")

ITEM = """\
- name: c{number}
  connect_timeout: 1s
  # a comment
  type: STATIC

  metadata:
    filter_metadata: {{a: {{b: "x - y", c: [1, 2]}}}}
"""


def text_of(count: int, head: str = "version_info: 'v'\nresources:\n") -> str:
    """Return a list of clusters."""
    return head + "".join(ITEM.format(number=number) for number in range(count))


def file_of(text: str, path: PurePosixPath = PATH) -> SourceFile:
    """Return a file."""
    return SourceFile.of(path, text.encode())


@pytest.fixture
def parser(catalogue: Catalogue) -> FileParser:
    # Small files shall take the way of large ones.
    return FileParser(catalogue, chunked_from_bytes=0, check=Linter())


@cache
def plain_parser(catalogue: Catalogue) -> FileParser:
    """Return a parser that takes files of this size as a whole, and so remembers nothing of them."""
    return FileParser(catalogue, check=Linter())


def whole(catalogue: Catalogue, file: SourceFile) -> ParsedFile:
    """Parse a file as a whole."""
    return plain_parser(catalogue).parse(file)


def taken_apart(parser: FileParser, file: SourceFile) -> bool:
    """Tell whether a file is parsed by its items."""
    return parser._chunks.parse(file, type_from_path(file.path)) is not None


def lines_of(parsed: ParsedFile) -> list[str]:
    """Return where each resource was found; origins are no part of equality."""
    return [str(resource.origin) for resource in parsed.resources]


@pytest.mark.parametrize(
    "head", ["resources:\n", "# why\nversion_info: 'v'\n\nresources:\n", "", "# a bare list\n", "\n"], ids=repr
)
def test_an_edit_says_the_same_as_the_whole(catalogue: Catalogue, parser: FileParser, head: str) -> None:
    """After an edit in the middle, an insertion and a deletion, resources and lines are those of the whole."""
    text = text_of(20, head)
    parser.parse(file_of(text))
    item = ITEM.format(number=7)
    for edited in (
        text.replace("name: c7\n", "name: other\n"),
        text.replace(item, item + ITEM.format(number=700)),
        text.replace(item, ""),
        text,
    ):
        assert taken_apart(parser, file_of(edited))
        expected = whole(catalogue, file_of(edited))

        assert expected == parser.parse(file_of(edited))
        assert lines_of(expected) == lines_of(parser.parse(file_of(edited)))


def test_unchanged_items_are_not_parsed_again(parser: FileParser) -> None:
    """An edit of one item keeps the bytes of all others, as the same objects."""
    before = parser.parse(file_of(text_of(5)))
    after = parser.parse(file_of(text_of(5).replace("name: c2\n", "name: other\n")))

    kept = [old.body is new.body for old, new in zip(before.resources, after.resources, strict=True)]
    assert kept == [True, True, False, True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("- name: c1\n", "- &one\n  name: c1\n").replace(
            "- name: c2\n", "- <<: *one\n  name: c2\n"
        ),
        lambda text: text + "more: 1\n",
        lambda text: text + "---\nresources: []\n",
        lambda text: "%YAML 1.2\n---\n" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("name: c3", 'name: "c\n- 3"'),
        lambda text: text.replace("name: c3", "name: [c\n- 3"),
        lambda text: text.replace("name: c3", "name: c2"),
        lambda text: text.replace("name: c3", "nam: c3"),
        lambda text: text.replace("name: c3", "name: c3\n\tconnect_timeout: 1s"),
        lambda text: text.replace("resources:\n", "resources: &all\n"),
        lambda text: text.replace("resources:", "canary: true\nresources:"),
        lambda text: text.replace("resources:\n", "resources:\ntype_url: envoy.config.cluster.v3.Cluster\n"),
        lambda text: text.replace("resources:\n", "resources: null\n"),
        lambda text: text.replace("resources:\n", "resources: # here they come\n"),
        lambda text: text + "# the end\n",
        lambda text: text.replace("  # a comment\n", "# a comment at the margin\n"),
        lambda text: text + "- name: last",
        lambda text: text + "- name: last\n  connect_timeout: 0777s\n",
        lambda text: text + "-\n  name: last\n",
        lambda text: text + "- - name: last\n",
        lambda text: text + "- {name: last}\n- !ignore a: b\n",
        lambda text: text.replace(
            "version_info: 'v'", "type_url: type.googleapis.com/envoy.config.listener.v3.Listener"
        ),
    ],
)
def test_whatever_is_odd_says_what_the_whole_says(catalogue: Catalogue, parser: FileParser, spoil) -> None:
    """Anchors, quotes, marks, faults and duplicates end in the same resources and problems."""
    text = text_of(5)
    parser.parse(file_of(text))
    spoilt = file_of(spoil(text))

    assert whole(catalogue, spoilt) == parser.parse(spoilt)
    assert lines_of(whole(catalogue, spoilt)) == lines_of(parser.parse(spoilt))


def test_random_edits_say_what_the_whole_says(catalogue: Catalogue, parser: FileParser) -> None:
    """Whatever bytes are inserted, replaced or cut out, remembered items never change the outcome."""
    random = Random(20)
    base = text_of(6)
    parts = [
        "\n",
        "- ",
        "\n- ",
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        "#",
        ": ",
        "&a ",
        "*a",
        "|",
        ">",
        "---\n",
        "  ",
        "\t",
        "x",
        "!x ",
    ]
    for _ in range(400):
        text = base
        for _ in range(random.randint(1, 3)):
            at, cut = random.randrange(len(text)), random.choice([0, 0, 1, 5, 40])
            text = text[:at] + random.choice(parts) + text[at + cut :]
        parser.parse(file_of(base))
        file = file_of(text)
        expected, actual = whole(catalogue, file), parser.parse(file)

        assert expected == actual, text
        assert lines_of(expected) == lines_of(actual), text


def test_random_edits_are_parsed_as_the_whole_or_not_at_all(catalogue: Catalogue, parser: FileParser) -> None:
    """Items that are inserted, changed, moved and cut, and odd bytes, give what the whole gives, or nothing."""
    random = Random(21)
    odd = ["'", "[", "&a ", "*a", "---\n", "\n- ", "# x\n", "- name: other\n", "\r", "\u2028", "9"]
    outcomes = []
    for _ in range(250):
        items = [ITEM.format(number=number) for number in range(12)]
        head = random.choice(["", "resources:\n", "version_info: 'v'\nresources:\n"])
        base = file_of(head + "".join(items))
        for _ in range(random.randint(1, 3)):
            at, step = random.randrange(len(items)), random.randrange(4)
            if step == 0:
                items.insert(at, ITEM.format(number=random.randrange(9, 99)))
            elif step == 1:
                items[at] = items[at].replace("1s", "2s")
            elif step == 2:
                items.append(items.pop(at))
            else:
                items.pop(at)
        text = head + "".join(items)
        if random.random() < 0.4:
            place = random.randrange(len(text))
            text = text[:place] + random.choice(odd) + text[place:]
        parser.learn(base, whole(catalogue, base))
        edit = parser.parse_edit(file_of(text), random.choice([0, 50, 200, 1000]))
        outcomes.append(edit is not None)
        if edit is not None:
            expected = whole(catalogue, file_of(text))
            assert expected == edit, text
            assert lines_of(expected) == lines_of(edit), text
    assert min(outcomes.count(True), outcomes.count(False)) > 30


def test_more_than_an_edit_is_not_parsed_and_forgets_nothing(parser: FileParser) -> None:
    """A file that is unknown, or of which too much is new, at its head too, parses to nothing; the next edit is one."""
    text = text_of(20)
    most_bytes = len(ITEM)
    assert parser.parse_edit(file_of(text), 10**9) is None
    before = parser.parse(file_of(text)).resources
    for more in (
        text.replace("name: c5\n", "name: c5" + "5" * most_bytes + "\n"),
        text.replace("name: c5\n", "name: d5\n").replace("name: c6\n", "name: d6\n"),
        "#" * most_bytes + "\n" + text,
        "type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\n" + text,
        text.replace("resources:\n", "resources:\n" + "- {}\n" * most_bytes),
        text.replace("name: c5\n", "name: [\n"),
        "name: a\n",
        "",
    ):
        assert parser.parse_edit(file_of(more), most_bytes) is None, more

    edited = parser.parse_edit(file_of(text.replace("name: c5\n", "name: d5\n")), most_bytes)
    assert edited is not None
    assert [old.body is new.body for old, new in zip(before, edited.resources, strict=True)].count(True) == 19


def test_an_item_that_means_what_another_says_is_not_remembered(catalogue: Catalogue, parser: FileParser) -> None:
    """An edit of an anchored item reaches the items that refer to it."""
    text = text_of(5).replace("- name: c1\n", "- &one\n  name: c1\n")
    text = text.replace("- name: c2\n", "- <<: *one\n  name: c2\n").replace("  connect_timeout: 1s\n", "", 3)
    parser.parse(file_of(text))
    edited = file_of(text.replace("- &one\n", "- &one\n  connect_timeout: 9s\n"))

    assert whole(catalogue, edited) == parser.parse(edited)


def test_files_that_were_not_parsed_for_long_are_forgotten(parser: FileParser) -> None:
    """Names that change with every deployment do not pile up; the file that was parsed last is always remembered."""
    chunks = ChunkParser(parser._tools, 0, most_remembered=7)
    paths = [PurePosixPath(f"{number}.clusters.yaml") for number in range(3)]
    for path in paths:
        file = file_of(text_of(5), path)
        chunks.learn(file, type_from_path(path), parser.parse(file).documents[0])

    known = [chunks.parse(file_of(text_of(5), path), type_from_path(path)) is not None for path in paths]
    assert known == [False, False, True]
