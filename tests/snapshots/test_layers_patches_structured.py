"""Layers by structured names: a resource below is found however its name is written, with the parameters of its own folder."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.values import Severity
from fsxds.settings.naming_rules import ContextRule, NamingRules
from fsxds.snapshots.layers import Patching
from fsxds.snapshots.load import Acceptance
from fsxds.snapshots.parse import FileParser
from tests.support.views import ViewStory, problems, served

A = ("common", "nodes/a")
C = "envoy.config.cluster.v3.Cluster"
RULES = NamingRules("own", (ContextRule("common/x", (("env", "prod"),)), ContextRule("nodes/a", (("node", "a"),))))
WEB, API = f"xdstp://own/{C}/web", f"xdstp://own/{C}/api?env=prod"


@pytest.fixture(scope="module")
def parser(catalogue: Catalogue) -> FileParser:
    """A parser for a tree whose folders give names parameters."""
    parser = FileParser(catalogue, check=Linter())
    parser.name_by(RULES)
    return parser


@pytest.fixture
def story(catalogue: Catalogue, parser: FileParser) -> ViewStory:
    """A view of two layers, of which the lower one has two clusters."""
    check = Linter()
    patching = Patching(catalogue, Severity.ERROR, check, RULES)
    layers = ("common", "nodes/a")
    made = ViewStory(A, layers=layers, acceptance=Acceptance(check=check, patching=patching), parse=parser.parse)
    made.step({
        "common/cds.yaml": f"- {{name: 'xdstp:///{C}/web', type: STATIC, connect_timeout: 1s}}\n",
        "common/x/cds.yaml": f"- {{name: 'udpa:///{C}/%61pi', type: STATIC, connect_timeout: 1s}}\n",
    })  # fmt: skip
    return made


def test_layers_delete_by_any_spelling(story: ViewStory) -> None:
    """What a layer deletes has the name that it has below, in any spelling; the folder of the layer adds nothing."""
    views = story.step({
        "nodes/a/layer.yaml": f"kind: Layer\ndelete: {{clusters: ['udpa:///{C}/w%65b', 'xdstp:///{C}/api?env=prod']}}\n"
    })  # fmt: skip

    assert served(views.by_layers[A]) == {}
    assert problems(views) == []


def test_layers_patch_by_any_spelling(story: ViewStory) -> None:
    """A patched resource keeps its canonical name; references that a patch writes are canonical."""
    views = story.step({
        "nodes/a/layer.yaml": (
            f"kind: Layer\npatch:\n  clusters:\n    'udpa:///{C}/w%65b': {{connect_timeout: 2s}}\n"
            f"    'xdstp:///{C}/api?env=prod': {{connect_timeout: 3s}}\n"
        )
    })  # fmt: skip

    view = views.by_layers[A]
    assert served(view) == {f"CDS {WEB}": "nodes/a/layer.yaml:4", f"CDS {API}": "nodes/a/layer.yaml:5"}
    assert problems(views) == []
    views = story.step({"common/cds.yaml": f"- {{name: 'udpa://own/{C}/web', type: STATIC, connect_timeout: 9s}}\n"})
    assert served(views.by_layers[A]).keys() == served(view).keys()


def test_layers_override_by_any_spelling(story: ViewStory) -> None:
    """A later layer wins by name, whatever the spelling; with parameters of its own folder it has another name."""
    rest = "type: STATIC, connect_timeout: 5s"
    views = story.step({"nodes/a/cds.yaml": f"- {{name: 'udpa:///{C}/w%65b', {rest}}}\n"})
    assert served(views.by_layers[A]).keys() == {f"CDS {WEB}", f"CDS {API}", f"CDS {WEB}?node=a"}

    views = story.step({"nodes/a/cds.yaml": None, "common/y.cds.yaml": f"- {{name: 'udpa:///{C}/w%65b', {rest}}}\n"})
    assert problems(views) == ["common/y.cds.yaml:1: duplicate-name"]


def test_wrong_names_of_layers(story: ViewStory) -> None:
    """A malformed name, that of another type and one name in two spellings are told at their places."""
    views = story.step({
        "nodes/a/layer.yaml": (
            f"kind: Layer\ndelete:\n  clusters:\n  - xdstp:///{C}/%zz\n  - xdstp:///a.B/x\n  - xdstp:///{C}/web\n"
            f"  - udpa:///{C}/web\n  - xdstp:///{C}/*\n"
        )
    })  # fmt: skip

    place = "nodes/a/layer.yaml"
    assert problems(views) == [
        f"{place}:4: malformed-name",
        f"{place}:5: name-of-other-type",
        f"{place}:7: duplicate-name",
        f"{place}:8: malformed-name",
    ]
