"""A tree's names: definitions, the resources that mention each, and open ones.

All is immutable and shares unchanged parts: the next tree costs only its changes.

Rules: a reference with alternatives leads somewhere while one of them is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from rpds import HashTrieMap, HashTrieSet

from fsxds.model.resource_names import FILE_SCHEME, Locator, MalformedName, glob_of, is_structured
from fsxds.model.resource_types import BY_SHORT_NAME, route_configuration_of
from fsxds.model.resources import CLAIMED, Key, ParsedFile, Resource, key_of
from fsxds.model.values import Severity, TypeUrl
from fsxds.snapshots.proposals import NOWHERE, Elsewhere, Proposals
from fsxds.snapshots.references import (
    ANY,
    CLUSTER,
    ENDPOINTS,
    EXTENSION_CONFIG,
    IN_FILE,
    LB_ENDPOINT,
    ROUTES,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)

IN_COLLECTIONS = frozenset({LB_ENDPOINT, VIRTUAL_HOST})
"""Types that Envoy requests by collection."""

# Remembering longer texts than usual names would take much memory.
_LONGEST_REMEMBERED = 500

Mention: TypeAlias = tuple[Key, Resource]

Counted = TypeVar("Counted", bound=Hashable)

# Resources by their ids: equal ones of two files are two.
_ResourcesById: TypeAlias = "HashTrieMap[int, Resource]"


class ByKey:
    """Resources by keys; most keys have one."""

    __slots__ = ("_found",)

    def __init__(self, found: HashTrieMap[Key, Resource | _ResourcesById] | None = None) -> None:
        self._found: HashTrieMap[Key, Resource | _ResourcesById] = HashTrieMap() if found is None else found

    def __contains__(self, key: object) -> bool:
        """Whether a key has a resource."""
        return key in self._found

    def __bool__(self) -> bool:
        """Whether there is any."""
        return len(self._found) > 0

    def of(self, key: Key) -> Collection[Resource]:
        """Return a key's resources."""
        found = self._found.get(key)
        if found is None:
            return ()
        return (found,) if isinstance(found, Resource) else found.values()

    def with_changes(self, lost: Iterable[Mention], added: Iterable[Mention]) -> ByKey:
        """Return a copy with changes."""
        changed: dict[Key, Resource | _ResourcesById | None] = {}
        for key, resource in lost:
            changed[key] = _without(changed[key] if key in changed else self._found.get(key), resource)
        for key, resource in added:
            changed[key] = _with(changed[key] if key in changed else self._found.get(key), resource)
        if not changed:
            return self
        found = self._found
        for key in [key for key, left in changed.items() if left is None]:
            found = found.discard(key)
        return ByKey(found.update({key: left for key, left in changed.items() if left is not None}))


def _with(found: Resource | _ResourcesById | None, resource: Resource) -> Resource | _ResourcesById:
    if found is None or found is resource:
        return resource
    several = HashTrieMap({id(found): found}) if isinstance(found, Resource) else found
    return several.insert(id(resource), resource)


def _without(found: Resource | _ResourcesById | None, resource: Resource) -> Resource | _ResourcesById | None:
    if found is None or found is resource:
        return None
    if isinstance(found, Resource):
        return found
    left = found.discard(id(resource))
    return next(iter(left.values())) if len(left) == 1 else left


