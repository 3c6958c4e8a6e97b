"""ACK and NACK: each response's outcome, and when NACKed content is sent again.

| rule | source |
| --- | --- |
| A nonce identifies the response that is ACKed or NACKed; unanswered responses before it count as ACKed. | xDS protocol, "ACK and NACK semantics summary" |
| A request with another nonce than the last response's is stale: SotW ignores its rest, Delta does not. | xDS protocol, "Resource updates" |
| A NACK of the response ACKed last is a late NACK: it rejects the resources that it names among all held ones. | xRFC TP1, "xDS relay proxy" |
| A NACKed response may be applied in part: each of its names is pending until a response with it is ACKed. | ENVOY.md E12 |
| The same content is sent again with back-off (`Pending`). | ENVOY.md E10 |
| A poll has no nonce: its version, or lack of one, reveals the previous response's outcome. | xDS protocol, "REST-JSON polling subscriptions" |
| A client has taken a rollout's step once it answered its responses; one that rejects a resource is served another snapshot. | `rollout`; ENVOY.md E70 |

Times are readings, in seconds, of any clock that only goes forward.

Rules: whether a request is stale (`sotw.py` acts on it); when a client on a stream has taken a step (a polling one:
`polling_node.py`; a mirror: `transports/mirror/writer.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, auto

from fsxds.model.resources import NO_RESOURCES, Resource, ResourceList
from fsxds.model.values import Nonce, Version
from fsxds.protocol.messages import Acknowledgement, SyncState, WatchStatus
from fsxds.protocol.subscription import WILDCARD, Subscription
from fsxds.rollout.pending import BACK_OFF, Pending, Share
from fsxds.rollout.rejections import MOST_SUSPECTS, late_nack_of, nack_of

# The maximum number of late NACKs of one response that count: each may be about other resources.
MOST_LATE = 16

# A client that never answers is assumed to ACK responses that are older than this many.
MOST_UNANSWERED = 64

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """A response that awaits its ACK or NACK; `absent` names have no resource.

    `fresh` names may not be held as sent; `unpopulated` hosts have no virtual host. `is_retry`: a name was NACKed
    before. `generation` is 0 for a heartbeat.
    """

    version: Version
    resources: ResourceList = NO_RESOURCES
    absent: frozenset[str] = NOTHING
    fresh: frozenset[str] = NOTHING
    unrequested: frozenset[str] = NOTHING
    unpopulated: frozenset[str] = NOTHING
    is_retry: bool = False
    generation: int = 0

    @property
    def names(self) -> frozenset[str]:
        """All its names."""
        return self.resources.names | self.absent if self.absent else self.resources.names


@dataclass(frozen=True, slots=True)
class Answer:
    """A response's outcome, and the names that it made pending."""

    acknowledgement: Acknowledgement
    sent: Sent
    rejected: frozenset[str] = NOTHING


Held = Callable[[], Collection[Resource]]
"""Returns the resources that a client should hold."""


