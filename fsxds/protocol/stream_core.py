"""The common part of SotW and Delta streams: their types' states, statuses, timers and heartbeats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from fsxds.model.name_table import Chunk
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource, Rows, RowsChange, Snapshot
from fsxds.model.values import Nonce, TypeUrl
from fsxds.protocol.acks import NOTHING, Acks, Sent
from fsxds.protocol.messages import ENVOY, Node, Response, SyncState, WatchStatus
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import Heartbeats, TtlMode, TtlUse, earliest
from fsxds.rollout import Step
from fsxds.rollout.step import Standing

NO_REASONS: Mapping[str, str] = MappingProxyType({})


class Watch(ABC, Generic[Response]):
    """One type on one stream.

    The client's resources are not kept by name: they are the selection from `_base`, without pending ones.
    """

    __slots__ = ("_base", "_generation", "_heartbeats", "_memory", "_reasons", "_ttl", "acks", "type_url")

    def __init__(self, type_url: TypeUrl, memory: SharedMemory, ttl: TtlUse, acks: Acks) -> None:
        self.type_url, self.acks = type_url, acks
        self._memory, self._ttl = memory, ttl
        self._heartbeats = Heartbeats()
        # The rows that were sent last; None until it is known which resources the client holds.
        self._base: Rows | None = None
        # The generation of the snapshot that was processed last.
        self._generation = 0
        # Reasons of rejected names in the subscription.
        self._reasons: Mapping[str, str] = NO_REASONS

    @property
    @abstractmethod
    def subscription(self) -> Subscription:
        """The client's subscription."""

    @property
    def is_user(self) -> bool:
        """Whether its resources use other types."""
        return BY_TYPE_URL[self.type_url].is_user

    @property
    def is_initialized(self) -> bool:
        """Whether the client's resources are known."""
        return self._base is not None

    @property
    def selects_nothing(self) -> bool:
        """Whether nothing is subscribed to."""
        return not (self.subscription.wildcard or self.subscription.names)

    @property
    def name_count(self) -> int:
        """The number of kept names."""
        return len(self.subscription.names)

    @property
    def awaits_answer(self) -> bool:
        """Whether a response is unanswered."""
        return not self.acks.has_answered(1, selects=True)

    @property
    def has_taken_all(self) -> bool:
        """Whether the client ACKed all responses."""
        return not (self.awaits_answer or self.acks.pending.names)

    @property
    def named_types(self) -> frozenset[TypeUrl]:
        """The types that served resources reference."""
        chunks = () if self._base is None else self._base.chunks
        return frozenset[TypeUrl]().union(*(chunk.once(_named_types) for chunk in chunks))

    @property
    def timer_at_s(self) -> float | None:
        """When a retry or heartbeat is due; None for never."""
        return earliest(self.acks.retry_at_s, self._heartbeats.at_s)

    @property
    @abstractmethod
    def awaits_answers(self) -> bool:
        """Whether an upstream's answer may cause a response."""

    def selects(self, change: RowsChange) -> bool:
        """Whether a change may be selected."""
        return self.subscription.selects_any(change)

    def selected(self, names: frozenset[str]) -> frozenset[str]:
        """Return names that may be selected."""
        return self.subscription.selected(names)

    @abstractmethod
    def resources(self) -> Collection[Resource]:
        """Return the resources that the client should hold."""

    @abstractmethod
    def _missing(self, base: Rows) -> tuple[str, ...]: ...

    def _shortest_ttl_s(self, base: Rows) -> float | None:
        return base.shortest_ttl_s

    @abstractmethod
    def _timed(self, base: Rows) -> frozenset[str]: ...

    @abstractmethod
    def _heartbeat_of(self, sent: Sent, base: Rows, nonce: Nonce, *, is_full: bool) -> Response: ...

    def heartbeat(self, next_nonce: Callable[[], Nonce], now_s: float) -> Response | None:
        """Return a due heartbeat."""
        version, base = self.acks.sent, self._base
        if version is None or base is None or not self._heartbeats.is_due(now_s):
            return None
        shortest_ttl_s = self._shortest_ttl_s(base)
        is_full = self._ttl is TtlUse.FULL or self._heartbeats.may_be_too_late(shortest_ttl_s, now_s)
        self._heartbeats.plan(shortest_ttl_s, now_s, is_all=True)
        renewed = base.select(self._timed(base) - self.acks.pending.names)
        if not renewed:
            return None
        nonce, sent = next_nonce(), Sent(version, renewed)
        self.acks.record(nonce, sent, now_s)
        return self._heartbeat_of(sent, base, nonce, is_full=is_full)

    def keep_reasons(self, rejected: Mapping[str, str]) -> None:
        """Add the reasons of a request's rejected names, and drop those of names not subscribed to any more."""
        if rejected or self._reasons:
            reasons = {**self._reasons, **rejected}
            self._reasons = {name: reasons[name] for name in reasons.keys() & self.subscription.names}

    def has_answered(self, step: Step) -> bool:
        """Whether the client answered a step that changes the type."""
        generation, selects = step.snapshot.generation, self.selects(step.changed[self.type_url])
        if self._generation < generation:
            return not selects
        return self.acks.has_answered(generation, selects=selects)

    def sync_state(self, generation: int) -> SyncState:
        """Return the client's state, given the served generation."""
        state = self.acks.state
        return SyncState.STALE if state is SyncState.SYNCED and self._generation < generation else state

    def status(self) -> WatchStatus:
        """Return the status."""
        missing = () if self._base is None else self._missing(self._base)
        return self.acks.status(self.subscription, self.resources(), missing, self._generation)


