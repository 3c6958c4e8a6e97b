"""State-of-the-world streams: which response to send next.

| rule | source (quoted: xDS protocol) |
| --- | --- |
| A request replaces its type's subscription (`Subscription`); a stale one counts only as ACK or NACK (`Acks`). | "How the client specifies what resources to return", "Resource updates" |
| A name not in the request before is sent, even if the client has it. | "Resource updates" |
| A request that repeats nonce and names asks for them again: its client let go of them. | ENVOY.md E33 |
| CDS, LDS and SRDS are sent in full, and missing resources are removed (`ResourceType.full_state_in_sotw`); of other types only changed ones are sent, and no removals. | "Grouping Resources into Responses", "Deleting Resources"; ENVOY.md E37 |
| A client with its selection's current version is sent nothing at first. | "Resource updates" |
| Until a type is loaded, or while resources may be missing by mistake, a client with a full state is sent none. | `Snapshot.withheld`, `incomplete`, `undeclared` |
| A full state is held back, or sent without removals, while a missing resource may exist elsewhere. | `on_demand` |
| A NACKed resource is sent again alone, with back-off (`Acks`); meanwhile the version omits it. | ENVOY.md E10 |
| One snapshot is one batch, in push order: used resources before their users. | "Eventual consistency considerations" |
| A new or changed cluster's endpoints are sent after it, before its ACK, which Envoy holds back until then. | ENVOY.md E33 |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from fsxds.model.name_table import version_of_set
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType, in_push_order
from fsxds.model.resources import NO_RESOURCES, ResourceList, Rows, Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.acks import NOTHING, Acks, Answer, Sent
from fsxds.protocol.messages import Reaction, SotwRequest, SotwResponse
from fsxds.protocol.stream_core import NO_REASONS, Stream, Watch
from fsxds.protocol.subscription import (
    WILDCARD,
    SharedMemory,
    Subscription,
    expanded,
    has_structured_names,
    missing_names,
    names_without,
    selected_names,
    version_of,
)
from fsxds.protocol.ttl import TtlUse, ttl_use

CLUSTERS = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url

NONE_AGAIN: Mapping[TypeUrl, frozenset[str]] = MappingProxyType({})


class SotwStream(Stream["_SotwWatch", SotwResponse]):
    """One stream, aggregated or not."""

    __slots__ = ()

    def receive_request(self, request: SotwRequest, snapshot: Snapshot | None, now_s: float) -> Reaction[SotwResponse]:
        """Process a request.

        Its ACK or NACK always counts; its names unless it is stale. One for a type without SotW is ignored.
        """
        self.node = self.node or request.node
        row = BY_TYPE_URL.get(request.type_url)
        if row is None or not row.has_sotw:
            return Reaction()
        watch = self._watches.get(request.type_url) or self._begin(row)
        answer = watch.receive_ack(request, now_s)
        is_repeat = answer is None and request.error_detail is None and watch.acks.is_answered(request.nonce)
        if watch.acks.is_stale(request.nonce):
            if is_repeat and not self._is_aggregated:
                # An aggregated stream sends them when its client answers the response that it has not seen yet.
                watch.postpone(request.names)
            responses = self._after_stale_nack(watch, answer, now_s)
        else:
            self._snapshot = snapshot or self._snapshot
            again = self._names_to_send(watch, request, is_repeat=is_repeat)
            responses = self._batch(now_s, {request.type_url: again})
        return Reaction(responses, answer.acknowledgement if answer else None)

    @property
    def has_members(self) -> bool:
        """Always False: a reconnecting client is sent all members."""
        return False

    def _begin(self, row: ResourceType) -> _SotwWatch:
        features = self.node.features if self.node else NOTHING
        watch = _SotwWatch(row, self._memory, ttl_use(row.type_url, features, self._ttl, is_delta=False))
        self._watches = in_push_order({**self._watches, row.type_url: watch})
        return watch

    def _names_to_send(self, watch: _SotwWatch, request: SotwRequest, *, is_repeat: bool) -> frozenset[str]:
        before = watch.subscription
        added = watch.subscribe(request.names)
        watch.keep_reasons({name: reason for name, reason in request.rejected_names.items() if name in added})
        if not watch.is_initialized:
            # The client may wait for endpoints that it has: for clusters that it has just received.
            clusters = self._watches.get(CLUSTERS)
            return watch.everything if watch.type_url == ENDPOINTS and clusters and clusters.has_sent else NOTHING
        may_have_released = bool(added) and self._is_envoy and BY_TYPE_URL[watch.type_url].is_reused_without_request
        is_asked_again = may_have_released or (is_repeat and watch.subscription == before)
        return added | watch.names_again(is_asked=is_asked_again)

    def _after_stale_nack(self, watch: _SotwWatch, answer: Answer | None, now_s: float) -> tuple[SotwResponse, ...]:
        """Send NACKed clusters' endpoints again: they came before these clusters."""
        endpoints = self._watches.get(ENDPOINTS)
        is_ack = answer is None or answer.acknowledgement.accepted
        if answer is None or is_ack or watch.type_url != CLUSTERS or endpoints is None or self._snapshot is None:
            return ()
        again = endpoints.repeatable(_endpoints_of(answer.sent.fresh, self._snapshot))
        return self._batch(now_s, {ENDPOINTS: again}) if again else ()

    def _batch(self, now_s: float, again: Mapping[TypeUrl, frozenset[str]] = NONE_AGAIN) -> tuple[SotwResponse, ...]:
        snapshot = self._snapshot
        if snapshot is None:
            return ()
        updates: list[tuple[_SotwWatch, Sent]] = []
        for watch in self._watches.values():
            is_first = not watch.is_initialized
            update = watch.update(snapshot, again.get(watch.type_url, NOTHING), now_s)
            if update is None and not self._is_envoy:
                # An Envoy does not read the reasons, and rejects a list of some types without resources (ENVOY.md E15).
                update = watch.rejection_response(snapshot)
            if update is None:
                continue
            updates.append((watch, update))
            if watch.type_url == CLUSTERS and self._is_aggregated:
                # Endpoints come later in push order.
                follow = self._endpoints_after(_endpoints_of(update.fresh, snapshot), is_first=is_first)
                again = {**again, ENDPOINTS: again.get(ENDPOINTS, NOTHING) | follow}
        sent = [watch.send(update, self._next_nonce(), now_s) for watch, update in updates]
        return (*sent, *self._due_heartbeats(now_s))

    def _endpoints_after(self, names: Iterable[str], *, is_first: bool) -> frozenset[str]:
        watch = self._watches.get(ENDPOINTS)
        if watch is None:
            return NOTHING
        # An Envoy takes the endpoints of a new cluster before it subscribes to them. Without them, requests on routes
        # that move to the new cluster in the same batch fail.
        return watch.repeatable(names, unrequested=self._is_envoy and watch.is_initialized and not is_first)