class Acks:
    """Matches one type's ACKs and NACKs on one stream with its responses.

    `sent`, `acked` and `nacked` are the last such versions, or None; `nacked` and `reason` are kept while names are
    pending. `since_s` is when `state` last changed, or None.

    Args:
        is_full_state: each response replaces earlier ones.
        is_whole: pending names can only be sent again together.
        most_retries: the maximum of unanswered responses with pending names.
        share: interns a set of names.
    """

    __slots__ = (
        "_accepted",
        "_answered",
        "_is_full_state",
        "_late_left",
        "_most_retries",
        "_unanswered",
        "acked",
        "last_nonce",
        "nacked",
        "pending",
        "reason",
        "sent",
        "since_s",
        "unapplied",
    )

    def __init__(
        self,
        *,
        is_full_state: bool = False,
        is_whole: bool = False,
        most_retries: int = 1,
        share: Share[str] | None = None,
    ) -> None:
        self.last_nonce: Nonce | None = None
        self.sent: Version | None = None
        self.acked: Version | None = None
        self.nacked: Version | None = None
        self.reason: str | None = None
        self.since_s: float | None = None
        self.pending: Pending[str] = Pending(is_whole=is_whole or is_full_state, share=share)
        # Fresh again when NACKed full states are sent again.
        self.unapplied = NOTHING
        self._is_full_state = is_full_state
        self._most_retries = most_retries
        self._unanswered: dict[Nonce, Sent] = {}
        self._answered: Nonce | None = None
        # The version ACKed with that nonce, and its names; and how many late NACKs of it still count.
        self._accepted: tuple[Version, frozenset[str]] | None = None
        self._late_left = 0

    @property
    def state(self) -> SyncState:
        """The client's state."""
        if self.pending.names and self.nacked is not None:
            return SyncState.NACK
        if self.sent is None:
            return SyncState.NOT_SENT
        is_awaited = self._unanswered and any(sent.generation for sent in self._unanswered.values())
        return SyncState.STALE if is_awaited else SyncState.SYNCED

    @property
    def in_flight(self) -> frozenset[str]:
        """The names in unanswered responses."""
        return NOTHING.union(*(sent.names for sent in self._unanswered.values()))

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Names that may not be held as sent: NACKed, or unanswered."""
        rejected = self.unapplied if self._is_full_state else self.pending.names
        awaited = (
            sent.fresh if self._is_full_state or sent.fresh else sent.names
            for sent in self._unanswered.values()
            if sent.generation
        )
        return rejected.union(*awaited)

    @property
    def held_back(self) -> frozenset[str]:
        """NACKed names that wait for a retry."""
        names = self.pending.names
        return names - self.in_flight if names else names

    @property
    def retry_at_s(self) -> float | None:
        """The next retry; None for never, or while enough retries are unanswered."""
        return self.pending.retry_at_s if self._retries_left else None

    @property
    def _retries_left(self) -> int:
        return max(self._most_retries - sum(sent.is_retry for sent in self._unanswered.values()), 0)

    def due(self, now_s: float) -> tuple[frozenset[str], ...]:
        """Return pending names to send now, one set per response."""
        return self.pending.due(now_s, self._retries_left) if self.pending.names else ()

    def record(self, nonce: Nonce, sent: Sent, now_s: float) -> None:
        """Record a response."""
        before = self.state
        self.last_nonce, self.sent = nonce, sent.version
        is_retry = bool(self.pending.names) and not self.pending.names.isdisjoint(sent.names)
        self._unanswered[nonce] = replace(sent, is_retry=True) if is_retry else sent
        if len(self._unanswered) > MOST_UNANSWERED:
            self._ack(self._unanswered.pop(next(iter(self._unanswered))))
        if self.state is not before:
            self.since_s = now_s

    def is_stale(self, nonce: Nonce | None) -> bool:
        """Whether the client sent this nonce before it saw the last response; False for None, a first request."""
        return nonce is not None and self.last_nonce is not None and nonce != self.last_nonce

    def is_answered(self, nonce: Nonce | None) -> bool:
        """Whether a nonce is the last, or last answered, response's."""
        return nonce is not None and nonce in (self.last_nonce, self._answered)

    def receive(
        self, nonce: Nonce | None, error_detail: str | None, now_s: float, held: Held = tuple[Resource, ...]
    ) -> Answer | None:
        """Process a request's nonce and a NACK's message.

        None if it answers no response, or one answered before. `held` is called at a late NACK.
        """
        before = self.state
        if nonce is not None and nonce in self._unanswered:
            answer: Answer | None = self._take(nonce, error_detail, now_s)
        elif nonce is not None and nonce == self._answered and error_detail is not None:
            answer = self._take_late(error_detail, now_s, held)
        else:
            return None
        if self.state is not before:
            self.since_s = now_s
        return answer

    def _take(self, nonce: Nonce, error_detail: str | None, now_s: float) -> Answer:
        while (oldest := next(iter(self._unanswered))) != nonce:
            self._ack(self._unanswered.pop(oldest))
        sent, self._answered = self._unanswered.pop(nonce), nonce
        self._accepted, self._late_left = None, MOST_LATE
        if error_detail is not None:
            self.nacked, self.reason = sent.version, error_detail
            fresh = sent.fresh if self._is_full_state else sent.resources.names
            nack = nack_of(sent.resources, fresh, error_detail)
            acknowledgement = Acknowledgement(sent.version, accepted=False, reason=error_detail or None, nack=nack)
            return Answer(acknowledgement, sent, self._nack(sent, now_s))
        self.acked = sent.version
        names = sent.fresh if self._is_full_state else sent.resources.names
        self._accepted = sent.version, names if len(names) <= MOST_SUSPECTS else NOTHING
        self._ack(sent)
        if not self.pending.names:
            self.nacked = self.reason = None
        return Answer(Acknowledgement(sent.version, accepted=True), sent)

    def _take_late(self, words: str, now_s: float, held: Held) -> Answer | None:
        """Pending resources and those in flight cannot be NACKed late."""
        if self._accepted is None or not self._late_left:
            return None
        self._late_left -= 1
        version, last = self._accepted
        known = self.pending.names | self.in_flight
        nack = late_nack_of([one for one in held() if one.name not in known], last, words)
        rejected = frozenset(name for (_, name), _ in nack.versions)
        if not rejected:
            return None
        self.nacked, self.reason = version, words
        self.unapplied |= rejected if self._is_full_state else NOTHING
        self.pending.nack(rejected, now_s)
        acknowledgement = Acknowledgement(version, accepted=False, reason=words or None, nack=nack)
        return Answer(acknowledgement, Sent(version, fresh=rejected), rejected)

    def _ack(self, sent: Sent) -> None:
        if self.pending.names:
            self.pending.forget(self.pending.names if self._is_full_state else sent.names)
        self.unapplied = NOTHING

    def _nack(self, sent: Sent, now_s: float) -> frozenset[str]:
        if self._is_full_state:
            # A later response replaces this one. A list without names can be NACKed as well.
            rejected = NOTHING if self._unanswered else sent.names or frozenset((WILDCARD,))
            self.unapplied |= sent.fresh if rejected else NOTHING
        else:
            # A later response that has the same name again is answered by its own nonce.
            excepted = self.in_flight | sent.unrequested
            rejected = sent.names - excepted if excepted else sent.names
        if rejected:
            self.pending.nack(rejected, now_s)
        return rejected

    def has_answered(self, generation: int, *, selects: bool) -> bool:
        """Whether a snapshot is answered; if it `selects` part of the change, also earlier ones."""
        # A step may be joined with one that clients have not taken yet.
        since = 1 if selects else generation
        return all(sent.generation < since for sent in self._unanswered.values())

    def status(
        self, subscription: Subscription, resources: Collection[Resource], missing: tuple[str, ...], generation: int
    ) -> WatchStatus:
        """`generation` is that of the last snapshot sent completely."""
        return WatchStatus(
            subscription.type_url,
            None if subscription.wildcard else subscription.names,
            sent=self.sent,
            acked=self.acked,
            nacked=self.nacked,
            reason=self.reason,
            resources=resources,
            missing=missing,
            rejected=self.pending.names,
            state=self.state,
            since_s=self.since_s,
            generation=generation,
            unconfirmed=self.unconfirmed,
        )


