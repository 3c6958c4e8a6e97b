"""Subscriptions, their names, and their selection from a snapshot.

| rule | source (quoted: xDS protocol) |
| --- | --- |
| No names mean everything, until one was given on the stream; `*` always does, with or without names. | "How the client specifies what resources to return" |
| In SotW and polls a request's names replace those before; in Delta they are added and removed. | "Resource updates", "Incremental xDS" |
| A poll has no stream: each stands for itself. | "REST-JSON polling subscriptions" |
| A selection's version changes exactly when it does; a glob's is a digest of its members' versions. | "ACK/NACK and resource type instance version" |
| On SotW streams and in polls (on Delta streams: `lookup.py`), a glob `xdstp://authority/type/path/*` stands for all resources of its authority, type, directory and parameters. | xRFC TP1, "Glob", "Resource locators" |
| A name is not reported as missing until each upstream was asked and answered: its client waits. | xRFC TP1, "xDS relay proxy"; "Knowing When a Requested Resource Does Not Exist" |
| `*` is answered once all the upstreams' resources of the type are known; until then none counts as missing. | "Deleting Resources" |
| Every spelling means the canonical name, which is in the answer; on Delta streams the client's spelling becomes an alias. | xRFC TP1, "URI encoding"; xDS protocol, "Aliases" |
| A malformed name, or one of another type, is rejected alone, with a reason. The rest of the stream continues. | xRFC TP1, "Logical resource naming"; `resource_errors` in discovery.proto |
| A virtual host's name is its route configuration's with a host appended, which no client encodes. | ENVOY.md E46 |

Globs cost nothing if no resource of the type has a structured name.

Rules: for which names clients wait because another server may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

from fsxds.model.errors import LimitError, ProtocolError
from fsxds.model.memo import Lru
from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import (
    GLOB,
    SCHEME,
    MalformedName,
    canonical,
    canonical_of_type,
    glob_of,
    is_as_written,
    is_glob,
    is_structured,
    names_no_authority,
)
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, ResourceList, Rows, RowsChange, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.rollout.machine import RolloutOptions

Unanswered: TypeAlias = Callable[[TypeUrl, AbstractSet[str]], frozenset[str]]
"""Returns the subset of names of a type (`*` for all) that may still exist on an upstream.

Only valid for names that are not served.
"""


def nothing_unanswered(_type_url: TypeUrl, _names: AbstractSet[str]) -> frozenset[str]:
    """Without upstreams, an unserved name does not exist."""
    return frozenset()


class OnDemand(Protocol):
    """Asks upstreams for requested names.

    `listeners` are callbacks by owner, called when upstreams reported missing names.
    """

    listeners: dict[object, Callable[[], object]]

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Set a client's names of a type, `*` for all."""

    def forget(self, client: object) -> None:
        """Drop a client's requests, if any."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """See `Unanswered`."""


class NoUpstreams:
    """A server without upstreams."""

    def __init__(self) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Do nothing."""

    def forget(self, client: object) -> None:
        """Do nothing."""

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return no names."""
        return nothing_unanswered(type_url, names)


WILDCARD = "*"

# The number of sent versions that are remembered.
MOST_VERSIONS = 4096

# The size of the smallest text object.
_NAME_BYTES = 64


@dataclass(frozen=True, slots=True)
class Subscription:
    """One client's subscription to one type: `names`, or everything if `wildcard`.

    With `never_named`, the stream named none yet: an empty list means everything.
    """

    type_url: TypeUrl
    names: frozenset[str] = frozenset()
    wildcard: bool = True
    never_named: bool = field(default=False, compare=False)
    # Computed on first use: there may be a hundred thousand names, and no collection in the tree.
    _globs: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def initial(cls, type_url: TypeUrl) -> Subscription:
        """Return a new stream's subscription."""
        return cls(type_url, wildcard=False, never_named=True)

    @classmethod
    def for_request(cls, type_url: TypeUrl, names: Iterable[str]) -> Subscription:
        """Return the subscription of a streamless request."""
        wanted = cls.initial(type_url).requesting(frozenset(names))
        return cls(type_url) if wanted.wildcard else wanted

    def requesting(self, names: frozenset[str]) -> Subscription:
        """Return the subscription after a SotW request."""
        never_named = self.never_named and not names
        return Subscription(self.type_url, names - {WILDCARD}, never_named or WILDCARD in names, never_named)

    def changed(self, added: frozenset[str], removed: frozenset[str]) -> Subscription:
        """Apply a Delta request; a name in both sets is subscribed."""
        removed -= added
        if not added and not removed:
            return replace(self, wildcard=True) if self.never_named else self
        never_named = self.never_named and not added and WILDCARD not in removed
        wildcard = (self.wildcard or WILDCARD in added) and WILDCARD not in removed
        return Subscription(self.type_url, (self.names | added) - removed - {WILDCARD}, wildcard, never_named)

    @property
    def asked(self) -> frozenset[str]:
        """The names, including `*` for a wildcard."""
        return self.names | {WILDCARD} if self.wildcard else self.names

    @property
    def globs(self) -> frozenset[str]:
        """The names of collections."""
        if self._globs is None:
            object.__setattr__(self, "_globs", frozenset(filter(is_glob, self.names)))
        return self._globs or frozenset()

    @property
    def weight(self) -> int:
        """Its memory in KiB; 1 for an Envoy's. Takes time per name."""
        return 1 + sum(len(name) + _NAME_BYTES for name in self.names) // 1024

    def selects_any(self, change: RowsChange) -> bool:
        """Whether a change is selected; the cost follows the smaller set."""
        names = (change.fresh, change.renewed, change.removed)
        if self.wildcard:
            return any(names)
        return not all(map(self.names.isdisjoint, names)) or any(map(self._members_among, names))

    def selected(self, names: frozenset[str]) -> frozenset[str]:
        """Return the selected names."""
        return names if self.wildcard else self.among(names)

    def among(self, names: AbstractSet[str]) -> frozenset[str]:
        """Select by name or glob, not by the wildcard."""
        return self._members_among(names).union(self.names & names)

    def _members_among(self, names: AbstractSet[str]) -> frozenset[str]:
        globs = self.globs if names else ()
        return frozenset(name for name in names if glob_of(name) in globs) if globs else frozenset()

    def added_to(self, before: Subscription) -> frozenset[str]:
        """Return new names since `before`, including `*`."""
        added = self.names - before.names
        return added | {WILDCARD} if self.wildcard and not before.wildcard else added


