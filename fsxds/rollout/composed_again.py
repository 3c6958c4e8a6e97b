"""Composes a tree again after an edit that does not affect holds.

Holds follow from names, references and claims (`holding`). An edit that changes none costs only its changes, even
beside ten thousand resources that wait for approval.
"""

from __future__ import annotations

from dataclasses import replace

from fsxds.model.resources import Resource, Snapshot
from fsxds.rollout.guard import COLLECTIONS
from fsxds.rollout.holding import Basis, Composed, HoldingRules, Holds, with_rows


def composed_again(before: Composed, tree: Snapshot, base: Snapshot, rules: HoldingRules) -> Composed | None:
    """Return the result of `compose`, unless the edit since `before` affects its holds.

    `rules` must be the object of `before`, because names of the bootstrap are known by a function.
    """
    was = before.basis
    if was is None or was.rules is not rules:
        return None
    if not (_is_apart(before.holds, was.tree, tree) and _is_apart(before.holds, was.base, base)):
        return None
    rows = {}
    for type_url in {key[0] for key in before.holds}:
        edited = tree.by_type[type_url]
        names = edited.changes_since(was.tree.by_type[type_url]).names
        served_rows = before.snapshot.by_type[type_url]
        rows[type_url] = served_rows.with_changes((edited[name] for name in names), ()).prepared()
    served = before.snapshot
    snapshot = replace(with_rows(tree, rows), withheld=served.withheld, undeclared=served.undeclared)
    return replace(before, snapshot=snapshot, basis=Basis(tree, base, rules))


def _is_apart(holds: Holds, earlier: Snapshot, later: Snapshot) -> bool:
    if any(getattr(earlier, mark) != getattr(later, mark) for mark in ("withheld", "undeclared", "released")):
        return False
    for type_url in earlier.by_type.keys() | later.by_type.keys():
        before, after = earlier.resources(type_url), later.resources(type_url)
        if after is before:
            continue
        change = after.changes_since(before)
        # The guard counts the entries of list collections.
        if change.removed or (change and type_url == COLLECTIONS):
            return False
        for name in change.names:
            was = before.get(name)
            if was is None or (type_url, name) in holds or _mentions_of(was) != _mentions_of(after[name]):
                return False
    return True


def _mentions_of(resource: Resource) -> set[tuple[object, ...]]:
    return {(one.type_url, one.name, one.severity, one.is_static) for one in resource.references}
