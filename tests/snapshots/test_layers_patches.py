"""What a layer says about resources of the layers below it: it deletes them, and patches them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import PlainValue, Problem, Severity
from fsxds.snapshots.layers import Patching
from fsxds.snapshots.load import Acceptance, Loaded
from fsxds.snapshots.parse import FileParser
from tests.support.views import ViewStory, held, problems, served

COMMON = ("common",)
A = ("common", "nodes/a")

BASE = """\
- name: web
  type: STATIC
  connectTimeout: 1s
- name: api
  type: STATIC
  connect_timeout: 1s
"""
PATCH = "kind: Layer\npatch:\n  clusters:\n    web: {connect_timeout: 2s}\n"


@pytest.fixture
def story(catalogue: Catalogue, parser: FileParser) -> ViewStory:
    """A tree with real files, of which a node's view is wanted."""
    check = Linter()
    acceptance = Acceptance(check=check, patching=Patching(catalogue, Severity.ERROR, check))
    return ViewStory(A, acceptance=acceptance, parse=parser.parse)


Fields = Callable[[Loaded, str, str], dict[str, PlainValue]]


@pytest.fixture
def fields(catalogue: Catalogue) -> Fields:
    """Return a resource of a view as it would be written in JSON."""
    printer = Printer(catalogue)

    def fields_of(loaded: Loaded, short_name: str, name: str) -> dict[str, PlainValue]:
        row = BY_SHORT_NAME[short_name]
        resource = loaded.snapshot.resources(row.type_url)[name]
        return printer.to_plain(catalogue.message_class(row.message_type).FromString(resource.body))

    return fields_of


def lines(found: tuple[Problem, ...]) -> list[str]:
    """Return problems as they are printed, but for notes."""
    return [str(problem) for problem in found if problem.severity is not Severity.NOTE]


def test_layer_deletes(story: ViewStory) -> None:
    """A layer takes resources out of those below it, by type and name; other types keep that name."""
    views = story.step(
        {
            "common/cds.yaml": BASE,
            "common/eds.yaml": "- cluster_name: web\n",
            "nodes/a/layer.yaml": "kind: Layer\ndelete: {clusters: [web]}\n",
        }
    )

    assert served(views.by_layers[A]) == {"CDS api": "common/cds.yaml:4", "EDS web": "common/eds.yaml:1"}
    assert problems(views) == []


@pytest.mark.parametrize(
    "word",
    ["clusters", "cds", "envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.config.cluster.v3.Cluster"],
)
def test_types_have_several_names(story: ViewStory, word: str) -> None:
    """A type is given by each word that names its files, and by its message type."""
    views = story.step(
        {"common/cds.yaml": BASE, "nodes/a/x.json": json.dumps({"kind": "Layer", "delete": {word: "web"}})}
    )

    assert served(views.by_layers[A]).keys() == {"CDS api"}


def test_nothing_to_delete(story: ViewStory) -> None:
    """A name that no layer below has is a warning at its place, and holds nothing back."""
    views = story.step(
        {
            "common/cds.yaml": BASE,
            "nodes/a/cds.yaml": "kind: Layer\ndelete:\n  clusters:\n  - api\n  - wed\n---\n- name: own\n",
        }
    )

    assert lines(views.problems) == [
        (
            'nodes/a/cds.yaml:5:5: warning: delete.clusters[1]: no layer below has "wed" of the clusters; '
            "correct the name, or remove it"
        )
    ]
    assert served(views.by_layers[A]).keys() == {"CDS web", "CDS own"}


def test_layer_patches(story: ViewStory, fields: Fields) -> None:
    """A patch is merged into the resource below; it is that of the patching file then, and other views are as they were."""
    story.wanted = (COMMON, A)
    views = story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH})

    assert served(views.by_layers[A]) == {"CDS api": "common/cds.yaml:4", "CDS web": "nodes/a/cds.yaml:4"}
    assert fields(views.by_layers[A], "cds", "web") == {"name": "web", "type": "STATIC", "connect_timeout": "2s"}
    assert fields(views.by_layers[COMMON], "cds", "web")["connect_timeout"] == "1s"
    assert problems(views) == []


def test_patch_follows_its_base(story: ViewStory, fields: Fields) -> None:
    """What changes in the base changes in what is patched."""
    story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH})
    views = story.step({"common/cds.yaml": BASE.replace("type: STATIC", "type: STRICT_DNS")})

    assert fields(views.by_layers[A], "cds", "web")["type"] == "STRICT_DNS"
    assert fields(views.by_layers[A], "cds", "web")["connect_timeout"] == "2s"