@dataclass(frozen=True, slots=True)
class Selection:
    """The resources that a client should hold, sorted by name; `version` is the `version_info` on the wire."""

    type_url: TypeUrl
    version: Version
    resources: ResourceList
    missing: tuple[str, ...] = ()


def select(snapshot: Snapshot, subscription: Subscription) -> Selection:
    """Return the resources that a client should hold."""
    rows = snapshot.resources(subscription.type_url)
    version = version_of(snapshot, subscription)
    if subscription.wildcard:
        return Selection(subscription.type_url, version, rows.everything)
    resources = rows.select(selected_names(rows, subscription))
    return Selection(subscription.type_url, version, resources, missing_names(rows, subscription))


def selected_names(rows: Rows, subscription: Subscription) -> frozenset[str]:
    """Add members of globs; names may not exist."""
    if not has_structured_names(rows) or not subscription.globs:
        return subscription.names
    return expanded(rows, subscription.names, subscription.globs)


def has_any(snapshot: Snapshot, subscription: Subscription) -> bool:
    """Whether anything is selected; always true for a wildcard."""
    rows = snapshot.resources(subscription.type_url)
    return subscription.wildcard or bool(selected_names(rows, subscription) & rows.keys())


def missing_names(rows: Rows, subscription: Subscription) -> tuple[str, ...]:
    """Return subscribed names without resources, and empty globs, sorted."""
    missing = frozenset[str]() if subscription.wildcard else names_without(rows, subscription.names)
    if missing and has_structured_names(rows):
        missing = frozenset(name for name in missing if name not in subscription.globs or is_empty(rows, name))
    return tuple(sorted(missing))


def names_without(rows: Mapping[str, Resource], names: AbstractSet[str]) -> frozenset[str]:
    """The cost follows the names; that of `-` follows the rows."""
    return frozenset(names - (names & rows.keys()))


def version_of(snapshot: Snapshot, subscription: Subscription) -> Version:
    """Return a selection's version: the authors', if served, else a digest of names and versions.

    Only changes to the selection wake its client. No selection is created.
    """
    type_url = subscription.type_url
    if type_url in snapshot.authored:
        return Version(snapshot.authored[type_url])
    rows = snapshot.resources(type_url)
    return rows.version if subscription.wildcard else rows.version_of(selected_names(rows, subscription))


def files_of(subscription: Subscription, version: Version, snapshot: Snapshot) -> tuple[PurePosixPath, ...]:
    """Return a version's files; empty if a newer one is served.

    `version` is the selection's, or the whole type's, as in Delta responses.
    """
    selection = select(snapshot, subscription)
    if version not in {selection.version, version_of(snapshot, Subscription(subscription.type_url))}:
        return ()
    change = snapshot.changes.get(subscription.type_url)
    if subscription.wildcard and change is not None and change.files:
        return change.files
    # The last change of the type may concern other names than the selected ones.
    changed = frozenset((*change.added, *change.changed)) if change is not None else frozenset()
    updated = [resource for resource in selection.resources if resource.name in changed]
    return tuple(sorted({resource.origin.path for resource in updated or selection.resources}))