def _named_types(chunk: Chunk[Resource]) -> frozenset[TypeUrl]:
    return frozenset(reference.type_url for user in chunk.values for reference in user.references)


AnyWatch = TypeVar("AnyWatch", bound=Watch[Any])


class Stream(ABC, Generic[AnyWatch, Response]):
    """One stream, aggregated or not. `node` is the first sent, or None.

    Times are readings, in seconds, of a clock that only goes forward.
    """

    __slots__ = ("_is_aggregated", "_memory", "_nonces", "_snapshot", "_ttl", "_watches", "node")

    def __init__(self, memory: SharedMemory, ttl: TtlMode, *, is_aggregated: bool) -> None:
        self.node: Node | None = None
        self._memory, self._ttl, self._is_aggregated = memory, ttl, is_aggregated
        # In push order.
        self._watches: dict[TypeUrl, AnyWatch] = {}
        # The current snapshot, even if no part of it could be sent yet.
        self._snapshot: Snapshot | None = None
        self._nonces = 0

    @abstractmethod
    def _batch(self, now_s: float) -> tuple[Response, ...]: ...

    @property
    def timer_at_s(self) -> float | None:
        """When to call `receive_timer`; None for never."""
        return earliest(*(watch.timer_at_s for watch in self._watches.values()))

    def receive_snapshot(self, snapshot: Snapshot, now_s: float) -> tuple[Response, ...]:
        """Process a new snapshot."""
        self._snapshot = snapshot
        return self._batch(now_s)

    def receive_timer(self, now_s: float) -> tuple[Response, ...]:
        """Return due retries and heartbeats."""
        return self._batch(now_s)

    @property
    def name_count(self) -> int:
        """The number of kept names."""
        return sum(watch.name_count for watch in self._watches.values())

    @property
    def awaits_answers(self) -> bool:
        """Whether an upstream's answer may cause a response."""
        return any(watch.awaits_answers for watch in self._watches.values())

    def sync_states(self, generation: int) -> Iterator[SyncState]:
        """Yield each wanted type's state, given the served generation."""
        return (watch.sync_state(generation) for watch in self._watches.values() if not watch.selects_nothing)

    def statistics(self) -> tuple[WatchStatus, ...]:
        """Return each type's status, in push order."""
        return tuple(watch.status() for watch in self._watches.values())

    def standing(self, step: Step) -> Standing:
        """Return whether the client answered a step."""
        watches = (watch for watch in self._watches.values() if watch.type_url in step.changed)
        return Standing.TAKEN if all(watch.has_answered(step) for watch in watches) else Standing.PENDING

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subscribed subset of `names`."""
        watch = self._watches.get(type_url)
        return NOTHING if watch is None else watch.selected(names)

    def subscription_of(self, type_url: TypeUrl) -> Subscription:
        """Return a subscription, empty if never requested."""
        watch = self._watches.get(type_url)
        return Subscription.initial(type_url) if watch is None else watch.subscription

    @property
    def _is_envoy(self) -> bool:
        return self.node is not None and self.node.agent == ENVOY

    def _next_nonce(self) -> Nonce:
        self._nonces += 1
        return Nonce(str(self._nonces))

    def _due_heartbeats(self, now_s: float) -> Iterator[Response]:
        heartbeats = (watch.heartbeat(self._next_nonce, now_s) for watch in self._watches.values())
        return (heartbeat for heartbeat in heartbeats if heartbeat is not None)
