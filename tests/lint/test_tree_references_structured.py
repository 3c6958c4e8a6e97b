"""References by structured names: what finds its resource, what is missing, and what nobody can ask for."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.resources import ParsedFile
from fsxds.model.values import PlainValue, SourceFile
from fsxds.settings.naming_rules import ContextRule, NamingRules
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.parse import FileParser
from tests.support.trees import tree_of

C = "envoy.config.cluster.v3.Cluster"
CLA = "envoy.config.endpoint.v3.ClusterLoadAssignment"
OWN = "own.example"


@pytest.fixture(scope="module")
def parser(catalogue: Catalogue) -> FileParser:
    """A parser for a tree with an authority."""
    parser = FileParser(catalogue, check=Linter())
    parser.name_by(NamingRules(OWN, (ContextRule("edge", (("env", "prod"),)),)))
    return parser


class Story:
    """A tree that changes step by step; each tree is loaded anew as well, which gives the same."""

    def __init__(self, parser: FileParser) -> None:
        self._parser = parser
        self._acceptance = Acceptance(check=Linter())
        self._files: dict[str, str] = {}
        self._loaded: Loaded | None = None

    def step(self, **edits: object) -> list[str]:
        """Write files, named without `.json`; None removes one. Return the rules that are broken, with their places."""
        for name, content in edits.items():
            self._files[f"{name}.json"] = json.dumps(content)
            if content is None:
                del self._files[f"{name}.json"]
        tree = tree_of(self._files)
        self._loaded = load(tree, self._loaded, self._parse, self._acceptance)
        anew = load(tree, None, self._parse, self._acceptance)
        assert anew.problems == self._loaded.problems
        return [f"{one.rule} {one.path}:{one.pointer}" for one in self._loaded.problems]

    @property
    def words(self) -> list[str]:
        """What is wrong, and what to do."""
        assert self._loaded is not None
        return [f"{one.message}; {one.remedy}" for one in self._loaded.problems]

    def _parse(self, files: Iterable[SourceFile]) -> tuple[ParsedFile, ...]:
        return tuple(map(self._parser.parse, files))


@pytest.fixture
def story(parser: FileParser) -> Story:
    """A tree of files, loaded step by step."""
    return Story(parser)


def cluster(name: str, endpoints: str = "") -> dict[str, PlainValue]:
    made: dict[str, PlainValue] = {"name": name, "type": "STATIC", "connect_timeout": "1s"}
    if endpoints:
        source: PlainValue = {"ads": {}, "resource_api_version": "V3"}
        made |= {"type": "EDS", "eds_cluster_config": {"eds_config": source, "service_name": endpoints}}
    return made


def routes(*clusters: str) -> dict[str, PlainValue]:
    found: list[PlainValue] = [
        {"match": {"prefix": f"/{n}"}, "route": {"cluster": to}} for n, to in enumerate(clusters)
    ]
    return {"name": "r", "virtual_hosts": [{"name": "h", "domains": ["*"], "routes": found}]}


ROUTE = "virtual_hosts[0].routes[0].route.cluster"


@pytest.mark.parametrize(
    ("defined", "named"),
    [
        (f"xdstp:///{C}/web", f"xdstp://{OWN}/{C}/web"),
        (f"xdstp://{OWN}/{C}/web", f"udpa:///{C}/w%65b"),
        (f"xdstp:///{C}/web?b=1&a=2", f"xdstp:/{C}/web?a=2&b=1"),
        (f"xdstp://other/{C}/web", f"xdstp://other/{C}/web"),
    ],
)
def test_a_reference_in_either_spelling_finds_its_resource(story: Story, defined: str, named: str) -> None:
    """However a name is written, what has it is found, and is in use."""
    told = story.step(cds=[cluster(defined)], rds=routes(named))

    assert [] == [one for one in told if "cluster" in one]


def test_a_missing_name_is_reported_where_it_is_written(story: Story) -> None:
    """A name of the tree's authority that nobody has is missing; a near one is named: with the parameters, or the text."""
    told = story.step(cds=[cluster("x"), cluster(f"xdstp:///{C}/web?env=prod")], rds=routes(f"xdstp:///{C}/web"))

    assert f"no-cluster rds.json:{ROUTE}" in told
    assert any(f'did you mean "xdstp://{OWN}/{C}/web?env=prod"?' in words for words in story.words)
    story.step(rds=routes("web"))
    assert any(
        f'there is no cluster "web"; requests for it fail; did you mean "xdstp://{OWN}/{C}/web?env=prod"?' in words
        for words in story.words
    )


