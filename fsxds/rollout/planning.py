"""Plans the next step: used resources come before their users, and go after them.

| rule | source |
| --- | --- |
| GROW: used resources are added and changed; those that the target lacks stay. | xDS protocol, "Eventual consistency considerations" |
| SWITCH: their users change, when all clients have the former. | the same |
| SHRINK: resources without users are removed, when all clients have switched. | the same |
| A step without changes is left out; if no two are needed, one makes all changes. | |
| If only used resources change, their old versions' references go after them: endpoints of a cluster that has its own now. | ENVOY.md E33 |
| Lingering resources are in every step. | ENVOY.md E66 |
| Endpoints that a step's clusters wait for follow at once: the clusters are ACKed when they have them. | ENVOY.md E70 |
| An authored version belongs to exactly the rows it was written for. | |
| A type is withheld, incomplete or undeclared as in its rows' snapshot; never one with resources. | `Snapshot` |

Each of at most three steps is planned from the served snapshot alone, so a new target can take over after any.

Resources that the target lacks linger while draining listeners' connections use them:

| rule | source |
| --- | --- |
| When a listener changes or is removed, its open connections keep its old version until the drain ends. | ENVOY.md E66 |
| Until then, a resource that only the old version names stays, whenever the tree drops it. | the same |
| Nor are its references, if removed as well: routes, their clusters, the endpoints of these. | the same |
| References of a resource that stays do not linger: its changes reach open connections. | ENVOY.md E67 |
| A name that ends with `*` may mean any resource with that prefix: all removed ones linger. | `ANY` in `snapshots/references.py` |
| References to the bootstrap's resources keep nothing. | ENVOY.md E6 |

Each step computes it anew from `Draining`, which has all references, removed or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from fsxds.model.name_table import Chunk
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Key, Resource, Rows, RowsChange, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.step import Step, StepKind
from fsxds.rollout.uses import is_pattern, names_meant

LISTENERS = BY_SHORT_NAME["lds"].type_url


@dataclass(frozen=True, slots=True)
class Lingering:
    """`ends_at_s` is None until clients have taken the changed listeners."""

    listeners: frozenset[str]
    ends_at_s: float | None = None

    def joined_with(self, other: Lingering) -> Lingering:
        """Merge two reasons: the later end counts."""
        ends = None if None in {self.ends_at_s, other.ends_at_s} else max(self.ends_at_s or 0, other.ends_at_s or 0)
        return Lingering(self.listeners | other.listeners, ends)


@dataclass(frozen=True, slots=True)
class DrainingListener:
    """A listener's old version with possibly open connections.

    `keys` are resources that its next version does not name, `patterns` names that may mean several. `ends_at_s` is
    None until clients have the next version.
    """

    name: str
    keys: frozenset[Key]
    patterns: frozenset[Key] = frozenset()
    ends_at_s: float | None = None


LingeringByKey = Mapping[Key, Lingering]
Draining = tuple[DrainingListener, ...]
Changes = Mapping[TypeUrl, RowsChange]


def draining_after(served: Snapshot, target: Snapshot, draining: Draining) -> Draining:
    """Add the target's listeners; new ones have no end."""
    rows, new_rows = served.resources(LISTENERS), target.resources(LISTENERS)
    change = new_rows.changes_since(rows)
    names = sorted(rows.among(change.fresh | change.removed))
    found = (_drained(rows[name], new_rows.get(name)) for name in names)
    return (*draining, *(one for one in found if one.keys or one.patterns)) if names else draining


def _drained(old: Resource, new: Resource | None) -> DrainingListener:
    keys = set(_named_by(old)) - set(() if new is None else _named_by(new))
    patterns = frozenset(key for key in keys if is_pattern(key[1]))
    return DrainingListener(old.name, frozenset(keys - patterns), patterns)


