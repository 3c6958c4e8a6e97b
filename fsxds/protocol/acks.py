"""ACK and NACK: what became of each response, and when content that was NACKed is sent again.

| rule | source |
| --- | --- |
| The nonce says which response is ACKed or NACKed; those before it that were never answered count as ACKed. | xDS protocol, "ACK and NACK semantics summary" |
| A request with another nonce than the last response's is stale: SotW ignores the rest of it, Delta does not. | xDS protocol, "Resource updates" |
| A NACKed response may have been applied in part: each of its names is pending until a response with it is ACKed. | ENVOY.md E12 |
| The same content is sent again with back-off: it may have come too early only, before what it needs. | ENVOY.md E10 |
| A poll has no nonce: its version, or the lack of one, shows what became of the response before it. | xDS protocol, "REST-JSON polling subscriptions" |
| A step of a rollout is taken when what was sent of it is answered, and rejected when what it changed is pending. | `rollout`; ENVOY.md E70 |

Back-off belongs to a resource at a version: other NACKs do not lengthen it, and new content begins without one. Nobody
knows which resource of a NACKed response was to blame, so each is sent again in a smaller response, alone in the end.
Then only the culprit waits.

Times are readings of any clock that only goes forward, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from fsxds.protocol.messages import Acknowledgement, WatchStatus
from fsxds.protocol.subscription import WILDCARD, Subscription
from fsxds.protocol.sync_states import SyncState
from fsxds.resources import NO_RESOURCES, Resource, ResourceList, RowsChange
from fsxds.rollout import Rejection, Standing
from fsxds.values import BackOff, Nonce, TypeUrl, Version

# A version that was NACKed is sent again after 1, 2, 4, … and at most 60 seconds.
BACK_OFF = BackOff(longest_s=60.0)

# A client that never answers is assumed to ACK what is older than this many responses.
MOST_UNANSWERED = 64

# Names that were NACKed together are sent again in so many responses: of a thousand the culprit is alone at the third time.
MOST_PARTS = 16

# To a client that NACKs everything, no more than this many responses are sent again at once.
MOST_BATCHES = 256

NOTHING: frozenset[str] = frozenset()

Share = Callable[[frozenset[str]], frozenset[str]]
"""Returns names as one set for all who have the same."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A response that awaits its ACK or NACK: its resources, and the names in it that have none.

    `fresh` are the names that the client may not have held as they are, `unrequested` those that it did not subscribe to,
    `unpopulated` hosts that no virtual host serves. With `is_retry`, something in it was NACKed before. `generation` is that
    of the snapshot that it brings; 0 for a heartbeat, which brings nothing.
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
        """All names in it."""
        return self.resources.names | self.absent if self.absent else self.resources.names


@dataclass(frozen=True, slots=True)
class Answer:
    """The ACK or NACK of a response, and the names that are pending because of it."""

    acknowledgement: Acknowledgement
    sent: Sent
    rejected: frozenset[str] = NOTHING


