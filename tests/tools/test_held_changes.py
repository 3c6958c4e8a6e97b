"""What a server would hold of a change, before it is made."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from fsxds.model.resources import Origin, Snapshot, key_of
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.tools.held_changes import held_changes
from tests.support.mentions import load_mentions
from tests.support.snapshots import type_url

CDS, RDS = type_url("CDS"), type_url("RDS")
MANY = "".join(f"CDS c{number}\n" for number in range(8))

MANY_PORTS = "".join(f"LDS l{number} @{number}\n" for number in range(8))


def tree(text: str) -> Snapshot:
    """Return what a file with these resources holds."""
    return load_mentions({"a": text}).snapshot


def rules_of(before: Snapshot, after: Snapshot, rules: HoldingRules | None = None) -> list[str]:
    """Return why something of a change would be held."""
    return [one.rule for one in held_changes(after, ServedOutline((), before, {}), rules or HoldingRules())]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("CDS c\nRDS r CDS:c", "CDS c\nCDS d\nRDS r CDS:d", []),
        ("CDS c\nRDS r CDS:c", "CDS d\nRDS r CDS:c", ["removed-in-use"]),
        ("CDS c\nRDS r CDS:c", "CDS c\nRDS r CDS:new", ["undefined-name"]),
        # As it was: a static cluster.
        ("CDS c\nRDS r CDS:static", "CDS c\nRDS r CDS:static CDS:c", []),
        (MANY, "CDS c0", ["large-removal"]),
        (MANY, MANY.replace("c", "d"), []),
        (MANY_PORTS, "LDS fresh @1", ["claims-held", "large-removal"]),
        # A first start serves what there is.
        ("", "RDS r CDS:new", []),
    ],
)
def test_why_a_change_is_held(before: str, after: str, expected: list[str]) -> None:
    """By the rules of the server; what it would serve is not named."""
    assert rules_of(tree(before), tree(after)) == expected


def test_rules_of_the_server() -> None:
    """`--references warn`, `--max-removal off`, approved removals and static clusters are held no more."""
    before, after = tree(MANY + "RDS r CDS:c1"), tree("CDS c0\nRDS r CDS:new")
    (removal,) = (one for one in held_changes(after, ServedOutline((), before, {}), HoldingRules()) if one.approval_id)

    assert rules_of(before, after) == ["removed-in-use", "undefined-name", "large-removal"]
    assert removal.fact == "6 of 8 clusters removed: they would stay until that is approved"
    assert rules_of(before, after, HoldingRules(keeps_references=False, max_removal=None)) == []
    approved = HoldingRules(approved=frozenset({removal.approval_id}))
    assert "large-removal" not in rules_of(before, after, approved)
    assert "undefined-name" not in rules_of(before, after, HoldingRules(is_static=lambda key: key == (CDS, "new")))


def test_places() -> None:
    """What is changed is shown where it is to be, what is removed where it is served from."""
    before, after = tree("CDS c\nCDS d\nRDS r CDS:c"), tree("CDS d\nRDS r CDS:c\nRDS s CDS:new")
    removed, undefined = held_changes(after, ServedOutline((), before, {}), HoldingRules())

    assert (removed.is_removed, undefined.is_removed) == (True, False)
    assert "route r names it" in removed.fact
    assert undefined.fact == "route s names cluster new, which is not defined: it would not be served"
    assert undefined.remedy == "define cluster new, or list it in `static_clusters` if the bootstrap defines it"


def test_what_a_tree_lacks_by_mistake_is_not_removed() -> None:
    """A broken file may have it; so may an upstream, and a redirect that leads nowhere here."""
    before, after = tree(MANY), tree("CDS c0")
    upstream = {
        url: type(rows)(url, {name: replace(one, origin=Origin(one.origin.path, 0)) for name, one in rows.items()})
        for url, rows in before.by_type.items()
    }
    unresolved = {key_of(one): one for one in before.resources(CDS).values()}

    assert rules_of(before, after) == ["large-removal"]
    assert rules_of(before, replace(after, incomplete=frozenset({CDS}))) == []
    assert rules_of(replace(before, by_type=MappingProxyType(upstream)), after) == []
    assert rules_of(before, replace(after, unresolved=unresolved)) == []


def test_names_that_an_upstream_may_have() -> None:
    """Nobody knows here what it has: they are not undefined."""
    before, after = tree("CDS c\nRDS r CDS:c"), tree("CDS c\nRDS r CDS:new")

    assert held_changes(after, ServedOutline((), before, {}, has_upstreams=True), HoldingRules()) == ()
