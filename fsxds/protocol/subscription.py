"""What a client should hold: its subscription, and what it selects of a snapshot.

| rule | source |
| --- | --- |
| An empty list of names means everything, until a name was given once on the stream. | xDS protocol, "How the client specifies what resources to return" |
| `*` means everything, beside names or without. | xDS protocol, "How the client specifies what resources to return" |
| In SotW and polls the names of a request replace those before; in Delta they are added to and removed from them. | xDS protocol, "Resource updates", "Incremental xDS" |
| A poll has no stream: each stands for itself. | xDS protocol, "REST-JSON polling subscriptions" |
| A glob stands for the members of its collection; its version is that of what these are. | xRFC TP1, "Glob" |
| The version of a selection changes when the selection does, and not otherwise. | xDS protocol, "ACK/NACK and resource type instance version" |

What the names of a subscription stand for where they replace each other: on state-of-the-world streams and in polls.

| rule | source |
| --- | --- |
| A name stands for the resource of this name, a glob `xdstp://authority/type/path/*` for all members of its directory. | xRFC TP1, "Glob" |
| The members of a glob have its authority, type, directory and parameters. | xRFC TP1, "Resource locators" |

It costs nothing where no resource of the type has a structured name. Names that stand for others on Delta streams are found
by `lookup.py`, which follows changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from weakref import WeakValueDictionary

from fsxds.model.memo import Lru
from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import GLOB, SCHEME, glob_of, is_glob
from fsxds.model.resources import Resource, ResourceList, Rows, RowsChange, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.on_demand import Unanswered, nothing_unanswered
from fsxds.rollout import RolloutOptions

WILDCARD = "*"

# So many versions are remembered that were sent.
MOST_VERSIONS = 4096

# What an object of the least text takes.
_NAME_BYTES = 64


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one client wants of one type: `names`, or everything when `wildcard`.

    With `never_named`, no name was given on the stream yet, which decides what an empty list means next.
    """

    type_url: TypeUrl
    names: frozenset[str] = frozenset()
    wildcard: bool = True
    never_named: bool = field(default=False, compare=False)
    # Found when they are asked for first: there may be a hundred thousand names, and no collection in the tree.
    _globs: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def initial(cls, type_url: TypeUrl) -> Subscription:
        """Return the subscription before the first request of a stream: to nothing."""
        return cls(type_url, wildcard=False, never_named=True)

    @classmethod
    def for_request(cls, type_url: TypeUrl, names: Iterable[str]) -> Subscription:
        """Return the subscription of a request that stands for itself."""
        wanted = cls.initial(type_url).requesting(frozenset(names))
        return cls(type_url) if wanted.wildcard else wanted

    def requesting(self, names: frozenset[str]) -> Subscription:
        """Return the subscription after a SotW request with these names."""
        never_named = self.never_named and not names
        return Subscription(self.type_url, names - {WILDCARD}, never_named or WILDCARD in names, never_named)

    def changed(self, added: frozenset[str], removed: frozenset[str]) -> Subscription:
        """Return the subscription after a Delta request that subscribes and unsubscribes these names.

        A name in both is subscribed. What is unsubscribed without being subscribed is ignored.
        """
        removed -= added
        if not added and not removed:
            return replace(self, wildcard=True) if self.never_named else self
        never_named = self.never_named and not added and WILDCARD not in removed
        wildcard = (self.wildcard or WILDCARD in added) and WILDCARD not in removed
        return Subscription(self.type_url, (self.names | added) - removed - {WILDCARD}, wildcard, never_named)

    @property
    def asked(self) -> frozenset[str]:
        """The names, `*` among them for everything."""
        return self.names | {WILDCARD} if self.wildcard else self.names

    @property
    def globs(self) -> frozenset[str]:
        """Those of the names that stand for all members of a collection."""
        if self._globs is None:
            object.__setattr__(self, "_globs", frozenset(filter(is_glob, self.names)))
        return self._globs or frozenset()

    @property
    def weight(self) -> int:
        """What it takes to remember it, in KiB; 1 for what Envoys ask for. Its cost is that of the names."""
        return 1 + sum(len(name) + _NAME_BYTES for name in self.names) // 1024

    def selects_any(self, change: RowsChange) -> bool:
        """Whether any of the changed resources is selected, by its own name or by a glob. Its cost is that of the fewer names."""
        names = (change.fresh, change.renewed, change.removed)
        if self.wildcard:
            return any(names)
        return not all(map(self.names.isdisjoint, names)) or any(map(self._members_among, names))

    def selected(self, names: frozenset[str]) -> frozenset[str]:
        """Return those of some names that are selected."""
        return names if self.wildcard else self.among(names)

    def among(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return those of some names that are selected where there is no wildcard."""
        return self._members_among(names).union(self.names & names)

    def _members_among(self, names: AbstractSet[str]) -> frozenset[str]:
        globs = self.globs if names else ()
        return frozenset(name for name in names if glob_of(name) in globs) if globs else frozenset()

    def added_to(self, before: Subscription) -> frozenset[str]:
        """Return the names that are new since `before`, `*` among them for everything."""
        added = self.names - before.names
        return added | {WILDCARD} if self.wildcard and not before.wildcard else added


@dataclass(frozen=True, slots=True)
class Selection:
    """What a client should hold now.

    `version` is what goes on the wire as `version_info`: it changes exactly when this selection does. `resources` are
    sorted by name; `missing` are the names asked for that do not exist.
    """

    type_url: TypeUrl
    version: Version
    resources: ResourceList
    missing: tuple[str, ...] = ()


def select(snapshot: Snapshot, subscription: Subscription) -> Selection:
    """Answer the first of the two questions: what should this client hold now?"""
    rows = snapshot.resources(subscription.type_url)
    version = version_of(snapshot, subscription)
    if subscription.wildcard:
        return Selection(subscription.type_url, version, rows.everything)
    resources = rows.select(selected_names(rows, subscription))
    return Selection(subscription.type_url, version, resources, missing_names(rows, subscription))


def selected_names(rows: Rows, subscription: Subscription) -> frozenset[str]:
    """Return the names of a subscription, and those of the members of its globs; they may not exist."""
    if not has_structured_names(rows) or not subscription.globs:
        return subscription.names
    return expanded(rows, subscription.names, subscription.globs)


def has_any(snapshot: Snapshot, subscription: Subscription) -> bool:
    """Whether a snapshot has anything for a subscription; for one to everything, it may be that there is nothing."""
    rows = snapshot.resources(subscription.type_url)
    return subscription.wildcard or bool(selected_names(rows, subscription) & rows.keys())


def missing_names(rows: Rows, subscription: Subscription) -> tuple[str, ...]:
    """Return the names of a subscription that do not exist, in order; a glob without members is one of them."""
    missing = frozenset[str]() if subscription.wildcard else names_without(rows, subscription.names)
    if missing and has_structured_names(rows):
        missing = frozenset(name for name in missing if name not in subscription.globs or is_empty(rows, name))
    return tuple(sorted(missing))


def names_without(rows: Mapping[str, Resource], names: AbstractSet[str]) -> frozenset[str]:
    """Return those of these names that no resource has. Its cost follows the names; that of `-` follows the rows."""
    return frozenset(names - (names & rows.keys()))


def version_of(snapshot: Snapshot, subscription: Subscription) -> Version:
    """Return the version of a selection, without making it.

    It is a digest of the names asked for and what they are, so that a client is woken only by what it asked for;
    where the authors' versions are served, it is theirs.
    """
    type_url = subscription.type_url
    if type_url in snapshot.authored:
        return Version(snapshot.authored[type_url])
    rows = snapshot.resources(type_url)
    return rows.version if subscription.wildcard else rows.version_of(selected_names(rows, subscription))


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
    updated = [resource for resource in selection.resources if resource.name in changed]
    return tuple(sorted({resource.origin.path for resource in updated or selection.resources}))


class SharedMemory:
    """What all streams of a server remember together.

    Attributes:
        unanswered: knows which names that nothing served has may exist elsewhere.
        rollout: returns how changes are rolled out now, and so what a client gets that comes with content.
    """

    __slots__ = ("_known_versions", "_name_sets", "rollout", "unanswered")

    def __init__(
        self,
        unanswered: Unanswered = nothing_unanswered,
        rollout: Callable[[], RolloutOptions] = lambda: RolloutOptions(is_on=False),
    ) -> None:
        self.unanswered, self.rollout = unanswered, rollout
        self._known_versions: Lru[Version, bool] = Lru(MOST_VERSIONS)
        self._name_sets: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()

    def share(self, names: frozenset[str]) -> frozenset[str]:
        """Return these names as the one set that all streams have of them, as long as one of them has it."""
        found = self._name_sets.setdefault(hash(names), names)
        return found if found == names else names

    def know(self, version: Version) -> None:
        """Remember that this process sent this version, or found that a client holds it."""
        self._known_versions.put(version, True)

    def is_known(self, version: Version) -> bool:
        """Whether a version was known to this process, so that what was removed from it since was reported."""
        return version in self._known_versions


# So many sets of names are kept for the rows of a type, and so many names in all of them.
MOST_KEPT, MOST_KEPT_NAMES = 1024, 1_000_000


def expanded(rows: Rows, names: frozenset[str], globs: frozenset[str]) -> frozenset[str]:
    """Return names, and those of the members of the globs among them."""
    return rows.derive(_GlobMembers, lambda: _GlobMembers(rows.by_name)).expanded(names, globs)


def has_structured_names(rows: NameTable[Resource]) -> bool:
    """Whether any resource has a structured name."""
    return next(rows.starting_with(SCHEME), None) is not None


def members_of(rows: NameTable[Resource], glob: str) -> Iterator[str]:
    """Yield the names of the members of a canonical glob; its cost is that of its directory."""
    directory = glob.partition("?")[0].removesuffix(GLOB[1:])
    return (name for name, _ in rows.starting_with(directory) if glob_of(name) == glob)


def is_empty(rows: NameTable[Resource], glob: str) -> bool:
    """Whether a glob has no members."""
    return next(members_of(rows, glob), None) is None


class _GlobMembers:
    """Works out once what globs stand for among rows, for all clients."""

    def __init__(self, rows: NameTable[Resource]) -> None:
        self._rows = rows
        self._members: Lru[str, frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)
        self._expanded: Lru[frozenset[str], frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)

    def expanded(self, names: frozenset[str], globs: Iterable[str]) -> frozenset[str]:
        return self._expanded.find(names, lambda: names.union(*map(self._members_of, globs)))

    def _members_of(self, glob: str) -> frozenset[str]:
        return self._members.find(glob, lambda: frozenset(members_of(self._rows, glob)))