class Acks:
    """Matches the ACKs and NACKs of one type on one stream with its responses, and knows what is pending.

    `sent`, `acked` and `nacked` are the last versions of that kind, None where there is none. `nacked`, and its `reason`,
    last as long as something is pending. `since_s` is when `state` changed last, None before it did.

    Args:
        is_full_state: each response replaces those before it, so that the last one alone counts.
        is_whole: all that is pending can only be sent again in one response.
        most_retries: so many responses may be on their way that have something pending.
        share: returns names as the one set that streams which NACK the same have of them.
    """

    __slots__ = (
        "_answered",
        "_is_full_state",
        "_most_retries",
        "_pending_since",
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
        self, *, is_full_state: bool = False, is_whole: bool = False, most_retries: int = 1, share: Share | None = None
    ) -> None:
        self.last_nonce: Nonce | None = None
        self.sent: Version | None = None
        self.acked: Version | None = None
        self.nacked: Version | None = None
        self.reason: str | None = None
        self.since_s: float | None = None
        self.pending = Pending(is_whole=is_whole or is_full_state, share=share)
        # The names that were fresh in full states that were NACKed: they are again when these are sent again.
        self.unapplied = NOTHING
        self._is_full_state = is_full_state
        self._most_retries = most_retries
        self._unanswered: dict[Nonce, Sent] = {}
        self._answered: Nonce | None = None
        # The generation of the first of the NACKed responses in a row.
        self._pending_since = 0

    @property
    def state(self) -> SyncState:
        """How the client stands with what it was sent."""
        if self.pending.names and self.nacked is not None:
            return SyncState.NACK
        if self.sent is None:
            return SyncState.NOT_SENT
        is_awaited = self._unanswered and any(sent.generation for sent in self._unanswered.values())
        return SyncState.STALE if is_awaited else SyncState.SYNCED

    @property
    def in_flight(self) -> frozenset[str]:
        """The names in the responses that were not ACKed or NACKed yet."""
        return NOTHING.union(*(sent.names for sent in self._unanswered.values()))

    @property
    def unconfirmed(self) -> frozenset[str]:
        """The names that the client was sent, and may not hold as they were sent: it NACKed them, or has not answered."""
        rejected = self.unapplied if self._is_full_state else self.pending.names
        awaited = (
            sent.fresh if self._is_full_state or sent.fresh else sent.names
            for sent in self._unanswered.values()
            if sent.generation
        )
        return rejected.union(*awaited)

    @property
    def held_back(self) -> frozenset[str]:
        """The names that were NACKed, and wait until they are sent again."""
        names = self.pending.names
        return names - self.in_flight if names else names

    @property
    def retry_at_s(self) -> float | None:
        """When something pending is sent again; None for never, or while enough of it awaits its ACK."""
        return self.pending.retry_at_s if self._room else None

    @property
    def _room(self) -> int:
        return max(self._most_retries - sum(sent.is_retry for sent in self._unanswered.values()), 0)

    def due(self, now_s: float) -> tuple[frozenset[str], ...]:
        """Return the pending names that are sent again now, for one response each."""
        return self.pending.due(now_s, self._room) if self.pending.names else ()

    def record(self, nonce: Nonce, sent: Sent, now_s: float) -> None:
        """Note a response that is sent now."""
        before = self.state
        self.last_nonce, self.sent = nonce, sent.version
        is_retry = bool(self.pending.names) and not self.pending.names.isdisjoint(sent.names)
        self._unanswered[nonce] = replace(sent, is_retry=True) if is_retry else sent
        if len(self._unanswered) > MOST_UNANSWERED:
            self._ack(self._unanswered.pop(next(iter(self._unanswered))))
        if self.state is not before:
            self.since_s = now_s

    def is_stale(self, nonce: Nonce | None) -> bool:
        """Whether a request has another nonce than the last response: its client had not seen that, or it is of another stream.

        One without a nonce is the first of its client, which may come at any time.
        """
        return nonce is not None and self.last_nonce is not None and nonce != self.last_nonce

    def is_answered(self, nonce: Nonce | None) -> bool:
        """Whether this is the nonce of the last response, or of the one that was ACKed or NACKed last."""
        return nonce is not None and nonce in (self.last_nonce, self._answered)

    def receive(self, nonce: Nonce | None, error_detail: str | None, now_s: float) -> Answer | None:
        """Take the nonce of a request, and the message of a NACK; None where it answers nothing, or answered it before."""
        if nonce is None or nonce not in self._unanswered:
            return None
        before = self.state
        answer = self._take(nonce, error_detail, now_s)
        if self.state is not before:
            self.since_s = now_s
        return answer

    def _take(self, nonce: Nonce, error_detail: str | None, now_s: float) -> Answer:
        while (oldest := next(iter(self._unanswered))) != nonce:
            self._ack(self._unanswered.pop(oldest))
        sent, self._answered = self._unanswered.pop(nonce), nonce
        if error_detail is not None:
            self.nacked, self.reason = sent.version, error_detail
            acknowledgement = Acknowledgement(sent.version, accepted=False, reason=error_detail or None)
            return Answer(acknowledgement, sent, self._nack(sent, now_s))
        self.acked = sent.version
        self._ack(sent)
        if not self.pending.names:
            self.nacked = self.reason = None
        return Answer(Acknowledgement(sent.version, accepted=True), sent)

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
            # What a later response has again is answered with that one.
            excepted = self.in_flight | sent.unrequested
            rejected = sent.names - excepted if excepted else sent.names
        if rejected:
            if not self.pending.names:
                self._pending_since = sent.generation
            self.pending.nack(rejected, now_s)
        return rejected

    def standing(
        self, type_url: TypeUrl, change: RowsChange, generation: int, *, selects: bool
    ) -> Standing | Rejection:
        """Return whether the client took a change of the type, of which it was sent all that it is to have.

        Args:
            type_url: the type.
            change: what the step changed of it.
            generation: that of the snapshot with the change.
            selects: the client subscribes to something in the change.
        """
        # Also what was sent before: a step may be joined with one that clients have not taken yet.
        since = 1 if selects else generation
        if any(sent.generation >= since for sent in self._unanswered.values()):
            return Standing.PENDING
        names = self._rejected(change, generation) if self.pending.names else NOTHING
        if not names or self.nacked is None:
            return Standing.TAKEN
        return Rejection(type_url, self.nacked, names, self.reason or None)

    def _rejected(self, change: RowsChange, generation: int) -> frozenset[str]:
        """Return the names in a change that are pending because of it."""
        names = self.pending.names & (change.fresh | change.renewed)
        if not self._is_full_state:
            return names
        # What was NACKed before the change is in each full state since: nobody knows whether the change is to blame.
        return NOTHING if self._pending_since < generation else names or change.removed

    def status(
        self, subscription: Subscription, resources: Collection[Resource], missing: tuple[str, ...], generation: int
    ) -> WatchStatus:
        """Return the state of the type for one client, with the resources that it should hold and the names it misses.

        `generation` is that of the snapshot that it was sent all of.
        """
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


