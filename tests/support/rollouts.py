"""Trees for tests of rollouts, written by hand: what resources name follows from their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import ADDRESS, Reference, Resource, Snapshot
from fsxds.model.values import Severity
from tests.support.snapshots import resource, snapshot, type_url

SHORT_NAMES = tuple(row.short_name.upper() for row in RESOURCE_TYPES)

Tree = Mapping[str, Mapping[str, str]]
"""By the short name of a type (`CDS`): the content of each resource by its name.

`1 EDS:e` has the content and names `e`; `1 @80` claims an address.
"""


@dataclass(frozen=True)
class OneVoter:
    """A client as far as its votes count."""

    name: str
    identity: str


def tree_resource(short_name: str, name: str, content: str) -> Resource:
    """Make a resource that names others, and claims addresses: a word with a colon is a type and a name."""
    targets = [word.partition(":") for word in content.split() if ":" in word]
    claims = [word[1:] for word in content.split() if word.startswith("@")]
    references = (
        *(Reference(type_url(short), other, (), Severity.WARNING) for short, _, other in targets),
        *(Reference(ADDRESS, one, (), Severity.ERROR) for one in claims),
    )
    return replace(resource(short_name, name, content), references=references)


def tree_snapshot(tree: Tree, before: Snapshot | None = None) -> Snapshot:
    """Make the snapshot of a tree as loading would, on top of the one before."""
    base = before or snapshot({}, declared=SHORT_NAMES)
    by_type = dict(base.by_type)
    for short_name in SHORT_NAMES:
        url, wanted = type_url(short_name), tree.get(short_name, {})
        rows = by_type[url]
        made = (tree_resource(short_name, name, content) for name, content in wanted.items())
        updated = [one for one in made if one.name not in rows or not one.equals_for_clients(rows[one.name])]
        by_type[url] = rows.with_changes(updated, rows.keys() - wanted.keys())
    return replace(base, generation=base.generation + 1 if before else 1, by_type=by_type)


def marked(snapshot: Snapshot, mark: str, *short_names: str) -> Snapshot:
    """Return a snapshot of which just these types are `incomplete`, `withheld` or `undeclared`."""
    marks: dict[str, Any] = {mark: frozenset(map(type_url, short_names))}
    return replace(snapshot, **marks)


def tree_of(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return what a snapshot has, as a tree."""
    return {
        BY_TYPE_URL[url].short_name.upper(): {one.name: one.body.decode().partition("=")[2] for one in rows.values()}
        for url, rows in snapshot.by_type.items()
        if rows
    }
