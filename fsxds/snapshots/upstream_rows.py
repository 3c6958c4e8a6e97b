"""Merges upstreams below the tree, as a stage before redirects are followed. Pure.

A name is taken from the first source: the tree, then upstreams in order. The cost is that of the changes.

Rules: which resource wins if files and upstreams have one name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from types import MappingProxyType

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Key, Resource, Rows, Snapshot
from fsxds.model.values import HeldFile, Problem, Severity, TypeUrl
from fsxds.snapshots.load import change_from
from fsxds.snapshots.loaded_views import Inputs
from fsxds.snapshots.upstream_content import UpstreamContent, origin_of

# The maximum number of shadowed resources named in one note; further ones are counted.
MOST_NAMED = 5

Sources = Sequence[Rows]
"""A type's rows of the tree and of each upstream, in order of precedence."""

Shadowed = Mapping[TypeUrl, tuple[frozenset[str], ...]]
"""By type, for each upstream: its names that an earlier source has too."""


@dataclass(frozen=True, slots=True)
class MergedView:
    """A snapshot with upstreams; `raw` itself without any.

    `problems` has a note per upstream with `shadowed`, unserved names.
    """

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    raw: Snapshot = field(compare=False, repr=False)
    contents: tuple[UpstreamContent, ...] = field(default=(), compare=False, repr=False)
    shadowed: Shadowed = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    held: tuple[HeldFile, ...] = field(default=(), init=False)


@dataclass(frozen=True, slots=True)
class Shadowing:
    """One upstream's shadowed resources; `examples` with the origin of the resource served instead."""

    count: int = 0
    examples: tuple[tuple[Key, str], ...] = ()


def shadowing_of(merged: Iterable[MergedView]) -> Mapping[str, Shadowing]:
    """Return the shadowed resources by upstream."""
    found: dict[str, dict[Key, str]] = {}
    for view in merged:
        for type_url, hidden in view.shadowed.items():
            rows = view.snapshot.by_type[type_url]
            for content, names in zip(view.contents, hidden, strict=True):
                if names:
                    keys = found.setdefault(content.name, {})
                    keys |= {(type_url, name): str(rows[name].origin) for name in names}
    return {
        name: Shadowing(len(keys), tuple(heapq.nsmallest(MOST_NAMED, keys.items()))) for name, keys in found.items()
    }


def unchanged(raw: Snapshot, _: Inputs) -> MergedView:
    """Return a view without upstreams."""
    return MergedView(raw, (), raw)


def apply(raw: Snapshot, inputs: Inputs, before: MergedView | None) -> MergedView:
    """Merge upstreams, sharing parts with `before`."""
    contents = inputs.contents
    if not contents:
        return MergedView(raw, (), raw)
    known = before if before is not None and _names(before.contents) == _names(contents) else None
    if known is not None and known.raw is raw and all(map(is_, known.contents, contents)):
        return known
    generation = raw.generation if before is None else max(raw.generation, before.snapshot.generation + 1)
    rows, shadowed = {}, {}
    for type_url in raw.by_type:
        sources = _sources(raw, contents, type_url)
        earlier = None if known is None else _sources(known.raw, known.contents, type_url)
        was = None if before is None else before.snapshot.by_type[type_url]
        rows[type_url] = _merged(sources, earlier, was).prepared()
        nothing = (frozenset[str](),) * len(contents)
        hidden = _hidden(sources, earlier, known.shadowed.get(type_url, nothing) if known else nothing)
        if any(hidden):
            shadowed[type_url] = hidden
    snapshot = _snapshot(raw, contents, rows, generation, None if before is None else before.snapshot)
    if known is not None and known.shadowed == shadowed:
        return MergedView(snapshot, known.problems, raw, contents, known.shadowed)
    return MergedView(snapshot, tuple(_notes(contents, shadowed)), raw, contents, MappingProxyType(shadowed))


def _names(contents: tuple[UpstreamContent, ...]) -> list[str]:
    return [content.name for content in contents]