class PollEvidence(Enum):
    """The previous response's outcome, by a poll's version; ELSEWHERE: the client took another replica's version."""

    ACK = auto()
    NACK = auto()
    NOTHING = auto()
    ELSEWHERE = auto()


class PollState(Enum):
    """The state of the version sent last for one subscription of one client.

    | state | means | at an ACK | at a NACK | at nothing |
    | --- | --- | --- | --- | --- |
    | SENT | not polled since | ACKED | NACKED | UNKNOWN |
    | ACKED | the client holds it | ACKED | NACKED | UNKNOWN |
    | NACKED | waits for its back-off | ACKED | NACKED | UNKNOWN |
    | UNKNOWN | the response was lost, or the client restarted | ACKED | UNKNOWN | UNKNOWN |
    | NACKED_BEFORE | another process or replica sent it | FORGOTTEN | NACKED_BEFORE | FORGOTTEN |

    ELSEWHERE makes any state FORGOTTEN, sending SENT, a lost response UNKNOWN. Only changes are reported.
    """

    SENT = auto()
    ACKED = auto()
    NACKED = auto()
    UNKNOWN = auto()
    NACKED_BEFORE = auto()
    FORGOTTEN = auto()


_AFTER_NACK = {PollState.UNKNOWN: PollState.UNKNOWN, PollState.NACKED_BEFORE: PollState.NACKED_BEFORE}


@dataclass(slots=True)
class PolledVersion:
    """The version sent last for one subscription of one client.

    `nacks` are in a row; `ended_at_s` is when the last poll was answered. A client that rejects it holds one of
    `held_before`, from the answered polls.
    """

    version: Version
    sent_at_s: float
    ended_at_s: float
    state: PollState = PollState.SENT
    nacks: int = 0
    held_before: frozenset[Version] = frozenset()
    resources: ResourceList = NO_RESOURCES

    def receive(self, evidence: PollEvidence) -> bool:
        """Apply evidence; return whether `state` changed."""
        before = self.state
        if evidence is PollEvidence.NACK:
            self.state = _AFTER_NACK.get(before, PollState.NACKED)
            self.nacks += self.state is not before
        elif evidence is PollEvidence.ELSEWHERE:
            self.state, self.nacks = PollState.FORGOTTEN, 0
        else:
            known = PollState.ACKED if evidence is PollEvidence.ACK else PollState.UNKNOWN
            self.state = PollState.FORGOTTEN if before is PollState.NACKED_BEFORE else known
            self.nacks = 0
        return self.state is not before

    def may_leave(self, version: Version | None) -> bool:
        """Whether a client sent this may hold `version`, or none."""
        return version in {None, self.version, *self.held_before}

    def receive_lost(self) -> None:
        """Afterwards, no reported version is a sign of a NACK."""
        self.state, self.nacks = PollState.UNKNOWN, 0

    def retry_at_s(self, allowed: int) -> float:
        """The first `allowed` NACKs cause no back-off."""
        nacks = self.nacks - allowed
        return self.sent_at_s + (BACK_OFF.pause_s(nacks) if nacks > 0 else 0.0)
