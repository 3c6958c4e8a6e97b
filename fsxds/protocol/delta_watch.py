"""One type on one Delta stream: what its client was told, and what it made of it.

Source: xDS protocol, "Incremental xDS"; ENVOY.md D3, D5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from fsxds.protocol.delta_absence import Absence
from fsxds.protocol.delta_names import NOTHING, DeltaNames
from fsxds.protocol.delta_news import Draft, News
from fsxds.protocol.delta_verdicts import Verdicts
from fsxds.protocol.lookup import Lookup, lookup_of
from fsxds.protocol.messages import Acknowledgement, DeltaRequest, DeltaResponse, WatchStatus
from fsxds.protocol.subscription import WILDCARD, SharedMemory, Subscription, version_of
from fsxds.protocol.ttl import TtlUse, heartbeat_s
from fsxds.protocol.virtual_hosts import VIRTUAL_HOSTS, aliases_to_tell, is_wake_up, route_of
from fsxds.protocol.xdstp_names import collection_of
from fsxds.resource_types import ResourceType
from fsxds.resources import NO_RESOURCES, Resource, ResourceList, Rows, RowsChange, Snapshot
from fsxds.values import Nonce, TypeUrl, Version

NOTHING_HELD: Mapping[str, Version] = MappingProxyType({})
NO_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class DeltaWatch:
    """Remembers one subscription; decides what it is told, and leaves the order between types to its stream.

    What the client holds is not kept by name: it is what `_base` has of the subscription, except for what it rejected.
    """

    __slots__ = (
        *(
            "_absence",
            "_asked",
            "_base",
            "_claims",
            "_has_sent",
            "_left",
            "_memory",
            "_row",
            "_ttl",
            "_unasked",
            "_verdicts",
        ),
        *("heartbeat_at_s", "names"),
    )

    def __init__(self, row: ResourceType, memory: SharedMemory, ttl: TtlUse, *, hides_absence: bool) -> None:
        self.names = DeltaNames(is_on_demand=row.type_url == VIRTUAL_HOSTS)
        self.heartbeat_at_s: float | None = None
        self._row, self._memory, self._ttl = row, memory, ttl
        self._absence = Absence(row.type_url, is_hidden=hides_absence)
        # The snapshot that the client was last told of; None before it was told anything on this stream.
        self._base: Snapshot | None = None
        # What is to be answered as soon as something can be said.
        self._asked = NOTHING
        # What the client says that it brings from another stream, until it is known what became of that.
        self._claims: Mapping[str, Version] = NOTHING_HELD
        # What was sent last without being asked for.
        self._unasked = NOTHING
        # What was on its way when the client gave up `*`: it gets that if it takes `*` back at once, and it may be gone then.
        self._left = NOTHING
        self._has_sent = False
        self._verdicts = Verdicts(is_whole=self.is_on_demand)

    @property
    def type_url(self) -> TypeUrl:
        """The type that is watched."""
        return self._row.type_url

    @property
    def is_on_demand(self) -> bool:
        """Whether its resources are virtual hosts."""
        return self._row.type_url == VIRTUAL_HOSTS

    @property
    def is_greeted(self) -> bool:
        """Whether it is known what the client holds."""
        return self._base is not None

    @property
    def is_woken(self) -> bool:
        """Whether the client asked for virtual hosts without saying which."""
        return self.is_on_demand and WILDCARD in self._asked

    @property
    def timer_at_s(self) -> float | None:
        """When time alone gives this watch something to say."""
        retry_at_s, heartbeat_at_s = self._verdicts.retry_at_s, self.heartbeat_at_s
        if retry_at_s is None or heartbeat_at_s is None:
            return heartbeat_at_s if retry_at_s is None else retry_at_s
        return min(retry_at_s, heartbeat_at_s)

    @property
    def subscription(self) -> Subscription:
        """What the client wants."""
        return Subscription(self._row.type_url, self.names.names, self.names.selects_all)

    def hear(self, request: DeltaRequest, now_s: float) -> Acknowledgement | None:
        """Take what a request says of the responses before it, and of what the client holds.

        The nonce tells which response is meant and nothing else: names count whatever it is.
        """
        if self._base is None and request.initial_resource_versions:
            self._claims = {**self._claims, **request.initial_resource_versions}
        unasked = self._unasked - self.names.names
        verdict = self._verdicts.judge(request.nonce, request.error_detail, now_s, unasked)
        if WILDCARD in request.unsubscribe:
            self._left |= self._verdicts.under_way()
        self._asked = (self._asked - frozenset(request.unsubscribe)) | self.names.take(request)
        if request.subscribe or request.unsubscribe:
            self.names.names = self._memory.share(self.names.names)
        if self._verdicts.rejections.names and request.unsubscribe and self._base is not None:
            self._forget_unwanted(lookup_of(self._base.resources(self.type_url)))
        return verdict

    def _forget_unwanted(self, lookup: Lookup) -> None:
        self._verdicts.rejections.forget(
            {name for name in self._verdicts.rejections.names if not self.names.wants(name, lookup)}
        )

    def news(self, snapshot: Snapshot, again: frozenset[str], now_s: float, *, is_pushed: bool = False) -> News | None:
        """Return what the client is to be told, of the names in `again` also what it was told before; None for nothing.

        With `is_pushed`, what exists of `again` is sent also where the client did not subscribe to it.

        Every answer but None has to be told: the client counts as told of `snapshot` from now on.
        """
        if self.type_url in snapshot.withheld or (self._base is None and not self._asked):
            return None
        base, self._base = self._base, snapshot
        asked, self._asked = self._asked, NOTHING
        rows = snapshot.resources(self.type_url)
        draft, after = Draft(), lookup_of(rows, base.resources(self.type_url) if base else None)
        claims, self._claims = self._claims, NOTHING_HELD
        if base is None:
            self._meet(draft, claims, after)
        elif base is not snapshot or self.names.has_left:
            self._advance(draft, base.resources(self.type_url), rows)
        rejections = self._verdicts.rejections
        other = rejections.names & (draft.fresh | draft.gone) if rejections.names else NOTHING
        if other:
            rejections.renew(other, now_s)
        if asked:
            self._answer(draft, asked, claims, after)
        self._repeat(draft, again, after, is_greeting=base is None)
        if is_pushed:
            self._push(draft, again, after)
        self._absence.reconsider(draft, self.names.names, after)
        self.names.settle(asked, after)
        self._bury(draft, snapshot, is_greeting=base is None)
        is_due = self.is_on_demand and bool(other or self._verdicts.due(now_s))
        if is_due:
            self._add_rejected_hosts(draft, after)
        self._absence.withhold(draft, snapshot)
        requested = asked if base is snapshot and not is_due else self.names.names
        return self._finish(draft, requested, snapshot)

    def _meet(self, draft: Draft, claims: Mapping[str, Version], after: Lookup) -> None:
        """Begin with a client that may hold what another stream gave it, of this process or of another."""
        gone = frozenset(claims) - after.rows.keys()
        self._absence.bring(gone)
        if claims and self.is_on_demand:
            self.names.bring(frozenset(claims) - gone)
            draft.fresh.update(name for name in claims if name not in gone and after.rows[name].version != claims[name])
        if gone and not (self.names.selects_all or self.is_on_demand):
            # What is not named itself may be held by an alias that stands for nothing any more.
            has_missing = not self.names.names <= after.rows.keys()
            gone = gone if has_missing else NOTHING
        draft.gone |= gone
        if claims and self._ttl is not TtlUse.NONE:
            # Nobody knows how long ago its time to live was renewed.
            self.heartbeat_at_s = 0.0

    def _advance(self, draft: Draft, before: Rows, after: Rows) -> None:
        change = after.changes_since(before)
        updated = change.fresh | self._renewed(change, before, after) if change.renewed else change.fresh
        fresh, gone = self.names.change(updated, change.removed, lookup_of(before), lookup_of(after))
        draft.fresh |= fresh
        draft.gone |= gone

    def _bury(self, draft: Draft, snapshot: Snapshot, *, is_greeting: bool) -> None:
        """Tell who comes anew of what is gone of its collections: it does not say which members it holds."""
        if globs := self.names.globs():
            removed = self._memory.removed_members(snapshot.resources(self.type_url))
            if is_greeting:
                draft.gone |= {name for name in removed if collection_of(name) in globs}

    def _renewed(self, change: RowsChange, before: Rows, after: Rows) -> frozenset[str]:
        """Return those of which a client hears another time to live, or other aliases."""
        if self._ttl is not TtlUse.NONE:
            return change.renewed
        return frozenset(name for name in change.renewed if after[name].aliases != before[name].aliases)

    def _answer(self, draft: Draft, asked: frozenset[str], claims: Mapping[str, Version], after: Lookup) -> None:
        if WILDCARD in asked:
            draft.is_due = not claims
            if self.names.selects_all:
                self._select_all(draft, claims, after)
        # There may be ten thousand names, and most of them are resources' own.
        own = NOTHING if self.is_on_demand else asked & after.rows.keys()
        draft.fresh |= {name for name in own if claims.get(name) != after.rows[name].version} if claims else own
        others = asked - own - {WILDCARD}
        for name in (existing := after.existing(others)):
            draft.fresh.update(each.name for each in after.find(name) if claims.get(each.name) != each.version)
        self._deny(draft, others - existing - draft.gone)
        if self.is_on_demand and (beside := after.names(asked) - draft.fresh):
            beside -= self.names.told(after)
            draft.fresh |= {name for name in beside if claims.get(name) != after.rows[name].version}

    def _deny(self, draft: Draft, names: frozenset[str]) -> None:
        """Report that names do not exist: of hosts so that requests for them end, unless the client has to drop something."""
        if self.is_on_demand:
            dropped = {name for name in names if self._verdicts.must_be_dropped(name)}
            draft.gone |= dropped
            draft.unpopulated |= names - dropped
        else:
            draft.absent |= names

    def _select_all(self, draft: Draft, claims: Mapping[str, Version], after: Lookup) -> None:
        if claims:
            draft.fresh.update(name for name, row in after.rows.items() if claims.get(name) != row.version)
        else:
            draft.is_all = True
            draft.gone |= self._left - after.rows.keys()
            self._left = NOTHING

    def _repeat(self, draft: Draft, again: frozenset[str], after: Lookup, *, is_greeting: bool) -> None:
        """Say again what other types of the stream call for, except what the client rejected."""
        owed = self._verdicts.held_back()
        for name in again:
            if self.is_on_demand and is_wake_up(name):
                draft.woken.add(name)
                draft.fresh |= NOTHING if is_greeting else self._hosts_of(route_of(name), after)
            elif self.names.selects_all or name in self.names.names:
                found = [each.name for each in after.find(name) if each.name not in owed]
                draft.fresh.update(found)
                if not found and name not in owed and name not in self._absence.unsaid:
                    draft.absent.add(name)

    def _push(self, draft: Draft, again: frozenset[str], after: Lookup) -> None:
        wanted = self.names.names
        self._unasked = frozenset(name for name in again if name not in wanted and name in after.rows)
        draft.fresh |= self._unasked

    def _hosts_of(self, route: str, after: Lookup) -> frozenset[str]:
        """Return the virtual hosts of a route configuration that the client asked for, and did not reject."""
        names = {name for name in self.names.names if route_of(name) == route}
        return after.names(names) - self._verdicts.held_back()

    def _add_rejected_hosts(self, draft: Draft, after: Lookup) -> None:
        """Offer all virtual hosts again that were rejected: two may not have one domain, so they stay together."""
        rejected = self._verdicts.rejections.names
        for name in rejected:
            if name in after.rows:
                draft.fresh.add(name)
            elif self._verdicts.must_be_dropped(name):
                draft.gone.add(name)
        # What was rejected may have been the answer for any host: requests for it wait still.
        draft.fresh |= after.names(rejected & self.names.names)
        draft.unpopulated |= {name for name in self.names.names if not after.find(name)} - draft.gone
        self._verdicts.rejections.offered(rejected)

    def retries(self, snapshot: Snapshot, now_s: float) -> Iterator[News]:
        """Yield what was rejected and is offered again now, apart from each other and from what `news` told."""
        if self._base is not snapshot:
            return
        rows, version = snapshot.resources(self.type_url), version_of(snapshot, Subscription(self.type_url))
        for names in self._verdicts.due(now_s):
            self._verdicts.rejections.offered(names)
            found = names & rows.keys()
            gone = self._absence.sayable(names - found)
            if found or gone:
                yield News(version, rows.select(found), gone=gone)

    def _finish(self, draft: Draft, requested: frozenset[str], snapshot: Snapshot) -> News | None:
        draft.gone -= draft.absent | draft.fresh
        rows = snapshot.resources(self.type_url)
        resources = rows.everything if draft.is_all else rows.select(draft.fresh)
        version = version_of(snapshot, Subscription(self.type_url))
        if not (resources or draft.absent or draft.unpopulated or draft.gone or draft.woken or draft.is_due):
            if not self._has_sent:
                self._verdicts.sent = self._verdicts.acked = version
            return None
        if self._verdicts.rejections.names and not self.is_on_demand:
            self._verdicts.rejections.offered([*draft.fresh, *draft.absent, *draft.gone])
        absence = (draft.absent, draft.unpopulated, draft.gone, draft.woken)
        return News(version, resources, requested, *(frozenset(names) if names else NOTHING for names in absence))

    def tell(self, news: News, nonce: Nonce, now_s: float) -> DeltaResponse:
        """Make news a response, and remember it until its verdict."""
        self._has_sent = True
        absence = news.absent | news.gone
        names = news.resources.names
        if absence or news.unpopulated:
            names = names.union(absence, news.unpopulated)
        self._verdicts.expect(nonce, news.version, names, news.unpopulated)
        if self._ttl is not TtlUse.NONE:
            self._plan_heartbeat(now_s)
        return DeltaResponse(
            self.type_url,
            news.version,
            nonce,
            news.resources,
            tuple(sorted(absence | news.woken)),
            with_ttl=self._ttl is not TtlUse.NONE,
            aliases=self._aliases(news),
            unpopulated=tuple(sorted(news.unpopulated)),
        )

    def _aliases(self, news: News) -> Mapping[str, tuple[str, ...]]:
        if not self.is_on_demand or self._base is None or not news.resources:
            return NO_ALIASES
        lookup = lookup_of(self._base.resources(self.type_url))
        requested: dict[str, list[str]] = {}
        for name in news.requested:
            for resource in lookup.find(name):
                requested.setdefault(resource.name, []).append(name)
        return {each.name: aliases_to_tell(each, requested.get(each.name, ())) for each in news.resources}

    def _timed(self, snapshot: Snapshot) -> ResourceList:
        """Return what the client holds, was told the time to live of, and did not reject."""
        timed = snapshot.resources(self.type_url).timed
        names: AbstractSet[str] = timed.keys()
        if not self.names.selects_all:
            names = timed.keys() & self.names.held(lookup_of(snapshot.resources(self.type_url))) if timed else NOTHING
        return snapshot.resources(self.type_url).select(names - self._verdicts.rejections.names)

    def _plan_heartbeat(self, now_s: float) -> None:
        """Plan for what has a time to live now; what is planned already is never put off."""
        timed = self._base.resources(self.type_url).timed if self._base else {}
        periods_s = [heartbeat_s(resource.ttl_s) for resource in timed.values() if resource.ttl_s]
        times_s = [now_s + min(periods_s)] if periods_s else []
        if periods_s and self.heartbeat_at_s is not None:
            times_s.append(self.heartbeat_at_s)
        self.heartbeat_at_s = min(times_s, default=None)

    def heartbeat(self, next_nonce: Callable[[], Nonce], now_s: float) -> DeltaResponse | None:
        """Return what renews the time to live of what the client holds, where that is due."""
        if (
            self.heartbeat_at_s is None
            or now_s < self.heartbeat_at_s
            or self._base is None
            or self._verdicts.sent is None
        ):
            return None
        timed = self._timed(self._base)
        self.heartbeat_at_s = None
        self._plan_heartbeat(now_s)
        if not timed:
            return None
        nonce = next_nonce()
        self._verdicts.expect(nonce, self._verdicts.sent, timed.names, NOTHING)
        is_full = self._ttl is TtlUse.FULL
        resources, heartbeats = (timed, ()) if is_full else (NO_RESOURCES, tuple(timed))
        return DeltaResponse(self.type_url, self._verdicts.sent, nonce, resources, (), True, heartbeats)

    def resources(self) -> Collection[Resource]:
        """Return what the client should hold, rejected or not."""
        if self._base is None:
            return ()
        rows = self._base.resources(self.type_url)
        if self.names.selects_all:
            return rows.everything
        held = self.names.held(lookup_of(self._base.resources(self.type_url)))
        return tuple(rows[name] for name in sorted(held))

    def status(self) -> WatchStatus:
        """Tell where this watch stands."""
        missing: tuple[str, ...] = ()
        if self._base is not None:
            lookup = lookup_of(self._base.resources(self.type_url))
            missing = tuple(sorted(self.names.names - lookup.existing(self.names.names)))
        return WatchStatus(
            self.type_url,
            None if self.names.selects_all else self.names.names,
            sent=self._verdicts.sent,
            acked=self._verdicts.acked,
            nacked=self._verdicts.nacked,
            reason=self._verdicts.reason,
            resources=self.resources(),
            missing=missing,
            rejected=self._verdicts.rejections.names,
        )
