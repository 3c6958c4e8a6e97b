from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.model.values import HeldFile, Severity, SourceTree
from fsxds.snapshots.load import Acceptance, changed_files, load
from tests.support.snapshots import ALL_TYPES, type_url
from tests.support.stories import UNREADABLE, Story, held, parse_file, problem, served, tell
from tests.support.trees import tree_of

A, B, C = "a.cds.yaml", "b.cds.yaml", "c.cds.yaml"


def test_files_are_merged() -> None:
    """What many files hold is served together, with nothing to complain of."""
    loaded = Story().step({A: "CDS a=1\nRTDS l=1", B: "CDS b=1"})

    assert {"CDS a=1", "CDS b=1", "RTDS l=1"} == served(loaded.snapshot)
    assert loaded.problems == ()
    assert loaded.held == ()


def test_only_changed_files_are_parsed() -> None:
    """A file whose content did not change costs nothing, nor does one that went back to what is served of it."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    assert story.parsed == [A, B]

    story.step({B: "!"})
    assert story.parsed == [B]
    story.step({A: "CDS a=2"})
    assert story.parsed == [A]
    loaded = story.step({B: "CDS b=1"})
    assert story.parsed == []
    assert {"CDS a=2", "CDS b=1"} == served(loaded.snapshot)
    assert loaded.problems == ()


def test_changed_files_are_told_before_loading() -> None:
    """Whoever parses apart can ask which files need it."""
    story = Story()
    loaded = story.step({A: "CDS a=1", B: "CDS b=1"})
    tree = tree_of({A: "CDS a=1", B: "CDS b=2", C: "CDS c=1"})

    assert [PurePosixPath(B), PurePosixPath(C)] == [file.path for file in changed_files(tree, loaded)]
    assert tree.files == changed_files(tree, None)


def test_broken_file_keeps_what_it_held() -> None:
    """A file that breaks keeps its last good self, and its neighbours move on."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: "!", B: "CDS b=2"})

    assert {"CDS a=1", "CDS b=2"} == served(loaded.snapshot)
    assert [f"{A}: broken"] == tell(loaded)
    assert (HeldFile(PurePosixPath(A), loaded.problems[0], has_last_good=True),) == loaded.held


def test_mended_file_is_served_again() -> None:
    """When a broken file is mended, it is served as it is, and nothing is left of the problem."""
    story = Story()
    story.step({A: "CDS a=1"})
    story.step({A: "!"})
    story.step({A: "CDS a=2\n!"})

    loaded = story.step({A: "CDS a=3"})

    assert {"CDS a=3"} == served(loaded.snapshot)
    assert not loaded.problems
    assert not loaded.held


def test_warning_does_not_hold_a_file() -> None:
    """A file with a warning is served, and the warning stays as long as the file is there."""
    story = Story()
    story.step({A: "CDS a=1\n?"})

    loaded = story.step({B: "CDS b=1"})

    assert {"CDS a=1", "CDS b=1"} == served(loaded.snapshot)
    assert [f"{A}: odd"] == tell(loaded)
    assert not loaded.held


def test_deleted_file_takes_its_resources_along() -> None:
    """What only a deleted file held is no longer served."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: None})

    assert {"CDS b=1"} == served(loaded.snapshot)
    assert not loaded.held


def test_deleted_broken_file_takes_its_resources_along() -> None:
    """What was kept of a broken file goes with it."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    story.step({A: "!"})

    loaded = story.step({A: None})

    assert {"CDS b=1"} == served(loaded.snapshot)
    assert not loaded.problems


def test_rename_in_one_step() -> None:
    """A renamed file is the same resources from another place."""
    story = Story()
    before = story.step({A: "CDS a=1"}).snapshot

    loaded = story.step({A: None, B: "CDS a=1"})

    assert {"CDS a=1"} == served(loaded.snapshot)
    assert before.versions == loaded.snapshot.versions
    row = loaded.snapshot.resources(type_url("CDS"))["a"]
    assert PurePosixPath(B) == row.origin.path
    assert not loaded.problems


def test_rename_with_a_typo_keeps_what_was_there() -> None:
    """A file that vanishes in the step in which a broken one appears may be its old name: what it held stays."""
    story = Story()
    story.step({A: "CDS a=1"})

    loaded = story.step({A: None, B: "!"})

    assert {"CDS a=1"} == served(loaded.snapshot)
    assert [f"{A}: vanished", f"{B}: broken"] == tell(loaded)
    assert f"({B})" in loaded.problems[0].message
    assert [(A, True), (B, False)] == list(held(loaded).items())