def lingering_of(served: Snapshot, changes: Changes, draining: Draining) -> dict[Key, Lingering]:
    """Return removed resources that draining listeners use, at a cost per removal.

    `changes` from served to target already remove lingering resources.
    """
    removed = {type_url: change.removed for type_url, change in changes.items() if change.removed}
    removed_keys = {(type_url, name) for type_url, names in removed.items() for name in names} if draining else set()
    found: dict[Key, Lingering] = {}
    for listener in draining if removed_keys else ():
        lingering = Lingering(frozenset((listener.name,)), listener.ends_at_s)
        for key in _kept_by((*(listener.keys & removed_keys), *listener.patterns), served, removed):
            found[key] = found[key].joined_with(lingering) if key in found else lingering
    return found


def _kept_by(keys: Iterable[Key], served: Snapshot, removed: Mapping[TypeUrl, frozenset[str]]) -> set[Key]:
    found: set[Key] = set()
    mentions = list(keys)
    while mentions:
        type_url, name = mentions.pop()
        meant = {(type_url, one) for one in names_meant(name, removed.get(type_url, ()))} - found
        found |= meant
        mentions += [named for _, one in meant for named in _named_by(served.resources(type_url)[one])]
    return found


def _named_by(user: Resource) -> Iterator[Key]:
    return ((one.type_url, one.name) for one in user.references if not one.is_static)


def names_by_type(keys: Iterable[Key]) -> dict[TypeUrl, frozenset[str]]:
    """Group names by type."""
    names: defaultdict[TypeUrl, set[str]] = defaultdict(set)
    for type_url, name in keys:
        names[type_url].add(name)
    return {type_url: frozenset(found) for type_url, found in names.items()}


def with_ends(draining: Draining, ends_at_s: float) -> Draining:
    """Set missing ends: clients have taken the new listeners."""
    return tuple(replace(one, ends_at_s=ends_at_s) if one.ends_at_s is None else one for one in draining)


def without_drained(draining: Draining, listeners: Collection[str]) -> Draining:
    """Remove old versions with an end."""
    return tuple(one for one in draining if one.ends_at_s is None or one.name not in listeners)


def without_ended(draining: Draining, now_s: float) -> Draining:
    """Remove ended listeners."""
    return tuple(one for one in draining if one.ends_at_s is None or one.ends_at_s > now_s)


def shifted(draining: Draining, by_s: float) -> Draining:
    """Move all ends."""
    return tuple(one if one.ends_at_s is None else replace(one, ends_at_s=one.ends_at_s + by_s) for one in draining)


def first_end_s(draining: Draining) -> float | None:
    """Return the next end."""
    first_s = min((one.ends_at_s for one in draining if one.ends_at_s is not None), default=inf)
    return None if first_s == inf else first_s


CLUSTERS = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url

# Any other type may have references.
USED = frozenset(row.type_url for row in RESOURCE_TYPES if not row.is_user)

NamesByType = Mapping[TypeUrl, Collection[str]]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """The state after a step is served; the target lacks `lingering` resources."""

    step: Step
    is_last: bool
    draining: Draining
    lingering: LingeringByKey


def whole_step(served: Snapshot | None, target: Snapshot) -> Step | None:
    """Return the one step to a target; None without changes."""
    if served is None:
        rows = target.by_type.items()
        changed = {type_url: RowsChange(frozenset(each)) for type_url, each in rows if each}
        return _step(StepKind.WHOLE, target, changed)
    changes = changes_between(served, target)
    if not any(changes.values()) and _marks(served) == _marks(target):
        return None
    return _step(StepKind.WHOLE, target, changes)


