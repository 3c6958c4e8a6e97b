"""Decides the names that an upstream is asked for, and the types that await an answer. Pure.

| rule | source |
| --- | --- |
| Clients' names are asked for, and their references, transitively. | xRFC TP1, "xDS relay proxy" |
| Unless only these are wanted, all resources of the types with full state in SotW are asked for: an Envoy begins with them. | |
| A structured name goes to its authority's upstream; all other names to those that have no authority. | xRFC TP1, "Federation" |
| A plain name is not asked for if its whole type is: it is there, or does not exist. | |
| Another upstream's referenced name is asked for there. | xRFC TP1, "Redirects" |
| Unneeded names are asked for ten minutes longer, for clients that come back, or until other names need the space. | |
| Whether an asked name exists is unknown until an answer, or 15 s of silence. | xDS protocol, "Knowing When a Requested Resource Does Not Exist" |
| A full state without a name that it never had is no answer: it may have been sent before. | gRPC A27 |

Rules: a reference of an upstream's resource goes to the upstream that has such names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType

from fsxds.model.resource_names import Locator, MalformedName, ResourceName, glob_of, is_structured, parse_or_none
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Key, Resource
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import WILDCARD
from fsxds.protocol.ttl import earliest
from fsxds.snapshots.names import VIRTUAL_HOST
from fsxds.upstream.holdings import ReadResponse

Names = Mapping[TypeUrl, frozenset[str]]

NO_NAMES: Names = MappingProxyType({})

# As clients do (xDS protocol, "Knowing When ...").
PATIENCE_S = 15.0
# For unneeded names.
LINGER_S = 600.0
# After the first response on a connection where everything is asked for: others may be on their way.
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class NameScope:
    """Names for which one upstream is responsible.

    Attributes:
        authority: empty: plain names and all authorities outside of `others`.
        others: other upstreams' authorities.
        is_asked_only: only for clients' names and their references; else for everything.
        most_names: also of held resources.
    """

    authority: str = ""
    others: frozenset[str] = frozenset()
    is_asked_only: bool = False
    most_names: int = 1_000_000

    def covers(self, name: str) -> bool:
        """Whether a name belongs here."""
        if not is_structured(name):
            return not self.authority
        structured = parse_or_none(name)
        if structured is None:
            # A virtual host's name after its route configuration's, or a malformed name.
            structured = parse_or_none(name.rpartition("/")[0])
        authority = structured.authority if structured is not None else ""
        return authority == self.authority if self.authority else authority not in self.others

    @property
    def always(self) -> frozenset[Key]:
        """Names asked for in any case."""
        if self.is_asked_only or self.authority:
            return frozenset()
        return frozenset((row.type_url, WILDCARD) for row in RESOURCE_TYPES if row.full_state_in_sotw)


class Subscriptions:
    """The names that one upstream is asked for.

    `wanted`, with `*` for a whole type, and `elsewhere`, other upstreams' referenced names, are replaced when changed.
    `most_names` may be set.
    """

    def __init__(self, scope: NameScope) -> None:
        self.wanted: Names = NO_NAMES
        self.elsewhere: Names = NO_NAMES
        self.most_names = scope.most_names
        self._scope = scope
        self._always = scope.always
        self._asked: Names = NO_NAMES
        self._names: dict[TypeUrl, set[str]] = {}
        self._size = 0
        # One for all clients, one for each referencing resource.
        self._reasons: Counter[Key] = Counter()
        # For names of other upstreams, only held resources count.
        self._elsewhere: dict[TypeUrl, Counter[str]] = {}
        # With the time when unneeded, oldest first.
        self._idle: dict[Key, float] = {}
        # Beyond the limit, oldest first.
        self._surplus: dict[Key, None] = {}
        # Until the next call of `shrunk`.
        self._shrunk: set[TypeUrl] = set()
        self._answers = _Answers()
        self._change(self._always, (), 0.0)
        self._answers.delay_until(self._always)

    @property
    def surplus(self) -> int:
        """Number of names beyond the limit."""
        return len(self._surplus)

    @property
    def pending(self) -> frozenset[TypeUrl]:
        """Types that await an answer for `*`, or for a held resource's reference.

        Clients' names count only until everything was answered once: made-up ones would keep others waiting.
        """
        return self._answers.pending

    @property
    def referred(self) -> frozenset[TypeUrl]:
        """Types with a held resource's unanswered reference."""
        return self._answers.referred

    def has_answer(self, type_url: TypeUrl, name: str) -> bool:
        """Whether the answer for a name, `*` or a collection is complete, or will not come."""
        if not self._scope.covers(name):
            return True
        names = self.wanted.get(type_url, frozenset())
        asked = name if name in names or is_structured(name) else WILDCARD
        return asked in names and not self._answers.awaits(type_url, asked)

    def wants(self, resource: Resource) -> bool:
        """Whether a resource is asked for: by name, alias, collection, or type."""
        if self.wants_name(resource.type_url, resource.name):
            return True
        names: AbstractSet[str] = self._names.get(resource.type_url, frozenset())
        return any(alias in names for alias in resource.aliases)

    def wants_name(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a name without aliases is asked for."""
        names: AbstractSet[str] = self._names.get(type_url, frozenset())
        if name in names or (WILDCARD in names and self._scope.covers(name)):
            return True
        return is_structured(name) and glob_of(name) in names

    def ask(self, asked: Names, now_s: float) -> None:
        """Set clients' names, `*` for a type."""
        added, gone = list[Key](), list[Key]()
        for type_url in {**asked, **self._asked}:
            now, before = asked.get(type_url, frozenset()), self._asked.get(type_url, frozenset())
            if now is not before:
                added += ((type_url, name) for name in now - before)
                gone += ((type_url, name) for name in before - now)
        self._asked = asked
        self._change(added, gone, now_s)
        self._answers.delay_until(key for key in added if key[1] == WILDCARD)

    def refer(self, before: Iterable[Resource], after: Iterable[Resource], now_s: float) -> None:
        """Ask for changed resources' references."""
        added = [key for resource in after for key in keys_referred_to(resource)]
        gone = [key for resource in before for key in keys_referred_to(resource)]
        self._change(added, gone, now_s)
        self._answers.delay_until(added)
        self._refer_elsewhere(filter(self._is_elsewhere, added), filter(self._is_elsewhere, gone))

    def restore(self, resources: Iterable[Resource], now_s: float) -> None:
        """Ask for an earlier process's resources as unneeded: clients may return."""
        changed = set[TypeUrl]()
        for resource in resources:
            key = resource.type_url, resource.name
            if self._size < self.most_names and not self.wants(resource) and self._counts(key):
                changed |= self._add(key)
                self._idle[key] = now_s
        self._publish(changed, now_s)

    def connect(self, now_s: float) -> None:
        """Record a new connection, with all wanted names."""
        self._answers.connect(now_s)

    def disconnect(self) -> None:
        """Record the connection's loss."""
        self._answers.disconnect()

    def answer(self, response: ReadResponse, now_s: float) -> None:
        """Record the names that a response answers."""
        self._answers.take(response, now_s)

    @property
    def next_s(self) -> float | None:
        """When `expire` has work, or earlier, in seconds since 1970, or None."""
        return earliest(
            self._answers.next_s, next(iter(self._idle.values()), -LINGER_S) + LINGER_S if self._idle else None
        )

    def shrunk(self) -> frozenset[TypeUrl]:
        """Return types with fewer names since the last call."""
        shrunk, self._shrunk = frozenset(self._shrunk), set()
        return shrunk

    def expire(self, now_s: float) -> None:
        """End long waits, and drop unneeded names."""
        self._answers.expire(now_s)
        over = list(takewhile(lambda key: self._idle[key] + LINGER_S <= now_s, self._idle))
        for key in over:
            self._remove(key)
        self._publish({type_url for type_url, _ in over} | self._admit(), now_s)

    def _is_elsewhere(self, key: Key) -> bool:
        return not self._scope.covers(key[1])

    def _refer_elsewhere(self, added: Iterable[Key], gone: Iterable[Key]) -> None:
        changed = set[TypeUrl]()
        for type_url, name in added:
            names = self._elsewhere.setdefault(type_url, Counter())
            names[name] += 1
            if names[name] == 1:
                changed.add(type_url)
        for type_url, name in gone:
            names = self._elsewhere[type_url]
            names[name] -= 1
            if not names[name]:
                del names[name]
                changed.add(type_url)
        if changed:
            named = {type_url: frozenset(self._elsewhere[type_url]) for type_url in changed}
            self.elsewhere = MappingProxyType({**self.elsewhere, **named})

    def _change(self, added: Iterable[Key], gone: Iterable[Key], now_s: float) -> None:
        changed = set[TypeUrl]()
        for key in filter(self._counts, added):
            self._reasons[key] += 1
            if self._reasons[key] == 1 and self._idle.pop(key, None) is None:
                changed |= self._add(key)
        for key in filter(self._counts, gone):
            self._reasons[key] -= 1
            if self._reasons[key] <= 0:
                del self._reasons[key]
                if key in self._surplus:
                    del self._surplus[key]
                else:
                    self._idle[key] = now_s
        self._publish(changed | self._admit(), now_s)

    def _admit(self) -> set[TypeUrl]:
        changed = set[TypeUrl]()
        while self._surplus and (self._idle or self._size < self.most_names):
            changed |= self._add(next(iter(self._surplus)))
        return changed

    def _counts(self, key: Key) -> bool:
        type_url, name = key
        always = self._scope.always
        return key in always or (
            self._scope.covers(name) and ((type_url, WILDCARD) not in always or is_structured(name))
        )

    def _add(self, key: Key) -> set[TypeUrl]:
        type_url, name = key
        changed = {type_url}
        if self._size >= self.most_names:
            if not self._idle:
                self._surplus[key] = None
                return set()
            longest = next(iter(self._idle))
            self._remove(longest)
            changed.add(longest[0])
        self._surplus.pop(key, None)
        self._names.setdefault(type_url, set()).add(name)
        self._size += 1
        return changed

    def _remove(self, key: Key) -> None:
        type_url, name = key
        del self._idle[key]
        self._names[type_url].discard(name)
        self._size -= 1
        self._shrunk.add(type_url)
        if not self._names[type_url]:
            del self._names[type_url]

    def _publish(self, changed: Iterable[TypeUrl], now_s: float) -> None:
        wanted = dict(self.wanted)
        for type_url in changed:
            before = wanted.pop(type_url, frozenset())
            names: AbstractSet[str] = self._names.get(type_url, frozenset())
            now = frozenset(
                names if WILDCARD not in names else (name for name in names if name == WILDCARD or is_structured(name))
            )
            if now:
                wanted[type_url] = now
            self._answers.ask(type_url, now - before, before - now, now_s)
        self.wanted = MappingProxyType(wanted)


class _Answers:
    """Names without an answer yet.

    `next_s`: when a server was silent for long enough, or earlier; None: never.
    """

    def __init__(self) -> None:
        self.next_s: float | None = None
        # When first asked for on a connection, or None.
        self._since: dict[TypeUrl, dict[str, float | None]] = {}
        # Needed for a complete state.
        self._needed: dict[TypeUrl, set[str]] = {}
        self._connected_s: float | None = None
        self._patient_until_s: float | None = None
        # All names were answered once, or had enough time.
        self._is_synced = False

    @property
    def pending(self) -> frozenset[TypeUrl]:
        """All types without an answer, until all names had one."""
        return frozenset(self._needed if self._is_synced else self._since)

    @property
    def referred(self) -> frozenset[TypeUrl]:
        return frozenset(type_url for type_url, names in self._needed.items() if names != {WILDCARD})

    def awaits(self, type_url: TypeUrl, name: str) -> bool:
        return name in self._since.get(type_url, ())

    def delay_until(self, keys: Iterable[Key]) -> None:
        for type_url, name in keys:
            if self.awaits(type_url, name):
                self._needed.setdefault(type_url, set()).add(name)

    def ask(self, type_url: TypeUrl, added: AbstractSet[str], gone: AbstractSet[str], now_s: float) -> None:
        since_s = None if self._connected_s is None else now_s
        self._since.setdefault(type_url, {}).update(dict.fromkeys(added, since_s))
        self._end(type_url, gone)
        if added and since_s is not None:
            self._await(since_s)

    def connect(self, now_s: float) -> None:
        self._connected_s = now_s
        self._since = {type_url: dict.fromkeys(names, now_s) for type_url, names in self._since.items()}
        self._patient_until_s = now_s + PATIENCE_S
        self.next_s = self._patient_until_s
        self._settle(now_s)

    def disconnect(self) -> None:
        self._connected_s = self.next_s = None

    def take(self, response: ReadResponse, now_s: float) -> None:
        names = self._since.get(response.type_url, {})
        if names.get(WILDCARD, self._connected_s) == self._connected_s:
            self._end(response.type_url, (WILDCARD,))
        else:
            # The response may be older than the request for everything.
            since_s = now_s + SETTLE_S - PATIENCE_S
            names[WILDCARD] = min(names[WILDCARD] or since_s, since_s)
            self._await(since_s)
        self._end(response.type_url, _answered_by(response))
        self._settle(now_s)

    def expire(self, now_s: float) -> None:
        if self._connected_s is None or self.next_s is None or now_s < self.next_s:
            return
        for type_url, names in tuple(self._since.items()):
            over = [name for name, since_s in names.items() if since_s is not None and since_s + PATIENCE_S <= now_s]
            self._end(type_url, over)
        since = (since_s for names in self._since.values() for since_s in names.values() if since_s is not None)
        first_s = min(since, default=None)
        self.next_s = None if first_s is None else first_s + PATIENCE_S
        self._settle(now_s)

    def _await(self, since_s: float) -> None:
        self.next_s = earliest(self.next_s, since_s + PATIENCE_S)

    def _end(self, type_url: TypeUrl, answered: Iterable[str]) -> None:
        names, needed = self._since.get(type_url, {}), self._needed.get(type_url, set())
        for name in answered if names else ():
            if name in names:
                del names[name]
                needed.discard(name)
        if not names:
            self._since.pop(type_url, None)
        if not needed:
            self._needed.pop(type_url, None)

    def _settle(self, now_s: float) -> None:
        if self._connected_s is None or self._patient_until_s is None:
            return
        if not self._since or now_s >= self._patient_until_s:
            self._is_synced = True


def _answered_by(response: ReadResponse) -> Iterator[str]:
    for name, resource in response.resources.items():
        yield name
        yield from resource.aliases
        if is_structured(name):
            yield glob_of(name)
    yield from response.bad
    yield from response.removed
    yield from response.absent


def keys_referred_to(resource: Resource) -> frozenset[Key]:
    """Return the askable resources that a resource references."""
    if resource.redirect:
        return frozenset(targets_of_locator(resource.redirect))
    found = set[Key]()
    for reference in resource.references:
        row = BY_TYPE_URL.get(reference.type_url)
        # These have no name.
        if row is None or reference.is_static or reference.name == WILDCARD or (row is VIRTUAL_HOST):
            continue
        if is_structured(reference.name):
            found.update(targets_of_locator(reference.name))
        else:
            found.add((reference.type_url, reference.name))
    return frozenset(found)


def targets_of_locator(locator: str) -> Iterator[Key]:
    """Yield a locator's targets and alternatives."""
    try:
        choices = tuple(Locator.parse(locator).choices())
    except MalformedName:
        return
    for choice in choices:
        if isinstance(choice.target, ResourceName) and choice.target.type_url in BY_TYPE_URL:
            yield choice.target.type_url, str(choice.target)