def combined(standings: Iterable[Standing | Rejection]) -> Standing | Rejection:
    """Return how a client stands that stands so in each of its types: one rejection counts, and one that is pending."""
    found = tuple(standings)
    rejection = next((standing for standing in found if isinstance(standing, Rejection)), None)
    return rejection or (Standing.PENDING if Standing.PENDING in found else Standing.TAKEN)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Names that are sent again together, and were NACKed equally often in a row.

    `retry_at_s` is None while they await their ACK. `is_part`: they are not to be sent in smaller parts.
    """

    names: frozenset[str]
    nacks: int
    retry_at_s: float | None
    is_part: bool = False


class Pending:
    """Names the client NACKed and has not ACKed since, and when the same content of them is sent again.

    With `is_whole`, all of them can only be sent again in one response, so they share one back-off.
    """

    __slots__ = ("_batches", "_is_whole", "_share", "names")

    def __init__(self, *, is_whole: bool = False, share: Share | None = None) -> None:
        self.names = NOTHING
        self._is_whole = is_whole
        self._share = share
        # No name is in two of them.
        self._batches: list[_Batch] = []

    @property
    def retry_at_s(self) -> float | None:
        """When the first of the names may be sent again; None where none waits for that."""
        times = (batch.retry_at_s for batch in self._batches)
        return min((time_s for time_s in times if time_s is not None), default=None)

    def nack(self, names: Iterable[str], now_s: float) -> None:
        """Note the NACK of a response with these names: once more in a row for each of them."""
        left, batches = frozenset(names), []
        for batch in self._batches:
            if again := batch.names & left:
                left -= again
                nacks = batch.nacks + 1
                batches += [_Batch(again, nacks, now_s + BACK_OFF.pause_s(nacks)), *_without(batch, again)]
            else:
                batches.append(batch)
        if left:
            batches.append(_Batch(left, 1, now_s + BACK_OFF.pause_s(1)))
        self._keep(batches)

    def forget(self, names: Iterable[str]) -> None:
        """Remove these names: they were ACKed, or the client does not want them any more."""
        if self._batches and (removed := self.names.intersection(names)):
            self._keep([rest for batch in self._batches for rest in _without(batch, removed)])

    def renew(self, names: Iterable[str], now_s: float) -> None:
        """Note that these have new content now, which is sent without a back-off.

        What was NACKed together with one of them is due at once: this one may have been the culprit.
        """
        # What can only be sent as a whole is new as a whole.
        renewed, batches = self.names if self._is_whole else frozenset(names), []
        for batch in self._batches:
            if changed := batch.names & renewed:
                batches.append(_Batch(changed, 0, None))
                batches += (
                    rest if rest.retry_at_s is None else replace(rest, retry_at_s=min(rest.retry_at_s, now_s))
                    for rest in _without(batch, changed)
                )
            else:
                batches.append(batch)
        self._keep(batches)

    def sent_again(self, names: Iterable[str]) -> None:
        """Note that these are sent now: their ACK or NACK is awaited."""
        if self._batches and (sent := self.names.intersection(names)):
            batches = []
            for batch in self._batches:
                if batch.retry_at_s is not None and (now := batch.names & sent):
                    batches += [_Batch(now, batch.nacks, None), *_without(batch, now)]
                else:
                    batches.append(batch)
            self._keep(batches)

    def due(self, now_s: float, most: int) -> tuple[frozenset[str], ...]:
        """Return the names that may be sent again now, for at most so many responses; none of them is empty."""
        retry_at_s = self.retry_at_s
        if retry_at_s is None or now_s < retry_at_s:
            return ()
        self._divide(now_s)
        ready = [(batch.retry_at_s, batch.names) for batch in self._batches if batch.retry_at_s is not None]
        ready.sort(key=lambda each: each[0])
        return tuple(names for retry_at_s, names in ready[:most] if retry_at_s <= now_s)

    def _divide(self, now_s: float) -> None:
        """Divide what is due and was NACKed together."""
        batches, room = [], MOST_BATCHES - len(self._batches)
        for batch in self._batches:
            is_due = batch.retry_at_s is not None and batch.retry_at_s <= now_s
            if self._is_whole or batch.is_part or not is_due or len(batch.names) == 1 or room <= 0:
                batches.append(batch)
                continue
            parts = [replace(batch, names=names, is_part=True) for names in _parts(batch.names, room + 1)]
            room -= len(parts) - 1
            batches += parts
        self._batches = self._shared(batches)

    def _keep(self, batches: list[_Batch]) -> None:
        """Keep these; where they are too many, unite those that were NACKed most."""
        most = 1 if self._is_whole else MOST_BATCHES
        if len(batches) > most:
            batches.sort(key=lambda batch: batch.nacks)
            batches[most - 1 :] = [_united(batches[most - 1 :])]
        self._batches = batches = self._shared(batches)
        names = batches[0].names if len(batches) == 1 else NOTHING.union(*(batch.names for batch in batches))
        self.names = names if self._share is None else self._share(names)

    def _shared(self, batches: list[_Batch]) -> list[_Batch]:
        """Return batches whose names all streams hold once that NACKed the same: a mistake is NACKed by all of them."""
        if self._share is None:
            return batches
        return [replace(batch, names=self._share(batch.names)) for batch in batches]


def _without(batch: _Batch, names: frozenset[str]) -> Iterator[_Batch]:
    """Yield the rest of a batch where there is any."""
    if batch.names.isdisjoint(names):
        yield batch
    elif rest := batch.names - names:
        yield replace(batch, names=rest)


def _united(batches: list[_Batch]) -> _Batch:
    times_s = [batch.retry_at_s for batch in batches if batch.retry_at_s is not None]
    names = NOTHING.union(*(batch.names for batch in batches))
    return _Batch(names, max(batch.nacks for batch in batches), min(times_s, default=None))


def _parts(names: frozenset[str], most: int) -> Iterator[frozenset[str]]:
    ordered, count = sorted(names), min(len(names), most, MOST_PARTS)
    for part in range(count):
        yield frozenset(ordered[part * len(ordered) // count : (part + 1) * len(ordered) // count])


class PollEvidence(Enum):
    """What a poll shows of the response before it. It has no nonce, so that its version has to tell.

    ELSEWHERE: the client holds what this process did not send it last, and what it did not hold before that either: it took
    it from another replica, whole.
    """

    ACK = auto()
    NACK = auto()
    NOTHING = auto()
    ELSEWHERE = auto()


class PollState(Enum):
    """What is known of the version that was sent last to one client for one subscription.

    | state | means | at an ACK | at a NACK | at nothing |
    | --- | --- | --- | --- | --- |
    | SENT | the client has not polled since | ACKED | NACKED | UNKNOWN |
    | ACKED | the client holds it | ACKED | NACKED | UNKNOWN |
    | NACKED | it waits for its back-off | ACKED | NACKED | UNKNOWN |
    | UNKNOWN | the response was lost, or the client restarted | ACKED | UNKNOWN | UNKNOWN |
    | NACKED_BEFORE | a previous process sent it, or another replica | FORGOTTEN | NACKED_BEFORE | FORGOTTEN |

    Where the client holds something from elsewhere, each of them becomes FORGOTTEN.
    Only a change is reported. Sending makes each of them SENT, a lost response UNKNOWN.
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
    """The version that was sent last to one client for one subscription.

    `nacks` counts the NACKs in a row; times are readings of the caller's clock in seconds. `ended_at_s` is when the last
    poll was answered, with the version or with nothing new. `held_before` are the versions that the polls had to which it was
    sent: a client that rejects it holds one of these.
    """

    version: Version
    sent_at_s: float
    ended_at_s: float
    state: PollState = PollState.SENT
    nacks: int = 0
    held_before: frozenset[Version] = frozenset()

    def receive(self, evidence: PollEvidence) -> bool:
        """Take what a poll shows of the version; return whether that is new."""
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

    def receive_lost(self) -> None:
        """Note that the response did not arrive: what the client holds next is no sign that it NACKed the version."""
        self.state, self.nacks = PollState.UNKNOWN, 0

    def retry_at_s(self, allowed: int) -> float:
        """Return when the version may be sent again, if so many NACKs call for no back-off."""
        nacks = self.nacks - allowed
        return self.sent_at_s + (BACK_OFF.pause_s(nacks) if nacks > 0 else 0.0)
