"""Resolves the names of a Delta subscription.

| rule | source (quoted: xDS protocol) |
| --- | --- |
| A name stands for its resource, else for the first one, by name, that has it as an alias. | "Aliases" |
| A glob `xdstp://authority/type/path/*` stands for a collection's members. | xRFC TP1, "Glob collections"; ENVOY.md E43 |
| A name subscribed to again is sent again: the client may have forgotten its resource. | "Subscribing to Resources" |
| An unsubscribed name is answered only under a wildcard: the client cannot know whether that selects it. | "Unsubscribing from Resources" |
| A subscribed name that does not exist is reported as removed once it is certain (`absence.py`); a glob is not. | "Knowing When a Requested Resource Does Not Exist", "Deleting Resources" |
| A collection's members have its directory, and nothing deeper, and its parameters. All names are canonical. | xRFC TP1, "Glob collections" |
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import ClassVar, Self

from fsxds.model.memo import Lru
from fsxds.model.name_table import NameTable
from fsxds.model.resource_names import SCHEME, glob_of, is_glob
from fsxds.model.resources import Resource, Rows, RowsChange
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.acks import NOTHING, Answer
from fsxds.protocol.messages import DeltaRequest
from fsxds.protocol.subscription import WILDCARD, SharedMemory, Subscription, names_without

# The size of the cache of looked-up names, which come from clients.
MOST_KEPT = 100_000


class Lookup:
    """Finds resources by clients' names. All streams share one per type."""

    __slots__ = ("_found", "_index", "rows")

    def __init__(self, rows: Mapping[str, Resource]) -> None:
        self.rows = rows
        self._index = NameIndex(rows)
        # Maps names that are not own names to the own names that they stand for.
        self._found: Lru[str, tuple[str, ...]] = Lru(MOST_KEPT)

    @classmethod
    def of(cls, rows: Rows, before: Rows | None = None) -> Self:
        """Return the rows' lookup; reuse unchanged results of `before`."""
        return rows.derive(cls, lambda: cls._make(rows, before))

    @classmethod
    def _make(cls, rows: Rows, before: Rows | None) -> Self:
        # Given only the table, not the rows: rows that reference themselves would wait for the garbage collector.
        lookup = cls(rows.by_name)
        if before is not None and (last := before.derived(cls)) is not None:
            lookup.take_over(last, rows.changes_since(before))
        return lookup

    def take_over(self, last: Lookup, change: RowsChange) -> bool:
        """Reuse earlier rows' results; return whether all are valid."""
        self._index = last._index.after(self.rows, change)
        if not self._index.finds_as(last._index):
            return False
        self._found = last._found
        return True

    def find(self, name: str) -> tuple[Resource, ...]:
        """Return a name's resources, if any."""
        return tuple(self.rows[own] for own in self._names_of(name))

    def existing(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return names that stand for a resource.

        A client may subscribe to a hundred thousand others; they are not looked up one by one.
        """
        found = names & self.rows.keys() | names & self._index.aliases().keys()
        if self._index.collections():
            found |= {name for name in names - found if self._names_of(name)}
        return frozenset(found)

    def has_any_member(self, names: AbstractSet[str]) -> bool:
        """Whether any collection among names has members."""
        collections = self._index.collections()
        return bool(collections) and any(name in collections and self.is_collection_name(name) for name in names)

    def names(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the own names of these names' resources."""
        return frozenset(own for name in self.existing(names) for own in self._names_of(name))

    def is_collection_name(self, name: str) -> bool:
        """Whether it is a glob and no own name."""
        return is_glob(name) and name not in self.rows

    def collections_among(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the names of collections."""
        return frozenset(name for name in names if self.is_collection_name(name))

    def members_among(self, names: AbstractSet[str], collections: AbstractSet[str]) -> frozenset[str]:
        """Return the members of these collections."""
        members = (name for name in names & self.rows.keys() if name.startswith(SCHEME))
        return frozenset(name for name in members if glob_of(name) in collections)

    def _names_of(self, name: str) -> tuple[str, ...]:
        if name in self.rows:
            return (name,)
        return self._found.find(name, lambda: self._look_up(name))

    def _look_up(self, name: str) -> tuple[str, ...]:
        if is_glob(name):
            return self._index.collections().get(name, ())
        owners: tuple[str, ...] = self._index.aliases().get(name, ())
        return owners[:1]


@dataclass(frozen=True, slots=True)
class Changes:
    """A Delta update's names; `|` merges.

    `fresh` are to be sent, with `is_all` all. `absent` were subscribed to and do not exist, `unpopulated` are hosts
    among them. `removed` have to be dropped; `ends_wait` are sent as removed although they name no resource. With
    `is_due`, even an empty response is sent.
    """

    fresh: frozenset[str] = NOTHING
    absent: frozenset[str] = NOTHING
    removed: frozenset[str] = NOTHING
    unpopulated: frozenset[str] = NOTHING
    ends_wait: frozenset[str] = NOTHING
    is_all: bool = False
    is_due: bool = False

    def __bool__(self) -> bool:
        names = self.fresh or self.absent or self.removed or self.unpopulated or self.ends_wait
        return bool(names) or self.is_all or self.is_due

    def __or__(self, other: Changes) -> Changes:
        if not self or not other:
            return self or other
        return Changes(*(getattr(self, field) | getattr(other, field) for field in self.__slots__))

    def consistent(self) -> Changes:
        """Fresh names go before removed, these before absent."""
        if not self.removed:
            return self
        removed = self.removed - self.fresh
        return replace(self, absent=self.absent - removed, removed=removed, unpopulated=self.unpopulated - removed)


NO_CHANGES = Changes()

NO_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType({})

Held = Mapping[str, Version]
"""A client's `initial_resource_versions`: its resources from another stream, of any process."""


class DeltaNames:
    """One client's subscribed names of one type.

    Names that are no resource's own are separate: each change resolves them again.
    """

    __slots__ = ("_indirect", "_memory", "has_given_up", "spellings", "subscription")

    # Whether NACKed resources are sent again together, and removals with additions.
    keeps_together: ClassVar[bool] = False

    def __init__(self, type_url: TypeUrl, memory: SharedMemory) -> None:
        self.subscription = Subscription.initial(type_url)
        # The client's spellings of the names.
        self.spellings = Spellings()
        self._memory = memory
        # Whether names were unsubscribed whose resources the client is to drop.
        self.has_given_up = False
        # The names that were not resources' own names when they were last answered.
        self._indirect = NOTHING

    @property
    def names(self) -> frozenset[str]:
        """The subscribed names."""
        return self.subscription.names

    @property
    def selects_all(self) -> bool:
        """Whether the subscription is a wildcard."""
        return self.subscription.wildcard

    def lookup(self, rows: Rows, before: Rows | None = None) -> Lookup:
        """Return the lookup for this type's names."""
        return Lookup.of(rows, before)

    def receive(self, request: DeltaRequest) -> frozenset[str]:
        """Return names to answer, including `*` for a wildcard."""
        asked, before = frozenset(request.subscribe), self.subscription
        after = before.changed(asked, frozenset(request.unsubscribe))
        if after is before:
            return NOTHING
        self.subscription = after = replace(after, names=self._memory.share(after.names))
        given_up = before.names - after.names
        self._indirect -= given_up
        asked |= after.added_to(before) & {WILDCARD}
        return asked | given_up if self.selects_all else asked

    def begin(self, held: Held, after: Lookup) -> Changes:
        """Return removals of brought resources."""
        gone = names_without(after.rows, held.keys())
        # A brought resource with an unsubscribed own name may be held by a name that stands for no resource any more.
        if not gone or self.selects_all or not self.names <= after.rows.keys():
            return Changes(removed=gone)
        return NO_CHANGES

    def change(self, updated: frozenset[str], removed: frozenset[str], before: Lookup, after: Lookup) -> Changes:
        """Return the changes to send; `before` is the lookup at the previous response."""
        if self.selects_all:
            return Changes(updated, removed=removed)
        if not updated and not removed:
            return NO_CHANGES
        return self._follow(updated, removed, before, after)

    def _follow(self, updated: frozenset[str], removed: frozenset[str], before: Lookup, after: Lookup) -> Changes:
        own, indirect = self._own, self._indirect
        lost = own & removed
        if not indirect and not lost:
            return Changes(updated & own)
        self._indirect = self._still_indirect(lost, after)
        was, now = self._stood_for(indirect, updated | removed, before, after)
        return Changes(
            (updated & own) | (updated & now) | _newly(now - was, own, before),
            removed=lost | _newly(was - now, own, after) | self._ended(indirect, before, after),
        )

    def _stood_for(
        self, indirect: frozenset[str], changed: frozenset[str], before: Lookup, after: Lookup
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return own names that indirect names stood for, and stand for now; of collections, changed ones."""
        collections = before.collections_among(indirect)
        if not collections or collections != after.collections_among(self._indirect):
            return before.names(indirect), after.names(self._indirect)
        was = before.names({name for name in indirect if not before.is_collection_name(name)})
        now = after.names({name for name in self._indirect if not after.is_collection_name(name)})
        looked_at = changed | was | now
        was |= before.members_among(looked_at, collections)
        return was, now | after.members_among(looked_at, collections)

    @property
    def _own(self) -> frozenset[str]:
        return self.names

    def _still_indirect(self, lost: frozenset[str], after: Lookup) -> frozenset[str]:
        return names_without(after.rows, self._indirect | lost)

    def _ended(self, indirect: frozenset[str], before: Lookup, after: Lookup) -> frozenset[str]:
        existed = before.existing(indirect & self._indirect)
        return frozenset(name for name in existed - after.existing(existed) if not is_glob(name))

    def answer(self, asked: frozenset[str], held: Held, after: Lookup, pending: frozenset[str]) -> Changes:
        """`held` resources are left out; `pending` ones were NACKed."""
        # There may be ten thousand names, and most of them are own names.
        own = asked & after.rows.keys()
        others = asked - own - {WILDCARD}
        existing = after.existing(others)
        found = own | after.names(existing) if existing else own
        answered = Changes(unheld(found, held, after), absent=others - existing)
        if WILDCARD not in asked:
            return answered
        if held:
            return answered | Changes(unheld(after.rows.keys(), held, after))
        return answered | Changes(is_all=True, is_due=True)

    def answer_again(
        self, names: frozenset[str], after: Lookup, held_back: frozenset[str], *, is_first: bool
    ) -> Changes:
        """Return subscribed names to send again for other types; with `is_first`, all are sent anyway."""
        wanted = names if self.selects_all else names & self.names
        existing = after.existing(wanted)
        return Changes(after.names(existing) - held_back, absent=wanted - existing - held_back)

    def needed_by(self, users: Iterable[Resource]) -> frozenset[str]:
        """Return names that other types' resources reference."""
        return references_to(self.subscription.type_url, users)

    def settle(self, asked: frozenset[str], after: Lookup) -> None:
        """Record that names have been answered."""
        if asked:
            self._indirect |= names_without(after.rows, asked) & self.names

    def new_globs(self, asked: frozenset[str]) -> frozenset[str]:
        """Return collections not yet answered on this stream."""
        return frozenset(name for name in asked - self._indirect if is_glob(name)) if asked else NOTHING

    def has_members(self, lookup: Lookup) -> bool:
        """Whether the client gets members of a collection."""
        return bool(self._indirect) and lookup.has_any_member(self._indirect)

    def receive_nack(self, answer: Answer) -> None:
        """Process a NACK; only `HostNames` keeps a record."""

    def aliases(
        self, resources: Iterable[Resource], requested: frozenset[str], lookup: Lookup
    ) -> Mapping[str, tuple[str, ...]]:
        """Return aliases that replace resources' own."""
        if not self.spellings:
            return NO_ALIASES
        others = ((each, self.spellings.others(each.name)) for each in resources)
        return {each.name: tuple(sorted({*each.aliases, *more})) for each, more in others if more}

    def held(self, lookup: Lookup) -> frozenset[str]:
        """Return selected own names; not for a wildcard."""
        own = self.names & lookup.rows.keys()
        return own | lookup.names(self._indirect) if self._indirect else own

    def may_select_any(self, change: RowsChange) -> bool:
        """Indirect names are not looked up."""
        return bool(self._indirect) or self.subscription.selects_any(change)

    def may_select(self, names: frozenset[str]) -> frozenset[str]:
        """Indirect names are not looked up."""
        return names if self._indirect else self.subscription.selected(names)

    def wanted(self, names: frozenset[str], lookup: Lookup) -> frozenset[str]:
        """Return the selected own names."""
        if self.selects_all or names <= self.names:
            return names
        return names & (self.names | lookup.names(self._indirect))


def references_to(type_url: TypeUrl, users: Iterable[Resource]) -> frozenset[str]:
    """Return the names that resources reference."""
    return frozenset(
        reference.name for user in users for reference in user.references if reference.type_url == type_url
    )


def unheld(names: AbstractSet[str], held: Held, lookup: Lookup) -> frozenset[str]:
    """Return names not held in the current version."""
    if not held:
        return frozenset(names)
    return frozenset(name for name in names if held.get(name) != lookup.rows[name].version)


def _newly(names: frozenset[str], own: frozenset[str], other: Lookup) -> frozenset[str]:
    return frozenset(name for name in names if name not in own or name not in other.rows)


# Up to this many names are found faster by bisection than by sorting the list.
FEW_CHANGES = 128

KeysOf = Callable[[Resource], Iterable[str]]
"""Returns a resource's aliases or collections."""


Owners = NameTable[tuple[str, ...]]
"""The sorted names of the resources with each alias, or in each collection."""


def _owners_of(rows: Mapping[str, Resource], keys_of: KeysOf) -> Owners:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for resource in rows.values():
        for key in keys_of(resource):
            found[key].append(resource.name)
    return NameTable({key: tuple(sorted(names)) for key, names in found.items()})


def _owners_after(
    owners: Owners, changes: Iterable[tuple[str, Resource | None, Resource | None]], keys_of: KeysOf
) -> Owners:
    lost, gained = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for name, old, new in changes:
        was, now = (frozenset(keys_of(each) if each is not None else ()) for each in (old, new))
        for key in was - now:
            lost[key].add(name)
        for key in now - was:
            gained[key].add(name)
    if not lost and not gained:
        return owners
    changed = {key: _names_after(owners.get(key, ()), lost[key], gained[key]) for key in lost.keys() | gained.keys()}
    kept = {key: names for key, names in changed.items() if names}
    return owners.changed(kept, frozenset(owners.among(changed.keys() - kept.keys())))


def _names_after(before: tuple[str, ...], lost: set[str], gained: set[str]) -> tuple[str, ...]:
    if len(lost) + len(gained) > FEW_CHANGES:
        return tuple(sorted((*(name for name in before if name not in lost), *gained)))
    # A collection may have 20 000 members, one of which is removed each second: copying is cheaper than comparing.
    names = list(before)
    for name in lost:
        del names[bisect_left(names, name)]
    for name in gained:
        insort(names, name)
    return tuple(names)


class NameIndex:
    """Builds each table when needed."""

    __slots__ = ("_by_alias", "_by_collection", "_rows")

    def __init__(self, rows: Mapping[str, Resource]) -> None:
        self._rows = rows
        self._by_alias: Owners | None = None
        self._by_collection: Owners | None = None

    def aliases(self) -> Owners:
        """Return each alias's resources; it stands for the first one."""
        if self._by_alias is None:
            self._by_alias = _owners_of(self._rows, attrgetter("aliases"))
        return self._by_alias

    def collections(self) -> Owners:
        """Return each collection's members."""
        if self._by_collection is None:
            self._by_collection = _owners_of(self._rows, _collections_of)
        return self._by_collection

    def after(self, rows: Mapping[str, Resource], change: RowsChange) -> NameIndex:
        """Return the index after a change, sharing unchanged tables."""
        changes = [(name, self._rows.get(name), rows.get(name)) for name in change.names]
        index = NameIndex(rows)
        if self._by_alias is not None:
            index._by_alias = _owners_after(self._by_alias, changes, attrgetter("aliases"))
        if self._by_collection is not None:
            index._by_collection = _owners_after(self._by_collection, changes, _collections_of)
        return index

    def finds_as(self, other: NameIndex) -> bool:
        """Whether it certainly finds as `other`, from which it was derived."""
        has_same_aliases = self._by_alias is not None and self._by_alias is other._by_alias
        return has_same_aliases and self._by_collection is not None and self._by_collection is other._by_collection


def _collections_of(resource: Resource) -> Iterator[str]:
    if resource.name.startswith(SCHEME):
        yield glob_of(resource.name)


class Spellings:
    """One Delta client's other spellings of subscribed names."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        # All spellings in use of a name; omitted if the canonical form is the only one.
        self._by_name: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def others(self, name: str) -> AbstractSet[str]:
        """Return a canonical name's other spellings."""
        return self._by_name.get(name, set()) - {name}

    def with_others(self, names: frozenset[str]) -> frozenset[str]:
        """Add the other spellings."""
        return names.union(*map(self.others, names & self._by_name.keys())) if self._by_name else names

    def receive(self, request: DeltaRequest, subscribed: AbstractSet[str]) -> DeltaRequest:
        """Return a request with canonical names; remember its spellings.

        A name unsubscribed in one spelling stays subscribed in another. `subscribed` are canonical names before.
        """
        if not request.canonical and not self._by_name:
            return request
        form_of, asked = request.canonical, frozenset(request.subscribe)
        subscribe = tuple(form_of.get(written, written) for written in request.subscribe)
        for written, name in zip(request.subscribe, subscribe, strict=True):
            if written != name or name in self._by_name:
                # A client may send thousands of spellings of one name.
                self._by_name.setdefault(name, ({name} & subscribed) | ({name} & asked)).add(written)
        given_up = []
        for written in request.unsubscribe:
            name = form_of.get(written, written)
            left = self._by_name.get(name, set())
            left.discard(written)
            if not left:
                self._by_name.pop(name, None)
                given_up.append(name)
        held = {form_of.get(name, name): version for name, version in request.initial_resource_versions.items()}
        return replace(request, subscribe=subscribe, unsubscribe=tuple(given_up), initial_resource_versions=held)