def test_patch_on_a_patch(story: ViewStory, fields: Fields) -> None:
    """A patched resource may be patched again in a layer above."""
    view = ("common", "edge", "nodes/a")
    story.wanted = (view,)
    views = story.step(
        {
            "common/cds.yaml": BASE,
            "edge/cds.yaml": PATCH,
            "nodes/a/cds.yaml": PATCH.replace("connect_timeout: 2s", "connectTimeout: null, altStatName: x"),
        }
    )

    assert fields(views.by_layers[view], "cds", "web") == {"name": "web", "type": "STATIC", "alt_stat_name": "x"}


def test_nothing_to_patch(story: ViewStory) -> None:
    """A patch of what no layer below has is an error at its place: what was good last stays."""
    story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH})
    views = story.step({"common/cds.yaml": BASE.replace("name: web", "name: wed")})

    assert lines(views.problems) == [
        (
            'nodes/a/cds.yaml:4:5: error: patch.clusters.web: no layer below has "web" of the clusters; '
            "correct the name; or write the whole resource into this layer"
        )
    ]
    assert served(views.by_layers[A]).keys() == {"CDS wed", "CDS web", "CDS api"}
    assert held(views) == {"nodes/a/cds.yaml": True}
    assert served(story.step({"common/cds.yaml": BASE}).by_layers[A]).keys() == {"CDS web", "CDS api"}
    assert problems(story.step({})) == []


def test_patch_without_effect(story: ViewStory) -> None:
    """A patch that changes nothing is a warning at its place."""
    views = story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH.replace("2s", "1.0s")})

    assert lines(views.problems) == [
        'nodes/a/cds.yaml:4:5: warning: patch.clusters.web: the patch changes nothing of "web" of the clusters below; remove it'
    ]


def test_faults_of_a_patch_are_in_the_patch(story: ViewStory) -> None:
    """What a patch writes wrong is a problem at its own line and column."""
    views = story.step(
        {
            "common/cds.yaml": BASE,
            "nodes/a/cds.yaml": PATCH.replace("{connect_timeout: 2s}", "\n      connect_timout: 2s\n      zzz: 1"),
        }
    )

    assert [line.partition(";")[0] for line in lines(views.problems)] == [
        (
            "nodes/a/cds.yaml:5:7: error: patch.clusters.web.connect_timout: "
            'envoy.config.cluster.v3.Cluster has no field "connect_timout"'
        ),
        "nodes/a/cds.yaml:6:7: error: patch.clusters.web[…]: envoy.config.cluster.v3.Cluster has no such field",
    ]
    assert served(views.by_layers[A]).keys() == {"CDS api", "CDS web"}


def test_faults_of_the_base_are_in_the_base(story: ViewStory) -> None:
    """What the base wrote and is wrong after the patch is a problem at the line of the base."""
    views = story.step(
        {
            "common/cds.yaml": BASE,
            "common/rds.yaml": "- name: r\n  virtualHosts:\n  - name: v\n    domains: ['*']\n    routes:\n"
            "    - match: {prefix: /}\n      route:\n        cluster: nowhere\n",
            "nodes/a/rds.yaml": "kind: Layer\npatch: {routes: {r: {virtual_hosts: [{name: v, include_attempt_count_in_response: true}]}}}\n",
        }
    )

    assert [line.partition(";")[0] for line in lines(views.problems)] == [
        'common/rds.yaml:8:9: warning: [0].virtual_hosts[0].routes[0].route.cluster: there is no cluster "nowhere"'
    ]


def test_patch_must_not_rename(story: ViewStory) -> None:
    """The name of a resource is no field to patch."""
    views = story.step(
        {"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH.replace("connect_timeout: 2s", "name: other")}
    )

    assert [problem.rule for problem in views.problems if problem.severity is Severity.ERROR] == ["name-mismatch"]
    assert lines(views.problems)[0].startswith("nodes/a/cds.yaml:4:11")


def test_two_patches_of_one_resource_in_a_layer(story: ViewStory) -> None:
    """Two files of a layer cannot patch one resource: the second is held back."""
    views = story.step(
        {"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH, "nodes/a/x.yaml": PATCH.replace("2s", "3s")}
    )

    assert problems(views) == ["nodes/a/x.yaml:4: duplicate-name"]
    assert held(views) == {"nodes/a/x.yaml": False}


def test_base_breaks_while_it_is_patched(story: ViewStory, fields: Fields) -> None:
    """The patch holds on top of what was good of the base, and may change."""
    story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH})
    story.step({"common/cds.yaml": "- name: ["})
    views = story.step({"nodes/a/cds.yaml": PATCH.replace("2s", "3s")})

    assert fields(views.by_layers[A], "cds", "web")["connect_timeout"] == "3s"
    assert served(views.by_layers[A]).keys() == {"CDS api", "CDS web"}
    assert held(views) == {"common/cds.yaml": True}


