"""Which resources a client wants, and which of them exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.resources import Resource, Snapshot, version_of_set
from fsxds.values import TypeUrl, Version

WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one client wants of one type: `names`, or everything when `wildcard`.

    An empty list of names means everything, until a name was given once on a stream; a poll has no stream, so each
    poll stands for itself. Source: xDS protocol, "How the client specifies what resources to return".
    """

    type_url: TypeUrl
    names: frozenset[str] = frozenset()
    wildcard: bool = True

    @classmethod
    def for_request(cls, type_url: TypeUrl, names: Iterable[str]) -> Subscription:
        """Read the names of a request that stands for itself: none, or `*` among them, mean everything."""
        wanted = frozenset(names)
        if not wanted or WILDCARD in wanted:
            return cls(type_url)
        return cls(type_url, wanted, wildcard=False)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a client should hold now.

    `version` is what goes on the wire as `version_info`: it changes exactly when this selection does. `resources` are
    sorted by name; `missing` are the names asked for that do not exist.
    """

    type_url: TypeUrl
    version: Version
    resources: Collection[Resource]
    missing: tuple[str, ...] = ()


def select(snapshot: Snapshot, subscription: Subscription) -> Selection:
    """Answer the first of the two questions: what should this client hold now?"""
    rows = snapshot.resources(subscription.type_url)
    version = version_of(snapshot, subscription)
    if subscription.wildcard:
        return Selection(subscription.type_url, version, rows.values())
    names = sorted(subscription.names)
    found = tuple(rows[name] for name in names if name in rows)
    return Selection(subscription.type_url, version, found, tuple(name for name in names if name not in rows))


def version_of(snapshot: Snapshot, subscription: Subscription) -> Version:
    """Return the version of a selection, without making it.

    It is a digest of the names asked for and what they are, so that a client is woken only by what it asked for;
    where the authors' versions are served, it is theirs.
    """
    type_url = subscription.type_url
    if type_url in snapshot.authored:
        return Version(snapshot.authored[type_url])
    rows = snapshot.resources(type_url)
    if subscription.wildcard:
        return snapshot.versions.get(type_url) or version_of_set(type_url, ())
    return version_of_set(
        type_url,
        ((name, rows[name].version if name in rows else "") for name in sorted(subscription.names)),
    )


def files_of(subscription: Subscription, version: Version, snapshot: Snapshot) -> tuple[PurePosixPath, ...]:
    """Return the files that a version came from; none when something newer is served already.

    It may be the version of what was asked for, or of the whole type, as Delta responses have it.
    """
    selection = select(snapshot, subscription)
    if version not in {selection.version, version_of(snapshot, Subscription(subscription.type_url))}:
        return ()
    change = snapshot.changes.get(subscription.type_url)
    if subscription.wildcard and change is not None and change.files:
        return change.files
    # The last change of the type need not be one of the names that were asked for.
    changed = frozenset((*change.added, *change.changed)) if change is not None else frozenset()
    news = [resource for resource in selection.resources if resource.name in changed]
    return tuple(sorted({resource.origin.path for resource in news or selection.resources}))
