"""References and claims among served resources."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet

from fsxds.model.name_table import Chunk
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.model.resources import Key, Resource, Snapshot, claims_of
from fsxds.model.values import Severity, TypeUrl

CLUSTERS, ROUTES, SECRETS, SCOPES = (BY_SHORT_NAME[name].type_url for name in ("cds", "rds", "sds", "srds"))
EXTENSIONS = BY_SHORT_NAME["ecds"].type_url

MAY_BE_REMOTE = frozenset({SECRETS, EXTENSIONS})
"""Types that other servers often have: a name with less than an error may be theirs."""

STAYS_IN_USE = frozenset({CLUSTERS, ROUTES, SECRETS, SCOPES})
"""The types whose resources stay while a served resource names them: without them requests fail.

An extension configuration may fall back to a default; a cluster without endpoints is valid.
"""

CLAIMING = tuple(BY_SHORT_NAME[name].type_url for name in ("lds", "rds", "vhds"))
"""The types of resources that make claims, as listeners do on addresses."""

MOST_DEPENDENCIES = 1000


def is_pattern(name: str) -> bool:
    """Whether a reference may mean several resources."""
    return name.endswith("*")


def names_meant(name: str, existing: Collection[str]) -> Iterator[str]:
    """Yield the existing names that a reference means."""
    if is_pattern(name):
        yield from (one for one in existing if one.startswith(name[:-1]))
    elif name in existing:
        yield name


def demands_of(resource: Resource) -> frozenset[Key]:
    """Return the resources that must exist for this; for a pattern, one match."""
    return frozenset(
        (one.type_url, one.name)
        for one in resource.references
        if one.severity is not Severity.NOTE and not one.is_static and one.type_url in BY_TYPE_URL
    )


def expects(resource: Resource, key: Key) -> bool:
    """Whether this server must have a name; else another may."""
    return any(
        (one.type_url, one.name) == key
        and not one.is_static
        and one.severity in _EXPECTED[one.type_url in MAY_BE_REMOTE]
        for one in resource.references
    )


_EXPECTED = (Severity.WARNING, Severity.ERROR), (Severity.ERROR,)


def names_any(user: Resource, keys: AbstractSet[Key]) -> bool:
    """Whether a resource references one of `keys`."""
    return any((one.type_url, one.name) in keys and not one.is_static for one in user.references)


def users_of(snapshot: Snapshot, keys: AbstractSet[Key]) -> Iterator[Resource]:
    """Yield the resources that reference `keys`; repeated calls examine only changed chunks, and those with a user."""
    for rows in snapshot.by_type.values():
        for chunk in rows.chunks:
            if not keys.isdisjoint(chunk.once(_named_in_chunk)):
                yield from (one for one in chunk.values if names_any(one, keys))


def names_in_use(snapshot: Snapshot, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
    """Return referenced names without which requests fail."""
    if not names or type_url not in STAYS_IN_USE:
        return frozenset()
    users = users_of(snapshot, {(type_url, name) for name in names})
    return names & {
        one.name for user in users for one in user.references if one.type_url == type_url and not one.is_static
    }


def demanded_names(snapshot: Snapshot, type_url: TypeUrl) -> Iterator[str]:
    """Yield demanded names, once per chunk, without patterns; repeated calls examine only changed chunks."""
    for rows in snapshot.by_type.values():
        for chunk in rows.chunks:
            yield from (
                name for one, name in chunk.once(_demanded_in_chunk) if one == type_url and not is_pattern(name)
            )


def _demanded_in_chunk(chunk: Chunk[Resource]) -> frozenset[Key]:
    return frozenset(key for resource in chunk.values for key in demands_of(resource))


def _named_in_chunk(chunk: Chunk[Resource]) -> frozenset[Key]:
    return frozenset(
        (one.type_url, one.name)
        for resource in chunk.values
        for one in resource.references
        if one.type_url in BY_TYPE_URL and not one.is_static
    )


def claimers_of(snapshot: Snapshot, claims: AbstractSet[Key]) -> Iterator[Resource]:
    """Yield the resources that make these claims, of `CLAIMING` types; repeated calls examine only changed chunks."""
    for type_url in CLAIMING:
        for chunk in snapshot.resources(type_url).chunks:
            if not claims.isdisjoint(chunk.once(_claimed_in_chunk)):
                yield from (one for one in chunk.values if not claims.isdisjoint(claims_of(one)))


def _claimed_in_chunk(chunk: Chunk[Resource]) -> frozenset[Key]:
    return frozenset(claim for resource in chunk.values for claim in claims_of(resource))


def dependencies_of(snapshot: Snapshot, key: Key) -> frozenset[tuple[Key, str]]:
    """Return some direct and indirect references, with versions: the first ones suffice to detect a change."""
    found: dict[Key, str] = {}
    names = [key]
    while names and len(found) < MOST_DEPENDENCIES:
        resource = snapshot.resources(names[-1][0]).get(names.pop()[1])
        for one in () if resource is None else resource.references:
            named = one.type_url, one.name
            if named not in found and one.type_url in BY_TYPE_URL and not one.is_static:
                other = snapshot.resources(one.type_url).get(one.name)
                found[named] = "" if other is None else other.version
                names.append(named)
    return frozenset(found.items())
