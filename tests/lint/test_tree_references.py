from __future__ import annotations

from pathlib import PurePosixPath
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.lint.tree_names import StaticNames
from fsxds.model.values import Severity
from fsxds.snapshots.load import Acceptance
from tests.support.mentions import MentionStory, held, load_mentions, served, tell
from tests.support.reachable import reachable


def lowered(rule: str, severity: Severity | None) -> Acceptance:
    """Accept with another severity of one rule."""
    return Acceptance(check=Linter(RuleLevels(MappingProxyType({rule: severity}))))


def static(clusters: set[str] | None = None, secrets: set[str] | None = None) -> Acceptance:
    """Accept with what a bootstrap defines."""
    names = StaticNames(
        None if clusters is None else frozenset(clusters), None if secrets is None else frozenset(secrets)
    )
    return Acceptance(check=Linter(static=names))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a": "RDS r CDS:web\nCDS wbe\nLDS l RDS:r CDS:wbe"}, "no-cluster warning"),
        ({"a": "CDS c EDS:e\nEDS f"}, "no-endpoints warning"),
        ({"a": "LDS l RDS:r\nRDS s"}, "no-route-configuration warning"),
        ({"a": "LDS l SRDS:*\nSRDS"}, "no-scoped-route warning"),
        ({"a": "CDS c SDS:s!\nSDS t"}, "no-secret error"),
        ({"a": "LDS l ECDS:x!\nECDS y"}, "no-extension-config error"),
    ],
)
def test_missing_name(files: dict[str, str], expected: str) -> None:
    """A name that no file of a tree defines is reported by the rule of its type."""
    assert f"a: {expected}" in tell(load_mentions(files))


def test_defined_names_are_no_problem() -> None:
    """Names may be defined in any file of the tree, and in either direction."""
    files = {"a": "LDS l RDS:r ECDS:x!", "b": "RDS r CDS:c", "c": "CDS c EDS:e SDS:s!", "d": "EDS e\nSDS s\nECDS x"}

    loaded = load_mentions(files)

    assert [] == tell(loaded)
    assert [] == held(loaded)


def test_error_holds_the_file() -> None:
    """A new file that Envoy would reject is held back, and what it was before stays."""
    story = MentionStory()
    story.step({"cds": "CDS c", "lds": "LDS l CDS:c!"})

    loaded = story.step({"lds": "LDS l CDS:d!\nLDS m CDS:c!"})

    assert {"c", "l"} == served(loaded)
    assert ["lds"] == held(loaded)
    assert ["lds: no-cluster error"] == tell(loaded)
    assert "no-cluster" == next(file.problem.rule for file in loaded.held if file.problem)


def test_warning_holds_nothing() -> None:
    """A file whose reference fails only later is served."""
    loaded = load_mentions({"cds": "CDS c", "rds": "RDS r CDS:d CDS:c"})

    assert {"c", "r"} == served(loaded)
    assert ["rds: no-cluster warning"] == tell(loaded)


def test_mended_file_is_served() -> None:
    """When what a held file names appears, it is served, though it did not change."""
    story = MentionStory()
    story.step({"cds": "CDS c", "lds": "LDS l CDS:d!"})

    loaded = story.step({"more": "CDS d"})

    assert {"c", "d", "l"} == served(loaded)
    assert [] == held(loaded)


def test_new_files_may_need_each_other() -> None:
    """Two new files that name each other's resources are both served."""
    story = MentionStory()
    story.step({"old": "CDS old"})

    loaded = story.step({"a": "LDS l CDS:c!\nSDS s", "b": "CDS c SDS:s!"})

    assert {"old", "l", "s", "c"} == served(loaded)
    assert [] == held(loaded)


def test_holding_goes_on_to_what_needs_the_held() -> None:
    """A file that needs what is only in a held one waits for it, without a problem of its own."""
    story = MentionStory()
    story.step({"cds": "CDS c\nSDS s"})

    loaded = story.step({"more": "CDS d SDS:t!", "lds": "LDS l CDS:d!"})

    assert {"c", "s"} == served(loaded)
    assert ["lds", "more"] == held(loaded)
    assert "lds" not in " ".join(row for row in tell(loaded) if "error" in row)
    assert [None] == [file.problem for file in loaded.held if str(file.path) == "lds"]


