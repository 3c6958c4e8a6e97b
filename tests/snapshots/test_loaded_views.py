"""What the views of a tree serve: later layers win, what is shared is loaded once, and a bad file takes nothing away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import NO_LAYERS, Layers
from fsxds.snapshots.load import Acceptance
from tests.support.views import ACCEPTANCE, ViewStory, held, problems, rules_of, served

COMMON = ("common",)
A = ("common", "nodes/a")
B = ("common", "nodes/b")


def test_later_layer_wins() -> None:
    """A view has the resources of its layers; of one type and name, that of the last layer."""
    story = ViewStory(COMMON, A)
    views = story.step({"common/cds": "CDS web\nCDS api", "nodes/a/cds": "CDS web EDS:mine\nCDS own"})

    assert served(views.by_layers[COMMON]) == {"CDS web": "common/cds:1", "CDS api": "common/cds:2"}
    assert served(views.by_layers[A]) == {
        "CDS web": "nodes/a/cds:1",
        "CDS api": "common/cds:2",
        "CDS own": "nodes/a/cds:2",
    }
    assert not views.held


def test_order_of_layers_decides() -> None:
    """The same layers in another order are another view."""
    story = ViewStory(("common", "edge"), ("edge", "common"))
    views = story.step({"common/cds": "CDS web", "edge/cds": "CDS web"})

    assert [served(loaded) for loaded in views.by_layers.values()] == [
        {"CDS web": "edge/cds:1"},
        {"CDS web": "common/cds:1"},
    ]


def test_layers_of_several_wins_the_last() -> None:
    """What three layers define is that of the third, and comes back from the one below as it goes."""
    view = ("common", "edge", "nodes/a")
    story = ViewStory(view)
    story.step({"common/cds": "CDS web", "edge/cds": "CDS web", "nodes/a/cds": "CDS web"})
    assert story.loaded is not None
    assert served(story.loaded.by_layers[view]) == {"CDS web": "nodes/a/cds:1"}
    assert served(story.step({"nodes/a/cds": None}).by_layers[view]) == {"CDS web": "edge/cds:1"}
    assert served(story.step({"edge/cds": "CDS other"}).by_layers[view]) == {
        "CDS web": "common/cds:1",
        "CDS other": "edge/cds:1",
    }


def test_layer_that_nobody_wants_is_not_parsed() -> None:
    """A layer is parsed when a view with it is wanted, and only once."""
    story = ViewStory(COMMON)
    views = story.step({"common/cds": "CDS web", "nodes/a/cds": "!", "nodes/b/cds": "CDS b"})
    assert story.parsed == ["common/cds"]
    assert problems(views) == []

    before = views.by_layers[COMMON]
    story.wanted = (COMMON, B)
    views = story.step({})
    assert story.parsed == ["nodes/b/cds"]
    assert views.by_layers[COMMON] is before
    story.wanted = (B,)
    views = story.step({})
    assert story.parsed == []
    assert list(views.by_layers) == [B]


def test_change_in_one_view_leaves_the_others() -> None:
    """A change in a layer makes nothing new of the views without it: they stay the same objects."""
    story = ViewStory(COMMON, A, B)
    before = story.step({"common/cds": "CDS web", "nodes/a/cds": "CDS a", "nodes/b/cds": "CDS b"})
    after = story.step({"nodes/a/cds": "CDS a2"})

    assert after.by_layers[COMMON] is before.by_layers[COMMON]
    assert after.by_layers[B] is before.by_layers[B]
    assert served(after.by_layers[A]) == {"CDS web": "common/cds:1", "CDS a2": "nodes/a/cds:1"}


def test_generations_follow_one_another_in_each_view() -> None:
    """A snapshot of a view follows the one before of this view, and says what changed since then."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web", "nodes/a/cds": "CDS a"})
    changes = []
    for edits in ({"nodes/a/cds": "CDS a2"}, {"common/cds": "CDS web2"}, {"nodes/a/cds": None}):
        snapshot = story.step(edits).by_layers[A].snapshot
        (change,) = (one for one in snapshot.changes.values() if one.generation == snapshot.generation)
        changes.append((snapshot.generation, change.added, change.removed))

    first = changes[0][0]
    assert changes == [(first, ("a2",), ("a",)), (first + 1, ("web2",), ("web",)), (first + 2, (), ("a2",))]


def test_file_belongs_to_its_innermost_layer() -> None:
    """A layer within another is not part of that one."""
    story = ViewStory(COMMON, ("common", "common/x"))
    views = story.step({"common/cds": "CDS web", "common/x/cds": "CDS x", "common/y/cds": "CDS y"})

    assert served(views.by_layers[COMMON]) == {"CDS web": "common/cds:1", "CDS y": "common/y/cds:1"}
    assert served(views.by_layers["common", "common/x"]).keys() == {"CDS web", "CDS y", "CDS x"}