def next_step(
    served: Snapshot, target: Snapshot, draining: Draining, *, is_first: bool, lingers: bool = True
) -> PlannedStep | None:
    """Plan the next step to a target; None if there is none.

    `is_first`: none was served yet. `lingers`: references of now changing listeners are to linger.
    """
    changes = changes_between(served, target)
    after = draining_after(served, target, draining) if lingers else draining
    lingering = lingering_of(served, changes, after)
    kept = names_by_type(lingering)
    change = _Change(served, changes, kept)
    if change.needs_growth:
        lingering = lingering_of(served, changes, draining)
        return PlannedStep(_grown(served, target, changes), is_last=False, draining=draining, lingering=lingering)
    if change.switches and change.shrinks:
        kept |= {type_url: changes[type_url].removed for type_url in _used(changes)}
        return PlannedStep(
            _kept(StepKind.SWITCH, served, target, kept), is_last=False, draining=after, lingering=lingering
        )
    last_kind = StepKind.WHOLE if is_first else StepKind.SWITCH if change.switches else StepKind.SHRINK
    step = _kept(last_kind, served, target, kept)
    if not step.changed and _marks(served) == _marks(step.snapshot):
        return None
    return PlannedStep(step, is_last=True, draining=after, lingering=lingering)


def steps_between(served: Snapshot, target: Snapshot) -> Iterator[PlannedStep]:
    """Yield all steps, as if taken at once without lingering."""
    is_first = True
    while (planned := next_step(served, target, (), is_first=is_first, lingers=False)) is not None:
        yield planned
        served, is_first = planned.step.snapshot, False


def changes_between(served: Snapshot, target: Snapshot) -> dict[TypeUrl, RowsChange]:
    """Return each type's difference."""
    return {type_url: rows.changes_since(served.resources(type_url)) for type_url, rows in target.by_type.items()}


def supplied_step(step: Step, served: Snapshot, target: Snapshot) -> Step | None:
    """Add endpoints that a step's clusters lack and a newer target has; None for none."""
    endpoints, before = target.resources(ENDPOINTS), served.resources(ENDPOINTS)
    added = endpoints.changes_since(before).fresh - before.keys()
    if not added or CLUSTERS not in step.changed:
        return None
    clusters = served.resources(CLUSTERS)
    fresh = clusters.among(step.changed[CLUSTERS].fresh)
    names = added.intersection(_names_of_endpoints(clusters[name] for name in fresh))
    if not names:
        return None
    rows = {type_url: served.resources(type_url) for type_url in target.by_type}
    rows[ENDPOINTS] = before.with_changes([endpoints[name] for name in names], ()).prepared()
    supplied = _between(StepKind.GROW, served, target, rows)
    return replace(step.joined_with(supplied), step_kind=step.step_kind, endpoints=step.endpoints | names)


class _Change:
    def __init__(self, served: Snapshot, changes: Changes, kept: NamesByType) -> None:
        self._served, self._changes, self._kept = served, changes, kept
        used = _used(changes)
        self._used_changes = {type_url: changes[type_url] for type_url in used}
        self._grows = any(change.fresh or change.renewed for change in self._used_changes.values())
        self.switches = any(map(self._differs, changes.keys() - used))
        self.shrinks = any(map(self._removed, used))

    @property
    def needs_growth(self) -> bool:
        return self._grows and (self.switches or (self.shrinks and self._removes_what_changed_ones_named()))

    def _differs(self, type_url: TypeUrl) -> bool:
        change = self._changes[type_url]
        return bool(change.fresh or change.renewed or self._removed(type_url))

    def _removed(self, type_url: TypeUrl) -> frozenset[str]:
        return self._changes[type_url].removed.difference(self._kept.get(type_url, ()))

    def _removes_what_changed_ones_named(self) -> bool:
        removed = {type_url: self._removed(type_url) for type_url in self._used_changes}
        return any(
            next(names_meant(reference.name, removed.get(reference.type_url, ())), None) is not None
            for type_url, change in self._used_changes.items()
            for name in self._served.resources(type_url).among(change.fresh)
            for reference in self._served.resources(type_url)[name].references
        )


def _used(type_urls: Collection[TypeUrl]) -> list[TypeUrl]:
    return [type_url for type_url in type_urls if type_url in USED]


