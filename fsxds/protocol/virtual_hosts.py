"""Virtual hosts on demand (VHDS).

Envoy subscribes to `<route configuration>/<host>` when a request for the host arrives. A virtual host's aliases are
`<route configuration>/<domain>`, also for wildcards.

| rule | source |
| --- | --- |
| The best match serves a host: the host itself, the longest `*.suffix`, the longest `prefix.*`, `*`. | Envoy, `VirtualHost.domains` |
| With a virtual host go those that its wildcards hide: Envoy has an answer for their hosts, and does not ask. | ENVOY.md E49 |
| A response's aliases identify the waiting requests that it answers. | xDS protocol, "Virtual Host Discovery Service" |
| A host without a virtual host is answered with a resource without content, once it is certain. | ENVOY.md E47 |
| `*` selects nothing: it asks to end the wait for virtual hosts, as a new route configuration does. | ENVOY.md E45 |
| NACKed virtual hosts are sent again together: no two may have the same domain. | ENVOY.md E48 |
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import ClassVar

from fsxds.model.memo import Lru
from fsxds.model.resource_types import BY_SHORT_NAME, route_configuration_of
from fsxds.model.resources import Resource, Rows, RowsChange, Snapshot
from fsxds.protocol.acks import NOTHING, Answer
from fsxds.protocol.lookup import MOST_KEPT, NO_CHANGES, Changes, DeltaNames, Held, Lookup, Owners, unheld
from fsxds.protocol.messages import DeltaRequest
from fsxds.protocol.subscription import VIRTUAL_HOSTS, WILDCARD, SharedMemory

ROUTES = BY_SHORT_NAME["rds"].type_url

# A host name has at most 253 characters and a port; for longer names, not every possible wildcard is looked up.
LONGEST_HOST = 512


def domain_matches(name: str) -> Iterator[str]:
    """Yield the aliases that serve `<route configuration>/<host>`, the best first, as Envoy.

    A route configuration's name may have slashes.
    """
    yield name
    route, slash, host = name.rpartition("/")
    if not slash or not host or len(host) > LONGEST_HOST:
        return
    for start in range(1, len(host)):
        yield f"{route}/*{host[start:]}"
    for end in range(len(host) - 1, 0, -1):
        yield f"{route}/{host[:end]}*"
    yield f"{route}/*"


def find_virtual_hosts(name: str, rows: Container[str], by_alias: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the virtual host that serves a host, and the one of this name."""
    serving = next((by_alias[alias][0] for alias in domain_matches(name) if alias in by_alias), None)
    named = name if name in rows else None
    return tuple(own for own in dict.fromkeys((serving, named)) if own is not None)


def is_hidden(domain: str, wildcard: str) -> bool:
    """Whether a domain serves some of `wildcard`'s hosts better: an Envoy with the wildcard does not ask for them."""
    if domain in {"*", wildcard}:
        return False
    if wildcard == "*":
        return True
    if wildcard.startswith("*"):
        return domain.endswith(wildcard[1:])
    # Whatever their length, wildcards of suffixes come before those of prefixes.
    return domain.startswith(("*", wildcard[:-1]))


def find_hidden(resource: Resource, by_alias: Owners) -> frozenset[str]:
    """Return virtual hosts that an Envoy with `resource` may not ask for."""
    route = route_configuration_of(resource.name) + "/"
    domains = [alias.removeprefix(route) for alias in resource.aliases if alias.startswith(route)]
    wildcards = [domain for domain in domains if domain.startswith("*") or domain.endswith("*")]
    if not wildcards:
        return frozenset()
    others = ((alias.removeprefix(route), own) for alias, (own, *_) in by_alias.starting_with(route))
    return frozenset(own for domain, own in others if any(is_hidden(domain, wildcard) for wildcard in wildcards))


