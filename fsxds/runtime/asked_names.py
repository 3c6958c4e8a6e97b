"""The names that all clients together ask for. Used on the event loop only.

| rule | source |
| --- | --- |
| A name is asked for while a client asks for it, and for `GRACE_PERIOD_S` if its client left before upstreams saw it. | xRFC TP1, "xDS relay proxy" |
| A name is known not to exist when each upstream says so, or if it is malformed. | xDS protocol, "Knowing When a Requested Resource Does Not Exist" |
| Virtual hosts do not wait for an upstream that is away: an Envoy's request would hang for good. | ENVOY.md E47 |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Protocol

from fsxds.model.resource_names import MalformedName, canonical_of_type, is_as_written, is_structured
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import VIRTUAL_HOSTS
from fsxds.runtime.channels import Latest

# Names are published together: at most once per period, and so that making the sets takes at most a tenth of the time.
PUBLISH_EVERY_S = 0.02
PUBLISHING_SHARE = 0.1

# A name is asked for this long if its client left before it was published.
GRACE_PERIOD_S = 1.0

NO_NAMES: frozenset[str] = frozenset()


class KnownAbsence(Protocol):
    """Knows which names an upstream does not have."""

    @property
    def is_away(self) -> bool:
        """Whether no server can be asked now."""

    def absent_names(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return the names that this upstream is known not to have.

        Globs, and `*`, are included if all their resources are known.
        """


class AskedNames:
    """The names that clients ask for.

    Attributes:
        changed: by type, `*` for everything; replaced soon after a change.
        listeners: by owner, called when upstreams may deny more names.
        upstreams: may have the names.
    """

    def __init__(self, upstreams: Iterable[KnownAbsence] = ()) -> None:
        self.changed: Latest[Mapping[TypeUrl, frozenset[str]]] = Latest(MappingProxyType({}))
        self.listeners: dict[object, Callable[[], object]] = {}
        self.upstreams = tuple(upstreams)
        self._by_client: dict[object, dict[TypeUrl, frozenset[str]]] = {}
        # The number of clients per set of names of a type: most Envoys ask for the same set.
        self._sets: dict[TypeUrl, Counter[frozenset[str]]] = {}
        # The number of those sets per name.
        self._counts: dict[TypeUrl, Counter[str]] = {}
        # Names of clients that left before the names were published.
        self._in_grace_period: dict[TypeUrl, set[str]] = {}
        self._unpublished: set[TypeUrl] = set()
        self._publication: asyncio.TimerHandle | None = None
        self._next_at_s = 0.0
        self._are_answers_due = False

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Replace a client's names; `*` means everything."""
        asked = self._by_client.get(client, {})
        before, after = asked.get(type_url, NO_NAMES), frozenset(names)
        if after == before:
            return
        self._by_client[client] = asked
        asked[type_url] = after
        self._exchange(type_url, before, after)

    def forget(self, client: object) -> None:
        """Forget a client's names, if any."""
        for type_url, names in self._by_client.pop(client, {}).items():
            self._exchange(type_url, names, NO_NAMES)

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return unserved names that some upstream does not deny."""
        left, found = frozenset(names), NO_NAMES
        for upstream in self.upstreams:
            if type_url == VIRTUAL_HOSTS and upstream.is_away:
                continue
            maybe = left - upstream.absent_names(type_url, left)
            found, left = found | maybe, left - maybe
            if not left:
                break
        return frozenset(name for name in found if can_exist(type_url, name))

    def answered(self) -> None:
        """Call the listeners soon."""
        if not self._are_answers_due:
            self._are_answers_due = True
            asyncio.get_running_loop().call_soon(self._call_listeners)

    def _call_listeners(self) -> None:
        self._are_answers_due = False
        for listener in tuple(self.listeners.values()):
            listener()

    def _exchange(self, type_url: TypeUrl, before: frozenset[str], after: frozenset[str]) -> None:
        sets = self._sets.setdefault(type_url, Counter())
        came = NO_NAMES if after in sets else after
        gone = NO_NAMES
        if after:
            sets[after] += 1
        if before:
            sets[before] -= 1
            if not sets[before]:
                del sets[before]
                gone = before
        self._count(type_url, came - gone, gone - came)

    def _count(self, type_url: TypeUrl, came: frozenset[str], gone: frozenset[str]) -> None:
        counts = self._counts.setdefault(type_url, Counter())
        size = len(counts)
        counts.update(came)
        is_changed = len(counts) > size
        for name in gone:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
                is_changed = True
                if type_url in self._unpublished and name not in self.changed.current.get(type_url, ()):
                    if not self._in_grace_period:
                        asyncio.get_running_loop().call_later(GRACE_PERIOD_S, self._end_grace_period)
                    self._in_grace_period.setdefault(type_url, set()).add(name)
        if is_changed:
            self._publish_soon(type_url)

    def _end_grace_period(self) -> None:
        passing, self._in_grace_period = self._in_grace_period, {}
        for type_url in passing:
            self._publish_soon(type_url)

    def _publish_soon(self, type_url: TypeUrl) -> None:
        self._unpublished.add(type_url)
        if self._publication is None:
            loop = asyncio.get_running_loop()
            self._publication = loop.call_at(max(loop.time(), self._next_at_s), self._publish)

    def _publish(self) -> None:
        loop = asyncio.get_running_loop()
        started_s, self._publication = loop.time(), None
        names = dict(self.changed.current)
        for type_url in self._unpublished:
            names[type_url] = frozenset(self._counts[type_url]).union(self._in_grace_period.get(type_url, ()))
        self._unpublished.clear()
        self.changed.replace(MappingProxyType({type_url: each for type_url, each in names.items() if each}))
        took_s = loop.time() - started_s
        self._next_at_s = started_s + max(PUBLISH_EVERY_S, took_s / PUBLISHING_SHARE)


def can_exist(type_url: TypeUrl, name: str) -> bool:
    """Whether a name is neither malformed nor another type's."""
    if not is_structured(name) or type_url == VIRTUAL_HOSTS or is_as_written(name, type_url):
        return True
    try:
        canonical_of_type(name, type_url)
    except MalformedName:
        return False
    return True