def _sources(raw: Snapshot, contents: tuple[UpstreamContent, ...], type_url: TypeUrl) -> Sources:
    of_upstreams = (content.rows.get(type_url) for content in contents)
    return [raw.by_type[type_url], *(Rows(type_url) if rows is None else rows for rows in of_upstreams)]


def _merged(sources: Sources, earlier: Sources | None, was: Rows | None) -> Rows:
    filled = [rows for rows in sources if rows]
    if len(filled) < 2:
        # The rows of the only source know their difference from its previous ones.
        return filled[0] if filled else sources[0]
    if earlier is None or was is None:
        base = max(filled, key=len)
        at = filled.index(base)
        taken: dict[str, Resource] = {}
        for index in range(len(filled) - 1, -1, -1):
            if index < at:
                taken |= filled[index]
            elif index > at:
                taken |= {name: resource for name, resource in filled[index].items() if name not in base}
        return base.with_changes(taken.values(), ())
    names = _changed(sources, earlier)
    found = {name: next((rows[name] for rows in sources if name in rows), None) for name in names}
    return was.with_changes(
        [resource for resource in found.values() if resource is not None],
        [name for name, resource in found.items() if resource is None],
    )


def _changed(sources: Sources, earlier: Sources) -> set[str]:
    return set().union(*(now.changes_since(was).names for now, was in zip(sources, earlier, strict=True)))


def _hidden(sources: Sources, earlier: Sources | None, known: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
    names = None if earlier is None else _changed(sources, earlier)
    if names is not None and not names:
        return known
    found = []
    for at, rows in enumerate(sources[1:], 1):
        above = sources[:at]
        if names is None:
            hidden = frozenset(name for other in above for name in _shared(rows, other))
        else:
            changed = {name for name in names if name in rows and any(name in other for other in above)}
            hidden = (known[at - 1] - names) | changed
        found.append(hidden)
    return tuple(found)


def _shared(rows: Rows, others: Rows) -> Iterator[str]:
    small, large = sorted((rows, others), key=len)
    return (name for name in small if name in large)


def _snapshot(
    raw: Snapshot,
    contents: tuple[UpstreamContent, ...],
    rows: Mapping[TypeUrl, Rows],
    generation: int,
    before: Snapshot | None,
) -> Snapshot:
    answered = frozenset[TypeUrl]().union(*(content.answered for content in contents))
    pending = frozenset[TypeUrl]().union(*(content.pending for content in contents))
    filled = frozenset(type_url for type_url, each in rows.items() if each)
    undeclared = raw.undeclared - answered - filled
    # As in a tree: if nothing was ever declared, no type may be reported as empty.
    withheld = undeclared & raw.incomplete if len(undeclared) < len(rows) else raw.withheld
    return replace(
        raw,
        generation=generation,
        by_type=MappingProxyType(dict(rows)),
        changes=MappingProxyType({type_url: change_from(before, each, generation) for type_url, each in rows.items()}),
        incomplete=raw.incomplete | pending,
        withheld=(withheld | pending) - filled,
        undeclared=undeclared,
        released=MappingProxyType(
            {
                type_url: tuple(content.released[type_url] for content in contents if type_url in content.released)
                for type_url in {each for content in contents for each in content.released}
            }
        ),
        upstreams=MappingProxyType({content.name: content.sequence for content in contents}),
    )


def _notes(contents: tuple[UpstreamContent, ...], shadowed: Shadowed) -> Iterator[Problem]:
    for index, content in enumerate(contents):
        hidden = [
            f"{name} ({row.noun})"
            for row in RESOURCE_TYPES
            for name in sorted(shadowed.get(row.type_url, ((),) * len(contents))[index])
        ]
        if not hidden:
            continue
        more = f", … {len(hidden) - MOST_NAMED} more" if len(hidden) > MOST_NAMED else ""
        fact = f"resources of this upstream are not served: {', '.join(hidden[:MOST_NAMED])}{more}; earlier sources have the same names"
        remedy = "rename the resources that you need from both sources, or leave them"
        yield Problem(origin_of(content.name).path, 1, 1, "", "shadowed-upstream", fact, remedy, Severity.NOTE)
