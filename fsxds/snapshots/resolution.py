"""Follows redirects and locators, as a stage. Pure.

Without redirects, its cost is a look at each changed name; else that of changes and the redirects that lead to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rpds import HashTrieMap

from fsxds.api.catalogue import Catalogue
from fsxds.model.name_table import Chunk
from fsxds.model.resources import Key, Resource, Rows, Snapshot, claims_of, key_of
from fsxds.model.values import HeldFile, Problem, Severity, TypeUrl
from fsxds.snapshots.load import change_from
from fsxds.snapshots.loaded_views import (
    Inputs,
    ResolutionRules,
    is_redirect_elsewhere,
    names_redirected_elsewhere,
)
from fsxds.snapshots.locators import (
    Copier,
    Followed,
    Place,
    RedirectFollower,
    Resolver,
    collection_of,
    conflict,
    kept_content,
    places_of,
)


@dataclass(frozen=True, slots=True)
class _Redirects:
    """A view's redirects, with their targets.

    Attributes:
        watching: by place, the redirects for which it was searched.
        wrong: the problems of redirects, empty for a target elsewhere.
        claimed: the content served for redirects, by its claims.
    """

    by_type: Mapping[TypeUrl, HashTrieMap[str, Followed]] = field(default_factory=dict)
    watching: HashTrieMap[Place, frozenset[Key]] = field(default_factory=HashTrieMap)
    wrong: HashTrieMap[Key, tuple[Problem, ...]] = field(default_factory=HashTrieMap)
    claimed: HashTrieMap[Key, Resource] = field(default_factory=HashTrieMap)

    def find(self, key: Key) -> Followed | None:
        by_name = self.by_type.get(key[0])
        return None if by_name is None else by_name.get(key[1])

    def without(self, gone: Iterable[Key]) -> _Redirects:
        by_type, watching, wrong, claimed = dict(self.by_type), self.watching, self.wrong, self.claimed
        for key in gone:
            known = self.find(key)
            if known is None:
                continue
            by_type[key[0]] = by_type[key[0]].discard(key[1])
            wrong = wrong.discard(key)
            for claim in known.claims:
                claimed = claimed.discard(claim)
            for place in known.looked_at:
                left = watching[place] - {key}
                watching = watching.insert(place, left) if left else watching.discard(place)
        return _Redirects(
            {type_url: names for type_url, names in by_type.items() if len(names)}, watching, wrong, claimed
        )

    def with_one(self, followed: Followed) -> _Redirects:
        key, watching, wrong, claimed = key_of(followed.redirect), self.watching, self.wrong, self.claimed
        by_name = self.by_type.get(key[0], HashTrieMap()).insert(key[1], followed)
        if followed.problems or followed.content is None:
            wrong = wrong.insert(key, followed.problems)
        for place in followed.looked_at:
            watching = watching.insert(place, watching.get(place, frozenset[Key]()) | {key})
        if followed.content is not None:
            claimed = claimed.update(dict.fromkeys(followed.claims, followed.content))
        return _Redirects({**self.by_type, key[0]: by_name}, watching, wrong, claimed)


@dataclass(frozen=True, slots=True)
class Resolved:
    """`snapshot` is `raw` itself if there is nothing to resolve."""

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    raw: Snapshot = field(compare=False, repr=False)
    rules: ResolutionRules = field(compare=False, repr=False)
    held: tuple[HeldFile, ...] = ()
    redirects: _Redirects = field(default_factory=_Redirects, compare=False, repr=False)


def unchanged(raw: Snapshot, inputs: Inputs) -> Resolved:
    """Return a view without redirects."""
    return Resolved(raw, (), raw, inputs.rules)


def apply(raw: Snapshot, inputs: Inputs, before: Resolved | None) -> Resolved:
    """Follow redirects, sharing parts with `before`."""
    rules = inputs.rules
    if before is not None and before.raw is raw and before.rules == rules:
        return before
    known = before if before is not None and before.rules == rules else None
    changed = _changed_names(raw, known)
    redirects = known.redirects if known is not None else _Redirects()
    touched = _touched(raw, known.raw if known is not None else None, changed, redirects)
    is_used = before is not None and before.snapshot is not before.raw
    if rules.catalogue is None or not (touched or redirects.by_type or is_used):
        return Resolved(raw, (), raw, rules)
    return _Resolution(raw, rules, rules.catalogue, before).resolve(known, changed, touched)


def _changed_names(raw: Snapshot, known: Resolved | None) -> Mapping[TypeUrl, Collection[str]]:
    """Of new rows only redirects, unless some redirect watches places."""
    changed = {}
    for type_url, rows in raw.by_type.items():
        earlier = known.raw.by_type.get(type_url) if known is not None else None
        if earlier is rows:
            continue
        if earlier:
            names: Collection[str] = rows.changes_since(earlier).names
        elif known is not None and known.redirects.watching:
            names = tuple(rows)
        else:
            names = tuple(name for chunk in rows.chunks for name in chunk.once(names_redirected_elsewhere))
        if names:
            changed[type_url] = names
    return changed


def _touched(
    raw: Snapshot, earlier: Snapshot | None, changed: Mapping[TypeUrl, Collection[str]], redirects: _Redirects
) -> frozenset[Key]:
    touched: set[Key] = set()
    for type_url, names in changed.items():
        for name in names:
            now = raw.by_type[type_url].get(name)
            was = None if earlier is None else earlier.resources(type_url).get(name)
            both = [one for one in (now, was) if one is not None]
            touched.update((type_url, name) for one in both if is_redirect_elsewhere(one))
            for place in (
                {place for one in both for place in (*places_of(one), *claims_of(one))} if redirects.watching else ()
            ):
                watching = redirects.watching.get(place, frozenset[Key]())
                # The place of a resource matters if a problem mentions it.
                touched.update(key for key in watching if key in redirects.wrong or not _is_moved(was, now))
    return frozenset(touched)


def _is_moved(was: Resource | None, now: Resource | None) -> bool:
    if was is None or now is None or was.origin.path != now.origin.path or was.redirect or now.redirect:
        return False
    return now.equals_for_clients(was)


class _Resolution:
    def __init__(self, raw: Snapshot, rules: ResolutionRules, catalogue: Catalogue, before: Resolved | None) -> None:
        self._raw = raw
        self._rules = rules
        self._before = before
        resolver = Resolver(raw, rules.authority, rules.root, catalogue)
        resolver.folders = rules.collections_by_name()
        copier = Copier(catalogue, rules.field_rules(catalogue))
        authorities = frozenset(rules.authorities)
        self._follower = RedirectFollower(resolver, copier, authorities, passes_redirects=rules.passes_redirects)
        self._follower.unasked = rules.unasked
        self._redirects = _Redirects()

    def resolve(
        self, known: Resolved | None, changed: Mapping[TypeUrl, Collection[str]], touched: frozenset[Key]
    ) -> Resolved:
        was = known.redirects if known is not None else _Redirects()
        self._redirects = was.without(touched)
        found = (self._raw.resources(type_url).get(name) for type_url, name in sorted(touched))
        present = [resource for resource in found if resource is not None and is_redirect_elsewhere(resource)]
        for resource in present:
            self._redirects = self._redirects.with_one(self._served_content(self._follower.follow(resource)))
        redirects = self._redirects
        rows = self._rows(known, changed, touched)
        of_wrong = ((key, redirects.find(key)) for key in redirects.wrong)
        unresolved = {key: one.redirect for key, one in of_wrong if one and (one.is_kept or one.content is None)}
        before = None if self._before is None else self._before.snapshot
        changes = {type_url: change_from(before, each, self._raw.generation) for type_url, each in rows.items()}
        served = replace(
            self._raw,
            by_type=MappingProxyType(dict(rows)),
            changes=MappingProxyType(changes),
            unresolved=MappingProxyType(unresolved),
        )
        of_all = (problem for several in redirects.wrong.values() for problem in several)
        problems = known.problems if known is not None and not touched else tuple(sorted(of_all))
        return Resolved(served, problems, self._raw, self._rules, self._held(served), redirects)

    def _served_content(self, followed: Followed) -> Followed:
        """Add the target's content to serve, or else the name's last content.

        Neither is served if another resource that clients get with it claims the same.
        """
        content, target = followed.content, followed.target
        if not followed.redirect.redirect:
            return followed
        if content is None or target is None:
            return self._with_kept(followed)
        claims = claims_of(content)
        other = self._claimant(content, claims)
        problems = followed.problems
        if other is not None:
            is_apart = collection_of(other) != collection_of(content)
            problems = (*problems, conflict(followed.redirect, target, other, is_apart=is_apart))
            if not is_apart:
                content = None
        followed = replace(followed, content=content, problems=problems, looked_at=followed.looked_at | claims)
        if content is None:
            return self._with_kept(followed)
        return followed

    def _with_kept(self, followed: Followed) -> Followed:
        redirect = followed.redirect
        last = None if self._before is None else self._before.snapshot.resources(redirect.type_url).get(redirect.name)
        if last is None:
            return followed
        claims = claims_of(last)
        other = self._claimant(redirect, claims)
        followed = replace(followed, looked_at=followed.looked_at | claims)
        if other is not None and collection_of(other) == collection_of(redirect):
            return followed
        return replace(followed, content=kept_content(redirect, last), is_kept=True)

    def _claimant(self, content: Resource, claims: frozenset[Key]) -> Resource | None:
        """Prefer one that clients get with the content."""
        rows, own = self._raw.resources(content.type_url), collection_of(content)
        claimed = self._redirects.claimed
        found = [claimed[claim] for claim in sorted(claims) if claim in claimed]
        for chunk in rows.chunks if claims else ():
            of_chunk = chunk.once(_claims_of_chunk)
            names = {name for claim in sorted(claims) for name in of_chunk.get(claim, ())} - {content.name}
            found += (rows[name] for name in sorted(names))
        return next((one for one in found if collection_of(one) == own), next(iter(found), None))

    def _rows(
        self, known: Resolved | None, changed: Mapping[TypeUrl, Collection[str]], touched: frozenset[Key]
    ) -> dict[TypeUrl, Rows]:
        redirects = self._redirects
        of_type: defaultdict[TypeUrl, list[str]] = defaultdict(list)
        for type_url, name in touched:
            of_type[type_url].append(name)
        rows = {}
        for type_url, raw in self._raw.by_type.items():
            if type_url not in redirects.by_type:
                rows[type_url] = raw
                continue
            if known is None or type_url not in known.redirects.by_type:
                base, names = raw, set(redirects.by_type[type_url])
            else:
                base, names = known.snapshot.by_type[type_url], {*changed.get(type_url, ()), *of_type[type_url]}
            followed = {name: redirects.find((type_url, name)) for name in names}
            now = {name: raw.get(name) if one is None else one.content for name, one in followed.items()}
            updated = [resource for resource in now.values() if resource is not None]
            rows[type_url] = base.with_changes(updated, [name for name in now if now[name] is None]).prepared()
        return rows

    def _held(self, served: Snapshot) -> tuple[HeldFile, ...]:
        held = {}
        for (type_url, name), problems in self._redirects.wrong.items():
            error = next((one for one in problems if one.severity is Severity.ERROR), None)
            if error is not None and (error.path not in held or name not in served.by_type[type_url]):
                held[error.path] = HeldFile(error.path, error, name in served.by_type[type_url])
        return tuple(held[path] for path in sorted(held, key=lambda path: path.parts))


def _claims_of_chunk(chunk: Chunk[Resource]) -> Mapping[Key, tuple[str, ...]]:
    found: defaultdict[Key, list[str]] = defaultdict(list)
    for name, resource in zip(chunk.names, chunk.values, strict=True):
        for claim in claims_of(resource):
            found[claim].append(name)
    return {claim: tuple(names) for claim, names in found.items()}
