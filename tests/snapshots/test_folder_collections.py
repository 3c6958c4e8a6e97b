"""List collections made of folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import ADDRESS, Origin, Reference, Resource, Rows, Snapshot
from fsxds.model.values import Severity
from fsxds.settings.naming_rules import CollectionRule
from fsxds.snapshots.folder_collections import Collected, with_collections
from fsxds.snapshots.references import CLUSTER
from fsxds.snapshots.stages import CollectionRules
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import Plain, listener, resource, snapshot

LISTENER, COLLECTION = BY_SHORT_NAME["lds"], BY_SHORT_NAME["lcds"]
EDGE = f"xdstp://example.com/{COLLECTION.message_type}/edge"
FOO = f"xdstp://example.com/{LISTENER.message_type}/foo/bar"


def rules(*, inline: bool = True, folder: str = "edge") -> CollectionRules:
    """One collection, `edge`."""
    rule = CollectionRule(ResourceName("", COLLECTION.message_type, "edge"), folder, inline)
    return CollectionRules((rule,), "example.com", "", this_envoy())


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
    done = with_collections(holding(a, foo, made("x", "edges.yaml"), made("y", "other/edge/lds.yaml")), rules(), None)

    assert names_in(done) == ["a b", FOO]
    first, second = (entry.inline_entry for entry in entries_of(done))
    assert (first.name, first.version, first.resource.type_url) == ("", a.version, LISTENER.type_url)
    assert (second.name, second.version) == ("foo/bar", foo.version)
    assert str(done.snapshot.resources(COLLECTION.type_url)[EDGE].origin) == "edge:1"
    assert done.problems == ()


def test_by_reference() -> None:
    """Entries are locators; that of a plain name has the authority of the tree."""
    done = with_collections(
        holding(made("web", "edge/lds.yaml"), made(FOO, "edge/lds.yaml")), rules(inline=False), None
    )

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
    done = with_collections(holding(made("a", "edge/lds.yaml", references=(uses, claims))), rules(), None)

    (collection,) = done.snapshot.resources(COLLECTION.type_url).values()
    place = ("entries", 0, "inline_entry", "resource", "filter_chains", 0)
    assert collection.references == (uses._replace(field_path=place),)


def test_it_follows_its_folder() -> None:
    """An edit changes it, an edit elsewhere does not even make it again; what it knew of other types is shared."""
    a = made("a", "edge/lds.yaml")
    first = with_collections(holding(a), rules(), None)
    elsewhere = with_collections(holding(a, made("x", "x.yaml"), generation=2), rules(), first)
    was, now = (one.snapshot.resources(COLLECTION.type_url) for one in (first, elsewhere))
    assert now is was
    assert elsewhere.snapshot.changes[COLLECTION.type_url].generation == 1

    moved = with_collections(holding(a, made("b", "edge/b.yaml"), generation=3), rules(), elsewhere)
    assert names_in(moved) == ["a", "b"]
    assert moved.snapshot.resources(COLLECTION.type_url).changes_since(now).fresh == {EDGE}
    assert moved.snapshot.changes[COLLECTION.type_url].generation == 3
    assert list(moved.snapshot.by_type) == list(snapshot().by_type)


def test_an_empty_folder_makes_no_collection() -> None:
    """An empty collection would have Envoy remove everything: there is none, and a problem says so."""
    first = with_collections(holding(made("a", "edge/lds.yaml")), rules(), None)
    done = with_collections(holding(made("x", "x.yaml")), rules(), first)

    assert not done.snapshot.resources(COLLECTION.type_url)
    (problem,) = done.problems
    assert (problem.rule, problem.severity, str(problem.path)) == ("empty-collection", Severity.WARNING, "edge")
    assert EDGE in problem.message


def test_what_a_broken_file_may_define_stays() -> None:
    """While a file that was never good may define listeners, none is taken out; after a restart there is no collection yet."""
    a, b = made("a", "edge/a.yaml"), made("b", "edge/b.yaml")
    first = with_collections(holding(a, b), rules(), None)
    broken = holding(b, made("c", "edge/c.yaml"), generation=2, incomplete=["lds"])
    assert names_in(with_collections(broken, rules(), first)) == ["a", "b", "c"]

    restarted = with_collections(broken, rules(), None)
    assert not restarted.snapshot.resources(COLLECTION.type_url)
    assert COLLECTION.type_url in restarted.snapshot.incomplete
    assert [one.remedy.startswith("correct the errors") for one in restarted.problems] == [True]
    assert names_in(with_collections(holding(b, generation=3), rules(), restarted)) == ["b"]


def test_what_is_written_counts() -> None:
    """A collection that a file has under the name is served, and a problem says so at its place."""
    written = resource("lcds", {"name": EDGE, "entries": []})
    source = holding(made("a", "edge/lds.yaml"))
    rows = Rows(COLLECTION.type_url, {EDGE: written})
    source = replace(source, by_type=MappingProxyType({**source.by_type, COLLECTION.type_url: rows}))
    done = with_collections(source, rules(), None)

    assert done.snapshot.resources(COLLECTION.type_url)[EDGE] is written
    assert [(one.rule, str(one.path)) for one in done.problems] == [("duplicate-name", "a.yaml")]


def test_without_rules_nothing_happens() -> None:
    """The snapshot is the very one; when the rules go, so do the collections."""
    source = holding(made("a", "edge/lds.yaml"))
    none = CollectionRules((), "example.com", "", this_envoy())
    assert with_collections(source, none, None).snapshot is source

    done = with_collections(source, none, with_collections(source, rules(), None))
    assert not done.snapshot.resources(COLLECTION.type_url)


def test_other_rules_make_other_collections() -> None:
    """A reload of the settings counts: another folder, another form."""
    source = holding(made("a", "edge/lds.yaml"), made("b", "blue/lds.yaml"))
    first = with_collections(source, rules(), None)

    assert names_in(with_collections(source, rules(folder="blue"), first)) == ["b"]
    assert entries_of(with_collections(source, rules(inline=False), first))[0].HasField("locator")


def test_entries_that_lead_nowhere() -> None:
    """A locator of the own authority that leads nowhere is a problem of its collection; one of another authority is not."""

    def located(path: str, authority: str = "example.com") -> Plain:
        return {"locator": {"authority": authority, "resource_type": LISTENER.message_type, "id": path}}

    entries: Any = [located("foo/bar"), located("x"), located("x", "other.com"), located("foo/*"), located("bar/*")]
    written = resource("lcds", {"name": EDGE, "entries": entries})
    source = holding(made(FOO, "edge/lds.yaml"))
    rows = Rows(COLLECTION.type_url, {EDGE: written})
    source = replace(source, by_type=MappingProxyType({**source.by_type, COLLECTION.type_url: rows}))
    done = with_collections(source, CollectionRules((), "", "", this_envoy()), None)

    assert done.snapshot is source
    assert [(one.rule, one.pointer, one.severity) for one in done.problems] == [
        ("dangling-entry", "entries[1].locator", Severity.WARNING),
        ("dangling-entry", "entries[4].locator", Severity.WARNING),
    ]
    again = with_collections(replace(source, generation=2), CollectionRules((), "", "", this_envoy()), done)
    assert again.problems is done.problems
