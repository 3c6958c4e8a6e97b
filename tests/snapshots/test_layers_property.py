"""Whatever changes, views that are loaded on top of one another are what they are by themselves."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import event, given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.model.resources import key_of
from fsxds.model.values import Layers, Severity, SourceFile
from fsxds.snapshots.load import Acceptance, Loaded
from fsxds.snapshots.loaded_views import LoadedViews
from tests.snapshots.test_load_on_top import LINES
from tests.support.mentions import parse_file
from tests.support.trees import tree_of
from tests.support.views import ViewStory

PATHS = st.sampled_from(
    [
        *("common/a.cds.yaml", "common/b.yaml", "common/x/a", "common/x/cds", "edge/a", "edge/cds"),
        *("nodes/a/a", "nodes/a/cds", "nodes/b/a", "elsewhere"),
    ]
)
VIEWS: tuple[Layers, ...] = (
    ("common",),
    ("common", "edge"),
    ("edge", "common"),
    ("common", "nodes/a"),
    ("common", "nodes/b"),
    ("common", "common/x", "edge", "nodes/a"),
    ("nodes/a",),
)
CONTENTS = st.one_of(st.none(), st.lists(LINES, max_size=3).map("\n".join))
EDITS = st.lists(st.dictionaries(PATHS, CONTENTS, max_size=3), min_size=1, max_size=6)
LEVELS: tuple[dict[str, Severity | None], ...] = ({}, {"no-cluster": Severity.ERROR})


def facts(loaded: Loaded) -> dict[str, object]:
    """Return all of a view that is to be the same, however it was loaded."""
    snapshot = loaded.snapshot
    return {
        "rows": {url: [(row, str(row.origin)) for row in rows.values()] for url, rows in snapshot.by_type.items()},
        "versions": dict(snapshot.versions),
        "incomplete": snapshot.incomplete,
        "problems": [(problem, problem.severity) for problem in loaded.problems],
    }


def overlaid(files: dict[str, str], layers: Layers) -> dict[object, str]:
    """Return where each resource of a view is written: the last layer wins. A rule of its own, to compare with."""
    found: dict[object, str] = {}
    for layer in layers:
        for path, text in files.items():
            is_inner = layer == "common" and path.startswith("common/x/")
            if path.startswith(f"{layer}/") and not is_inner:
                parsed = parse_file(SourceFile.of(tree_of({path: text}).files[0].path, text.encode()))
                found |= {key_of(resource): str(resource.origin) for resource in parsed.resources}
    return found


def check(story: ViewStory, views: LoadedViews) -> None:
    """Compare what was loaded on top of much else with what is loaded anew, where nothing is held back."""
    anew = story.anew()
    for layers, loaded in views.by_layers.items():
        is_held = bool(loaded.held or anew.by_layers[layers].held)
        event("held" if is_held else "served")
        keys = [key for rows in loaded.snapshot.by_type.values() for key in map(key_of, rows.values())]
        assert len(keys) == len(set(keys))
        if not is_held:
            assert facts(loaded) == facts(anew.by_layers[layers])
            served = {
                key_of(row): str(row.origin) for rows in loaded.snapshot.by_type.values() for row in rows.values()
            }
            assert served == overlaid(story.files, layers)
    if not (views.held or anew.held):
        assert views.problems == anew.problems


@given(steps=EDITS, levels=st.sampled_from(LEVELS), wanted=st.lists(st.sets(st.sampled_from(VIEWS)), max_size=6))
def test_views_on_top_of_one_another(
    steps: list[dict[str, str | None]], levels: dict[str, Severity | None], wanted: list[set[Layers]]
) -> None:
    """Edits, and views that come and go, lead to what loading the tree anew gives."""
    story = ViewStory(*VIEWS, acceptance=Acceptance(check=Linter(RuleLevels(MappingProxyType(levels)))))
    for number, edits in enumerate(steps):
        if number < len(wanted):
            story.wanted = tuple(sorted(wanted[number]))
        check(story, story.step(edits))


@given(steps=EDITS, whole=st.booleans())
def test_what_was_good_stays(steps: list[dict[str, str | None]], *, whole: bool) -> None:
    """What breaks in a step takes nothing of a view away that its files held and hold no more."""
    story = ViewStory(*VIEWS, acceptance=Acceptance(whole_trees=whole, check=Linter()))
    for edits in steps:
        story.step(edits)
        before = story.loaded
        assert before is not None
        broken = {path: "!" for path in edits if path in story.files}
        views = story.step(broken)
        for layers, loaded in views.by_layers.items():
            was, now = before.by_layers[layers].snapshot, loaded.snapshot
            assert {url: list(rows.items()) for url, rows in was.by_type.items()} == {
                url: list(rows.items()) for url, rows in now.by_type.items()
            }
