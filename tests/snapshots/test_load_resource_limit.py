"""Views with too many resources: the file that brings them is held back, and nothing that is served goes."""

from __future__ import annotations

from tests.support.snapshots import type_url
from tests.support.stories import Story, held, tell

CDS = type_url("CDS")


def test_the_file_with_too_many_is_held_back() -> None:
    """The problem is at the resource that is one too many, and names the option; other files are served."""
    story = Story(max_resources=4)
    story.step({"a.yaml": "CDS a=1 b=1"})
    loaded = story.step({"b.yaml": "CDS c=1", "c.yaml": "CDS d=1 e=1"})

    assert sorted(loaded.snapshot.resources(CDS)) == ["a", "b", "c"]
    assert tell(loaded) == ["c.yaml: too-many-resources"]
    assert "max_resources" in loaded.problems[0].remedy


def test_what_is_served_stays() -> None:
    """An edit that adds too many keeps what the file held; one that replaces, or removes, is taken in."""
    story = Story(max_resources=2)
    story.step({"a.yaml": "CDS a=1 b=1"})
    grown = story.step({"a.yaml": "CDS a=2 b=2 c=2"})
    assert held(grown) == {"a.yaml": True}
    assert sorted(grown.snapshot.resources(CDS)) == ["a", "b"]
    changed = story.step({"a.yaml": "CDS a=2 c=2"})

    assert sorted(changed.snapshot.resources(CDS)) == ["a", "c"]
    assert (tell(changed), held(changed)) == ([], {})


def test_there_is_room_again_when_something_goes() -> None:
    """A file that was held is served in the step in which another one makes room."""
    story = Story(max_resources=2)
    story.step({"a.yaml": "CDS a=1 b=1"})
    story.step({"b.yaml": "CDS c=1"})
    loaded = story.step({"a.yaml": "CDS a=1"})

    assert sorted(loaded.snapshot.resources(CDS)) == ["a", "c"]
    assert tell(loaded) == []


def test_a_first_tree_that_is_too_large_is_served_in_part() -> None:
    """Those files are served for which there is room."""
    loaded = Story(max_resources=3).step({"a.yaml": "CDS a=1", "b.yaml": "CDS b=1 c=1 d=1", "c.yaml": "CDS e=1 f=1"})

    assert sorted(loaded.snapshot.resources(CDS)) == ["a", "e", "f"]
    assert tell(loaded) == ["b.yaml: too-many-resources"]
