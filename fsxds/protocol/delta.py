"""Delta streams: which response to send next.

| rule | source (quoted: xDS protocol) |
| --- | --- |
| Names are added and removed one by one (`Subscription`); nonces matter for ACK and NACK alone (`Acks`). | "Incremental xDS" |
| `lookup.DeltaNames`, for virtual hosts `virtual_hosts.HostNames`, resolves names. | "Subscribing to Resources" |
| A client with `initial_resource_versions` is sent the differences, in rollout order (`delta_order.py`). | "Reconnect"; ENVOY.md E39 |
| One snapshot is one batch, in push order (`RESOURCE_TYPES`): used resources before their users; their removals last. | "Eventual consistency considerations" |
| Endpoints of a new or changed cluster are sent again after it: an Envoy waits for them, and does not ask. | ENVOY.md E34 |
| So are virtual hosts after their route configuration, and locality endpoints after endpoints. | ENVOY.md E44, E45 |
| An Envoy is sent a new cluster's endpoints before it asks: routes that move to it in the batch would find none. | ENVOY.md E35 |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, RESOURCE_TYPES, ResourceType, in_push_order
from fsxds.model.resources import Resource, Rows, RowsChange, Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.absence import Absence, removed_members
from fsxds.protocol.acks import NOTHING, Acks, Sent
from fsxds.protocol.delta_order import Arrival, DeltaUpdate, removals_last
from fsxds.protocol.lookup import NO_CHANGES, Changes, DeltaNames, Lookup, references_to
from fsxds.protocol.messages import Acknowledgement, DeltaRequest, DeltaResponse, Reaction
from fsxds.protocol.stream_core import Stream, Watch
from fsxds.protocol.subscription import VIRTUAL_HOSTS, WILDCARD, SharedMemory, Subscription, names_without, version_of
from fsxds.protocol.ttl import TtlMode, TtlUse, earliest, ttl_use
from fsxds.protocol.virtual_hosts import ROUTES, HostNames, ends_of_any_wait, ends_of_wait
from fsxds.rollout.pending import MOST_PARTS

CLUSTERS = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url
LISTENERS = BY_SHORT_NAME["lds"].type_url

# With a resource of the first type, the resources of the second type that it needs are sent again.
FOLLOWED_BY = {row.type_url: BY_SHORT_NAME[row.followed_by].type_url for row in RESOURCE_TYPES if row.followed_by}

# The least number of names that are kept for types the client has not subscribed to yet.
LEAST_NEEDED = 100

NOTHING_HELD: Mapping[str, Version] = MappingProxyType({})


class DeltaStream(Stream["_DeltaWatch", DeltaResponse]):
    """One stream, aggregated or not."""

    __slots__ = ("_arrival", "_most_needed", "_needed")

    def __init__(self, memory: SharedMemory, ttl: TtlMode, *, is_aggregated: bool) -> None:
        super().__init__(memory, ttl, is_aggregated=is_aggregated)
        # By type: names that sent resources reference, until the client subscribes to the type.
        self._needed: dict[TypeUrl, frozenset[str]] = {}
        # If a type has more, names that no resource references any more are dropped.
        self._most_needed = LEAST_NEEDED
        self._arrival = Arrival()

    @property
    def timer_at_s(self) -> float | None:
        """When to call `receive_timer`; None for never."""
        return earliest(self._arrival.timer_at_s, super().timer_at_s)

    def receive_request(
        self, request: DeltaRequest, snapshot: Snapshot | None, now_s: float
    ) -> Reaction[DeltaResponse]:
        """Process a request; ignore one for an unknown type.

        Source: xDS protocol, "How the client specifies what resources to return".
        """
        self.node = self.node or request.node
        row = BY_TYPE_URL.get(request.type_url)
        if row is None:
            return Reaction()
        watch = self._watches.get(row.type_url) or self._begin(row)
        acknowledgement = watch.receive_request(request, now_s)
        self._snapshot = snapshot or self._snapshot
        return Reaction(self._batch(now_s), acknowledgement)

    @property
    def has_members(self) -> bool:
        """Whether the client is sent members of a collection."""
        return any(watch.has_members for watch in self._watches.values())

    def _begin(self, row: ResourceType) -> _DeltaWatch:
        features = self.node.features if self.node else NOTHING
        ttl = ttl_use(row.type_url, features, self._ttl, is_delta=True)
        absence = Absence(row, is_envoy=self._is_envoy, unanswered=self._memory.unanswered)
        watch = _DeltaWatch(row.type_url, self._memory, ttl, absence)
        self._watches = in_push_order({**self._watches, row.type_url: watch})
        return watch

    def _batch(self, now_s: float) -> tuple[DeltaResponse, ...]:
        snapshot = self._snapshot
        if snapshot is None:
            return ()
        updates: list[DeltaUpdate] = []
        # Filled on the way, for types that come later in push order.
        again: dict[TypeUrl, frozenset[str]] = {}
        has_new_clusters = grows = False
        arrival = self._arrival
        arrival.timer_at_s = None
        if any(watch.has_new_content for watch in self._watches.values()):
            arrival.begin(now_s, self._memory.rollout, is_envoy=self._is_envoy)
        for watch in self._watches.values():
            watch.is_led = arrival.is_ordered
            arrives = watch.is_led and watch.has_new_content
            # Clusters are not warm before the client has asked for endpoints.
            is_growing = grows or ENDPOINTS in self._needed
            if arrives and watch.is_user and arrival.holds_users(self._watches.values(), now_s, grows=is_growing):
                continue
            was_initialized = watch.is_initialized
            names = again.get(watch.type_url, NOTHING) | self._names_needed(watch, snapshot)
            is_pushed = watch.type_url == ENDPOINTS and (has_new_clusters or (arrives and self._is_envoy))
            first = watch.update(snapshot, names, now_s, is_pushed=is_pushed)
            if watch.is_initialized:
                self._needed.pop(watch.type_url, None)
            arrival.has_new_listeners |= arrives and first is not None and watch.type_url == LISTENERS
            for update in (*((first,) if first else ()), *watch.retries(snapshot, now_s)):
                updates.append(update)
                grows |= not watch.is_user
                self._follow(update, again)
                has_new_clusters |= watch.type_url == CLUSTERS and (was_initialized or arrives) and self._is_envoy
        gone = [watch for watch in self._watches.values() if watch.gone]
        if gone and not arrival.holds_removals(self._watches.values(), now_s, has_more=bool(updates)):
            updates += [update for watch in gone if (update := watch.remove_gone(snapshot))]
        ordered = removals_last(updates)
        sent = [self._watches[update.type_url].send(update, self._next_nonce(), now_s) for update in ordered]
        return (*sent, *self._due_heartbeats(now_s))

    def _names_needed(self, watch: _DeltaWatch, snapshot: Snapshot) -> frozenset[str]:
        if not watch.waits_for_hosts:
            return NOTHING if watch.is_initialized else self._needed.get(watch.type_url, NOTHING)
        routes = self._watches.get(ROUTES)
        known = routes.resources() if routes is not None and routes.is_initialized else None
        return ends_of_any_wait(snapshot) if known is None else ends_of_wait(known)

    def _follow(self, update: DeltaUpdate, again: dict[TypeUrl, frozenset[str]]) -> None:
        """Add to `again` names needed again after an update."""
        needed = FOLLOWED_BY.get(update.type_url)
        if needed is None or not self._is_aggregated or not update.resources:
            return
        users: Iterable[Resource] = update.resources
        watch = self._watches.get(needed)
        if watch is None or not watch.is_initialized:
            if names := references_to(needed, users) if needed != VIRTUAL_HOSTS else NOTHING:
                names |= self._needed.get(needed, NOTHING)
                if len(names) > self._most_needed:
                    # The users of the other names were removed, or reference other names now.
                    names &= references_to(needed, self._watches[update.type_url].resources())
                    self._most_needed = max(LEAST_NEEDED, 2 * len(names))
                self._needed[needed] = names
            return
        if update.type_url == ENDPOINTS:
            # An Envoy that receives changed endpoints of the same cluster has kept those of its localities.
            users = (resource for resource in users if resource.name in again.get(ENDPOINTS, NOTHING))
        if names := watch.names.needed_by(users):
            again[needed] = again.get(needed, NOTHING) | names


class _DeltaWatch(Watch[DeltaResponse]):
    __slots__ = ("_absence", "_asked", "_held", "_left", "gone", "is_led", "names")

    def __init__(self, type_url: TypeUrl, memory: SharedMemory, ttl: TtlUse, absence: Absence) -> None:
        self.names = HostNames(memory) if type_url == VIRTUAL_HOSTS else DeltaNames(type_url, memory)
        acks = Acks(is_whole=self.names.keeps_together, most_retries=MOST_PARTS, share=memory.share)
        super().__init__(type_url, memory, ttl, acks)
        self._absence = absence
        # Names to answer as soon as a response can be sent.
        self._asked = NOTHING
        # The versions that the client has from another stream, until they were compared.
        self._held = NOTHING_HELD
        # Names in flight at the unsubscription from `*`: at a resubscription, removed ones have to be reported.
        self._left = NOTHING
        # Resources that the client brought and that do not exist; removed once their users are up to date.
        self.gone = NOTHING
        self.is_led = False  # removals wait for their users

    @property
    def has_new_content(self) -> bool:
        return self._base is None and bool(self._held)

    @property
    def waits_for_hosts(self) -> bool:
        return self.names.keeps_together and WILDCARD in self._asked

    @property
    def name_count(self) -> int:
        # Until the type is loaded, names and versions add up that are not subscribed to (any more).
        waiting = (self._asked | self._held.keys()) - self.names.names
        return len(self.names.names) + len(self.names.spellings) + len(waiting)

    @property
    def subscription(self) -> Subscription:
        return replace(self.names.subscription, wildcard=self.names.selects_all)

    def receive_request(self, request: DeltaRequest, now_s: float) -> Acknowledgement | None:
        request = self.names.spellings.receive(request, self.names.names)
        if self._base is None and request.initial_resource_versions:
            self._held = {**self._held, **request.initial_resource_versions}
        answer = self.acks.receive(request.nonce, request.error_detail, now_s, self.resources)
        if answer is not None and answer.rejected:
            self.names.receive_nack(answer)
        if WILDCARD in request.unsubscribe:
            self._left |= self.acks.in_flight
        self._asked = (self._asked - frozenset(request.unsubscribe)) | self.names.receive(request)
        self.keep_reasons(request.rejected_names)
        pending = self.acks.pending
        if pending.names and request.unsubscribe and self._base is not None:
            pending.forget(pending.names - self.names.wanted(pending.names, self.names.lookup(self._base)))
        return answer.acknowledgement if answer else None

    def update(
        self, snapshot: Snapshot, again: frozenset[str], now_s: float, *, is_pushed: bool = False
    ) -> DeltaUpdate | None:
        """Return the update to send, with names in `again` even if sent before.

        With `is_pushed`, existing names in `again` need no subscription. Removals of used resources wait if the client
        brings content. Send every update: the client now counts as holding `snapshot`'s state.
        """
        self._generation = snapshot.generation
        if self.type_url in snapshot.withheld or (self._base is None and not self._asked):
            return None
        rows = snapshot.resources(self.type_url)
        if self._base is None and not rows and self._waits_for_all:
            return None
        if rows is self._base and not (again or self._has_more):
            return None
        base, self._base = self._base, rows
        after = self.names.lookup(rows, base)
        changed, pending = self._compare(base, rows, after, now_s), self.acks.pending
        renewed = pending.names & (changed.fresh | changed.removed) if pending.names else NOTHING
        if renewed:
            pending.renew(renewed, now_s)
        answered, requested = self._answer(after), self._asked
        repeated = NO_CHANGES
        if again:
            repeated = self.names.answer_again(again, after, self.acks.held_back, is_first=base is None)
        pushed = frozenset(again & rows.keys()) - self.names.names if is_pushed else NOTHING
        certain = self._absence.reconsider(self.names.names, after)
        # The client does not report which members it holds.
        globs = self.names.new_globs(self._asked)
        members = removed_members(snapshot, self.type_url, globs) if globs else NOTHING
        self.names.settle(self._asked, after)
        others = NO_CHANGES
        if pushed or certain or members:
            # Names in `certain` are known not to exist.
            hosts = certain & self.names.names if self.names.keeps_together else NOTHING
            others = Changes(pushed, certain - hosts, members, unpopulated=hosts)
        retried = self._retry(after, now_s, is_due=bool(renewed))
        held, self._asked, self._held = self._held, NOTHING, NOTHING_HELD
        if changed or repeated or retried:
            requested = self.names.names
        changes = (changed | answered | repeated | others | retried).consistent()
        reported = self._absence.withhold(changes, snapshot, self.names.names, self.acks)
        if held and not self.is_user and self.is_led:
            self.gone = reported.removed | (reported.absent & held.keys())
            reported = replace(reported, absent=reported.absent - self.gone, removed=NOTHING)
        update = self._update_of(reported, snapshot, requested)
        return replace(update, unrequested=pushed) if update and pushed else update

    def remove_gone(self, snapshot: Snapshot) -> DeltaUpdate | None:
        gone, self.gone = names_without(snapshot.resources(self.type_url), self.gone), NOTHING
        return self._update_of(Changes(removed=gone), snapshot, NOTHING) if gone else None

    @property
    def awaits_answers(self) -> bool:
        return self._absence.is_open or (self._base is None and self._waits_for_all)

    @property
    def _waits_for_all(self) -> bool:
        if WILDCARD not in self._asked or not self.names.selects_all:
            return False
        return bool(self._memory.unanswered(self.type_url, frozenset((WILDCARD,))))

    @property
    def _has_more(self) -> bool:
        is_open = self._asked or self.names.has_given_up or self.acks.pending.names
        return bool(is_open) or self._absence.is_open

    def _compare(self, base: Rows | None, rows: Rows, after: Lookup, now_s: float) -> Changes:
        if base is None:
            self._absence.brought = names_without(rows, self._held.keys())
            if self._held and self._ttl is not TtlUse.NONE:
                # It is unknown how long ago its time to live was renewed.
                self._heartbeats.at_s = now_s
            return self.names.begin(self._held, after)
        change = rows.changes_since(base)
        updated = change.fresh
        if change.renewed and self._ttl is TtlUse.NONE:
            updated |= {name for name in change.renewed if rows[name].aliases != base[name].aliases}
        elif change.renewed:
            updated |= change.renewed
        return self.names.change(updated, change.removed, self.names.lookup(base), after)

    def _answer(self, after: Lookup) -> Changes:
        if not self._asked:
            return NO_CHANGES
        answered = self.names.answer(self._asked, self._held, after, self.acks.pending.names)
        if not answered.is_all:
            return answered
        left, self._left = self._left, NOTHING
        return answered | Changes(removed=names_without(after.rows, left))

    def _retry(self, after: Lookup, now_s: float, *, is_due: bool) -> Changes:
        pending = self.acks.pending
        if not isinstance(self.names, HostNames) or not (is_due or self.acks.due(now_s)):
            return NO_CHANGES
        retried = self.names.retry(pending.names, after)
        pending.sent_again(pending.names)
        return retried

    def _update_of(self, changes: Changes, snapshot: Snapshot, requested: frozenset[str]) -> DeltaUpdate | None:
        if not changes:
            if self.acks.last_nonce is None:
                self.acks.sent = self.acks.acked = version_of(snapshot, Subscription(self.type_url))
            return None
        rows, version = snapshot.resources(self.type_url), version_of(snapshot, Subscription(self.type_url))
        resources = rows.everything if changes.is_all else rows.select(changes.fresh)
        if self.acks.pending.names and not self.names.keeps_together:
            self.acks.pending.sent_again(changes.fresh | changes.absent | changes.removed)
        aliases = self.names.aliases(resources, requested, self.names.lookup(rows))
        return DeltaUpdate(self.type_url, version, changes, resources, aliases)

    def retries(self, snapshot: Snapshot, now_s: float) -> Iterator[DeltaUpdate]:
        rows = snapshot.resources(self.type_url)
        if not self.acks.pending.names or self._base is not rows or self.type_url in snapshot.withheld:
            return
        version = version_of(snapshot, Subscription(self.type_url))
        for names in self.acks.due(now_s):
            self.acks.pending.sent_again(names)
            found = frozenset(names & rows.keys())
            removed = self._absence.reportable(names - found)
            if found or removed:
                yield DeltaUpdate(self.type_url, version, Changes(found, removed=removed), rows.select(found))

    def send(self, update: DeltaUpdate, nonce: Nonce, now_s: float) -> DeltaResponse:
        changes, resources = update.changes, update.resources
        absence = changes.absent | changes.removed
        names = absence | changes.unpopulated
        sent = Sent(
            update.version,
            resources,
            names,
            unrequested=update.unrequested,
            unpopulated=changes.unpopulated,
            generation=self._generation,
        )
        self.acks.record(nonce, sent, now_s)
        if self._ttl is not TtlUse.NONE and self._base is not None:
            self._heartbeats.plan(self._base.shortest_ttl_s, now_s, is_all=False)
        return DeltaResponse(
            self.type_url,
            update.version,
            nonce,
            resources,
            tuple(sorted(self.names.spellings.with_others(absence | changes.ends_wait))),
            with_ttl=self._ttl is not TtlUse.NONE,
            aliases=update.aliases,
            unpopulated=tuple(sorted(changes.unpopulated)),
            errors={name: self._reasons[name] for name in absence & self._reasons.keys()},
        )

    def _timed(self, base: Rows) -> frozenset[str]:
        timed = frozenset(base.timed)
        return timed & self.names.held(self.names.lookup(base)) if timed and not self.names.selects_all else timed

    def _heartbeat_of(self, sent: Sent, base: Rows, nonce: Nonce, *, is_full: bool) -> DeltaResponse:
        if not is_full:
            heartbeats = tuple(sent.resources)
            return DeltaResponse(self.type_url, sent.version, nonce, with_ttl=True, heartbeats=heartbeats)
        aliases = self.names.aliases(sent.resources, self.names.names, self.names.lookup(base))
        return DeltaResponse(self.type_url, sent.version, nonce, sent.resources, with_ttl=True, aliases=aliases)

    def selects(self, change: RowsChange) -> bool:
        return self.names.may_select_any(change)

    def selected(self, names: frozenset[str]) -> frozenset[str]:
        return self.names.may_select(names)

    def resources(self) -> Collection[Resource]:
        if self._base is None:
            return ()
        if self.names.selects_all:
            return self._base.everything
        return self._base.select(self.names.held(self.names.lookup(self._base)))

    @property
    def has_members(self) -> bool:
        return self._base is not None and self.names.has_members(self.names.lookup(self._base))

    def _missing(self, base: Rows) -> tuple[str, ...]:
        return tuple(sorted(self.names.names - self.names.lookup(base).existing(self.names.names)))
