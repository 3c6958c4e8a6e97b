from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.model.name_table import version_of_set
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Snapshot, TypeChange
from fsxds.snapshots.load import merge, same_content
from tests.support.snapshots import ALL_TYPES, resource, type_url
from tests.support.stories import Story

CDS, LDS, EDS = type_url("CDS"), type_url("LDS"), type_url("EDS")
A, B = PurePosixPath("a.yaml"), PurePosixPath("b.yaml")


def test_nothing_makes_the_first_generation() -> None:
    """A snapshot of no files has a row for every type, and says of none of them that it is empty."""
    empty = merge({}, {}, None)

    assert empty.generation == 1
    assert ALL_TYPES == empty.by_type.keys() == empty.versions.keys() == empty.undeclared == empty.withheld
    assert not empty.incomplete


def test_rows_are_in_push_order_and_sorted() -> None:
    """Rows come in the order of the table of types, the names in them sorted."""
    snapshot = Story().step({"a.yaml": "LDS l=1\nCDS b=1", "b.yaml": "CDS c=1 a=1"}).snapshot

    assert [row.type_url for row in RESOURCE_TYPES] == list(snapshot.by_type)
    assert list(snapshot.resources(CDS)) == ["a", "b", "c"]


def test_version_of_a_row_is_that_of_its_contents() -> None:
    """The version of everything of a type is the digest of names and versions, whichever files they come from."""
    one = Story().step({"a.yaml": "CDS a=1 b=1"}).snapshot
    two = Story().step({"a.yaml": "CDS b=1", "b.yaml": "CDS a=1"}).snapshot

    expected = version_of_set(CDS, [(name, resource("CDS", name).version) for name in ("a", "b")])
    assert expected == one.versions[CDS] == two.versions[CDS]


def test_snapshot_cannot_be_changed() -> None:
    """A snapshot is shared by all clients."""
    snapshot = Story().step({"a.yaml": "CDS a=1"}).snapshot

    for mapping in (snapshot.by_type, snapshot.by_type[CDS], snapshot.versions, snapshot.authored, snapshot.changes):
        with pytest.raises(TypeError):
            mapping["x"] = None  # type: ignore[index]


def test_untouched_types_keep_their_rows() -> None:
    """A type that no changed file speaks of keeps the very same row, and the tale of its last change."""
    story = Story()
    before = story.step({"a.yaml": "CDS a=1", "b.yaml": "LDS l=1"}).snapshot

    after = story.step({"b.yaml": "LDS l=2"}).snapshot

    assert after.by_type[CDS] is before.by_type[CDS]
    assert after.changes[CDS] is before.changes[CDS]
    assert after.by_type[LDS] is not before.by_type[LDS]
    assert after.generation == 2


def test_type_that_a_file_no_longer_speaks_of_is_touched() -> None:
    """A type whose last document left its file is looked at again, and is empty then."""
    story = Story()
    story.step({"a.yaml": "CDS a=1\nLDS l=1"})

    after = story.step({"a.yaml": "CDS a=1"}).snapshot

    assert after.resources(LDS) == {}
    assert LDS not in after.undeclared
    assert TypeChange(2, removed=("l",), files=(A,)) == after.changes[LDS]


def test_change_tells_names_and_files() -> None:
    """A change tells what was added, changed and removed, and the files in which that was written."""
    story = Story()
    story.step({"a.yaml": "CDS same=1 new=1 gone=1", "b.yaml": "CDS other=1", "c.yaml": "CDS far=1"})

    after = story.step({"a.yaml": "CDS same=1 new=2", "b.yaml": "CDS other=1 added=1"}).snapshot

    assert TypeChange(2, ("added",), ("new",), ("gone",), (A, B)) == after.changes[CDS]


def test_change_tells_where_a_resource_was_rewritten() -> None:
    """The file in which a resource became another is told, and no other."""
    story = Story()
    story.step({"a.yaml": "CDS a=1", "b.yaml": "CDS b=1"})

    after = story.step({"b.yaml": "CDS b=2"}).snapshot

    assert TypeChange(2, changed=("b",), files=(B,)) == after.changes[CDS]


@pytest.mark.parametrize(
    ("before", "after"),
    [("a=1+60s", "a=1+5s"), ("a=1+60s", "a=1"), ("a=1", "a=1+60s"), ("a=1+x", "a=1+y"), ("a=1", "a=1+x")],
)
def test_change_of_what_is_around_a_resource(before: str, after: str) -> None:
    """Another time to live or other aliases are a change, of which versions know nothing: those are of contents."""
    story = Story()
    first = story.step({"a.yaml": f"CDS {before} b=1+60s"}).snapshot

    second = story.step({"a.yaml": f"CDS {after} b=1+60s"}).snapshot

    assert TypeChange(2, changed=("a",), files=(A,)) == second.changes[CDS]
    assert first.versions == second.versions
    assert not same_content(first, second)