def _grown(served: Snapshot, target: Snapshot, changes: Changes) -> Step:
    used = _used(changes)
    rows = {type_url: served.resources(type_url) for type_url in target.by_type}
    rows |= {type_url: _with_kept(served, target, type_url, changes[type_url].removed) for type_url in used}
    return _between(StepKind.GROW, served, target, rows)


def _kept(step_kind: StepKind, served: Snapshot, target: Snapshot, kept: NamesByType) -> Step:
    rows = {type_url: _with_kept(served, target, type_url, kept.get(type_url, ())) for type_url in target.by_type}
    return _between(step_kind, served, target, rows)


def _with_kept(served: Snapshot, target: Snapshot, type_url: TypeUrl, names: Collection[str]) -> Rows:
    rows = target.by_type[type_url]
    return rows.with_rows_of(served.resources(type_url), frozenset(names)) if names else rows


def _between(step_kind: StepKind, served: Snapshot, target: Snapshot, rows: Mapping[TypeUrl, Rows]) -> Step:
    """Rows may mix the served snapshot and the target."""
    changed = {type_url: each.changes_since(served.resources(type_url)) for type_url, each in rows.items()}
    if all(each is target.by_type[type_url] for type_url, each in rows.items()):
        return _step(step_kind, target, changed)
    # A GROW keeps the served users.
    sources = {type_url: served if step_kind is StepKind.GROW and type_url not in USED else target for type_url in rows}
    empty = {type_url: source for type_url, source in sources.items() if not rows[type_url]}
    snapshot = Snapshot(
        target.generation,
        MappingProxyType(dict(rows)),
        MappingProxyType(dict(_authored(served, target, rows))),
        target.changes,
        incomplete=frozenset(type_url for type_url, source in sources.items() if type_url in source.incomplete),
        withheld=frozenset(type_url for type_url, source in empty.items() if type_url in source.withheld),
        undeclared=frozenset(type_url for type_url, source in empty.items() if type_url in source.undeclared),
        unresolved=target.unresolved,
    )
    return _step(step_kind, snapshot, changed)


def _authored(served: Snapshot, target: Snapshot, rows: Mapping[TypeUrl, Rows]) -> Iterator[tuple[TypeUrl, str]]:
    for type_url, each in rows.items():
        for source in (target, served):
            if each is source.by_type.get(type_url) and type_url in source.authored:
                yield type_url, source.authored[type_url]
                break


def _step(step_kind: StepKind, snapshot: Snapshot, changes: Changes) -> Step:
    changed = {type_url: change for type_url, change in changes.items() if change}
    return Step(step_kind, snapshot, MappingProxyType(changed), _endpoints_of(snapshot, changed))


def _endpoints_of(snapshot: Snapshot, changed: Changes) -> frozenset[str]:
    clusters, endpoints = snapshot.resources(CLUSTERS), snapshot.resources(ENDPOINTS)
    fresh = changed[CLUSTERS].fresh if CLUSTERS in changed else frozenset()
    if not fresh or not endpoints:
        return frozenset()
    if len(fresh) == len(clusters):
        # The first target: views share most of their clusters, and the memory of their chunks.
        return frozenset(endpoints.among(frozenset().union(*(chunk.once(_eds_names) for chunk in clusters.chunks))))
    return frozenset(endpoints.among(_names_of_endpoints(clusters[name] for name in fresh)))


def _eds_names(chunk: Chunk[Resource]) -> frozenset[str]:
    return frozenset(_names_of_endpoints(chunk.values))


def _names_of_endpoints(clusters: Iterable[Resource]) -> Iterator[str]:
    return (one.name for cluster in clusters for one in cluster.references if one.type_url == ENDPOINTS)


def _marks(snapshot: Snapshot) -> tuple[object, ...]:
    marks = snapshot.incomplete, snapshot.withheld, snapshot.undeclared
    return dict(snapshot.authored), dict(snapshot.unresolved), *marks