def aliases_to_send(resource: Resource, requested: Iterable[str]) -> tuple[str, ...]:
    """Return domains without wildcards, and requested names: Envoy considers requests for them answered."""
    explicit = (alias for alias in resource.aliases if "*" not in alias.rpartition("/")[2])
    return tuple(sorted({*explicit, *requested} - {resource.name}))


def ends_of_wait(routes: Iterable[Resource]) -> frozenset[str]:
    """Return names that end Envoy's wait for virtual hosts.

    A starting Envoy, or the listener with the route configuration, waits for a response; the removed resource
    `<route configuration>/`, which names no virtual host, is enough.
    """
    references = (reference for resource in routes for reference in resource.references)
    return frozenset(f"{route_configuration_of(each.name)}/" for each in references if each.type_url == VIRTUAL_HOSTS)


def ends_of_any_wait(snapshot: Snapshot) -> frozenset[str]:
    """The same for a client with unknown route configurations."""
    hosts = frozenset(f"{route_configuration_of(name)}/" for name in snapshot.resources(VIRTUAL_HOSTS))
    return hosts | ends_of_wait(snapshot.resources(ROUTES).values())


class HostLookup(Lookup):
    """`hidden`: those that each virtual host hides, if looked up."""

    __slots__ = ("hidden",)

    def __init__(self, rows: Mapping[str, Resource]) -> None:
        super().__init__(rows)
        self.hidden: dict[str, frozenset[str]] = {}

    def take_over(self, last: Lookup, change: RowsChange) -> bool:
        """Reuse earlier rows' results; return whether all are valid."""
        has_same_names = not change.removed and change.fresh <= last.rows.keys()
        if super().take_over(last, change) and has_same_names and isinstance(last, HostLookup):
            self.hidden = last.hidden
            return True
        # A host may be a virtual host's own name.
        self._found = Lru(MOST_KEPT)
        return False

    def is_collection_name(self, name: str) -> bool:
        """Always False: hosts have no collections."""
        return False

    def existing(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the served hosts."""
        return frozenset(name for name in names if self._names_of(name))

    def names(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the virtual hosts that serve these, and those that go with them."""
        found = frozenset(own for name in names for own in self._names_of(name))
        return found.union(*filter(None, map(self._hidden_by, found)))

    def _names_of(self, name: str) -> tuple[str, ...]:
        return self._found.find(name, lambda: find_virtual_hosts(name, self.rows, self._index.aliases()))

    def _hidden_by(self, own: str) -> frozenset[str]:
        hidden = self.hidden.get(own)
        if hidden is None:
            found, ahead = {own}, [own]
            while ahead:
                more = find_hidden(self.rows[ahead.pop()], self._index.aliases()) - found
                found |= more
                ahead += more
            hidden = self.hidden[own] = frozenset(found - {own})
        return hidden


class HostNames(DeltaNames):
    """One client's hosts."""

    __slots__ = ("_brought", "_unknown")

    keeps_together: ClassVar[bool] = True

    def __init__(self, memory: SharedMemory) -> None:
        super().__init__(VIRTUAL_HOSTS, memory)
        # The virtual hosts that the client has from another stream; the hosts that it requested there may be unknown.
        self._brought = NOTHING
        # The pending names that were last sent as hosts that do not exist.
        self._unknown = NOTHING

    @property
    def selects_all(self) -> bool:
        """Always False: VHDS has no wildcard subscription."""
        return False

    @property
    def _own(self) -> frozenset[str]:
        return self._brought

    def lookup(self, rows: Rows, before: Rows | None = None) -> HostLookup:
        """Return the lookup by hosts."""
        return HostLookup.of(rows, before)

    def receive(self, request: DeltaRequest) -> frozenset[str]:
        """Return hosts to answer, including `*` to end a wait."""
        before, indirect = self.names, self._indirect
        asked = super().receive(request)
        self._brought -= frozenset(request.unsubscribe).difference(request.subscribe)
        if self.subscription.wildcard and not before <= self.names:
            self.has_given_up, self._indirect = True, indirect
        return asked

    def begin(self, held: Held, after: Lookup) -> Changes:
        """Return changes to brought virtual hosts (ENVOY.md E50)."""
        self._brought = frozenset(held.keys() & after.rows.keys())
        return Changes(unheld(self._brought, held, after) if held else NOTHING, removed=frozenset(held) - self._brought)

    def change(self, updated: frozenset[str], removed: frozenset[str], before: Lookup, after: Lookup) -> Changes:
        """Return the changes to send."""
        if not (updated or removed or self.has_given_up):
            return NO_CHANGES
        return self._follow(updated, removed, before, after)

    def _still_indirect(self, lost: frozenset[str], after: Lookup) -> frozenset[str]:
        return self._indirect & self.names

    def _ended(self, indirect: frozenset[str], before: Lookup, after: Lookup) -> frozenset[str]:
        # Hosts that were answered as unknown, and are not wanted any more.
        return frozenset(name for name in indirect - self._indirect if not before.find(name))

    def answer(self, asked: frozenset[str], held: Held, after: Lookup, pending: frozenset[str]) -> Changes:
        """`held` resources are left out; `pending` ones were NACKed."""
        hosts = asked - {WILDCARD}
        served = after.existing(hosts)
        serving = frozenset(resource.name for name in served for resource in after.find(name))
        beside = after.names(asked) - serving
        if beside:
            beside -= (self._brought & after.rows.keys()) | after.names(self._indirect)
        unknown, to_drop = hosts - served, pending - self._unknown
        return Changes(
            unheld(serving | beside, held, after),
            unpopulated=unknown - to_drop,
            removed=unknown & to_drop,
            is_due=WILDCARD in asked and not held,
        )

    def answer_again(
        self, names: frozenset[str], after: Lookup, held_back: frozenset[str], *, is_first: bool
    ) -> Changes:
        """End a wait, with the wanted virtual hosts."""
        routes = frozenset(map(route_configuration_of, names))
        wanted = (
            NOTHING if is_first else frozenset(name for name in self.names if route_configuration_of(name) in routes)
        )
        return Changes(after.names(wanted) - held_back, ends_wait=names)

    def needed_by(self, users: Iterable[Resource]) -> frozenset[str]:
        """Return the names that end the wait for hosts."""
        return ends_of_wait(users)

    def settle(self, asked: frozenset[str], after: Lookup) -> None:
        """Record that all hosts have been answered."""
        self.has_given_up = False
        self._indirect = self.names

    def retry(self, pending: frozenset[str], after: Lookup) -> Changes:
        """Retry all together: a domain may have moved between virtual hosts."""
        exist = pending & after.rows.keys()
        # The NACKed response may have been the answer for any host: requests for it still wait.
        return Changes(
            exist | after.names(pending & self.names),
            removed=pending - exist - self._unknown,
            unpopulated=frozenset(name for name in self.names if not after.find(name)),
        )

    def receive_nack(self, answer: Answer) -> None:
        """Record NACKed unknown hosts: the client cannot hold them."""
        unknown = answer.rejected & answer.sent.unpopulated
        self._unknown = (self._unknown | unknown) - (answer.rejected - unknown)

    def aliases(
        self, resources: Iterable[Resource], requested: frozenset[str], lookup: Lookup
    ) -> Mapping[str, tuple[str, ...]]:
        """Return aliases in a response to these hosts."""
        hosts: dict[str, list[str]] = {}
        for host in requested:
            for resource in lookup.find(host):
                hosts.setdefault(resource.name, []).append(host)
        return {each.name: aliases_to_send(each, hosts.get(each.name, ())) for each in resources}

    def held(self, lookup: Lookup) -> frozenset[str]:
        """Return the virtual hosts to be held."""
        return (self._brought & lookup.rows.keys()) | lookup.names(self.names)

    def wanted(self, names: frozenset[str], lookup: Lookup) -> frozenset[str]:
        """Return the wanted virtual hosts and hosts."""
        return (names & self._brought) | super().wanted(names, lookup)