def test_broken_file_causes_no_problems_elsewhere() -> None:
    """Nothing is said to be missing that a file may define which does not parse."""
    story = MentionStory()
    story.step({"clusters/a": "CDS a", "lds": "LDS l CDS:a!"})

    loaded = story.step({"clusters/a": "!", "clusters/b": "!", "lds": "LDS l CDS:b!", "rds": "RDS r CDS:e"})

    assert ["clusters/a: broken error", "clusters/b: broken error"] == [
        row for row in tell(loaded) if "CDS" not in row
    ][:2]
    assert [] == [row for row in tell(loaded) if "no-" in row]
    assert {"a", "l", "r"} == served(loaded)


def test_known_names_of_a_broken_file_are_defined() -> None:
    """What could be read of a file with an error counts; a name that it cannot have is missing."""
    files = {"x": "CDS a\nCDS b\n! [1].lb_policy", "rds": "RDS r CDS:a CDS:b CDS:c"}

    assert ["rds: no-cluster warning", "x: broken error"] == tell(load_mentions(files))


def test_lost_resource_may_have_any_name() -> None:
    """An error outside of all that could be read may hide a name."""
    files = {"cds": "CDS a\n! [7].name", "rds": "RDS r CDS:c"}

    assert ["cds: broken error"] == tell(load_mentions(files))


def test_deletion_is_its_authors_will() -> None:
    """A deleted file is gone though a served one needs it; the error is reported where the name is."""
    story = MentionStory()
    story.step({"cds": "CDS c", "more": "CDS d", "lds": "LDS l CDS:d! CDS:c"})

    loaded = story.step({"more": None})

    assert {"c", "l"} == served(loaded)
    assert ["lds: no-cluster error"] == tell(loaded)
    assert [] == held(loaded)
    assert ["lds: no-cluster error"] == tell(story.step({}))
    assert {"c", "l", "x"} == served(story.step({"other": "RTDS x"}))


def test_removal_by_an_edit_is_its_authors_will() -> None:
    """A file that lost a resource is served so."""
    story = MentionStory()
    story.step({"cds": "CDS c\nCDS d", "lds": "LDS l CDS:d! CDS:c"})

    loaded = story.step({"cds": "CDS c"})

    assert {"c", "l"} == served(loaded)
    assert ["lds: no-cluster error"] == tell(loaded)


def test_what_is_kept_of_a_file_that_is_gone() -> None:
    """What is left of a file that may have been renamed stays, though what it names is gone as well."""
    story = MentionStory()
    story.step({"a": "LDS l CDS:x!\nLDS m", "cds": "CDS x\nCDS y"})

    loaded = story.step({"a": None, "b": "!", "d": "LDS m", "cds": "CDS y"})

    assert {"l", "m", "y"} == served(loaded)


def test_file_that_is_gone_hides_nothing() -> None:
    """What may have been renamed is known by what it was; only the broken file may define names that could not be read."""
    story = MentionStory()
    story.step({"cds/a": "CDS c", "rds": "RDS r CDS:c"})

    loaded = story.step({"cds/a": None, "lds/b": "!", "rds": "RDS r CDS:c CDS:x"})

    assert ["cds/a: vanished error", "lds/b: broken error", "rds: no-cluster warning"] == tell(loaded)


def test_served_names_are_defined() -> None:
    """What is served of a held file may be named, though it is not in the file any more."""
    story = MentionStory()
    story.step({"cds": "CDS a\nCDS b", "rds": "RDS r CDS:b CDS:a"})

    assert ["cds: broken error"] == tell(story.step({"cds": "CDS a\n! [0].type"}))


def test_served_names_are_in_use() -> None:
    """What is served of a held file uses what it names."""
    story = MentionStory()
    story.step({"cds": "CDS a", "lds": "LDS l CDS:a!"})

    assert ["lds: no-cluster error"] == tell(story.step({"lds": "LDS l CDS:b!"}))