class SharedMemory:
    """State shared by a server's streams.

    `unanswered` returns missing names that may exist elsewhere; `rollout` also applies to clients that bring content.
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
        """Let streams with equal subscriptions share one set."""
        found = self._name_sets.setdefault(hash(names), names)
        return found if found == names else names

    def know(self, version: Version) -> None:
        """Record a version that was sent, or that a client holds."""
        self._known_versions.put(version, True)

    def is_known(self, version: Version) -> bool:
        """Whether a version was known: later removals were reported."""
        return version in self._known_versions


# The maximum number of cached name sets per type, and of names in all of them.
MOST_KEPT, MOST_KEPT_NAMES = 1024, 1_000_000


def expanded(rows: Rows, names: frozenset[str], globs: frozenset[str]) -> frozenset[str]:
    """Add the members of the globs."""
    return rows.derive(_GlobMembers, lambda: _GlobMembers(rows.by_name)).expanded(names, globs)


def has_structured_names(rows: NameTable[Resource]) -> bool:
    """Whether any resource has a structured name."""
    return next(rows.starting_with(SCHEME), None) is not None


def members_of(rows: NameTable[Resource], glob: str) -> Iterator[str]:
    """Yield a glob's members; the cost follows its directory's size."""
    directory = glob.partition("?")[0].removesuffix(GLOB[1:])
    return (name for name, _ in rows.starting_with(directory) if glob_of(name) == glob)


def is_empty(rows: NameTable[Resource], glob: str) -> bool:
    """Whether a glob has no members."""
    return next(members_of(rows, glob), None) is None


class _GlobMembers:
    def __init__(self, rows: NameTable[Resource]) -> None:
        self._rows = rows
        self._members: Lru[str, frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)
        self._expanded: Lru[frozenset[str], frozenset[str]] = Lru(MOST_KEPT, len, MOST_KEPT_NAMES)

    def expanded(self, names: frozenset[str], globs: Iterable[str]) -> frozenset[str]:
        return self._expanded.find(names, lambda: names.union(*map(self._members_of, globs)))

    def _members_of(self, glob: str) -> frozenset[str]:
        return self._members.find(glob, lambda: frozenset(members_of(self._rows, glob)))


VIRTUAL_HOSTS = BY_SHORT_NAME["vhds"].type_url

# How much of a name is shown, and the maximum number of rejected names with a reason in a response.
_SHOWN = 200
MOST_REASONS = 100

# Decoding a name takes some 20 microseconds, during which all other clients wait. Most names are canonical as written.
MOST_DECODED = 20_000

# The size of the cache of read names, and the maximum length of cached names.
MOST_READ_NAMES, _LONGEST_KEPT = 20_000, 256


@dataclass(frozen=True, slots=True)
class RequestedNames:
    """The meaning of a request's structured names.

    `canonical` maps other spellings, `rejected` canonical names to reasons. `without_authority` is one name completed
    by the settings' authority, or "".
    """

    canonical: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rejected: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    without_authority: str = ""

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return canonical names."""
        return tuple(self.canonical.get(name, name) for name in names) if self.canonical else tuple(names)


NO_STRUCTURED_NAMES = RequestedNames()


def read_names(names: Iterable[str], type_url: TypeUrl, authority: str = "") -> RequestedNames:
    """Read a request's names; `authority` completes names without one.

    Raises:
        LimitError: too many names have to be decoded.
    """
    structured = [name for name in names if is_structured(name)] if type_url != VIRTUAL_HOSTS else []
    if not structured:
        return NO_STRUCTURED_NAMES
    forms: dict[str, str] = {}
    rejected: dict[str, str] = {}
    others = [name for name in structured if not is_as_written(name, type_url)]
    if len(others) > MOST_DECODED:
        raise LimitError("max-names", f"the request has more than {MOST_DECODED} names with codes or parameters")
    for written in others:
        read = _read_short if len(written) <= _LONGEST_KEPT else _read
        form, reason = read(written, type_url, authority)
        if form != written:
            forms[written] = form
        if reason and len(rejected) < MOST_REASONS:
            rejected[form] = reason
    completed = (name for name in forms if authority and names_no_authority(name))
    return RequestedNames(forms, rejected, next(completed, "")[:_SHOWN])


def _read(written: str, type_url: TypeUrl, authority: str) -> tuple[str, str]:
    """Return the canonical form or the name, and a rejection's reason."""
    try:
        return canonical_of_type(written, type_url, authority), ""
    except MalformedName as error:
        reason = f"{written[:_SHOWN]!r} {error}"
        with suppress(MalformedName):
            written = canonical(written, authority)
        return written, reason


# On a SotW stream, a client repeats its names with each ACK.
_read_short = lru_cache(maxsize=MOST_READ_NAMES)(_read)


def checked_names(names: Iterable[str], type_url: TypeUrl, authority: str = "") -> tuple[str, ...]:
    """For a request without a stream. Raises ProtocolError for a rejected name."""
    written = tuple(names)
    read = read_names(written, type_url, authority)
    reject_request(read.rejected)
    return read.among(written)


def reject_request(rejected: Mapping[str, str]) -> None:
    """For a request without a stream. Raises ProtocolError for a rejected name."""
    for reason in rejected.values():
        raise ProtocolError(reason_of(reason))


def reason_of(reason: str) -> str:
    """Add the field to a reason."""
    return f"resource_names: {reason}"