def test_snapshot_has_what_is_around_a_resource_now() -> None:
    """The rows are new ones when a time to live changes."""
    story = Story()
    story.step({"a.yaml": "CDS a=1+60s"})

    assert [(5.0, ("x",))] == [
        (row.ttl_s, row.aliases) for row in story.step({"a.yaml": "CDS a=1+5s+x"}).snapshot.resources(CDS).values()
    ]


def test_first_change_adds_everything() -> None:
    """In a first snapshot all is new."""
    first = Story().step({"a.yaml": "CDS b=1 a=1"}).snapshot

    assert TypeChange(1, added=("a", "b"), files=(A,)) == first.changes[CDS]
    assert TypeChange(1) == first.changes[LDS]


def test_change_is_told_until_the_next_one() -> None:
    """A file that changed in nothing that is served leaves the tale of the last change alone."""
    story = Story()
    story.step({"a.yaml": "CDS a=1", "b.yaml": "CDS b=1"})
    changed = story.step({"a.yaml": "CDS a=2"}).snapshot

    after = story.step({"b.yaml": "CDS b=1\n?"}).snapshot

    assert changed.changes[CDS] is after.changes[CDS]
    assert after.changes[CDS].generation == 2


def test_moved_resource_is_no_change() -> None:
    """A resource that stands in another file now is the same resource, with its new origin."""
    story = Story()
    first = story.step({"a.yaml": "CDS a=1"}).snapshot

    moved = story.step({"a.yaml": None, "b.yaml": "CDS a=1"}).snapshot

    assert first.changes[CDS] is moved.changes[CDS]
    assert moved.resources(CDS)["a"].origin.path == B
    assert same_content(first, moved)


def test_undeclared_types_were_never_spoken_of() -> None:
    """A type is declared by an empty document too, and stays so when its last file is gone."""
    story = Story()
    first = story.step({"a.yaml": "CDS", "b.yaml": "LDS l=1"}).snapshot
    assert ALL_TYPES - {CDS, LDS} == first.undeclared

    gone = story.step({"a.yaml": None, "b.yaml": None}).snapshot
    assert first.undeclared == gone.undeclared
    assert not gone.withheld


def test_broken_new_file_leaves_its_type_incomplete() -> None:
    """A file that was never good may define the type that its name speaks of; of a type with nothing else that is all."""
    story = Story()
    story.step({"lds.yaml": "LDS l=1", "cds.yaml": "CDS c=1"})

    snapshot = story.step({"eds.yaml": "!", "clusters/new.yaml": "!"}).snapshot

    assert {CDS, EDS} == snapshot.incomplete
    assert {EDS} == snapshot.withheld


def test_broken_new_file_of_any_type_leaves_all_incomplete() -> None:
    """A file whose name says nothing may define any type; what is served beside it is served."""
    snapshot = Story().step({"a.yaml": "CDS a=1", "b.yaml": "!"}).snapshot

    assert ALL_TYPES == snapshot.incomplete
    assert ALL_TYPES - {CDS} == snapshot.withheld


def test_first_tree_with_nothing_good_says_nothing() -> None:
    """Where nothing was ever good no type is told as empty, though only one file is broken, and its name is known."""
    snapshot = Story().step({"cds.yaml": "!"}).snapshot

    assert {CDS} == snapshot.incomplete
    assert ALL_TYPES == snapshot.withheld


def test_type_is_complete_again_when_its_file_is_mended() -> None:
    """A file that breaks later leaves nothing incomplete: it was good once."""
    story = Story()
    story.step({"cds.yaml": "!", "lds.yaml": "LDS l=1"})
    mended = story.step({"cds.yaml": "CDS a=1"}).snapshot
    broken = story.step({"cds.yaml": "!"}).snapshot

    assert not mended.incomplete
    assert not broken.incomplete


def test_same_content_is_the_same_to_everybody() -> None:
    """Snapshots serve the same when versions agree, and nothing else that a client may notice differs."""
    story = Story()
    first = story.step({"a.yaml": "CDS a=1"}).snapshot
    again = story.step({}).snapshot
    rewritten = story.step({"a.yaml": "CDS a=1\n?"}).snapshot

    assert same_content(first, again)
    assert same_content(first, rewritten)
    assert again.generation == 2


@pytest.mark.parametrize(
    "edits",
    [{"a.yaml": "CDS a=2"}, {"a.yaml": "CDS"}, {"b.cds.yaml": "!"}, {"lds.yaml": "LDS"}, {"lds.yaml": "!"}],
)
def test_other_content_is_noticed(edits: dict[str, str]) -> None:
    """Other resources, a type that is incomplete, withheld, or declared at last: each makes another snapshot."""
    story = Story()
    first = story.step({"a.yaml": "CDS a=1"}).snapshot

    assert not same_content(first, story.step(edits).snapshot)


def test_other_authored_version_is_noticed() -> None:
    """The same content under another version of its author is another snapshot."""
    story = Story(authored_versions=True)
    first = story.step({"a.yaml": "CDS@1 a=1"}).snapshot

    second: Snapshot = story.step({"a.yaml": "CDS@2 a=1"}).snapshot

    assert not same_content(first, second)
    assert {CDS: "2"} == second.authored
