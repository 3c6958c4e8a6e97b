"""List collections made of folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import ADDRESS, Origin, ParsedFile, Reference, Resource, Rows, Snapshot
from fsxds.model.values import WHOLE_TREE, Layers, Severity
from fsxds.settings.naming_rules import CollectionRule
from fsxds.snapshots.folder_collections import Collected, apply
from fsxds.snapshots.loaded_views import Inputs, ResolutionRules
from fsxds.snapshots.proposals import FileRecord
from fsxds.snapshots.references import CLUSTER
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import Plain, listener, resource, snapshot

LISTENER, COLLECTION = BY_SHORT_NAME["lds"], BY_SHORT_NAME["lcds"]
EDGE = f"xdstp://example.com/{COLLECTION.message_type}/edge"
FOO = f"xdstp://example.com/{LISTENER.message_type}/foo/bar"


def rules(*, inline: bool = True, folder: str = "edge") -> ResolutionRules:
    """One collection, `edge`."""
    rule = CollectionRule(ResourceName("", COLLECTION.message_type, "edge"), folder, inline)
    return ResolutionRules("example.com", catalogue=this_envoy(), collections=(rule,))


def made(name: str, path: str, port: int = 80, **fields: Any) -> Resource:
    """A listener that is written in a file."""
    return replace(
        resource("lds", listener(name, port=port, route_config={"name": "r"})),
        origin=Origin(PurePosixPath(path), 1),
        **fields,
    )


def holding(*listeners: Resource, generation: int = 1, incomplete: Iterable[str] = ()) -> Snapshot:
    """A snapshot of listeners."""
    rows = Rows(LISTENER.type_url, {one.name: one for one in sorted(listeners, key=lambda one: one.name)})
    empty = snapshot()
    return replace(
        empty,
        generation=generation,
        by_type=MappingProxyType({**empty.by_type, LISTENER.type_url: rows}),
        incomplete=frozenset(BY_SHORT_NAME[name].type_url for name in incomplete),
    )


def applied(
    source: Snapshot,
    rules: ResolutionRules,
    before: Collected | None,
    files: Iterable[str] = ("edge/lds.yaml",),
    layers: Layers = WHOLE_TREE,
) -> Collected:
    """Make the collections of a view with these files."""
    parsed = [ParsedFile(PurePosixPath(path), "") for path in files]
    records = {one.path: FileRecord(one, one) for one in parsed}
    return apply(source, Inputs(rules, files=records, layers=layers), before)


def entries_of(collected: Collected, name: str = EDGE) -> list[Any]:
    """Return the entries of a collection."""
    body = collected.snapshot.resources(COLLECTION.type_url)[name].body
    message: Any = this_envoy().message_class(COLLECTION.message_type).FromString(body)
    return list(message.entries)


def names_in(collected: Collected) -> list[str]:
    """Return the names of the inline listeners of the collection."""
    listeners: Any = this_envoy().message_class(LISTENER.message_type)
    return [listeners.FromString(entry.inline_entry.resource.value).name for entry in entries_of(collected)]


def test_listeners_of_a_folder() -> None:
    """All listeners in the folder and below are inline, by name, with their versions; entries have names where they can."""
    a, foo = made("a b", "edge/deep/lds.yaml"), made(FOO, "edge/lds.yaml", 81)
    done = applied(holding(a, foo, made("x", "edges.yaml"), made("y", "other/edge/lds.yaml")), rules(), None)

    assert names_in(done) == ["a b", FOO]
    first, second = (entry.inline_entry for entry in entries_of(done))
    assert (first.name, first.version, first.resource.type_url) == ("", a.version, LISTENER.type_url)
    assert (second.name, second.version) == ("foo/bar", foo.version)
    assert str(done.snapshot.resources(COLLECTION.type_url)[EDGE].origin) == "edge:1"
    assert done.problems == ()


def test_by_reference() -> None:
    """Entries are locators; that of a plain name has the authority of the tree."""
    done = applied(holding(made("web", "edge/lds.yaml"), made(FOO, "edge/lds.yaml")), rules(inline=False), None)

    located = [(one.locator.authority, one.locator.resource_type, one.locator.id) for one in entries_of(done)]
    assert located == [("example.com", LISTENER.message_type, "web"), ("example.com", LISTENER.message_type, "foo/bar")]
    (collection,) = done.snapshot.resources(COLLECTION.type_url).values()
    assert [(one.type_url, one.name, one.severity) for one in collection.references] == [
        (LISTENER.type_url, "web", Severity.NOTE),
        (LISTENER.type_url, FOO, Severity.NOTE),
    ]


def test_references_of_inline_listeners() -> None:
    """What inline listeners use counts, at its place in the collection; what they claim does not."""
    uses = Reference(CLUSTER, "web", ("filter_chains", 0), Severity.WARNING)
    claims = Reference(ADDRESS, "127.0.0.1:80 tcp", ("address",), Severity.ERROR)
    done = applied(holding(made("a", "edge/lds.yaml", references=(uses, claims))), rules(), None)

    (collection,) = done.snapshot.resources(COLLECTION.type_url).values()
    place = ("entries", 0, "inline_entry", "resource", "filter_chains", 0)
    assert collection.references == (uses._replace(field_path=place),)


def test_it_follows_its_folder() -> None:
    """An edit changes it, an edit elsewhere does not even make it again; what it knew of other types is shared."""
    a = made("a", "edge/lds.yaml")
    first = applied(holding(a), rules(), None)
    elsewhere = applied(holding(a, made("x", "x.yaml"), generation=2), rules(), first)
    was, now = (one.snapshot.resources(COLLECTION.type_url) for one in (first, elsewhere))
    assert now is was
    assert elsewhere.snapshot.changes[COLLECTION.type_url].generation == 1

    moved = applied(holding(a, made("b", "edge/b.yaml"), generation=3), rules(), elsewhere)
    assert names_in(moved) == ["a", "b"]
    assert moved.snapshot.resources(COLLECTION.type_url).changes_since(now).fresh == {EDGE}
    assert moved.snapshot.changes[COLLECTION.type_url].generation == 3
    assert list(moved.snapshot.by_type) == list(snapshot().by_type)


@pytest.mark.parametrize("is_inline", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_an_emptied_folder(*, is_inline: bool, is_restarted: bool) -> None:
    """A folder that has files makes an empty collection, whatever was before, with a problem; edits elsewhere do not change it."""
    first = applied(holding(made("a", "edge/lds.yaml")), rules(inline=is_inline), None)
    source = holding(made("x", "x.yaml"), generation=2)
    done = applied(source, rules(inline=is_inline), None if is_restarted else first)

    assert entries_of(done) == []
    assert done.snapshot.changes[COLLECTION.type_url].generation == 2
    assert not done.snapshot.incomplete | done.snapshot.undeclared & {COLLECTION.type_url}
    (problem,) = done.problems
    assert (problem.rule, problem.severity, str(problem.path)) == ("empty-collection", Severity.WARNING, "edge")
    assert f"{EDGE}, so it is empty" in problem.message
    again = applied(replace(source, generation=3), rules(inline=is_inline), done)
    assert again.snapshot.resources(COLLECTION.type_url) is done.snapshot.resources(COLLECTION.type_url)
    assert names_in(applied(holding(made("a", "edge/lds.yaml"), generation=4), rules(), again)) == ["a"]


def test_a_folder_that_is_gone() -> None:
    """Its collection stays, also under other settings and when it was empty; with its files, the folder counts again."""
    first = applied(holding(made("a", "edge/lds.yaml")), rules(), None)
    elsewhere = holding(made("x", "x.yaml"), generation=2)
    gone = applied(elsewhere, rules(), first, ["x.yaml", "edges/lds.yaml"])

    assert gone.snapshot.resources(COLLECTION.type_url) is first.snapshot.resources(COLLECTION.type_url)
    assert COLLECTION.type_url not in gone.snapshot.incomplete
    assert [("it stays as it was" in one.message, "`resources: []`" in one.remedy) for one in gone.problems] == [
        (True, True)
    ]
    assert names_in(applied(elsewhere, rules(folder="blue"), gone, ["x.yaml"])) == ["a"]
    emptied = applied(elsewhere, rules(), gone)
    assert entries_of(emptied) == entries_of(applied(elsewhere, rules(), emptied, ["x.yaml"])) == []


@pytest.mark.parametrize("is_undeclared", [True, False])
def test_a_folder_that_is_gone_at_a_start(*, is_undeclared: bool) -> None:
    """There is no collection, and none is reported as removed; so it is where no file ever listed a listener."""
    source = holding(made("x", "x.yaml"))
    if is_undeclared:
        source = replace(source, undeclared=frozenset({LISTENER.type_url, COLLECTION.type_url}))
    done = applied(source, rules(), None, ["edge/cds.yaml"] if is_undeclared else ["x.yaml"])

    assert not done.snapshot.resources(COLLECTION.type_url)
    assert COLLECTION.type_url in done.snapshot.incomplete
    assert ["it is not served" in one.message for one in done.problems] == [True]


@pytest.mark.parametrize(
    ("layers", "has_it"),
    [
        (("common",), False),
        (("common", "edge"), True),
        (("edge/deep",), True),
        (("edges", "/"), False),
        (("/",), False),
    ],
)
def test_views_without_the_folder(layers: Layers, *, has_it: bool) -> None:
    """They have no collection, which is no problem; a layer in the folder, or with it, has it."""
    done = applied(holding(made("x", "common/x.yaml")), rules(), None, layers=layers)
    assert (EDGE in done.snapshot.resources(COLLECTION.type_url), bool(done.problems)) == (has_it, has_it)


def test_what_a_broken_file_may_define_stays() -> None:
    """While a file that was never good may define listeners, none is taken out; after a restart there is no collection yet."""
    a, b = made("a", "edge/a.yaml"), made("b", "edge/b.yaml")
    first = applied(holding(a, b), rules(), None)
    broken = holding(b, made("c", "edge/c.yaml"), generation=2, incomplete=["lds"])
    assert names_in(applied(broken, rules(), first)) == ["a", "b", "c"]

    restarted = applied(broken, rules(), None)
    assert not restarted.snapshot.resources(COLLECTION.type_url)
    assert COLLECTION.type_url in restarted.snapshot.incomplete
    assert [one.remedy.startswith("correct the errors") for one in restarted.problems] == [True]
    assert names_in(applied(holding(b, generation=3), rules(), restarted)) == ["b"]


def test_what_is_written_counts() -> None:
    """A collection that a file has under the name is served, and a problem says so at its place."""
    written = resource("lcds", {"name": EDGE, "entries": []})
    source = holding(made("a", "edge/lds.yaml"))
    rows = Rows(COLLECTION.type_url, {EDGE: written})
    source = replace(source, by_type=MappingProxyType({**source.by_type, COLLECTION.type_url: rows}))
    done = applied(source, rules(), None)

    assert done.snapshot.resources(COLLECTION.type_url)[EDGE] is written
    assert [(one.rule, str(one.path)) for one in done.problems] == [("duplicate-name", "a.yaml")]


def test_without_rules_nothing_happens() -> None:
    """The snapshot is the very one; when the rules go, so do the collections."""
    source = holding(made("a", "edge/lds.yaml"))
    none = ResolutionRules("example.com", catalogue=this_envoy())
    assert applied(source, none, None).snapshot is source

    done = applied(source, none, applied(source, rules(), None))
    assert not done.snapshot.resources(COLLECTION.type_url)


def test_other_rules_make_other_collections() -> None:
    """A reload of the settings counts: another folder, another form."""
    source = holding(made("a", "edge/lds.yaml"), made("b", "blue/lds.yaml"))
    first = applied(source, rules(), None)

    assert names_in(applied(source, rules(folder="blue"), first)) == ["b"]
    assert entries_of(applied(source, rules(inline=False), first))[0].HasField("locator")


def test_entries_that_lead_nowhere() -> None:
    """A locator of the own authority that leads nowhere is a problem of its collection; one of another authority is not."""

    def located(path: str, authority: str = "example.com") -> Plain:
        return {"locator": {"authority": authority, "resource_type": LISTENER.message_type, "id": path}}

    entries: Any = [located("foo/bar"), located("x"), located("x", "other.com"), located("foo/*"), located("bar/*")]
    written = resource("lcds", {"name": EDGE, "entries": entries})
    source = holding(made(FOO, "edge/lds.yaml"))
    rows = Rows(COLLECTION.type_url, {EDGE: written})
    source = replace(source, by_type=MappingProxyType({**source.by_type, COLLECTION.type_url: rows}))
    done = applied(source, ResolutionRules(catalogue=this_envoy()), None)

    assert done.snapshot is source
    assert [(one.rule, one.pointer, one.severity) for one in done.problems] == [
        ("dangling-entry", "entries[1].locator", Severity.WARNING),
        ("dangling-entry", "entries[4].locator", Severity.WARNING),
    ]
    again = applied(replace(source, generation=2), ResolutionRules(catalogue=this_envoy()), done)
    assert again.problems is done.problems
