"""What is remembered of removed members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.protocol import absence
from fsxds.protocol.absence import (
    NO_TOMBSTONES,
    Tombstones,
    after_change,
    after_parting,
    removed_members,
)
from tests.support.snapshots import snapshot, type_url

CDS, LEDS = type_url("CDS"), type_url("LEDS")
D, E = "xdstp://x/t/d/*", "xdstp://x/t/e/*"


def members(names: str, collection: str = "d", context: str = "") -> dict[str, str]:
    """Return the contents of members, of which each letter is one."""
    return {f"xdstp://x/t/{collection}/{name}{context}": "1" for name in names}


def noted(*snapshots: Snapshot) -> Tombstones:
    """Return what is noted when one snapshot follows the other."""
    known, before = NO_TOMBSTONES, None
    for after in snapshots:
        known, before = after_change(known, before, after), after
    return known


def test_members_that_go_are_noted() -> None:
    """Members are noted by type and collection, in the order in which they went; what is no member is not."""
    first = snapshot({"CDS": {"own": "1", **members("a")}, "LEDS": {**members("abc"), **members("z", "e")}})
    second = snapshot({"LEDS": {**members("ac"), **members("z", "e")}})
    third = snapshot({"LEDS": members("c")})
    known = noted(first, second, third)

    assert {key: list(names) for key, names in known.items()} == {
        (CDS, D): list(members("a")),
        (LEDS, D): list(members("ba")),
        (LEDS, E): list(members("z", "e")),
    }
    assert after_change(known, third, snapshot({"LEDS": {**members("c"), "own": "1"}})) is known


def test_parameters_make_another_collection() -> None:
    """The members of a directory with other parameters are of another collection."""
    known = noted(snapshot({"LEDS": members("ab", context="?p=1") | members("c")}), snapshot({}))

    assert removed_members(replace(snapshot({}), tombstones=known), LEDS, [D]) == members("c").keys()
    assert (
        removed_members(replace(snapshot({}), tombstones=known), LEDS, [f"{D}?p=1"])
        == members("ab", context="?p=1").keys()
    )


def test_what_exists_is_not_told() -> None:
    """A member that came back is not told, and is the newest when it goes again."""
    there, back = snapshot({"LEDS": members("abc")}), snapshot({"LEDS": members("a")})
    known = noted(there, snapshot({}), back)

    assert removed_members(replace(back, tombstones=known), LEDS, [D, E]) == members("bc").keys()
    assert list(noted(there, snapshot({}), back, snapshot({}))[LEDS, D]) == list(members("bca"))


def test_a_view_that_nobody_follows() -> None:
    """All members that are there are noted: some may go before their clients come back."""
    last = snapshot({"LEDS": members("ab") | {"own": "1"}})
    known = after_parting(NO_TOMBSTONES, last)

    assert list(known[LEDS, D]) == list(members("ab"))
    assert removed_members(replace(last, tombstones=known), LEDS, [D]) == frozenset()
    assert after_parting(known, None) is known
    assert after_parting(known, snapshot({"CDS": {"own": "1"}})) is known


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a collection the newest are noted, and of a view those of the collections that changed last."""
    most_of_a_collection, most_of_a_view = 100, 1000
    monkeypatch.setattr(absence, "MOST_OF_A_COLLECTION", most_of_a_collection)
    monkeypatch.setattr(absence, "MOST_OF_A_VIEW", most_of_a_view)
    known = NO_TOMBSTONES
    for collection in range(most_of_a_view // most_of_a_collection + 1):
        many = {f"xdstp://x/t/{collection}/{number}": "1" for number in range(most_of_a_collection + 1)}
        known = after_change(known, snapshot({"LEDS": many}), snapshot({}))
    collections = [name for _, name in known]

    assert sum(map(len, known.values())) == most_of_a_view
    assert "xdstp://x/t/0/*" not in collections
    assert "xdstp://x/t/1/0" not in known[LEDS, "xdstp://x/t/1/*"]
    known = after_change(known, snapshot({"LEDS": members("abc")}), snapshot({}))
    assert sum(map(len, known.values())) == most_of_a_view
    assert len(known[LEDS, "xdstp://x/t/1/*"]) == most_of_a_collection - 3