class KeySet:
    """Types and names."""

    __slots__ = ("_by_type",)

    def __init__(self, by_type: Mapping[TypeUrl, HashTrieSet[str]] | None = None) -> None:
        self._by_type: Mapping[TypeUrl, HashTrieSet[str]] = {} if by_type is None else by_type

    def __contains__(self, key: Key) -> bool:
        """Whether it has this key."""
        names = self._by_type.get(key[0])
        return names is not None and key[1] in names

    def __iter__(self) -> Iterator[Key]:
        """Yield all keys."""
        return ((type_url, name) for type_url, names in self._by_type.items() for name in names)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(len(names) for names in self._by_type.values())

    @property
    def types(self) -> Collection[TypeUrl]:
        """Some have no names."""
        return self._by_type.keys()

    def of(self, type_url: TypeUrl) -> Collection[str]:
        """Return a type's names."""
        return self._by_type.get(type_url, ())

    def updated(self, keys: Iterable[Key], belongs: Callable[[Key], bool]) -> KeySet:
        """Add or remove keys as `belongs` says."""
        added: dict[TypeUrl, list[str]] = {}
        by_type = dict(self._by_type)
        is_same = True
        for key in keys:
            type_url, name = key
            is_in = key in self
            if belongs(key) is is_in:
                continue
            is_same = False
            if is_in:
                by_type[type_url] = by_type[type_url].discard(name)
            else:
                added.setdefault(type_url, []).append(name)
        for type_url, names in added.items():
            by_type[type_url] = by_type.get(type_url, HashTrieSet()).update(names)
        return self if is_same else KeySet(by_type)

    def of_types(self, types: Iterable[TypeUrl]) -> KeySet:
        """Keep just these types."""
        return KeySet({type_url: self._by_type.get(type_url, HashTrieSet()) for type_url in types})


class CollectedMentions:
    """Mentions and collections, with their resources."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.demanded: list[Mention] = []
        self.noted: list[Mention] = []
        self.static: list[Mention] = []
        self.claims: list[Mention] = []
        self.sources: list[Mention] = []
        self.asked: list[Mention] = []
        self.members: list[Mention] = []
        self.located: list[Mention] = []
        self.defined: list[Key] = []
        for resource in resources:
            self.defined.append(key_of(resource))
            if resource.type_url in IN_COLLECTIONS:
                collection = resource.type_url, collection_of(resource.type_url, resource.name)
                self.members.append((collection, resource))
            for type_url, name, _, severity, is_static in resource.references:
                if is_static:
                    self.static.append(((type_url, name), resource))
                elif type_url in CLAIMED:
                    self.claims.append(((type_url, name), resource))
                elif type_url.startswith(IN_FILE):
                    self.sources.append((source_key(PurePosixPath(name.partition("\n")[0])), resource))
                elif type_url in IN_COLLECTIONS:
                    self.asked.append(((type_url, collection_of(type_url, name)), resource))
                else:
                    # Resources that may be used need not exist.
                    mentions = self.noted if severity is Severity.NOTE else self.demanded
                    mentions.append(((type_url, name), resource))
                    if "#" in name:
                        choices = [((type_url, choice), resource) for choice in choices_of(name)]
                        self.noted += choices
                        self.located += choices


def choices_of(name: str) -> tuple[str, ...]:
    """Return a locator's alternatives, if any."""
    if "#" not in name or not is_structured(name):
        return ()
    return _remembered_choices(name) if len(name) <= _LONGEST_REMEMBERED else _choices(name)


def _choices(name: str) -> tuple[str, ...]:
    try:
        return tuple(str(choice.target) for choice in Locator.parse(name).choices())
    except MalformedName:
        return ()


_remembered_choices = lru_cache(maxsize=1024)(_choices)


def source_key(path: PurePosixPath) -> Key:
    """Return a file source's key: a tree's path ends the path that names it."""
    return TypeUrl(IN_FILE), path.name