def test_file_in_no_layer_is_noted() -> None:
    """What is in no layer is served to nobody, and one note says so."""
    story = ViewStory(COMMON)
    views = story.step({"common/cds": "CDS web", "a": "CDS a", "elsewhere/b": "CDS b", "nodes/c": "CDS c"})

    assert served(views.by_layers[COMMON]) == {"CDS web": "common/cds:1"}
    (note,) = [problem for problem in views.problems if problem.rule == "no-layer"]
    assert str(note) == (
        "a:1:1: note: is in no layer of any view; nor are elsewhere/b, nodes/c; "
        "move it into the folder of a layer, or add its folder to the layers of a view"
    )
    assert views.existing == {"common", "elsewhere", "nodes"}


def test_view_without_layers_serves_nothing() -> None:
    """A view none of whose layers exists has nothing, and no type of it may be reported as empty."""
    story = ViewStory(NO_LAYERS, ("gone",))
    views = story.step({"common/cds": "CDS web"})

    for loaded in views.by_layers.values():
        assert served(loaded) == {}
        assert loaded.snapshot.withheld == loaded.snapshot.by_type.keys()


# What is wrong


def test_problem_of_a_shared_layer_is_reported_once() -> None:
    """What is wrong in a layer shows in all views with it, and is one problem."""
    story = ViewStory(COMMON, A, B)
    views = story.step({"common/lds": "!", "nodes/a/cds": "CDS a", "nodes/b/cds": "CDS b"})

    assert problems(views) == ["common/lds:1: broken"]
    assert "(in" not in str(views.problems)
    assert held(views) == {"common/lds": False}


def test_problem_of_some_views_names_them() -> None:
    """What is missing in one view alone is a problem of it, which says so."""
    story = ViewStory(COMMON, A, B)
    views = story.step(
        {"common/cds": "CDS web", "common/rds": "RDS r CDS:own", "nodes/a/cds": "CDS own", "nodes/b/cds": "CDS b"}
    )

    (found,) = [problem for problem in views.problems if problem.rule == "no-cluster"]
    assert found.message.endswith("(in common, common + nodes/b)")


def test_problem_of_many_views_stays_the_same_when_others_come() -> None:
    """The views that were first are named: who comes later makes no other problem of it."""
    story = ViewStory(A)
    story.step({"common/rds": "RDS r CDS:own", "common/cds": "CDS web", "nodes/a/cds": "CDS own"})
    messages = []
    for count in range(1, 7):
        story.wanted = (A, *(("common", "edge", f"nodes/{number}") for number in range(count)))
        (found,) = [problem for problem in story.step({}).problems if problem.rule == "no-cluster"]
        messages.append(found.message.partition(" (in ")[2])

    assert messages[3:] == [messages[3]] * 3
    assert messages[3] == "common + edge + nodes/0, common + edge + nodes/1, common + edge + nodes/2 and others)"


def test_upper_layer_resolves_what_the_lower_one_lacks() -> None:
    """A file that is held back in the lower layers alone is served in the view that has what it needs."""
    story = ViewStory(A)
    views = story.step({"common/lds": "LDS l CDS:own!", "nodes/a/cds": "CDS own"})

    assert served(views.by_layers[A]) == {"CDS own": "nodes/a/cds:1", "LDS l": "common/lds:1"}
    assert problems(views) == []
    assert held(views) == {}


# What was good stays


def test_broken_override_keeps_its_last_content() -> None:
    """A view whose own file breaks goes on with what that held, and follows the layers below as before."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web\nCDS api", "nodes/a/cds": "CDS web EDS:mine"})
    views = story.step({"nodes/a/cds": "!"})
    assert served(views.by_layers[A]) == {"CDS web": "nodes/a/cds:1", "CDS api": "common/cds:2"}
    assert held(views) == {"nodes/a/cds": True}
    assert problems(views) == ["nodes/a/cds:1: broken"]

    views = story.step({"common/cds": "CDS web\nCDS api2"})
    assert served(views.by_layers[A]) == {"CDS web": "nodes/a/cds:1", "CDS api2": "common/cds:2"}
    assert held(views) == {"nodes/a/cds": True}
    assert served(story.step({"nodes/a/cds": "CDS new"}).by_layers[A]) == {
        "CDS web": "common/cds:1",
        "CDS api2": "common/cds:2",
        "CDS new": "nodes/a/cds:1",
    }


def test_override_that_was_never_good_overrides_nothing() -> None:
    """At the first load a broken file counts for nothing: the layers below are served as they are."""
    story = ViewStory(A)
    views = story.step({"common/cds": "CDS web", "nodes/a/cds": "CDS web EDS:mine\n!"})

    assert served(views.by_layers[A]) == {"CDS web": "common/cds:1"}
    assert held(views) == {"nodes/a/cds": False}
    assert problems(views) == ["nodes/a/cds:2: broken"]


def test_override_that_others_hold_overrides_what_it_did() -> None:
    """A file that a rule between files holds back replaces what its last content does, not what it would."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web\nCDS api", "nodes/a/all": "CDS web\nLDS l CDS:web!"})
    views = story.step({"nodes/a/all": "CDS api\nLDS l CDS:nowhere!"})

    assert served(views.by_layers[A]) == {
        "CDS web": "nodes/a/all:1",
        "CDS api": "common/cds:2",
        "LDS l": "nodes/a/all:2",
    }
    assert held(views) == {"nodes/a/all": True}