def _endpoints_of(clusters: Iterable[str], snapshot: Snapshot) -> Iterator[str]:
    rows = snapshot.resources(CLUSTERS)
    known = (rows[name] for name in clusters if name in rows)
    return (ref.name for cluster in known for ref in cluster.references if ref.type_url == ENDPOINTS)


class _SotwWatch(Watch[SotwResponse]):
    __slots__ = ("_awaited", "_claimed", "_postponed", "_row", "subscription")

    subscription: Subscription

    def __init__(self, row: ResourceType, memory: SharedMemory, ttl: TtlUse) -> None:
        super().__init__(row.type_url, memory, ttl, Acks(is_full_state=row.full_state_in_sotw, share=memory.share))
        self.subscription = Subscription.initial(row.type_url)
        self._row = row
        # The version that the client had when it opened the stream.
        self._claimed: Version | None = None
        # Names that the client requested again and that could not be sent yet.
        self._postponed = NOTHING
        # Names that delay a full state, because they may exist elsewhere.
        self._awaited = NOTHING

    @property
    def everything(self) -> frozenset[str]:
        return frozenset((WILDCARD,)) if self.subscription.wildcard else self.subscription.names

    @property
    def has_sent(self) -> bool:
        return self.acks.last_nonce is not None

    def receive_ack(self, request: SotwRequest, now_s: float) -> Answer | None:
        if self._base is None:
            self._claimed = request.version_info
        return self.acks.receive(request.nonce, request.error_detail, now_s, self.resources)

    def resources(self) -> ResourceList:
        return NO_RESOURCES if self._base is None else self._select(self._base, self.everything)

    def subscribe(self, resource_names: Iterable[str]) -> frozenset[str]:
        """Return added names, including `*` for a new wildcard."""
        before, after = self.subscription, self.subscription.requesting(frozenset(resource_names))
        if after != before or after.never_named != before.never_named:
            names = before.names if after.names == before.names else self._memory.share(after.names)
            self.subscription = replace(after, names=names)
        if not (after.wildcard or (after.names and self._row.full_state_in_sotw)):
            self.acks.pending.forget(self.acks.pending.names - self._selected(self._base))
        return after.added_to(before)

    def rejection_response(self, snapshot: Snapshot) -> Sent | None:
        if not self._reasons or self._base is None:
            return None
        return Sent(version_of(snapshot, self.subscription), generation=self._generation)

    def _selected(self, rows: Rows | None) -> frozenset[str]:
        return self.subscription.names if rows is None else selected_names(rows, self.subscription)

    def postpone(self, resource_names: Iterable[str]) -> None:
        """Record names requested again by a client that missed the last response."""
        if self.subscription.names == frozenset(resource_names):
            self._postponed |= self._selected(self._base) - self.acks.in_flight

    def names_again(self, *, is_asked: bool) -> frozenset[str]:
        """Return postponed names, and with `is_asked` the whole subscription.

        An Envoy requests all names when it changed a cluster, and waits for its endpoints (ENVOY.md E33).
        """
        if self._row.full_state_in_sotw:
            return NOTHING
        return self.repeatable(self._selected(self._base) | self._postponed if is_asked else self._postponed)

    def repeatable(self, names: Iterable[str], *, unrequested: bool = False) -> frozenset[str]:
        """Return subscribed names, with `unrequested` all; pending ones are postponed."""
        selects_any, pending = unrequested or self.subscription.wildcard, self.acks.pending.names
        wanted = frozenset(names) if selects_any else self._selected(self._base).intersection(names)
        self._postponed = (self._postponed | wanted) & pending
        return wanted - pending

    def update(self, snapshot: Snapshot, again: frozenset[str], now_s: float) -> Sent | None:
        """Return the update to send, with names in `again` even if sent before.

        Send every update: the client now counts as holding `snapshot`'s state.
        """
        self._generation = snapshot.generation
        if self.type_url in snapshot.withheld:
            return None
        if self._base is None:
            return self._first_update(snapshot, again, now_s)
        base, self._base = self._base, snapshot.resources(self.type_url)
        if self.selects_nothing or (self._base is base and not (again or self.acks.pending.names or self._awaited)):
            return None
        fresh, removed = self._difference(base, self._base)
        if self._row.full_state_in_sotw:
            names = again | (self._awaited & self.subscription.names)
            missing = names.intersection(missing_names(self._base, self.subscription)) if names else NOTHING
            self._awaited = NOTHING
            again = names - self._unanswered(missing)
            if removed and not self.subscription.wildcard and self._unanswered(removed & self.subscription.names):
                # A name that no client asks for any more was forgotten, and is asked for again just now.
                self._base, self._awaited = base, self._awaited | again
                return None
        again = self._with_members(self._base, again)
        if self._row.full_state_in_sotw:
            return self._full_update(snapshot, fresh | again, now_s, is_changed=bool(fresh or removed))
        return self._partial_update(snapshot, fresh, again, now_s)

    @property
    def awaits_answers(self) -> bool:
        return bool(self._awaited) or (self._base is None and not self.selects_nothing)

    def _unanswered(self, names: frozenset[str]) -> frozenset[str]:
        unanswered = self._memory.unanswered(self.type_url, names) if names else NOTHING
        self._awaited |= unanswered
        return unanswered

    def _first_update(self, snapshot: Snapshot, again: frozenset[str], now_s: float) -> Sent | None:
        """The client may hold resources from another stream or process."""
        holds_selection = self._holds_selection(snapshot)
        if self.selects_nothing or (not holds_selection and self._may_lose_something(snapshot)):
            return None
        self._base = snapshot.resources(self.type_url)
        is_full, version = self._row.full_state_in_sotw, version_of(snapshot, self.subscription)
        if holds_selection:
            self.acks.sent = self.acks.acked = version
            self._memory.know(version)
            # It is unknown how long ago its time to live was renewed.
            self._heartbeats.at_s = None if self._shortest_ttl_s(self._base) is None else now_s
            return None if is_full else self._partial_update(snapshot, NOTHING, again, now_s)
        resources = self._select(self._base, self.everything)
        if not resources and is_full and self._memory.unanswered(self.type_url, self.everything):
            self._base = None
            return None
        return self._sent(version, resources, resources.names) if resources or is_full else None

    def _holds_selection(self, snapshot: Snapshot) -> bool:
        if self.type_url in snapshot.authored and not self.subscription.wildcard:
            # An author's version does not show for which names the client received it.
            return False
        return self._claimed is not None and self._claimed == version_of(snapshot, self.subscription)

    def _may_lose_something(self, snapshot: Snapshot) -> bool:
        """A full state might remove resources from before this process started."""
        type_url = self.type_url
        if self._claimed is None or not self._row.full_state_in_sotw:
            return False
        missing = missing_names(snapshot.resources(type_url), self.subscription)
        unsure = self.everything if self.subscription.wildcard else frozenset(missing)
        if unsure and self._memory.unanswered(type_url, unsure):
            return True
        if self._memory.is_known(self._claimed) and type_url not in snapshot.authored:
            return False
        if type_url not in snapshot.incomplete and type_url not in snapshot.undeclared:
            return False
        return self.subscription.wildcard or not self.subscription.names <= snapshot.resources(type_url).keys()

    def _difference(self, base: Rows, rows: Rows) -> tuple[frozenset[str], frozenset[str]]:
        change = rows.changes_since(base)
        fresh = change.fresh | change.renewed if change.renewed and self._ttl is not TtlUse.NONE else change.fresh
        if self.subscription.wildcard:
            return fresh, change.removed
        return fresh & self._selected(rows), change.removed & self._selected(base)

    def _full_update(self, snapshot: Snapshot, fresh: frozenset[str], now_s: float, *, is_changed: bool) -> Sent | None:
        if fresh or is_changed:
            self.acks.pending.renew(self.acks.pending.names, now_s)
        elif not self.acks.due(now_s):
            return None
        resources = self._select(snapshot.resources(self.type_url), self.everything)
        if WILDCARD in fresh:
            fresh = resources.names
        self.acks.pending.sent_again(self.acks.pending.names)
        version = version_of(snapshot, self.subscription)
        return self._sent(version, resources, fresh | self.acks.unapplied)

    def _partial_update(
        self, snapshot: Snapshot, fresh: frozenset[str], again: frozenset[str], now_s: float
    ) -> Sent | None:
        rows, pending = snapshot.resources(self.type_url), self.acks.pending
        # A removal is not sent; a resource that comes back is fresh.
        pending.forget(names_without(rows, pending.names))
        if renewed := pending.names & fresh:
            pending.renew(renewed, now_s)
        # Sent separately, so that another NACK affects no other resource.
        names = fresh | again or next(iter(self.acks.due(now_s)), NOTHING)
        resources = self._select(rows, names)
        if not resources:
            return None
        pending.sent_again(names)
        return self._sent(self._version(snapshot, pending.names - names), resources, names)

    def _sent(self, version: Version, resources: ResourceList, fresh: frozenset[str]) -> Sent:
        return Sent(version, resources, fresh=fresh, generation=self._generation)

    def _version(self, snapshot: Snapshot, lacking: frozenset[str]) -> Version:
        """Leave out lacking resources, so that the client never claims to hold them."""
        if not lacking or WILDCARD in lacking or self.type_url in snapshot.authored:
            return version_of(snapshot, self.subscription)
        rows = snapshot.resources(self.type_url)
        names = rows if self.subscription.wildcard else sorted(self._selected(rows))
        members = ((name, rows[name].version if name in rows and name not in lacking else "") for name in names)
        return version_of_set(self.type_url, members)

    def _select(self, rows: Rows, names: frozenset[str]) -> ResourceList:
        return rows.everything if WILDCARD in names else rows.select(self._with_members(rows, names))

    def _with_members(self, rows: Rows, names: frozenset[str]) -> frozenset[str]:
        if names is self.subscription.names:
            return self._selected(rows)
        if not names or not has_structured_names(rows) or names.isdisjoint(self.subscription.globs):
            return names
        return expanded(rows, names, names & self.subscription.globs)

    def send(self, sent: Sent, nonce: Nonce, now_s: float) -> SotwResponse:
        if self._postponed:
            self._postponed -= sent.resources.names
        self.acks.record(nonce, sent, now_s)
        self._memory.know(sent.version)
        shortest_ttl_s = None if self._base is None else self._shortest_ttl_s(self._base)
        self._heartbeats.plan(shortest_ttl_s, now_s, is_all=self._row.full_state_in_sotw)
        with_ttl = self._ttl is not TtlUse.NONE
        # Each is sent once.
        errors, self._reasons = self._reasons, NO_REASONS
        if errors:
            errors = {name: reason for name, reason in errors.items() if name not in sent.resources.names}
        return SotwResponse(self.type_url, sent.version, nonce, sent.resources, with_ttl, errors=errors)

    def _shortest_ttl_s(self, base: Rows) -> float | None:
        if self._ttl is TtlUse.NONE or not base.timed:
            return None
        if self.subscription.wildcard:
            return base.shortest_ttl_s
        timed = base.select(self._timed(base))
        return min((resource.ttl_s for resource in timed if resource.ttl_s), default=None)

    def _timed(self, base: Rows) -> frozenset[str]:
        timed = base.timed.keys()
        return frozenset(timed if self.subscription.wildcard else timed & self._selected(base))

    def _heartbeat_of(self, sent: Sent, base: Rows, nonce: Nonce, *, is_full: bool) -> SotwResponse:
        self._memory.know(sent.version)
        # A full state must also contain the resources without a time to live.
        held = self._select(base, self.everything) if self._row.full_state_in_sotw else sent.resources
        rest, heartbeats = base.select(held.names - sent.resources.names), tuple(sent.resources)
        if is_full:
            rest, heartbeats = held, ()
        return SotwResponse(self.type_url, sent.version, nonce, rest, with_ttl=True, heartbeats=heartbeats)

    def _missing(self, base: Rows) -> tuple[str, ...]:
        return missing_names(base, self.subscription)
