"""What upstreams hold is merged under a view: what comes first wins, and the cost follows the change."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from rpds import HashTrieSet

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Severity, TypeUrl
from fsxds.snapshots.loaded_views import Inputs, ResolutionRules
from fsxds.snapshots.upstream_content import UpstreamContent, origin_of
from fsxds.snapshots.upstream_rows import MOST_NAMED, MergedView, apply
from tests.support.snapshots import ALL_TYPES, Contents, resource, snapshot, type_url

EVERYTHING = tuple(row.short_name.upper() for row in RESOURCE_TYPES)


def upstream(
    name: str, contents: Contents, *, pending: Collection[str] = (), answered: Collection[str] = (), sequence: int = 1
) -> UpstreamContent:
    """Return what an upstream holds, of which it answered all types that have something."""
    path = str(origin_of(name).path)
    rows = {
        type_url(short): Rows(
            type_url(short), {one: resource(short, one, text, path) for one, text in sorted(of.items())}
        )
        for short, of in contents.items()
    }
    return UpstreamContent(
        name,
        {url: each for url, each in rows.items() if each},
        frozenset(map(type_url, pending)),
        frozenset(rows) | frozenset(map(type_url, answered)),
        sequence,
    )


def served(merged: MergedView, short: str = "CDS") -> dict[str, str]:
    """Return from where each resource of a type is served."""
    return {name: str(one.origin.path) for name, one in merged.snapshot.resources(type_url(short)).items()}


def test_without_upstreams_a_snapshot_is_itself() -> None:
    """Nothing is made, so that nothing costs anything."""
    raw = snapshot({"CDS": {"a": "1"}})

    assert apply(raw, Inputs(ResolutionRules(), ()), None).snapshot is raw


def test_the_first_that_has_a_resource_wins() -> None:
    """The tree goes before upstreams, and these go by their order."""
    raw = snapshot({"CDS": {"a": "tree"}})
    east = upstream("east", {"CDS": {"a": "east", "b": "east"}})
    west = upstream("west", {"CDS": {"a": "west", "b": "west", "c": "west"}})

    merged = apply(raw, Inputs(ResolutionRules(), (east, west)), None)

    assert {"a": "a.yaml", "b": "upstream east", "c": "upstream west"} == served(merged)
    assert {"east": 1, "west": 1} == dict(merged.snapshot.upstreams)


def test_what_is_shadowed_is_noted_for_each_upstream() -> None:
    """One note has a few names and counts the others; it names what the resources are."""
    raw = snapshot({"CDS": {f"c{index}": "tree" for index in range(8)}})
    east = upstream("east", {"CDS": {f"c{index}": "east" for index in range(7)}, "LDS": {"l": "east"}})
    west = upstream("west", {"LDS": {"l": "west"}})

    first, second = apply(raw, Inputs(ResolutionRules(), (east, west)), None).problems

    assert ("upstream east", "shadowed-upstream", Severity.NOTE) == (str(first.path), first.rule, first.severity)
    named = ", ".join(f"c{index} (clusters)" for index in range(MOST_NAMED))
    assert f"{named}, … 2 more" in first.message
    assert "l (listeners)" in second.message


def test_rows_of_one_source_are_shared() -> None:
    """A relay without files keeps one table, whose version and lists are worked out once."""
    east = upstream("east", {"CDS": {"a": "1"}})

    assert (
        apply(snapshot({}), Inputs(ResolutionRules(), (east,)), None).snapshot.resources(type_url("CDS"))
        is east.rows[type_url("CDS")]
    )


def test_nothing_new_is_the_same_object() -> None:
    """What is merged of the same is what was merged before."""
    raw, east = snapshot({"CDS": {"a": "1"}}), upstream("east", {"CDS": {"b": "1"}})
    merged = apply(raw, Inputs(ResolutionRules(), (east,)), None)

    assert apply(raw, Inputs(ResolutionRules(), (east,)), merged) is merged


@pytest.mark.parametrize(
    ("raw", "content", "withheld", "incomplete", "undeclared"),
    [
        (snapshot({}), upstream("e", {}), EVERYTHING, (), EVERYTHING),
        (snapshot({}), upstream("e", {}, pending=EVERYTHING), EVERYTHING, EVERYTHING, EVERYTHING),
        (snapshot({}), upstream("e", {"CDS": {"a": "1"}}, pending=["CDS"]), (), ["CDS"], {*EVERYTHING} - {"CDS"}),
        (snapshot({}), upstream("e", {}, answered=["CDS"]), (), (), {*EVERYTHING} - {"CDS"}),
        (snapshot({"CDS": {}}), upstream("e", {}, pending=["CDS", "LDS"]), ["CDS", "LDS"], ["CDS", "LDS"], {*EVERYTHING} - {"CDS"}),
        (snapshot({"CDS": {}}, incomplete=["LDS"]), upstream("e", {}), ["LDS"], ["LDS"], {*EVERYTHING} - {"CDS"}),
        (snapshot({}, incomplete=["LDS"]), upstream("e", {}, answered=["CDS"]), ["LDS"], ["LDS"], {*EVERYTHING} - {"CDS"}),
        (snapshot({"CDS": {}}, incomplete=["LDS"]), upstream("e", {"LDS": {"l": "1"}}), (), ["LDS"], {*EVERYTHING} - {"CDS", "LDS"}),
    ],
)  # fmt: skip
def test_what_may_still_come_is_not_reported_as_missing(
    raw: Snapshot,
    content: UpstreamContent,
    withheld: Collection[str],
    incomplete: Collection[str],
    undeclared: Collection[str],
) -> None:
    """A type of which an answer is awaited is incomplete, and withheld where there is nothing of it; an answer declares it."""
    found = apply(raw, Inputs(ResolutionRules(), (content,)), None).snapshot

    assert set(map(type_url, withheld)) == found.withheld
    assert set(map(type_url, incomplete)) == found.incomplete
    assert set(map(type_url, undeclared)) == found.undeclared


def test_an_answer_of_nothing_is_a_change() -> None:
    """A type that was awaited and turns out empty is served as empty."""
    raw, asked = snapshot({}), upstream("east", {"CDS": {"a": "1"}}, pending=["LDS"])
    before = apply(raw, Inputs(ResolutionRules(), (asked,)), None)
    told = replace(asked, pending=frozenset(), answered=asked.answered | {type_url("LDS")}, sequence=2)

    after = apply(raw, Inputs(ResolutionRules(), (told,)), before)

    assert (type_url("LDS") in before.snapshot.withheld, type_url("LDS") in after.snapshot.withheld) == (True, False)
    assert after.snapshot.generation > before.snapshot.generation


def test_what_upstreams_let_go_is_known_of_the_snapshot() -> None:
    """A large removal needs approval only as far as an upstream made it."""
    east = replace(upstream("east", {}), released={type_url("CDS"): HashTrieSet(["a"])})
    west = replace(upstream("west", {}), released={type_url("CDS"): HashTrieSet(["b"])})

    found = apply(snapshot({}), Inputs(ResolutionRules(), (east, west)), None).snapshot.released

    assert {"a", "b"} == {name for names in found[type_url("CDS")] for name in names}


class Sources:
    """A tree and two upstreams whose resources change at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.raw = snapshot({})
        self.contents = (upstream("east", {}), upstream("west", {}))

    def step(self) -> None:
        """Change some resources of some of them."""
        for at in range(3):
            if self.random.random() < 0.6:
                self._change(at, self.random.choice(["CDS", "EDS"]))

    def _change(self, at: int, short: str) -> None:
        url = type_url(short)
        path = "a.yaml" if at == 0 else str(origin_of(self.contents[at - 1].name).path)
        was = self.raw.by_type[url] if at == 0 else self.contents[at - 1].rows.get(url, Rows(url))
        names = self.random.sample("abcdefgh", self.random.randrange(6))
        gone = self.random.sample("abcdefgh", self.random.randrange(4))
        new = [resource(short, name, self.random.choice("123"), path) for name in names]
        rows = was.with_changes(new, set(gone) - set(names))
        if self.random.random() < 0.1:
            rows = Rows(url)
        if at == 0:
            self.raw = replace(self.raw, generation=self.raw.generation + 1, by_type={**self.raw.by_type, url: rows})
        else:
            content = self.contents[at - 1]
            present = {each: of for each, of in {**content.rows, url: rows}.items() if of}
            changed = replace(content, rows=present, answered=content.answered | {url}, sequence=content.sequence + 1)
            self.contents = tuple(changed if one is content else one for one in self.contents)  # type: ignore[assignment]

    def expected(self, url: TypeUrl) -> tuple[dict[str, Resource], list[set[str]]]:
        """Return what is served of a type, and what is shadowed of each upstream, worked out in the simplest way."""
        found = dict(self.raw.by_type[url])
        shadowed = []
        for content in self.contents:
            rows = content.rows.get(url) or Rows(url)
            shadowed.append(set(rows) & set(found))
            found = {**rows, **found}
        return found, shadowed


@pytest.mark.parametrize("seed", range(40))
def test_every_change_is_merged_as_if_it_were_all_new(seed: int) -> None:
    """Whatever changes where, what is served, shadowed and said to have changed is what all sources come to."""
    sources = Sources(seed)
    merged: MergedView | None = None
    for _ in range(25):
        sources.step()
        before, merged = merged, apply(sources.raw, Inputs(ResolutionRules(), sources.contents), merged)
        notes: Mapping[TypeUrl, object] = merged.shadowed
        for url in ALL_TYPES:
            found, shadowed = sources.expected(url)
            rows = merged.snapshot.by_type[url]
            assert found == dict(rows)
            assert list(found) == [] or sorted(found) == list(rows)
            assert rows.version == Rows(url, {name: found[name] for name in sorted(found)}).version
            assert notes.get(url, (frozenset(), frozenset())) == tuple(map(frozenset, shadowed))
            if before is not None and rows.version != before.snapshot.by_type[url].version:
                assert merged.snapshot.changes[url].generation == merged.snapshot.generation
                assert merged.snapshot.generation > before.snapshot.generation
