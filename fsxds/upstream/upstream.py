"""One upstream: its subscriptions, held resources and status. For the event loop.

The first answers on a connection are published together, as one change.

Another or restarted server may have another tree, and answers type by type: so published, a cluster would be gone
before its route has moved. One change's rollout adds clusters, moves routes, then removes clusters.

| rule | why |
| --- | --- |
| Each type with published resources is awaited; none if there are no such types. | |
| So is each type of a resource's reference without an answer. | A listener came, its routes did not yet. |
| `QUIET_S` after the last answer of an awaited type, no other type is awaited. | Delta is silent about unchanged resources, SotW about names that do not exist. |
| `LONGEST_S` after the connection, no type is awaited. | A server may send new references without end. |
| When the connection is lost before that, the published content stays until the next connection. | Half a tree is no state that its server ever had. |

Rules: the names that an upstream is known not to have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType

from rpds import HashTrieSet

from fsxds.client.updates import ConnectionLostError, Update
from fsxds.model.resource_names import is_glob
from fsxds.model.resource_types import BY_TYPE_URL, in_push_order
from fsxds.model.resources import Key, Rows
from fsxds.model.values import TypeUrl
from fsxds.protocol.lookup import Lookup
from fsxds.protocol.subscription import WILDCARD
from fsxds.protocol.ttl import earliest
from fsxds.runtime.channels import Latest
from fsxds.runtime.row_source import UpstreamState, UpstreamStatus
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.upstream_content import Held, ReleasedNames, UpstreamContent
from fsxds.upstream.holdings import MOST_FAULTS, HeldResources, ReadResponse, ResponseReader, Taken
from fsxds.upstream.subscriptions import Names, NameScope, Subscriptions

# Rejected resources with a remembered reason.
MOST_REJECTED = 1000

# Remembered names per type that were let go.
MOST_RELEASED = 100_000
NO_NAMES_GONE: HashTrieSet[str] = HashTrieSet()


@dataclass(frozen=True, slots=True)
class Received:
    """A response's effect.

    Attributes:
        sequence: content with it, or a higher one, includes all applied resources.
        keys: of the response, also unchanged and removed ones.
        faults: the NACK's reasons.
    """

    sequence: int
    keys: frozenset[Key] = frozenset()
    faults: tuple[str, ...] = ()
    changed: int = 0
    removed: int = 0


class Upstream:
    """One upstream. All times are in seconds since 1970.

    Attributes:
        content: held resources for snapshots; replaced with each change, except those on a new connection, which are
            published together.
        held: the same, with data from the upstream.
        changed: replaced when `content`, `wanted` or the result of `absent_names` changed.
        rejected: the last unusable resources, with reasons; limited.
        unanswered: types without an answer when a connection's change was published.
    """

    def __init__(self, rule: UpstreamRule, reader: ResponseReader, scope: NameScope) -> None:
        self.rule = rule
        self.changed = Latest(0)
        self.rejected: Mapping[Key, str] = MappingProxyType({})
        self._reader = reader
        self._scope = scope
        self._holdings = HeldResources(scope.most_names)
        self._subscriptions = Subscriptions(scope)
        self._answered: frozenset[TypeUrl] = frozenset()
        # Their index is valid for most of the next rows.
        self._looked_at: dict[TypeUrl, Rows] = {}
        self._status = UpstreamStatus(rule.name, rule.servers)
        self._gone: ReleasedNames = MappingProxyType({})
        # Counts the changes of held resources.
        self._sequence = 0
        # While set, a connection's changes are unpublished.
        self._gathering: Gathering | None = None
        self.unanswered: frozenset[TypeUrl] = frozenset()
        self.held = self._holdings.held
        self.content = UpstreamContent(rule.name, pending=self._pending())

    @property
    def rows(self) -> Mapping[TypeUrl, Rows]:
        """Held resources by type, also unpublished ones."""
        return self._holdings.rows

    def change_rules(self, reader: ResponseReader, most_names: int) -> None:
        """Read later responses by other rules, and limit later names and resources."""
        self._reader = reader
        self._holdings.most = self._subscriptions.most_names = most_names

    def restore(self, held: Held, now_s: float) -> None:
        """As `HeldResources.restore`, without expired ones."""
        self._holdings.restore(held)
        self._answered |= self._holdings.rows.keys()
        times_s = [each.received_s for table in held.values() for each in table.values()]
        self._status = replace(self._status, last_update_s=max(times_s, default=None))
        self._subscriptions.refer((), (each for rows in self._holdings.rows.values() for each in rows.values()), now_s)
        self._follow(self._holdings.expire(now_s), now_s)
        self._subscriptions.restore((each for rows in self._holdings.rows.values() for each in rows.values()), now_s)
        self._publish(now_s, is_changed=bool(self._holdings.rows))

    def wanted(self) -> Names:
        """Names to subscribe to, `*` for a type. Replaced when changed."""
        return self._subscriptions.wanted

    @property
    def elsewhere(self) -> Names:
        """Other upstreams' referenced names. Replaced when changed."""
        return self._subscriptions.elsewhere

    def versions(self, server: str, type_url: TypeUrl) -> Mapping[str, str]:
        """Return the `initial_resource_versions` for a server."""
        return self._holdings.versions(server, type_url)

    def ask(self, asked: Names, now_s: float) -> None:
        """Set clients' names, `*` for a type."""
        self._subscriptions.ask(asked, now_s)
        self._publish(now_s, is_changed=bool(self._drop_unwanted(now_s)))

    @property
    def is_away(self) -> bool:
        """Whether no server can be asked now."""
        return self._status.state in {"away", "refused"}

    def covers(self, name: str) -> bool:
        """Whether a name belongs here."""
        return self._scope.covers(name)

    def absent_names(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return the `names` that this upstream is known not to have.

        It said so, was silent for 15 s, or is never asked. `*` and collections: if nothing exists beside held resources.
        """
        answered = {name for name in names if self._subscriptions.has_answer(type_url, name)}
        groups = {name for name in answered if name == WILDCARD or is_glob(name)}
        single = answered - groups - {name for of_type, name in self.rejected if of_type == type_url}
        rows = self._holdings.rows_of(type_url)
        lookup = Lookup.of(rows, self._looked_at.get(type_url))
        self._looked_at[type_url] = rows
        return frozenset(groups | (single - lookup.existing(single)))

    def connected(self, server: str, wire: str, now_s: float) -> None:
        """Record the server asked from now on, by such as `Delta ADS`."""
        self._subscriptions.connect(now_s)
        published = self.content.rows.keys() & self.wanted().keys()
        self._gathering, self.unanswered = Gathering(published, now_s) if published else None, frozenset()
        self._status = replace(self._status, server=server, wire=wire, state="connected", since_s=now_s, trouble="")
        self._publish(now_s)

    def lost(self, error: ConnectionLostError, now_s: float) -> None:
        """Record a loss or failed attempt; held resources stay."""
        self._subscriptions.disconnect()
        if self._gathering is not None:
            self._gathering.until_s = None
        state: UpstreamState = "refused" if error.is_final else "away"
        since_s = self._status.since_s if self._status.state == state else now_s
        self._status = replace(self._status, server="", wire="", state=state, since_s=since_s, trouble=str(error))
        self._publish(now_s)

    def receive(self, update: Update, server: str, now_s: float) -> Received:
        """Parse and apply a response."""
        return self.take(self.read(update), server, now_s)

    def read(self, update: Update) -> ReadResponse:
        """Parse a response, maybe in a thread, without changes."""
        return self._reader.read(update, self._holdings.rows_of(update.type_url))

    def take(self, response: ReadResponse, server: str, now_s: float) -> Received:
        """Apply a parsed response."""
        taken = self._holdings.take(response, self._subscriptions.wants, server, now_s)
        if self._gathering is not None:
            self._gathering.answer(response.type_url, self._subscriptions.referred, now_s)
        # First: the response does not answer names that are asked for because of it.
        self._subscriptions.answer(response, now_s)
        self._follow(taken, now_s)
        self._reject(response)
        self._status = replace(self._status, last_update_s=now_s)
        if response.type_url in BY_TYPE_URL:
            self._answered |= {response.type_url}
        self._forget_released(response)
        dropped = self._drop_unwanted(now_s)
        gone = len({each.name for each in taken.before} - {each.name for each in taken.after})
        self._publish(now_s, is_changed=bool(taken or dropped))
        rows = self._holdings.rows_of(response.type_url)
        keys = taken.keys | {(response.type_url, name) for name in rows.among(response.resources)}
        faults = (*response.words, *self._surplus_faults(taken))
        return Received(self._sequence, keys, faults, len(taken.after), gone)

    @property
    def next_expiry_s(self) -> float | None:
        """When `expire` has work, or earlier, or None."""
        gathered_s = None if self._gathering is None else self._gathering.until_s
        return earliest(self._holdings.next_end_s, self._subscriptions.next_s, gathered_s)

    def expire(self, now_s: float) -> frozenset[Key]:
        """Drop unwanted and expired resources; return the latter."""
        expired = self._holdings.expire(now_s)
        self._follow(expired, now_s)
        self._subscriptions.expire(now_s)
        dropped = self._drop_unwanted(now_s)
        self._note_released(expired.keys)
        if expired:
            # Expiry does not wait for an upstream.
            self._gathering = None
        self._publish(now_s, is_changed=bool(expired or dropped))
        return expired.keys

    def status(self) -> UpstreamStatus:
        """Return the upstream's status."""
        rejected = tuple(
            f"{BY_TYPE_URL[type_url].short_name} {name}: {words}"
            for (type_url, name), words in sorted(self.rejected.items())[:MOST_FAULTS]
        )
        return replace(
            self._status,
            resources=in_push_order({type_url: len(rows) for type_url, rows in self._holdings.rows.items()}),
            pending=tuple(in_push_order(dict.fromkeys(self._pending()))),
            rejected=rejected,
        )

    def _follow(self, taken: Taken, now_s: float) -> None:
        self._subscriptions.refer(taken.before, taken.after, now_s)

    def _drop_unwanted(self, now_s: float) -> Taken:
        shrunk, wants_name = self._subscriptions.shrunk(), self._subscriptions.wants_name
        if shrunk and self.rejected:
            kept = {key: words for key, words in self.rejected.items() if key[0] not in shrunk or wants_name(*key)}
            self.rejected = MappingProxyType(kept)
        unwanted = [
            (type_url, resource.name)
            for type_url in shrunk
            for resource in self._holdings.rows_of(type_url).values()
            if not self._subscriptions.wants(resource)
        ]
        dropped = self._holdings.drop(unwanted)
        self._note_released(unwanted)
        self._follow(dropped, now_s)
        return dropped

    def _surplus_faults(self, taken: Taken) -> tuple[str, ...]:
        if not taken.surplus:
            return ()
        examples = ", ".join(taken.surplus[:3])
        return (
            f"{len(taken.surplus)} resources are more than the {self._holdings.most} that are held, such as {examples}",
        )

    def _reject(self, response: ReadResponse) -> None:
        type_url = response.type_url
        kept = {
            (of_type, name): words
            for (of_type, name), words in self.rejected.items()
            if of_type != type_url or not (response.is_full or name in response.resources or name in response.removed)
        }
        kept |= {(type_url, name): words for name, words in response.bad.items()}
        if kept or self.rejected:
            self.rejected = MappingProxyType(dict(tuple(kept.items())[-MOST_REJECTED:]))

    def _pending(self) -> frozenset[TypeUrl]:
        """Types that may have unknown resources: unanswered, or received but bad."""
        bad = {type_url for type_url, name in self.rejected if name not in self._holdings.rows_of(type_url)}
        return self._subscriptions.pending | bad

    def _note_released(self, keys: Iterable[Key]) -> None:
        """Without the upstream's removal: they need no approval."""
        gone = dict(self._gone)
        for type_url, name in keys:
            names = gone.get(type_url, NO_NAMES_GONE)
            gone[type_url] = (names if len(names) < MOST_RELEASED else NO_NAMES_GONE).insert(name)
        self._gone = MappingProxyType(gone)

    def _forget_released(self, response: ReadResponse) -> None:
        names = self._gone.get(response.type_url)
        if names is not None:
            for name in (*response.resources, *response.removed):
                names = names.discard(name)
            self._gone = MappingProxyType({**self._gone, response.type_url: names})

    def _publish(self, now_s: float, *, is_changed: bool = False) -> None:
        self._sequence += is_changed
        referred = self._subscriptions.referred
        if self._gathering is not None and self._gathering.is_over(referred, now_s):
            if any(_differing(self._holdings.rows, self.content.rows)):
                self.unanswered = self._gathering.unanswered(referred)
            self._gathering = None
        before, pending = self.content, self._pending()
        rows, sequence, gone = self._holdings.rows, self._sequence, self._gone
        if self._gathering is None:
            self.held = self._holdings.held
        else:
            pending = pending.union(_differing(rows, before.rows))
            rows, sequence, gone = before.rows, before.sequence, before.released
        if sequence != before.sequence or pending != before.pending or self._answered != before.answered:
            self.content = UpstreamContent(self.rule.name, rows, pending, self._answered, sequence, gone)
        self.changed.replace(self.changed.current + 1)


def _differing(rows: Mapping[TypeUrl, Rows], others: Mapping[TypeUrl, Rows]) -> Iterator[TypeUrl]:
    return (type_url for type_url in rows.keys() | others.keys() if rows.get(type_url) is not others.get(type_url))


QUIET_S = 2.0
LONGEST_S = 15.0


class Gathering:
    """One connection's awaited types.

    `until_s`: in seconds since 1970; None without a connection.
    """

    def __init__(self, types: Iterable[TypeUrl], now_s: float) -> None:
        self.until_s: float | None = now_s + QUIET_S
        self._awaited = set(types)
        self._longest_s = now_s + LONGEST_S

    def answer(self, type_url: TypeUrl, referred: AbstractSet[TypeUrl], now_s: float) -> None:
        """Record an answer; `referred` are types of references unanswered before."""
        if type_url in self._awaited or type_url in referred:
            self._awaited.discard(type_url)
            self.until_s = min(now_s + QUIET_S, self._longest_s)

    def unanswered(self, referred: AbstractSet[TypeUrl]) -> frozenset[TypeUrl]:
        """Return the awaited types."""
        return frozenset(referred | self._awaited)

    def is_over(self, referred: AbstractSet[TypeUrl], now_s: float) -> bool:
        """Whether to publish; `referred` as in `answer`."""
        return self.until_s is not None and (now_s >= self.until_s or not self.unanswered(referred))