def test_rename_with_a_typo_ends_when_it_is_mended() -> None:
    """When the new file is mended, the old one is forgotten, whatever the new one holds."""
    story = Story()
    story.step({A: "CDS a=1 b=1"})
    story.step({A: None, B: "!"})
    story.step({B: "!\n?"})

    loaded = story.step({B: "CDS a=1"})

    assert {"CDS a=1"} == served(loaded.snapshot)
    assert not loaded.problems
    assert not loaded.held


def test_rename_with_a_typo_ends_when_the_new_file_is_removed() -> None:
    """When the new file is removed too, both are gone."""
    story = Story()
    story.step({A: "CDS a=1"})
    story.step({A: None, B: "!"})

    loaded = story.step({B: None})

    assert served(loaded.snapshot) == set()
    assert not loaded.problems


def test_renamed_again_with_the_typo() -> None:
    """A broken new file that is renamed, and still broken, keeps what the first one held."""
    story = Story()
    story.step({A: "CDS a=1"})
    story.step({A: None, B: "!"})

    loaded = story.step({B: None, C: "!"})

    assert {"CDS a=1"} == served(loaded.snapshot)
    assert f"({C})" in loaded.problems[0].message


def test_file_comes_back_beside_its_broken_new_name() -> None:
    """When the old file comes back, it is a file as any other."""
    story = Story()
    story.step({A: "CDS a=1"})
    story.step({A: None, B: "!"})

    loaded = story.step({A: "CDS a=2"})

    assert {"CDS a=2"} == served(loaded.snapshot)
    assert [f"{B}: broken"] == tell(loaded)


def test_deletion_beside_an_old_broken_file() -> None:
    """A file that was broken before explains no deletion."""
    story = Story()
    story.step({A: "CDS a=1", B: "!"})

    loaded = story.step({A: None})

    assert served(loaded.snapshot) == set()


def test_deletion_of_a_file_that_was_never_good() -> None:
    """Of a file that was never good there is nothing to keep."""
    story = Story()
    story.step({A: "!", C: "CDS c=1"})

    loaded = story.step({A: None, B: "!"})

    assert {"CDS c=1"} == served(loaded.snapshot)
    assert [f"{B}: broken"] == tell(loaded)


def test_many_suspects_are_named_by_three() -> None:
    """The problem of a vanished file names three of the files that may be its new name."""
    story = Story()
    story.step({A: "CDS a=1"})

    loaded = story.step({A: None, **{f"{number}.yaml": "!" for number in range(4)}})

    vanished = next(found for found in loaded.problems if found.rule == "vanished")
    assert "(0.yaml, 1.yaml, 2.yaml)" in vanished.message


def test_moved_into_a_good_file_beside_a_broken_one() -> None:
    """What a good file defines now is not kept for the vanished file, though a broken one appeared as well."""
    story = Story()
    story.step({A: "CDS a=1"})

    loaded = story.step({A: None, B: "CDS a=2", C: "!"})

    assert {"CDS a=2"} == served(loaded.snapshot)
    assert [f"{C}: broken"] == tell(loaded)


def test_split_with_a_typo_in_one_half() -> None:
    """Of a file that was split in two, of which one is broken, what is missing from the other half stays."""
    story = Story()
    story.step({A: "CDS a=1 b=1\nEDS e=1"})

    loaded = story.step({A: None, B: "CDS a=2", C: "CDS b=2\n!"})
    assert {"CDS a=2", "CDS b=1", "EDS e=1"} == served(loaded.snapshot)
    assert [f"{A}: vanished", f"{C}: broken"] == tell(loaded)

    mended = story.step({C: "CDS b=2"})
    assert {"CDS a=2", "CDS b=2"} == served(mended.snapshot)
    assert not mended.problems


def test_split_file_comes_back_whole() -> None:
    """What was left of a vanished file is not taken for the file when that comes back: now it is the one that changed."""
    story = Story()
    story.step({A: "CDS a=1 b=1"})
    story.step({A: None, B: "CDS a=2", C: "!"})

    loaded = story.step({A: "CDS a=1 b=1", C: None})

    assert {"CDS a=2", "CDS b=1"} == served(loaded.snapshot)
    assert [f"{A}: duplicate-name"] == tell(loaded)


