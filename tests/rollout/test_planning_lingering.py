"""What stays for the connections of draining listeners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Reference, Snapshot
from fsxds.model.values import Severity
from fsxds.rollout.planning import (
    Draining,
    DrainingListener,
    Lingering,
    LingeringByKey,
    changes_between,
    draining_after,
    first_end_s,
    lingering_of,
    names_by_type,
    shifted,
    with_ends,
    without_drained,
    without_ended,
)
from tests.support.rollouts import Tree, tree_resource, tree_snapshot
from tests.support.snapshots import type_url


def lingering_between(old: Tree, *new: Tree) -> dict[str, set[str]]:
    """Return what lingers by type and name when trees follow each other, and nothing of them ends."""
    served = tree_snapshot(old)
    draining: Draining = ()
    found: LingeringByKey = {}
    for tree in new:
        target = tree_snapshot(tree, served)
        draining = draining_after(served, target, draining)
        found = lingering_of(served, changes_between(served, target), draining)
        served = with_kept(target, served, found)
    return {BY_TYPE_URL[url].short_name.upper(): set(names) for url, names in names_by_type(found).items()}


def with_kept(target: Snapshot, served: Snapshot, found: LingeringByKey) -> Snapshot:
    """Return a target with what lingers."""
    by_type = dict(target.by_type)
    for url, name in found:
        by_type[url] = by_type[url].with_changes([served.resources(url)[name]], ())
    return replace(target, by_type=by_type)


def test_what_the_old_listener_named_lingers() -> None:
    """A cluster of inline routes stays when it goes with the edit that changes the listener."""
    old = {"CDS": {"a": "1", "b": "1"}, "LDS": {"l": "1 CDS:a"}}
    new = {"CDS": {"c": "1"}, "LDS": {"l": "2 CDS:c"}}

    assert {"CDS": {"a"}} == lingering_between(old, new)


def test_what_a_removed_listener_named_lingers_with_all_below() -> None:
    """Its routes, their clusters, the endpoints and secrets of these, and its extensions."""
    old = {
        "LDS": {"l": "1 RDS:r ECDS:x"},
        "RDS": {"r": "1 CDS:a"},
        "CDS": {"a": "1 EDS:a SDS:s", "b": "1"},
        "EDS": {"a": "1", "b": "1"},
        "SDS": {"s": "1"},
        "ECDS": {"x": "1 CDS:b"},
    }

    expected = {"RDS": {"r"}, "ECDS": {"x"}, "CDS": {"a", "b"}, "EDS": {"a"}, "SDS": {"s"}}
    assert expected == lingering_between(old, {})


def test_what_only_routes_named_that_stay_does_not_linger() -> None:
    """Changes of routes reach open connections, whether the listener changes with them or not."""
    old = {"LDS": {"l": "1 RDS:r"}, "RDS": {"r": "1 CDS:a"}, "CDS": {"a": "1"}}
    new = {"RDS": {"r": "2 CDS:b"}, "CDS": {"b": "1"}}

    assert {} == lingering_between(old, {**new, "LDS": {"l": "1 RDS:r"}})
    assert {} == lingering_between(old, {**new, "LDS": {"l": "2 RDS:r"}})


def test_a_cluster_that_goes_in_a_later_edit_lingers_as_well() -> None:
    """First the listener lets go of it, then the tree drops it, while connections drain."""
    old = {"LDS": {"l": "1 CDS:a RDS:r"}, "RDS": {"r": "1 CDS:b"}, "CDS": {"a": "1", "b": "1"}}
    moved = {**old, "LDS": {"l": "2"}}

    assert {} == lingering_between(old, moved)
    assert {"CDS": {"a", "b"}, "RDS": {"r"}} == lingering_between(old, moved, {"LDS": {"l": "2"}})


def test_what_comes_back_is_taken_over_and_lingers_when_it_goes_again() -> None:
    """The time that its connections need is not over because it was there meanwhile."""
    old = {"LDS": {"l": "1 CDS:a"}, "CDS": {"a": "1"}}
    gone, back = {"LDS": {"l": "2"}}, {"LDS": {"l": "2"}, "CDS": {"a": "2"}}

    assert {"CDS": {"a"}} == lingering_between(old, gone)
    assert {} == lingering_between(old, gone, back)
    assert {"CDS": {"a"}} == lingering_between(old, gone, back, gone)


@pytest.mark.parametrize(("name", "expected"), [("*", {"CDS": {"a", "ab", "b"}}), ("a*", {"CDS": {"a", "ab"}})])
def test_a_name_with_an_asterisk_keeps_all_that_begin_like_it(name: str, expected: dict[str, set[str]]) -> None:
    """Where a header names the cluster, it may be any."""
    old = {"LDS": {"l": f"1 CDS:{name}"}, "CDS": {"a": "1", "ab": "1", "b": "1", "c": "1"}}

    assert expected == lingering_between(old, {"LDS": {"l": "2"}, "CDS": {"c": "1"}})


def test_a_mention_of_the_bootstrap_keeps_nothing() -> None:
    """It means a static resource, never one of the tree."""
    served = tree_snapshot({"CDS": {"a": "1"}})
    listener = tree_resource("LDS", "l", "1")
    static = Reference(type_url("CDS"), "a", (), Severity.ERROR, is_static=True)
    rows = served.resources(type_url("LDS")).with_changes([replace(listener, references=(static,))], ())
    served = replace(served, by_type={**served.by_type, type_url("LDS"): rows})

    assert () == draining_after(served, tree_snapshot({}), ())


def test_the_listener_that_is_only_written_elsewhere_drains_nothing() -> None:
    """Envoy keeps a listener of equal content."""
    served = tree_snapshot({"LDS": {"l": "1 CDS:a"}, "CDS": {"a": "1"}})
    again = tree_snapshot({"LDS": {"l": "1 CDS:a"}})

    assert () == draining_after(served, again, ())


def test_what_the_next_version_names_as_well_is_not_remembered() -> None:
    """It drains with that one: a listener with ten thousand routes, edited each second, costs what the edits drop."""
    served = tree_snapshot({"LDS": {"l": "1 CDS:a CDS:b", "m": "1 CDS:a"}, "CDS": {"a": "1", "b": "1"}})
    target = tree_snapshot({"LDS": {"l": "2 CDS:a", "m": "2 CDS:a"}, "CDS": {"a": "1"}}, served)

    assert (DrainingListener("l", frozenset(((type_url("CDS"), "b"),))),) == draining_after(served, target, ())


A, B = (DrainingListener(name, frozenset([(type_url("CDS"), name)])) for name in "ab")


def test_the_time_begins_when_clients_took_the_listeners() -> None:
    """Until then there is no end; what has one keeps it."""
    draining = (A, replace(B, ends_at_s=5))

    ends = with_ends(draining, 9)

    assert [9, 5] == [one.ends_at_s for one in ends]
    assert (None, 5, 5) == (first_end_s(()), first_end_s(draining), first_end_s(ends))
    assert (["a"], ["a", "b"]) == (names_of(without_ended(ends, 5)), names_of(without_ended(ends, 4.9)))
    assert ["a", "b"] == names_of(without_ended((A, B), 100))
    assert [10, 6] == [one.ends_at_s for one in shifted(ends, 1)]


def names_of(draining: Draining) -> list[str]:
    """Return which listeners drain."""
    return [one.name for one in draining]


def test_another_listener_prolongs() -> None:
    """The later end counts, and none is later than any."""
    early, late, open_end = Lingering(frozenset("l"), 1.0), Lingering(frozenset("m"), 2.0), Lingering(frozenset("n"))

    assert Lingering(frozenset("lm"), 2.0) == early.joined_with(late) == late.joined_with(early)
    assert Lingering(frozenset("ln"), None) == early.joined_with(open_end) == open_end.joined_with(early)


def test_what_several_listeners_used_waits_for_all() -> None:
    """Each old version counts, and what lingers shows them all."""
    old = {"LDS": {"l": "1 CDS:a", "m": "1 CDS:a"}, "CDS": {"a": "1"}}
    served = tree_snapshot(old)
    target = tree_snapshot({}, served)
    one, other = with_ends(draining_after(served, target, ()), 9)

    lingering = lingering_of(served, changes_between(served, target), (one, replace(other, ends_at_s=7)))

    assert {(type_url("CDS"), "a"): Lingering(frozenset("lm"), 9)} == lingering


def test_what_is_drained_ends() -> None:
    """A listener whose change clients have not taken yet drains later."""
    first, second, third = replace(A, ends_at_s=9), replace(B, ends_at_s=9), B

    assert (first, third) == without_drained((first, second, third), ["b"])