def test_broken_base_is_overridden_as_it_was() -> None:
    """Where a lower file breaks, its last content is overridden; it is reported, and new content of the view is served."""
    story = ViewStory(COMMON, A)
    story.step({"common/cds": "CDS web\nCDS api", "nodes/a/cds": "CDS web"})
    story.step({"common/cds": "!"})
    views = story.step({"nodes/a/cds": "CDS api\nCDS own"})

    assert served(views.by_layers[A]) == {
        "CDS web": "common/cds:1",
        "CDS api": "nodes/a/cds:1",
        "CDS own": "nodes/a/cds:2",
    }
    assert served(views.by_layers[COMMON]) == {"CDS web": "common/cds:1", "CDS api": "common/cds:2"}
    assert held(views) == held(views.by_layers[A]) == {"common/cds": True}
    assert problems(views) == problems(views.by_layers[A]) == ["common/cds:1: broken"]
    assert "(in" not in str(views.problems)


def test_new_view_over_a_broken_base() -> None:
    """A view that is first wanted while a lower file is broken has the last content of that, without what it overrides."""
    story = ViewStory(COMMON)
    story.step({"common/cds": "CDS web\nCDS api", "nodes/a/cds": "CDS web"})
    story.step({"common/cds": "CDS web\n!"})
    story.wanted = (COMMON, A)
    views = story.step({})

    assert served(views.by_layers[A]) == {"CDS web": "nodes/a/cds:1", "CDS api": "common/cds:2"}
    assert held(views) == {"common/cds": True}


def test_base_that_others_hold_is_overridden_as_it_was() -> None:
    """The same where the lower file could be read, and needs what nobody has."""
    story = ViewStory(COMMON)
    story.step({"common/all": "CDS web\nCDS api", "nodes/a/cds": "CDS web"})
    story.step({"common/all": "CDS web\nCDS api\nLDS l CDS:nowhere!"})
    story.wanted = (COMMON, A)
    views = story.step({})

    assert served(views.by_layers[A]) == {"CDS web": "nodes/a/cds:1", "CDS api": "common/all:2"}
    assert held(views) == {"common/all": True}


def test_reference_that_the_base_took_away_stays_served() -> None:
    """A listener of a view that names a removed cluster of a lower layer stays, and is reported."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web\nCDS api", "nodes/a/lds": "LDS l CDS:web!"})
    views = story.step({"common/cds": "CDS api"})

    assert served(views.by_layers[A]) == {"CDS api": "common/cds:1", "LDS l": "nodes/a/lds:1"}
    assert problems(views) == ["nodes/a/lds:1: no-cluster"]
    assert held(views) == {}


def test_removed_override_gives_the_base_back() -> None:
    """A file that is removed takes its resources along, and what they replaced is back."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web", "nodes/a/cds": "CDS web"})
    views = story.step({"nodes/a/cds": None})

    assert served(views.by_layers[A]) == {"CDS web": "common/cds:1"}


