"""A tree's names: definitions, mentions, and open ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsxds.formats.decoded import PlainDocument, UnreadableError, read_text, unreadable
from fsxds.formats.yaml_format import read_yaml
from fsxds.lint.mentions import KeySet, Mentions, NamesChange, TouchedKeys, choices_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_names import FILE_SCHEME
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, Resource, key_of
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.snapshots.proposals import Proposals
from fsxds.snapshots.references import (
    ANY,
    CLUSTER,
    ENDPOINTS,
    EXTENSION_CONFIG,
    ROUTES,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)
from fsxds.snapshots.upstream_content import NOWHERE, Elsewhere

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


def static_names(bootstrap: PlainValue) -> StaticNames:
    """Return a bootstrap's names; none if malformed."""
    static = _field(bootstrap, "static_resources", "staticResources")
    return StaticNames(frozenset(_names(_field(static, "clusters"))), frozenset(_names(_field(static, "secrets"))))


def _field(value: PlainValue, *spellings: str) -> PlainValue:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in spellings if name in value), None)


def _names(resources: PlainValue) -> Iterator[str]:
    # Envoy's reader accepts one object for a list.
    for resource in resources if isinstance(resources, list) else [resources]:
        name = _field(resource, "name")
        if isinstance(name, str):
            yield name


def read_bootstrap_file(path: Path) -> PlainValue:
    """Read a bootstrap. Raises UsageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; --bootstrap names Envoy's bootstrap") from error
    try:
        decoded = read_yaml(read_text(content))
    except UnreadableError as error:
        decoded = unreadable(error.fault)
    if decoded.faults:
        fault = decoded.faults[0]
        raise UsageError(f"{path}:{fault.line or 1}:{fault.column or 1}: {fault.message}; {fault.remedy}")
    return next((document.value for document in decoded.documents if isinstance(document, PlainDocument)), None)