def collection_of(type_url: TypeUrl, name: str) -> str:
    """Return a name's collection.

    That of virtual hosts is `<route configuration>/*`. Of `xdstp://authority/type/directory/name?key=value`, directory and
    parameters make it; names are canonical.
    """
    if type_url == VIRTUAL_HOST:
        return f"{route_configuration_of(name)}/{ANY}"
    return glob_of(name)


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Possibly changed keys."""

    names: frozenset[Key] = frozenset()
    static: frozenset[Key] = frozenset()
    collections: frozenset[Key] = frozenset()
    claims: frozenset[Key] = frozenset()

    def __or__(self, other: TouchedKeys) -> TouchedKeys:
        """Return the keys of both."""
        return TouchedKeys(
            _both(self.names, other.names),
            _both(self.static, other.static),
            _both(self.collections, other.collections),
            _both(self.claims, other.claims),
        )


# Most sets of keys are empty, and a thousand views have some each: all share one object.
_NONE = frozenset[Key]()


def _both(keys: frozenset[Key], others: frozenset[Key]) -> frozenset[Key]:
    return keys | others if keys and others else keys or others or _NONE


@dataclass(frozen=True, slots=True)
class NamesChange:
    """Files and resources that differ between trees."""

    lost_files: tuple[ParsedFile, ...]
    added_files: tuple[ParsedFile, ...]
    lost: CollectedMentions
    added: CollectedMentions

    @classmethod
    def of(
        cls,
        lost: tuple[Iterable[ParsedFile], Iterable[Resource]],
        added: tuple[Iterable[ParsedFile], Iterable[Resource]],
    ) -> NamesChange:
        """Collect differing mentions."""
        return cls(tuple(lost[0]), tuple(added[0]), CollectedMentions(lost[1]), CollectedMentions(added[1]))

    @property
    def touched(self) -> TouchedKeys:
        """Possibly changed keys."""
        both = self.lost, self.added
        names = {key for one in both for key in one.defined}
        names |= {(one.type_url, one.name) for parsed in (*self.lost_files, *self.added_files) for one in parsed.unread}
        names |= {(type_url, ANY) for type_url in {type_url for type_url, _ in names}}
        names |= {key for one in both for mentions in (one.demanded, one.noted) for key, _ in mentions}
        return TouchedKeys(
            frozenset(names) or _NONE,
            frozenset(key for one in both for key, _ in one.static) or _NONE,
            frozenset(key for one in both for mentions in (one.asked, one.members) for key, _ in mentions) or _NONE,
            frozenset(key for one in both for key, _ in one.claims) or _NONE,
        )


Counts: TypeAlias = Mapping[TypeUrl, int]


@dataclass(frozen=True, slots=True)
class Mentions:
    """A tree's mentions.

    Attributes:
        demanded: by required key, the resources that need it.
        noted: by usable key, the resources that may use it.
        asked: by collection, the resources that request it.
        members: by collection, the resources in it.
        declared: the number of files that list a type.
        defined: the number of a type's resources, read or not.
    """

    demanded: ByKey = field(default_factory=ByKey)
    noted: ByKey = field(default_factory=ByKey)
    static: ByKey = field(default_factory=ByKey)
    claims: ByKey = field(default_factory=ByKey)
    sources: ByKey = field(default_factory=ByKey)
    asked: ByKey = field(default_factory=ByKey)
    members: ByKey = field(default_factory=ByKey)
    located: ByKey = field(default_factory=ByKey)
    unread: Mapping[Key, int] = field(default_factory=lambda: MappingProxyType({}))
    declared: Counts = field(default_factory=lambda: MappingProxyType({}))
    defined: Counts = field(default_factory=lambda: MappingProxyType({}))

    def locators(self, keys: Iterable[Key]) -> Iterator[Key]:
        """Yield locators with such an alternative."""
        for type_url, name in keys if self.located else ():
            for resource in self.located.of((type_url, name)):
                locators = (one for one in resource.references if one.type_url == type_url)
                yield from ((type_url, one.name) for one in locators if name in choices_of(one.name))

    def with_changes(self, change: NamesChange) -> Mentions:
        """Return the mentions after a change."""
        lost, added = change.lost, change.added
        files = change.lost_files, change.added_files
        was, now = ([(one.type_url, one.name) for parsed in part for one in parsed.unread] for part in files)
        defined = (*lost.defined, *was), (*added.defined, *now)
        return Mentions(
            **{one: getattr(self, one).with_changes(getattr(lost, one), getattr(added, one)) for one in _INDEXES},
            unread=_counted(self.unread, was, now),
            declared=_counted(self.declared, *([one for file in part for one in file.declared] for part in files)),
            defined=_counted(self.defined, *([type_url for type_url, _ in keys] for keys in defined)),
        )


_INDEXES = ("demanded", "noted", "static", "claims", "sources", "asked", "members", "located")


def _counted(before: Mapping[Counted, int], lost: Iterable[Counted], added: Iterable[Counted]) -> Mapping[Counted, int]:
    fewer, more = Counter(lost), Counter(added)
    return +(Counter(before) + more - fewer) if fewer or more else before


LISTENER = BY_SHORT_NAME["lds"].type_url

USERS: Mapping[TypeUrl, frozenset[TypeUrl]] = {
    CLUSTER: frozenset({LISTENER, ROUTES, VIRTUAL_HOST}),
    ENDPOINTS: frozenset({CLUSTER}),
    ROUTES: frozenset({LISTENER, SCOPED_ROUTE}),
    SCOPED_ROUTE: frozenset({LISTENER}),
    SECRET: frozenset({CLUSTER, LISTENER}),
    EXTENSION_CONFIG: frozenset({CLUSTER, LISTENER}),
}
"""The types that could use each type; without any of them in the tree, no name is reported as unused."""


@dataclass(frozen=True, slots=True)
class OpenNames:
    """Names with an open question.

    Attributes:
        missing: a file needs them, and none defines them.
        elsewhere: missing in files, but an upstream has or may have them.
        unmentioned: without a mention, of types that others could use.
        unasked: collections of virtual hosts that no route configuration requests.
    """

    missing: KeySet = field(default_factory=KeySet)
    unmentioned: KeySet = field(default_factory=KeySet)
    lacking: KeySet = field(default_factory=KeySet)
    empty: KeySet = field(default_factory=KeySet)
    unasked: KeySet = field(default_factory=KeySet)
    contested: KeySet = field(default_factory=KeySet)
    elsewhere: KeySet = field(default_factory=KeySet)


@dataclass(frozen=True, slots=True)
class NamesOfFiles:
    """Mentions in files, and open names; immutable."""

    mentions: Mentions = field(default_factory=Mentions)
    open: OpenNames = field(default_factory=OpenNames)


class TreeNames:
    """One tree's names.

    Derived from another's, at the cost of the difference.
    """

    def __init__(
        self, before: NamesOfFiles, change: NamesChange, definitions: Definitions, also: TouchedKeys | None = None
    ) -> None:
        """`also` are touched for other reasons."""
        self.mentions = before.mentions.with_changes(change)
        # Lookups are much faster here, which counts in the first tree.
        self._new_demands = frozenset(key for key, _ in change.added.demanded)
        touched = change.touched if also is None else change.touched | also
        self.touched = touched | TouchedKeys(frozenset(self.mentions.locators(touched.names)))
        self._definitions = definitions
        if definitions.outside.elsewhere:
            moved = {key for key in before.open.missing if self.is_defined(key)}
            moved |= {key for key in before.open.elsewhere if not self.is_defined(key)}
            self.touched |= TouchedKeys(frozenset(moved))
        self.open = self._updated(before.open)

    @property
    def of_files(self) -> NamesOfFiles:
        """The names without their inputs."""
        return NamesOfFiles(self.mentions, self.open)

    @property
    def static(self) -> StaticNames:
        """The names of the bootstrap."""
        return self._definitions.outside.static

    def defining(self, key: Key) -> tuple[Resource, ...]:
        """Return resources of this name."""
        return self._definitions.defining(key)

    def names_of(self, type_url: TypeUrl) -> Iterator[str]:
        """Yield a type's names, some twice."""
        yield from self._definitions.names_of(type_url)
        yield from (name for one, name in self.mentions.unread if one == type_url)

    def is_defined(self, key: Key) -> bool:
        """Whether it is, or may be, defined; `ANY`: any."""
        return self._is_here(key) or self._definitions.outside.elsewhere.may_have(key)

    def _is_here(self, key: Key) -> bool:
        if self._definitions.is_defined(key) or key in self.mentions.unread:
            return True
        # The content of a file is known only when it is read.
        if any(one.startswith(FILE_SCHEME) or self.is_defined((key[0], one)) for one in choices_of(key[1])):
            return True
        if key[1] == ANY and self.mentions.defined.get(key[0]):
            return True
        return key[0] == CLUSTER and key[1] in (self.static.clusters or ())

    def is_mentioned(self, key: Key) -> bool:
        """Whether a resource may use it."""
        return key in self._new_demands or key in self.mentions.demanded or key in self.mentions.noted

    def is_demanded(self, key: Key) -> bool:
        """Whether a resource now in its file needs it."""
        return any(map(self.is_present, self.mentions.demanded.of(key)))

    def is_present(self, resource: Resource) -> bool:
        """Whether it is now in its file, not only served."""
        return id(resource) not in self._definitions.absent

    def _updated(self, before: OpenNames) -> OpenNames:
        mentions, touched = self.mentions, self.touched
        secrets = {key for key in touched.names if key[0] == SECRET and key in mentions.static}
        return OpenNames(
            before.missing.updated(touched.names, lambda key: not self.is_defined(key) and self.is_demanded(key)),
            self._unmentioned(before.unmentioned),
            before.lacking.updated(touched.static | secrets, self._is_lacking),
            before.empty.updated(
                touched.collections, lambda key: key in mentions.asked and key not in mentions.members
            ),
            before.unasked.updated(
                touched.collections,
                lambda key: key[0] == VIRTUAL_HOST and key in mentions.members and key not in mentions.asked,
            ),
            before.contested.updated(touched.claims, lambda key: len(mentions.claims.of(key)) > 1),
            self._elsewhere(before.elsewhere),
        )

    def _elsewhere(self, before: KeySet) -> KeySet:
        elsewhere = self._definitions.outside.elsewhere
        if not (elsewhere or before):
            return before
        return before.updated(
            self.touched.names, lambda key: self.is_demanded(key) and elsewhere.may_have(key) and not self._is_here(key)
        )

    def _is_lacking(self, key: Key) -> bool:
        type_url, name = key
        if key not in self.mentions.static:
            return False
        known = self.static.of(type_url)
        # A discovered secret of this name shows that `sds_config` was forgotten.
        return name not in known if known is not None else type_url == SECRET and self.is_defined(key)

    def _unmentioned(self, before: KeySet) -> KeySet:
        """Newly used types are checked as a whole."""
        used = {
            type_url
            for type_url, users in USERS.items()
            if not users.isdisjoint(self.mentions.declared) and not self.is_mentioned((type_url, ANY))
        }
        known = before.types
        new = {(type_url, name) for type_url in used.difference(known) for name in self.names_of(type_url)}
        keys = new.union(key for key in self.touched.names if key[0] in used and key[1] != ANY)
        return before.of_types(used).updated(keys, lambda key: self.is_defined(key) and not self.is_mentioned(key))