def test_name_that_may_be_in_use_need_not_exist() -> None:
    """Of two mentions of a name, the one that demands nothing is not reported."""
    assert 1 == len(load_mentions({"a": "CDS c\nRDS r CDS:x CDS:x~ CDS:c"}).problems)


def test_whole_trees_wait_for_their_references() -> None:
    """Where trees are accepted whole, a deletion that breaks a reference keeps all as it was."""
    story = MentionStory(Acceptance(whole_trees=True, check=Linter()))
    story.step({"cds": "CDS c", "more": "CDS d", "lds": "LDS l CDS:d! CDS:c"})

    loaded = story.step({"more": None, "cds": "CDS c\nCDS e"})

    assert {"c", "d", "l"} == served(loaded)


def test_type_that_the_tree_does_not_have() -> None:
    """Of a type that no file speaks of, all may come from elsewhere: a note, which holds nothing."""
    loaded = load_mentions({"lds": "LDS l CDS:c! SDS:s! RDS:r"})

    assert 3 == len(loaded.problems)
    assert {Severity.NOTE} == {problem.severity for problem in loaded.problems}
    assert {"l"} == served(loaded)


def test_type_that_the_tree_does_not_have_is_told_once() -> None:
    """One missing name stands for all, so that a tree of listeners does not drown in notes."""
    files = {"a": "LDS l CDS:d CDS:e", "b": "LDS m CDS:c CDS:f"}

    loaded = load_mentions(files)

    assert ['there is no cluster "c" in this tree, nor any other'] == [problem.message for problem in loaded.problems]
    assert 4 == len(load_mentions(files, lowered("no-cluster", Severity.WARNING)).problems)


def test_type_that_is_empty_on_purpose() -> None:
    """A tree that speaks of a type has all of it."""
    assert ["a: no-cluster error"] == tell(load_mentions({"a": "LDS l CDS:c!\nCDS"}))


def test_static_clusters_are_defined() -> None:
    """A static cluster may be named; others have to be in the tree, though it defines none."""
    loaded = load_mentions({"a": "LDS l CDS:s! CDS:c!"}, static({"s"}))

    assert ["a: no-cluster error"] == tell(loaded)
    assert '"c"' in loaded.problems[0].message


def test_cluster_of_a_config_source() -> None:
    """What has to be static is looked for only in a bootstrap that is known, and the tree's clusters will not do."""
    files = {"a": "CDS c =CDS:c!\nCDS d =CDS:xds!\nRDS r CDS:c CDS:d\nLDS l RDS:r"}

    assert [] == tell(load_mentions(files))
    assert ["a: no-static-cluster error"] == tell(load_mentions(files, static({"xds"})))


def test_secret_without_a_source() -> None:
    """A secret of the bootstrap is looked for there; without one, a namesake by SDS shows what was forgotten."""
    files = {"a": "CDS c =SDS:s!\nCDS d =SDS:t!\nSDS s"}

    assert [
        "a: no-static-secret warning", "a: unused-secret note",
    ] == tell(load_mentions(files))  # fmt: skip
    assert [
        "a: no-static-secret error", "a: unused-secret note",
    ] == tell(load_mentions(files, static(set(), {"t"})))  # fmt: skip


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("CDS c\nCDS d\nRDS r CDS:c\nLDS l RDS:r", ["cluster"]),
        ("EDS e\nCDS c", ["endpoints"]),
        ("RDS r\nLDS l", ["route-configuration"]),
        ("SDS s\nCDS c", ["secret"]),
        ("ECDS x\nLDS l", ["extension-config"]),
        ("SRDS s\nLDS l", ["scoped-route"]),
        ("SRDS s\nLDS l SRDS:*", []),
        ("CDS c\nEDS c", ["endpoints"]),
        ("CDS c\nSDS s SDS:x", ["secret"]),
        ("CDS c", []),
        ("EDS e", []),
        ("SDS s\nEDS e\nECDS x\nRDS r\nRTDS t", []),
        ("CDS c\nLDS l CDS:*~", []),
        ("CDS c\nLDS l RDS:elsewhere", []),
        ("CDS c\nLDS l\n!", []),
    ],
)
def test_unused(content: str, expected: list[str]) -> None:
    """What no resource names is a note, in trees that hold what could name it, and all of that is known."""
    told = tell(load_mentions({"a": content}))

    assert [f"a: unused-{noun} note" for noun in expected] == [row for row in told if "unused" in row]


