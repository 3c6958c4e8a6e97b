"""Indexes that follow changes, against those that are made anew."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resources import Resource, Rows
from fsxds.protocol.lookup import Lookup, NameIndex
from fsxds.protocol.virtual_hosts import HostLookup
from tests.support.snapshots import resource, type_url

# Own names, members of two collections, and one that looks like the collection itself.
OWN = ("r/a", "r/b", "s/c", "xdstp://x/t/d/a", "xdstp://x/t/d/b", "xdstp://x/t/e/a", "xdstp://x/t/d/*")
ALIASES = ("r/a.com", "r/*.com", "s/*", "r/b")
ASKED = frozenset((*OWN, *ALIASES, "r/x.com", "s/x", "none", "xdstp://x/t/e/*"))


def hosts(aliases_by_name: dict[str, frozenset[str]]) -> dict[str, Resource]:
    """Return virtual hosts by name, in order."""
    return {
        name: replace(resource("VHDS", name), aliases=tuple(sorted(aliases)))
        for name, aliases in sorted(aliases_by_name.items())
    }


NAMED = st.dictionaries(st.sampled_from(OWN), st.frozensets(st.sampled_from(ALIASES), max_size=3))
CHANGES = st.lists(st.tuples(NAMED, st.frozensets(st.sampled_from(OWN))), min_size=1, max_size=5)


@given(NAMED, CHANGES, st.booleans())
def test_lookups_that_follow_find_what_new_ones_find(
    first: dict[str, frozenset[str]], changes: list[tuple[dict[str, frozenset[str]], frozenset[str]]], is_asked: bool
) -> None:
    """Whatever was asked before, and however rows came about, a name stands for what it stands for in rows made anew."""
    before = Rows(type_url("VHDS"), hosts(first))
    for updated, removed in changes:
        rows = before.with_changes(hosts(updated).values(), removed - updated.keys())
        for kind in (Lookup, HostLookup):
            if is_asked:
                ask(kind.of(before))
            last, lookup = kind.of(before), kind.of(rows, before)
            assert ask(last) == ask(kind(dict(before)))
            assert ask(lookup) == ask(kind(dict(rows)))
        before = rows


def ask(lookup: Lookup) -> list[object]:
    """Return all that a lookup says."""
    found = [(name, lookup.find(name), lookup.names({name})) for name in sorted(ASKED)]
    return [found, lookup.existing(ASKED), lookup.names(ASKED), lookup.collections_among(ASKED)]


def test_what_did_not_change_is_shared() -> None:
    """Other content changes no index, and other aliases do not change that of collections."""
    old = Rows(type_url("VHDS"), hosts({"r/a": frozenset({"r/a.com"}), "r/b": frozenset()}))
    index = NameIndex(old)
    assert dict(index.aliases()) == {"r/a.com": ("r/a",)}
    assert not index.collections()
    assert not NameIndex(old).after(old, old.changes_since(old)).finds_as(NameIndex(old))
    changed = old.with_changes([replace(old["r/a"], version=old["r/b"].version)], ())
    moved = old.with_changes(hosts({"r/b": frozenset({"r/a.com", "s/*"})}).values(), ())

    assert index.after(changed, changed.changes_since(old)).finds_as(index)
    after = index.after(moved, moved.changes_since(old))
    assert not after.finds_as(index)
    assert dict(after.aliases()) == {"r/a.com": ("r/a", "r/b"), "s/*": ("r/b",)}
    assert after.collections() is index.collections()


def test_large_changes() -> None:
    """Many changes at once lead to the same as few."""
    many = {f"xdstp://x/t/d/{number:03}": frozenset[str]() for number in range(300)}
    old = Rows(type_url("LEDS"), hosts(many))
    index = NameIndex(old)
    assert len(index.collections()["xdstp://x/t/d/*"]) == 300
    new = old.with_changes(hosts({"xdstp://x/t/d/a": frozenset()}).values(), sorted(many)[:200])
    last = new.with_changes((), ["xdstp://x/t/d/250"])
    after = index.after(new, new.changes_since(old))

    assert dict(after.collections()) == dict(NameIndex(new).collections())
    assert dict(after.after(last, last.changes_since(new)).collections()) == dict(NameIndex(last).collections())