def test_type_that_only_a_layer_had_may_be_reported_as_removed() -> None:
    """Beside a broken file as well: files declared the type once, so its clients must not keep what is gone."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web", "nodes/a/eds": "EDS mine"})
    views = story.step({"nodes/a/eds": None, "common/new": "!"})

    snapshot = views.by_layers[A].snapshot
    endpoints = BY_SHORT_NAME["eds"].type_url
    assert endpoints in snapshot.incomplete
    assert endpoints not in snapshot.undeclared | snapshot.withheld


def test_renamed_and_broken_override_stays() -> None:
    """A file that vanished as a broken one appeared may have that name now: what it held stays, and stays an override."""
    story = ViewStory(A)
    story.step({"common/cds": "CDS web", "nodes/a/cds": "CDS web EDS:e"})
    views = story.step({"nodes/a/cds": None, "nodes/a/new": "!"})

    assert served(views.by_layers[A]) == {"CDS web": "nodes/a/cds:1"}
    assert served(story.step({"nodes/a/new": None}).by_layers[A]) == {"CDS web": "common/cds:1"}


def test_names_that_go_round_between_layers() -> None:
    """Names may change places between layers in one step, whoever had them first."""
    story = ViewStory(("common", "edge", "nodes/a"))
    story.step({"common/cds": "CDS a", "edge/cds": "CDS b", "nodes/a/cds": "CDS c"})
    views = story.step({"common/cds": "CDS b", "edge/cds": "CDS c", "nodes/a/cds": "CDS a"})

    (loaded,) = views.by_layers.values()
    assert served(loaded) == {"CDS b": "common/cds:1", "CDS c": "edge/cds:1", "CDS a": "nodes/a/cds:1"}
    assert held(views) == {}


# Layers that are lost

EDGE = ("common", "edge")


def demanding(*wanted: Layers, layers: tuple[str, ...] = EDGE, acceptance: Acceptance = ACCEPTANCE) -> ViewStory:
    """Return a story in which these layers have to have a folder."""
    story = ViewStory(*wanted, acceptance=acceptance)
    story.rules = rules_of(*layers, adjusted=lambda problem: problem)
    return story


def test_layer_that_vanishes_is_served_on() -> None:
    """In each view that has it, for as long as it is gone, a broken file of it as it was good last; others are edited."""
    story = demanding(EDGE)
    story.step({"common/cds": "CDS web", "edge/cds": "CDS edge", "edge/eds": "EDS e"})
    story.step({"edge/eds": "!"})
    story.wanted = (EDGE, COMMON)
    views = story.step({"edge/cds": None, "edge/eds": None, "common/cds": "CDS api"})

    expected = {"CDS api": "common/cds:1", "CDS edge": "edge/cds:1", "EDS e": "edge/eds:1"}
    assert served(views.by_layers[EDGE]) == expected
    assert problems(views) == ["edge:1: missing-layer", "edge/eds:1: broken"]
    assert held(views) == {"edge": True, "edge/eds": True}
    assert views.existing == {"common", "edge"}
    assert views.by_layers[EDGE].snapshot.incomplete == frozenset()
    assert served(story.step({}).by_layers[EDGE]) == expected
    views = story.step({"edge/cds": "CDS edge"})
    assert served(views.by_layers[EDGE]) == {"CDS api": "common/cds:1", "CDS edge": "edge/cds:1"}
    assert (problems(views), held(views)) == ([], {})


@pytest.mark.parametrize("whole_trees", [False, True])
def test_layer_that_never_was_there_may_hold_anything(*, whole_trees: bool) -> None:
    """All else of its views is served, also where trees are taken whole; nothing of them may be reported as removed."""
    story = demanding(EDGE, COMMON, acceptance=replace(ACCEPTANCE, whole_trees=whole_trees))
    views = story.step({"common/cds": "CDS web"})

    assert served(views.by_layers[EDGE]) == {"CDS web": "common/cds:1"}
    assert views.by_layers[EDGE].snapshot.incomplete == frozenset(views.by_layers[EDGE].snapshot.by_type)
    assert views.by_layers[COMMON].snapshot.incomplete < views.by_layers[EDGE].snapshot.incomplete
    assert (problems(views), held(views)) == (["edge:1: missing-layer"], {"edge": False})
    views = story.step({"edge/cds": "CDS edge"})
    assert served(views.by_layers[EDGE]) == {"CDS web": "common/cds:1", "CDS edge": "edge/cds:1"}
    assert (problems(views), held(views)) == ([], {})


def test_lost_layer_is_reported_before_its_first_node() -> None:
    """A layer that no view has that is loaded is a problem too: its nodes may come any time."""
    views = demanding().step({"common/cds": "CDS web"})

    assert (problems(views), held(views)) == (["edge:1: missing-layer"], {"edge": False})


def test_view_that_the_settings_do_not_name_any_more_stays() -> None:
    """Nodes that no rule is for any more, or that are about to move, keep what they have; other views follow the tree."""
    story = demanding(EDGE, COMMON)
    before = story.step({"common/cds": "CDS web", "edge/cds": "CDS edge"})
    story.rules = rules_of("common")
    views = story.step({"common/cds": "CDS api"})

    assert views.by_layers[EDGE] is before.by_layers[EDGE]
    assert served(views.by_layers[COMMON]) == {"CDS api": "common/cds:1"}
    assert story.step({}).by_layers[EDGE] is before.by_layers[EDGE]
    story.wanted = (COMMON,)
    assert story.step({}).by_layers.keys() == {COMMON}