def test_broken_patch_keeps_its_last_effect(story: ViewStory, fields: Fields) -> None:
    """Where the patching file breaks, the resource stays as it was patched, and what was deleted stays so."""
    story.step({"common/cds.yaml": BASE, "nodes/a/cds.yaml": PATCH + "delete: {clusters: [api]}\n"})
    views = story.step({"nodes/a/cds.yaml": "kind: ["})

    assert fields(views.by_layers[A], "cds", "web")["connect_timeout"] == "2s"
    assert served(views.by_layers[A]).keys() == {"CDS web"}
    views = story.step({"common/cds.yaml": BASE + "- name: more\n"})
    assert served(views.by_layers[A]).keys() == {"CDS web", "CDS more"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Layer\n", "1:1: wrong-value"),
        ("kind: Layer\ndelete: [web]\n", "2:1: wrong-value"),
        ("kind: Layer\ndelete: {cluster: [web]}\n", "2:10: unknown-type"),
        ("kind: Layer\ndelete: {clusters: [web, {}, web]}\n", "2:26: wrong-value 2:30: duplicate-name"),
        ("kind: Layer\npatch: {clusters: [web]}\n", "2:9: wrong-value"),
        ("kind: Layer\npatch: {clusters: {web: null}}\n", "2:20: wrong-value"),
        ("kind: Layer\nresources: []\ndelete: {clusters: [web]}\n", "2:1: unknown-field"),
        ("kind: Layer\ndelete: &a {clusters: [*a]}\n", "2:24: "),
        (
            "kind: Layer\npatch: {clusters: {web: {name: {name: {name: 1}}, load_assignment: [[]]}}}\n",
            "2:26: wrong-value",
        ),
    ],
)
def test_wrong_layer_documents(story: ViewStory, text: str, expected: str) -> None:
    """What is wrong with the form of a layer document is reported at its place, and the file counts for nothing."""
    views = story.step({"common/cds.yaml": BASE, "nodes/a/x.yaml": text})
    found = [problem for problem in views.problems if problem.path.name == "x.yaml"]

    assert " ".join(f"{one.line}:{one.column}: {one.rule}" for one in found).startswith(expected)
    assert "CDS web" in served(views.by_layers[A])


def test_layer_document_without_layers(story: ViewStory) -> None:
    """In the lowest layer there is nothing to delete or patch."""
    story.wanted = (COMMON,)
    views = story.step({"common/cds.yaml": BASE, "common/x.yaml": PATCH + "delete: {routes: [r]}\n"})

    assert problems(views) == ["common/x.yaml:4: nothing-to-patch", "common/x.yaml:5: nothing-to-delete"]


def test_broken_layer_below_is_not_held_against_the_layer(story: ViewStory) -> None:
    """Where a file below is broken, it may define what a layer deletes; a patch waits for it, and says so."""
    text = PATCH + "delete: {clusters: [api, gone], routes: [r]}\n"
    for broken, rules in {
        "- name: [": ["nothing-to-delete", "nothing-to-patch"],
        BASE + "  zzz: 1\n": ["nothing-to-delete"] * 2,
    }.items():
        views = story.step({"common/cds.yaml": broken, "nodes/a/x.yaml": text})
        found = [one for one in views.problems if one.path.name == "x.yaml"]
        assert sorted(one.rule for one in found) == sorted([*rules, *(["nothing-to-patch"] if "zzz" in broken else [])])
        assert ["because a file there is broken" in one.message for one in found if one.rule == "nothing-to-patch"] == [
            True
        ]
        story.loaded = None


def test_a_redirect_is_not_patched(story: ViewStory) -> None:
    """It has no content of its own: the patch is held back with its place, and what the redirect leads to is named."""
    base = BASE + "- {name: one, resource_name: {name: web}}\n"
    views = story.step({"common/cds.yaml": base, "nodes/a/layer.yaml": PATCH.replace("web:", "one:")})

    assert "CDS one" in served(views.by_layers[A])
    (problem,) = (one for one in views.problems if one.rule == "malformed-redirect")
    assert "the patched resource is a redirect, at common/cds.yaml:7" in problem.message
    assert "patch its target, xdstp:///envoy.config.cluster.v3.Cluster/web" in problem.remedy