def test_near_names_are_offered() -> None:
    """A typo is answered with the name that was meant."""
    loaded = load_mentions({"a": "CDS web-frontend\nCDS other\nRDS r CDS:web-fronted CDS:zzz CDS:other"})

    remedies = {problem.message: problem.remedy for problem in loaded.problems}
    hint = 'did you mean "web-frontend"? Else define it, or list it in `static_clusters` if the bootstrap defines it'
    assert [hint] == [text for fact, text in remedies.items() if "fronted" in fact]
    assert [True] == [text.startswith("define it") for fact, text in remedies.items() if "zzz" in fact]


def test_hint_is_given_up_with_its_name() -> None:
    """A name that is gone is not offered any more."""
    story = MentionStory()
    story.step({"cds": "CDS web-one\nCDS other", "rds": "RDS r CDS:web-ona CDS:other"})

    loaded = story.step({"cds": "CDS other"})

    remedy = "define it, or list it in `static_clusters` if the bootstrap defines it"
    assert [remedy] == [problem.remedy for problem in loaded.problems]


def test_lowered_rule_does_not_hold() -> None:
    """A rule that is no error here holds nothing back, and a switched off one is not reported."""
    files = {"cds": "CDS c", "lds": "LDS l CDS:d! CDS:c"}

    assert ["lds: no-cluster warning"] == tell(load_mentions(files, lowered("no-cluster", Severity.WARNING)))
    assert {"c", "l"} == served(load_mentions(files, lowered("no-cluster", Severity.NOTE)))
    assert [] == tell(load_mentions(files, lowered("no-cluster", None)))


def test_raised_rule_holds() -> None:
    """A rule that is an error here holds files back."""
    files = {"cds": "CDS c", "rds": "RDS r CDS:d CDS:c"}

    assert {"c"} == served(load_mentions(files, lowered("no-cluster", Severity.ERROR)))


LINES = st.sampled_from(
    ["CDS a", "CDS b", "LDS l CDS:a!", "LDS m CDS:b!", "RDS r CDS:a", "CDS c SDS:s!", "SDS s", "LDS n SDS:s!", "!"]
)
EDITS = st.dictionaries(
    st.sampled_from(["1", "2", "3", "cds"]),
    st.one_of(st.none(), st.lists(LINES, max_size=3, unique=True).map("\n".join)),
    max_size=3,
)


@given(st.lists(EDITS, max_size=6))
def test_loading_again_changes_nothing(steps: list[dict[str, str | None]]) -> None:
    """Nothing is held and let go in turns: a second look at the same tree serves and tells the same."""
    story = MentionStory()
    for edits in steps:
        first = story.step(edits)
        again = story.step({})
        assert served(first) == served(again)
        assert first.problems == again.problems
        assert first.held == again.held


@given(st.lists(EDITS, max_size=6))
def test_memory_makes_no_difference(steps: list[dict[str, str | None]]) -> None:
    """What is reported of a tree without errors is what a first load would report, whatever happened before."""
    story = MentionStory()
    for edits in steps:
        loaded = story.step(edits)
        if not loaded.held and not any(problem.severity is Severity.ERROR for problem in loaded.problems):
            assert load_mentions(story.files).problems == loaded.problems


def test_nothing_is_remembered_of_files_that_are_gone() -> None:
    """Files that come and go under ever new names, with something to report, leave nothing behind."""
    story = MentionStory()
    for number in range(100):
        came = story.step({"lds": "LDS l", f"{number}": f"CDS c{number}"})
        gone = story.step({f"{number}": None})

    assert [problem.path.name for problem in came.problems] == ["99"]
    assert {each.name for each in reachable(gone) if isinstance(each, PurePosixPath)} == {"lds", "99"}