def test_conflict_holds_the_changed_file() -> None:
    """A file that takes a name which another has keeps its last good self; the problem names both places."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: "CDS a=1 b=2 c=1"})

    assert {"CDS a=1", "CDS b=1"} == served(loaded.snapshot)
    assert [f"{A}: duplicate-name"] == tell(loaded)
    assert f'"b" is already defined at {B}:1' in loaded.problems[0].message
    assert {A: True} == held(loaded)


def test_conflict_ends_when_the_older_file_gives_the_name_up() -> None:
    """A file that is held for a name is served as soon as the other one gives it up."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    story.step({A: "CDS a=1 b=2"})

    loaded = story.step({B: "CDS c=1"})

    assert {"CDS a=1", "CDS b=2", "CDS c=1"} == served(loaded.snapshot)
    assert not loaded.problems
    assert story.parsed == [B]


def test_conflict_ends_when_the_changed_file_gives_the_name_up() -> None:
    """A file that is held for a name is served as soon as it takes another."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    story.step({A: "CDS a=1 b=2"})

    loaded = story.step({A: "CDS a=1 c=1"})

    assert {"CDS a=1", "CDS b=1", "CDS c=1"} == served(loaded.snapshot)
    assert not loaded.problems


def test_conflict_ends_when_the_older_file_is_deleted() -> None:
    """A name is free when the file that had it is gone."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    story.step({A: "CDS b=2"})

    loaded = story.step({B: None})

    assert {"CDS b=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_first_of_two_new_files_wins_a_name() -> None:
    """Where both files are new, the first by path is served, and the other was never good."""
    loaded = Story().step({B: "CDS a=2 b=1", A: "CDS a=1"})

    assert {"CDS a=1"} == served(loaded.snapshot)
    assert [f"{B}: duplicate-name"] == tell(loaded)
    assert {B: False} == held(loaded)


def test_held_file_takes_no_names_from_others() -> None:
    """Of three files the second is held for the first; the third may have what only the second has beside it."""
    loaded = Story().step({A: "CDS a=1", B: "CDS a=2 b=1", C: "CDS b=2"})

    assert {"CDS a=1", "CDS b=2"} == served(loaded.snapshot)
    assert {B: False} == held(loaded)


def test_warnings_of_a_held_file_are_told_too() -> None:
    """A file that is held for a conflict keeps its own problems beside that; an error is what it is held for."""
    story = Story()
    loaded = story.step({A: "CDS a=1", B: "?\nCDS a=2"})

    assert [f"{B}: odd", f"{B}: duplicate-name"] == tell(loaded)
    assert [found.problem and found.problem.rule for found in loaded.held] == ["duplicate-name"]


def test_all_names_in_conflict_are_told() -> None:
    """The problems of a held file name all that others have, also what stands in a file behind it."""
    loaded = Story().step({A: "CDS a=1", B: "CDS a=2 b=1", C: "CDS b=2"})

    assert [f'"a" is already defined at {A}:1', f'"b" is already defined at {C}:1'] == [
        found.message.removeprefix("Cluster ") for found in loaded.problems
    ]


def test_name_that_a_held_file_gave_up_is_still_its_own() -> None:
    """A file that is held for a conflict keeps its old names, so that the file which took one of them is held too."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1", C: "CDS c=1"})

    loaded = story.step({A: "CDS b=2", C: "CDS c=1 a=2"})

    assert {"CDS a=1", "CDS b=1", "CDS c=1"} == served(loaded.snapshot)
    assert [f"{A}: duplicate-name", f"{C}: duplicate-name"] == tell(loaded)


def test_resource_moves_between_two_files_in_one_step() -> None:
    """A resource that leaves one file and enters another in one step is moved."""
    story = Story()
    story.step({A: "CDS a=1 x=1", B: "CDS b=1"})

    loaded = story.step({A: "CDS a=1", B: "CDS b=1 x=2"})

    assert {"CDS a=1", "CDS b=1", "CDS x=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_two_files_swap_a_name_in_one_step() -> None:
    """Two files may exchange what they define."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: "CDS b=2", B: "CDS a=2"})

    assert {"CDS a=2", "CDS b=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_resource_is_copied_and_then_removed() -> None:
    """A resource that is moved in two steps, first into the new file, is served from the old one until that lets go."""
    story = Story()
    story.step({A: "CDS a=1 x=1", B: "CDS b=1"})

    copied = story.step({B: "CDS b=2 x=2"})
    assert {"CDS a=1", "CDS b=1", "CDS x=1"} == served(copied.snapshot)

    loaded = story.step({A: "CDS a=1"})
    assert {"CDS a=1", "CDS b=2", "CDS x=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_resource_is_removed_and_then_added() -> None:
    """A resource that is moved in two steps, first out of the old file, is gone in between: that is what was written."""
    story = Story()
    story.step({A: "CDS a=1 x=1", B: "CDS b=1"})

    removed = story.step({A: "CDS a=1"})
    assert {"CDS a=1", "CDS b=1"} == served(removed.snapshot)

    loaded = story.step({B: "CDS b=1 x=2"})
    assert {"CDS a=1", "CDS b=1", "CDS x=2"} == served(loaded.snapshot)


def test_unreadable_file_keeps_what_it_held() -> None:
    """A file that exists and cannot be read keeps its last good self."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: UNREADABLE})
    assert {"CDS a=1", "CDS b=1"} == served(loaded.snapshot)
    assert [f"{A}: unreadable"] == tell(loaded)
    assert {A: True} == held(loaded)

    readable = story.step({A: "CDS a=1"})
    assert story.parsed == []
    assert not readable.problems


def test_unreadable_file_that_is_deleted() -> None:
    """A file that could not be read and is deleted then takes its resources along."""
    story = Story()
    story.step({A: "CDS a=1", B: "CDS b=1"})
    story.step({A: UNREADABLE})

    loaded = story.step({A: None})

    assert {"CDS b=1"} == served(loaded.snapshot)


def test_unreadable_from_the_start() -> None:
    """A file that was never read may define the type that its name speaks of."""
    loaded = Story().step({A: UNREADABLE, "l.yaml": "LDS l=1"})

    assert {A: False} == held(loaded)
    assert {type_url("CDS")} == loaded.snapshot.incomplete


def test_note_about_the_tree_holds_nothing() -> None:
    """A problem of the tree that is no error is told, and no file is missed for it."""
    path = PurePosixPath("loop")
    tree = SourceTree(tree_of({A: "CDS a=1"}).files, (problem(path, 1, "loop", Severity.NOTE),))

    loaded = load(tree, None, lambda files: map(parse_file, files), Acceptance(check=Linter()))

    assert tell(loaded) == ["loop: loop"]
    assert loaded.held == ()
    assert not loaded.snapshot.incomplete


def test_problems_are_sorted_by_place() -> None:
    """Problems come in the order of paths and lines, those of the tree among them."""
    loaded = Story().step({C: "!", B: UNREADABLE, A: "?\nCDS a=1\n?"})

    assert [f"{A}: odd", f"{A}: odd", f"{B}: unreadable", f"{C}: broken"] == tell(loaded)
    assert sorted(loaded.records) == list(loaded.records)


def test_whole_tree_waits_for_its_worst_file() -> None:
    """Where trees are accepted whole, one error keeps all of the old tree, the deleted file too."""
    story = Story(whole_trees=True)
    story.step({A: "CDS a=1", B: "CDS b=1", C: "CDS c=1"})

    loaded = story.step({A: "!", B: "CDS b=2", C: None, "d.yaml": "CDS d=1"})

    assert {"CDS a=1", "CDS b=1", "CDS c=1"} == served(loaded.snapshot)
    assert [f"{A}: broken"] == tell(loaded)
    assert {A: True, B: True, C: True, "d.yaml": False} == held(loaded)
    waiting = {str(file.path): file.problem for file in loaded.held}
    assert waiting[B] is None
    assert waiting[C] is None


def test_whole_tree_is_served_when_it_is_mended() -> None:
    """When the last error is mended, all of the new tree is served at once."""
    story = Story(whole_trees=True)
    story.step({A: "CDS a=1", B: "CDS b=1", C: "CDS c=1"})
    story.step({A: "!", B: "CDS b=2", C: None, "d.yaml": "CDS d=1"})

    loaded = story.step({A: "CDS a=2"})

    assert {"CDS a=2", "CDS b=2", "CDS d=1"} == served(loaded.snapshot)
    assert story.parsed == [A]
    assert not loaded.held


def test_whole_tree_with_a_conflict() -> None:
    """A conflict keeps a whole tree back as an error in a file does."""
    story = Story(whole_trees=True)
    story.step({A: "CDS a=1", B: "CDS b=1"})

    loaded = story.step({A: "CDS a=2", B: "CDS b=2 a=3"})

    assert {"CDS a=1", "CDS b=1"} == served(loaded.snapshot)
    assert [f"{B}: duplicate-name"] == tell(loaded)


def test_whole_tree_with_warnings_is_accepted() -> None:
    """A warning keeps nothing back."""
    loaded = Story(whole_trees=True).step({A: "CDS a=1\n?"})

    assert {"CDS a=1"} == served(loaded.snapshot)


def test_whole_first_tree_with_an_error_serves_nothing() -> None:
    """Of a first tree with an error nothing is served, and nothing is told as empty."""
    loaded = Story(whole_trees=True).step({A: "CDS a=1", "l.yaml": "!"})

    assert served(loaded.snapshot) == set()
    assert ALL_TYPES == loaded.snapshot.withheld


def test_authored_versions_are_served() -> None:
    """The author's version of a type is that of its documents."""
    loaded = Story(authored_versions=True).step({A: "CDS@7 a=1\nLDS@l1 l=1", B: "CDS@7 b=1"})

    assert {type_url("CDS"): "7", type_url("LDS"): "l1"} == loaded.snapshot.authored


def test_authored_version_of_one_file_alone_is_held() -> None:
    """A file whose version is not that of the older ones is held until those agree."""
    story = Story(authored_versions=True)
    story.step({A: "CDS@1 a=1", B: "CDS@1 b=1"})

    alone = story.step({A: "CDS@2 a=2"})
    assert {"CDS a=1", "CDS b=1"} == served(alone.snapshot)
    assert [f"{A}: version-conflict"] == tell(alone)

    together = story.step({B: "CDS@2 b=1"})
    assert {"CDS a=2", "CDS b=1"} == served(together.snapshot)
    assert {type_url("CDS"): "2"} == together.snapshot.authored
    assert not together.problems


def test_authored_version_must_change_with_the_content() -> None:
    """Content that changes under an unchanged version is held."""
    story = Story(authored_versions=True)
    story.step({A: "CDS@1 a=1"})

    stale = story.step({A: "CDS@1 a=2"})
    assert {"CDS a=1"} == served(stale.snapshot)
    assert [f"{A}: stale-version"] == tell(stale)

    loaded = story.step({A: "CDS@2 a=2"})
    assert {"CDS a=2"} == served(loaded.snapshot)


def test_names_are_unique_under_authored_versions_too() -> None:
    """Agreeing on a version does not allow a name twice."""
    loaded = Story(authored_versions=True).step({A: "CDS@1 a=1", B: "CDS@1 a=2"})

    assert [f"{B}: duplicate-name"] == tell(loaded)
    assert {"CDS a=1"} == served(loaded.snapshot)


def test_content_versions_do_not_look_at_authored_ones() -> None:
    """Where content decides, the authors' versions may say anything."""
    loaded = Story().step({A: "CDS@1 a=1", B: "CDS@2 b=1"})

    assert not loaded.problems
    assert loaded.snapshot.authored == {}


CONTENTS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=3
).map(lambda rows: " ".join(["CDS", *(f"{name}={content}" for name, content in rows.items())]))  # fmt: skip
EDITS = st.dictionaries(
    st.sampled_from(["1", "2", "3", "4"]),
    st.one_of(CONTENTS, CONTENTS, CONTENTS, st.just("!"), st.none(), st.just(UNREADABLE)),
    max_size=3,
)


def names_in(content: object) -> set[str]:
    """Return the names that a good content defines."""
    return {word[0] for word in content.split()[1:]} if isinstance(content, str) and content != "!" else set()


@given(st.lists(EDITS, max_size=8))
def test_nothing_is_lost_but_by_its_own_author(steps: list[dict[str, object]]) -> None:
    """A resource is served until the file that it came from is deleted, or written without it and accepted so."""
    story = Story()
    origins: dict[str, str] = {}
    for edits in steps:
        loaded = story.step(edits)
        rows = loaded.snapshot.resources(type_url("CDS"))
        assert list(rows) == sorted(rows)
        for name, path in origins.items():
            content = story.files.get(path)
            is_let_go = content is None or (path not in held(loaded) and name not in names_in(content))
            assert name in rows or is_let_go, (name, path)
        origins = {name: row.origin.path.as_posix() for name, row in rows.items()}
        defined = [name for path in story.files if path not in held(loaded) for name in names_in(story.files[path])]
        assert len(defined) == len(set(defined))
        assert set(defined) <= set(rows)


@given(st.lists(EDITS, max_size=6))
def test_good_tree_is_served_as_it_stands(steps: list[dict[str, object]]) -> None:
    """Whatever happened before, a tree without problems is served exactly as a first load of it would be."""
    story = Story()
    for edits in steps:
        story.step(edits)
    good = {path: f"CDS {path}=1" for path in story.files}

    loaded = story.step(good)

    assert served(Story().step(good).snapshot) == served(loaded.snapshot)
    assert not loaded.problems
    assert not loaded.held


@given(st.lists(EDITS, max_size=8))
def test_loading_again_changes_nothing(steps: list[dict[str, object]]) -> None:
    """A second look at the same tree serves the same, and complains of the same files."""
    story = Story()
    for edits in steps:
        first = story.step(edits)
        again = story.step({})
        assert story.parsed == []
        assert served(first.snapshot) == served(again.snapshot)
        assert set(tell(first)) == set(tell(again))
        assert held(first) == held(again)
