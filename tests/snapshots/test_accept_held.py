"""What is held counts for nothing but itself, whatever rule holds it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.resources import ParsedFile
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.references import CLAIMED
from tests.support.mentions import MentionStory, parse_file
from tests.support.mentions import held as held_mentions
from tests.support.mentions import served as served_mentions
from tests.support.stories import Story, held, served, tell
from tests.support.trees import tree_of


@pytest.mark.parametrize(
    ("owned", "other"),
    [("CDS gamma", "CDS gamma"), ("LDS b @tcp:80", "LDS a @tcp:80"), ("VHDS r/b #r/web.com", "VHDS r/a #r/web.com"),
     ("VHDS r/b &all", "VHDS r/a &all")],
)  # fmt: skip
def test_owner_goes_on_beside_a_held_file(owned: str, other: str) -> None:
    """What wants a name, address, domain or virtual host of another file is held; edits of the owner are served, in any order."""
    for newcomer, owner in (("a", "b"), ("b", "a")):
        story = MentionStory()
        story.step({owner: owned, newcomer: "RTDS own"})
        assert [newcomer] == held_mentions(story.step({newcomer: f"RTDS own\n{other}"}))

        loaded = story.step({owner: f"{owned}\nRTDS more"})

        assert [newcomer] == held_mentions(loaded)
        assert "more" in served_mentions(loaded)
        assert [] == held_mentions(story.step({owner: "RTDS more"})), "the owner let go of it"


def test_only_newcomers_are_held_of_three_files() -> None:
    """Of three files that define a name its owner is served; when it gives up, the first of the others follows it."""
    story = Story()
    story.step({"b": "CDS g=b"})
    story.step({"a": "CDS g=a", "c": "CDS g=c"})

    assert {"CDS g=b2"} == served(story.step({"b": "CDS g=b2"}).snapshot)
    loaded = story.step({"b": "CDS x=1"})
    assert {"CDS g=a", "CDS x=1"} == served(loaded.snapshot)
    assert {"c": False} == held(loaded)


def test_restart_beside_a_duplicate() -> None:
    """A first look at two files of one name serves the first path, whatever the order in which they are given."""
    for files in ({"a": "CDS g=a", "b": "CDS g=b h=1"}, {"b": "CDS g=b h=1", "a": "CDS g=a"}):
        assert {"CDS g=a"} == served(Story().step(files).snapshot)


def test_renamed_owner_owns_its_names() -> None:
    """A file that takes the place of one that is gone owns what that one was served with; a held file does not."""
    story = Story()
    story.step({"b": "CDS g=b h=1"})
    story.step({"a": "CDS g=a x=1"})

    loaded = story.step({"b": None, "c": "CDS g=b h=2"})

    assert {"CDS g=b", "CDS h=2"} == served(loaded.snapshot)
    assert {"a": False} == held(loaded)


def test_rename_into_a_held_file_loses_nothing() -> None:
    """Where the new form of a renamed file is held by a rule, what the file was served with stays until it is accepted."""
    story = Story()
    story.step({"a": "CDS g=a", "b": "CDS h=1 i=1"})

    loaded = story.step({"b": None, "c": "CDS g=c h=2 i=1"})
    assert {"CDS g=a", "CDS h=1", "CDS i=1"} == served(loaded.snapshot)
    assert {"b: vanished", "c: duplicate-name"} == set(tell(loaded))
    assert {"CDS g=a", "CDS h=1", "CDS i=1"} == served(story.step({}).snapshot)

    loaded = story.step({"c": "CDS h=2"})
    assert {"CDS g=a", "CDS h=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_name_of_a_file_that_is_held_for_another_reason_is_free() -> None:
    """A file that is held for what it refers to takes no new name from those after it."""
    story = MentionStory()
    story.step({"a": "CDS a", "z": "LDS l"})

    loaded = story.step({"a": "CDS a\nCDS delta\nLDS m CDS:nowhere!", "b": "CDS delta"})

    assert ["a"] == held_mentions(loaded)


def test_name_that_only_a_held_file_defines_is_not_defined() -> None:
    """What refers to a name of a held file is held until that file is served."""
    story = MentionStory()
    story.step({"b": "CDS g"})

    loaded = story.step({"a": "CDS g\nCDS new", "c": "LDS l CDS:new!"})
    assert ["a", "c"] == held_mentions(loaded)
    assert [] == held_mentions(story.step({"b": "CDS other"}))


def test_author_of_one_version_is_not_held_by_another() -> None:
    """A file that is held for its version, or for content under an old one, holds no other file that speaks of the type."""
    story = Story(authored_versions=True)
    story.step({"b": "CDS@1 b=1\nLDS@1 l=1"})
    story.step({"a": "CDS@9 a=1"})
    loaded = story.step({"b": "CDS@2 b=2\nLDS@1 l=1"})
    assert {"a": False} == held(loaded)
    assert {"CDS b=2", "LDS l=1"} == served(loaded.snapshot)

    story.step({"a": "CDS@2 a=1"})
    assert {"a": False} == held(story.step({})), "content changed under its version"
    loaded = story.step({"b": "CDS@2 b=2\nLDS@2 l=2"})
    assert {"CDS b=2", "LDS l=2"} == served(loaded.snapshot)


LINES = st.sampled_from(
    ["CDS x", "CDS y", "CDS z", "LDS l CDS:x!", "LDS m CDS:y! @tcp:80", "LDS n CDS:z! @tcp:80", "RTDS r", "RTDS s"]
)
FILES = st.dictionaries(
    st.sampled_from("abcd"), st.one_of(st.none(), st.lists(LINES, max_size=3, unique=True).map("\n".join)), max_size=4
)  # fmt: skip


def wants(parsed: ParsedFile | None) -> set[tuple[str, str]]:
    """Return the names and claims in a file, which no other may have."""
    resources = parsed.resources if parsed else ()
    claims = {
        (claim.type_url, claim.name) for one in resources for claim in one.references if claim.type_url in CLAIMED
    }
    return claims | {(one.type_url, one.name) for one in resources}


@settings(max_examples=300, deadline=None)
@given(st.lists(FILES, min_size=1, max_size=4))
def test_nothing_depends_on_what_is_held(steps: list[dict[str, str | None]]) -> None:
    """Who wants no more than it is served with owns that; and no file is held that could be served beside all the others."""
    story = MentionStory()
    for edits in steps:
        before = story.loaded
        loaded = story.step(edits)
        known = before.records if before else {}
        for file in loaded.held:
            record, was = loaded.records[file.path], known.get(file.path)
            if was is not None and was.good is not None and wants(record.parsed) <= wants(was.good):
                assert {found.rule for found in record.problems}.isdisjoint({"duplicate-name", "listener-address"})
            if {str(path) for path in known} - story.files.keys():
                continue  # a broken file may be the new form of one that is gone
            files = {**story.files, str(file.path): "!"}
            without = load(
                tree_of(files), before, lambda found: list(map(parse_file, found)), Acceptance(check=Linter())
            )
            assert not set(held_mentions(without)) < set(held_mentions(loaded)), (file.path, story.files)