def test_names_of_other_authorities_may_be_elsewhere(story: Story) -> None:
    """What another authority is responsible for is not missing here; what is here of it is in use."""
    told = story.step(cds=[cluster("x"), cluster(f"xdstp://other/{C}/a")], rds=routes(f"xdstp://other/{C}/b", "x"))

    assert ["unused-cluster cds.json:[1]"] == [one for one in told if "cluster" in one]
    told = story.step(rds=routes(f"xdstp://other/{C}/a", "x"))
    assert [] == [one for one in told if "cluster" in one]


def test_one_alternative_is_enough(story: Story) -> None:
    """A reference with alternatives leads somewhere while one of them is there, and uses all of them."""
    both = f"xdstp:///{C}/a#alt=xdstp:///{C}/b"

    def told(**edits: object) -> list[str]:
        return [one for one in story.step(**edits) if "cluster" in one]

    assert [] == told(cds=[cluster(f"xdstp:///{C}/a"), cluster(f"xdstp:///{C}/b")], rds=routes(both))
    assert [] == told(cds=[cluster(f"xdstp:///{C}/b")])
    assert [f"no-cluster rds.json:{ROUTE}"] == told(cds=[cluster("c"), cluster("d")])[-1:]
    assert [] == told(cds=[cluster(f"xdstp:///{C}/a")])
    assert ["unused-cluster cds.json:[0]"] == told(
        rds=routes(f"xdstp:///{C}/a"), cds=[cluster(f"xdstp:///{C}/b"), cluster(f"xdstp:///{C}/a")]
    )


def test_folders_name_variants(story: Story) -> None:
    """A name with the parameters of its folder is found by who writes them."""
    named = f"xdstp:///{CLA}/web?env=prod"
    files = {
        "edge/eds": {"cluster_name": f"xdstp:///{CLA}/web"},
        "eds": {"cluster_name": f"xdstp:///{CLA}/web"},
        "cds": [cluster("a", named), cluster("b", f"xdstp:///{CLA}/web")],
    }

    assert [] == [one for one in story.step(**files) if "endpoints" in one]


def test_one_name_in_two_files(story: Story) -> None:
    """A name in another spelling is a duplicate, in another file as well."""
    told = story.step(a_cds=[cluster(f"xdstp:///{C}/web")])
    told = story.step(b_cds=[cluster(f"udpa://{OWN}/{C}/w%65b")])

    assert [one for one in told if one.startswith("duplicate-name")] == ["duplicate-name b_cds.json:"]


LEDS = "envoy.config.endpoint.v3.LbEndpoint"


@pytest.mark.parametrize(
    ("parameters", "is_told"),
    [
        ("env=prod", False),
        ("xds.node.id=a", False),
        ("xds.node.locality.sub_zone=a", False),
        ("xds.node.metadata.tier=%22gold%22", False),
        ("xds.node.metadata.shard=3", False),
        ("xds.resource.vip=1.2.3.4", False),
        ("xds.node.metadata.tier=gold", True),
        ("xds.node.metadata.=1", True),
        ("xds.node.name=a", True),
        ("xds.node=a", True),
        ("xds.api.version=3", True),
        ("udpa.node.id=a", True),
    ],
)
def test_variants_that_nobody_asks_for(story: Story, parameters: str, *, is_told: bool) -> None:
    """Parameters that clients do not send are told, once for a resource; what Envoy sends for collections is fine there."""
    story.step(cds=[cluster(f"xdstp:///{C}/a?{parameters}")])
    told = story.step(cds=[cluster(f"xdstp:///{C}/a?{parameters}&x=1")])

    assert [one for one in told if "unmatchable" in one] == ["unmatchable-name cds.json:[0].name"] * is_told


def test_parameters_of_nodes_where_there_are_none(story: Story) -> None:
    """Of what Envoy asks for by itself, it sends names as they are written: nothing of its node is in them."""
    told = story.step(eds={"cluster_name": f"xdstp:///{CLA}/web?xds.node.id=a"})

    assert "unmatchable-name eds.json:cluster_name" in told


def test_a_folder_whose_parameters_match_nobody(catalogue: Catalogue) -> None:
    """What a folder gives is judged as if it were written."""
    parser = FileParser(catalogue, check=Linter())
    parser.name_by(NamingRules("", (ContextRule("edge", (("xds.node.id", "a"),)),)))
    told = Story(parser).step(**{"edge/eds": {"cluster_name": f"xdstp:///{CLA}/web"}})

    assert "unmatchable-name edge/eds.json:cluster_name" in told