class Definitions:
    """Proposals, and unserved contents of files.

    Attributes:
        absent: ids of served resources no longer in their files.
    """

    def __init__(
        self,
        proposals: Proposals,
        outside: OutsideNames,
        unserved: Iterable[Resource] = (),
        absent: frozenset[int] = frozenset(),
    ) -> None:
        self.outside = outside
        self.absent = absent
        self._proposals = proposals
        self._unserved: dict[Key, list[Resource]] = {}
        for resource in unserved:
            self._unserved.setdefault(key_of(resource), []).append(resource)

    def defining(self, key: Key) -> tuple[Resource, ...]:
        """Return resources of this name."""
        found = self._proposals.defining(key)
        return (*found, *self._unserved[key]) if key in self._unserved else found

    def is_defined(self, key: Key) -> bool:
        """Whether one has this name."""
        return key in self._unserved or self._proposals.is_defined(key)

    def names_of(self, type_url: TypeUrl) -> Iterator[str]:
        """Yield a type's names, some twice."""
        yield from self._proposals.names_of(type_url)
        yield from (name for one, name in self._unserved if one == type_url)


@dataclass(frozen=True, slots=True)
class StaticNames:
    """Static names of a bootstrap; None if unknown."""

    clusters: frozenset[str] | None = None
    secrets: frozenset[str] | None = None

    def of(self, type_url: TypeUrl) -> frozenset[str] | None:
        """Return the names of clusters or secrets."""
        return self.clusters if type_url == CLUSTER else self.secrets


@dataclass(frozen=True, slots=True)
class OutsideNames:
    """Names defined by the bootstrap and upstreams."""

    static: StaticNames = field(default_factory=StaticNames)
    elsewhere: Elsewhere = NOWHERE
