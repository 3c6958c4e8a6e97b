"""Decides whether a poll is answered now or held, and how long.

A poll has its client's version, and no reference to the response before, so the server compares with the version sent
last:

    the client holds              it should hold           decision
    the version sent last         the same                 hold
    the version sent last         another version          send
    another version, or none      not the one sent last    send (a NACKed update may be applied in part: ENVOY.md E12)
    another version, or none      the version sent last    NACKed or lost: send again, with back-off
    (none is remembered)          the version it holds     hold: no client fetches again after a server's restart
    a version never sent here     the version it holds     hold: another replica sent it

Source: xDS protocol, "REST-JSON polling subscriptions"; ENVOY.md E1 to E11.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import Nonce, Version
from fsxds.protocol.acks import PolledVersion, PollEvidence, PollState
from fsxds.protocol.messages import Acknowledgement, Node, SyncState
from fsxds.protocol.polling_node import PolledWatch, PollingNode
from fsxds.protocol.subscription import (
    WILDCARD,
    Selection,
    Subscription,
    Unanswered,
    nothing_unanswered,
    select,
    version_of,
)

# The number of remembered clients, and of subscriptions of each on average: an Envoy polls for the endpoints of each
# cluster separately. The client that polled longest ago is forgotten.
MOST_NODES = 20_000
SUBSCRIPTIONS_EACH = 10

# An Envoy that polls without a version within this time after a response did not restart in between: it NACKs every response.
PROMPT_S = 1.0

# This many prompt polls without a version are answered at once: each cluster update opens a new subscription that has
# none.
PROMPT_RETURNS_ALLOWED = 5


@dataclass(frozen=True, slots=True)
class PollRequest:
    """One poll.

    `version_info` is None until the client accepted one. `error_detail` is a NACK's message; Envoy never sends it.
    `from_envoy`: it has Envoy's own deadline.
    """

    node: Node
    subscription: Subscription
    version_info: Version | None = None
    response_nonce: Nonce | None = None
    error_detail: str | None = None
    from_envoy: bool = False

    def holds_of(self, snapshot: Snapshot) -> bool:
        """Whether the client holds a snapshot's version."""
        return self.version_info == version_of(snapshot, self.subscription)


@dataclass(frozen=True, slots=True)
class Send:
    """Answer now."""

    selection: Selection


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold the poll until a newer snapshot, `until_s`, or with `awaits_answers` an upstream's answer; decide again."""

    until_s: float | None = None
    awaits_answers: bool = False


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No answer is known yet, for this reason."""

    reason: str


Decision = Send | Wait | Unavailable

NOTHING_LOADED = Unavailable("no good content is loaded yet; see the server's log, or run `fsxds check`")
MAY_BE_DEFINED = Unavailable("a file that may define this resource was never good")
NOT_ANSWERED = Unavailable("another server may have this resource, and has not answered yet; ask again")


def nonce_of(version: Version) -> Nonce:
    """Equal responses must have equal bytes."""
    return Nonce(version)


# The shortest timeout that is worth holding a poll for, and the time left for the response to arrive (ENVOY.md E2).
SHORTEST_TIMEOUT_S = 0.3
LEAST_MARGIN_S = 0.1
MARGIN_SHARE = 0.05


def patience_s(expected_timeout_ms: float | None, query_timeout_s: float | None, max_hold_s: float) -> float:
    """Return how many seconds a poll may be held; 0.0 means answer at once.

    Args:
        expected_timeout_ms: the client's deadline (`x-envoy-expected-rq-timeout-ms`), or None. The response is sent
            100 ms or 5 % before, whichever is more: at it, Envoy closes the connection and logs a failure.
        query_timeout_s: the request's `?timeout=`, ignored with a deadline.
        max_hold_s: the operator's limit.

    Source: ENVOY.md E2.
    """
    if expected_timeout_ms is not None:
        timeout_s = expected_timeout_ms / 1000
        if timeout_s < SHORTEST_TIMEOUT_S:
            return 0.0
        return min(timeout_s - max(LEAST_MARGIN_S, timeout_s * MARGIN_SHARE), max_hold_s)
    if query_timeout_s is not None:
        return max(0.0, min(query_timeout_s, max_hold_s))
    return max_hold_s


_Key = tuple[str, str, str]


class PollMemory:
    """Decides each poll from the snapshot and the version sent before.

    Clients without a `node.id` are not remembered. Times are readings, in seconds, of a clock that only goes forward.

    Args:
        most_nodes: their maximum; their subscriptions' maximum weight is ten times that.
        forget: called with each node no longer remembered.
        unanswered: returns missing names that may exist elsewhere.
        recognized: called with each node that holds another process's current version, also while its poll is held.
    """

    def __init__(
        self,
        most_nodes: Callable[[], int] = lambda: MOST_NODES,
        forget: Callable[[PollingNode], object] = lambda _: None,
        unanswered: Unanswered = nothing_unanswered,
        recognized: Callable[[PollingNode], object] = lambda _: None,
    ) -> None:
        # Ordered by the time of the last poll.
        self._nodes: OrderedDict[_Key, PollingNode] = OrderedDict()
        self._weight = 0
        self._most_nodes = most_nodes
        self._forget = forget
        self._unanswered = unanswered
        self._recognized = recognized

    def __len__(self) -> int:
        return len(self._nodes)

    def node_of(self, node: Node) -> PollingNode | None:
        """Return a client's record, or None."""
        return self._nodes.get(_key(node))

    def receive_request(
        self, request: PollRequest, snapshot: Snapshot | None, now_s: float
    ) -> tuple[Decision, Acknowledgement | None]:
        """Return the decision, and the previous response's ACK or NACK."""
        acknowledgement = self._receive_ack(request, self._receive_poll(request, now_s), now_s)
        decision = self.receive_snapshot(request, snapshot, now_s)
        if (node := self.node_of(request.node)) is not None:
            node.receive_ack(request.subscription)
        return decision, acknowledgement

    def receive_snapshot(self, request: PollRequest, snapshot: Snapshot | None, now_s: float) -> Decision:
        """Decide again at a newer snapshot or `Wait.until_s`."""
        watch = self._watch_of(request)
        sent = watch.sent or _recognize(request, snapshot, now_s)
        decision = _decide(request, snapshot, sent, now_s, self._unanswered)
        if isinstance(decision, Send):
            version = decision.selection.version
            again = sent if sent is not None and sent.version == version else None
            held = frozenset() if request.version_info is None else frozenset({request.version_info})
            sent = PolledVersion(version, now_s, now_s, held_before=held, resources=decision.selection.resources)
            node = self.node_of(request.node)
            if again is not None:
                sent.nacks, sent.held_before = again.nacks, again.held_before | held
            elif node is not None:
                sent.nacks = node.nacks_of(version)
            if snapshot is not None and node is not None:
                node.receive_sent(request.subscription, version, snapshot.generation)
            watch.receive_sent(sent, now_s)
        elif sent is not None and sent is not watch.sent:
            self._receive_recognized(request, watch, sent, now_s)
        return decision

    def _receive_recognized(self, request: PollRequest, watch: PolledWatch, sent: PolledVersion, now_s: float) -> None:
        """Record another process's version as ACKed: the client polls again only after its deadline."""
        watch.receive_ack(sent, now_s)
        node = self.node_of(request.node)
        if node is not None and request.subscription in node.watches:
            node.receive_ack(request.subscription)
            self._recognized(node)

    def receive_deadline(self, request: PollRequest, now_s: float) -> None:
        """Record that a held poll ends unchanged."""
        sent = self._watch_of(request).sent
        if sent is not None:
            sent.ended_at_s = now_s

    def receive_lost(self, request: PollRequest) -> None:
        """Record that a response was lost."""
        sent = self._watch_of(request).sent
        if sent is not None:
            sent.receive_lost()

    def receive_end(self, request: PollRequest, now_s: float, *, is_given_up: bool) -> None:
        """Record a poll's end; `is_given_up`: the client did not wait for it."""
        node = self.node_of(request.node)
        if node is not None:
            node.receive_end(request.subscription, now_s, is_given_up=is_given_up)

    def _receive_poll(self, request: PollRequest, now_s: float) -> PolledWatch:
        if not request.node.id:
            return PolledWatch()
        key = _key(request.node)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = PollingNode(request.node)
        node.node = request.node
        self._nodes.move_to_end(key)
        if request.subscription not in node.watches:
            self._weight += request.subscription.weight
        watch = node.receive_poll(request.subscription, now_s)
        node.has_returned |= request.version_info is not None
        most = self._most_nodes()
        while len(self._nodes) > most or self._weight > SUBSCRIPTIONS_EACH * most:
            oldest_key, oldest = next(iter(self._nodes.items()))
            self._weight -= oldest.forget_oldest().weight
            if not oldest.watches:
                del self._nodes[oldest_key]
                self._forget(oldest)
        return watch

    def _watch_of(self, request: PollRequest) -> PolledWatch:
        node = self.node_of(request.node)
        if node is None or request.subscription not in node.watches:
            return PolledWatch()
        self._nodes.move_to_end(_key(request.node))
        node.watches.move_to_end(request.subscription)
        return node.watches[request.subscription]

    def _receive_ack(self, request: PollRequest, watch: PolledWatch, now_s: float) -> Acknowledgement | None:
        sent = watch.sent
        if sent is None:
            return _receive_nack_of_another(request, watch, now_s)
        evidence = _evidence_of(request, sent, now_s)
        is_new = sent.receive(evidence)
        if evidence is PollEvidence.ACK:
            watch.receive_ack(sent, now_s)
        if sent.state is PollState.FORGOTTEN:
            watch.sent = None
            watch.become(SyncState.NOT_SENT, now_s)
        if not is_new or evidence in {PollEvidence.NOTHING, PollEvidence.ELSEWHERE}:
            return None
        if evidence is PollEvidence.ACK:
            return Acknowledgement(sent.version, accepted=True)
        least_nacks = max(_allowed_nacks(request), 1)
        node = self.node_of(request.node)
        if node is not None and sent.nacks >= least_nacks:
            is_certain = request.error_detail is not None or sent.nacks > least_nacks
            node.receive_nack(request.subscription, sent, request.error_detail or None, is_certain=is_certain)
        if sent.nacks != least_nacks:
            return None
        watch.receive_nack(sent.version, request.error_detail or None, now_s)
        return Acknowledgement(sent.version, accepted=False, reason=request.error_detail)


def _key(node: Node) -> _Key:
    return node.id, node.cluster, node.peer


def _receive_nack_of_another(request: PollRequest, watch: PolledWatch, now_s: float) -> Acknowledgement | None:
    """The nonce is another process's version."""
    if request.error_detail is None or not request.response_nonce:
        return None
    version = Version(request.response_nonce)
    watch.sent = PolledVersion(version, now_s, now_s, PollState.NACKED_BEFORE, nacks=1)
    watch.receive_nack(version, request.error_detail, now_s)
    return Acknowledgement(version, accepted=False, reason=request.error_detail)


def _recognize(request: PollRequest, snapshot: Snapshot | None, now_s: float) -> PolledVersion | None:
    subscription = request.subscription
    if snapshot is None or subscription.type_url in snapshot.withheld or request.version_info is None:
        return None
    version = version_of(snapshot, subscription)
    if request.version_info != version:
        return None
    return PolledVersion(version, now_s, now_s, PollState.ACKED, resources=select(snapshot, subscription).resources)


def _evidence_of(request: PollRequest, sent: PolledVersion, now_s: float) -> PollEvidence:
    if request.error_detail is not None and _has_received(request, sent):
        return PollEvidence.NACK
    if request.version_info == sent.version:
        return PollEvidence.ACK
    if not sent.may_leave(request.version_info):
        return PollEvidence.ELSEWHERE
    # A poll without a version comes from a starting client or a new subscription; but no Envoy starts that fast.
    is_prompt = request.from_envoy and now_s - sent.ended_at_s < PROMPT_S
    return PollEvidence.NACK if request.version_info is not None or is_prompt else PollEvidence.NOTHING


def _has_received(request: PollRequest, sent: PolledVersion) -> bool:
    """Decide by the poll's nonce, or else its version; without either, the client refers to the last response."""
    if request.response_nonce:
        return request.response_nonce == nonce_of(sent.version)
    return sent.may_leave(request.version_info)


def _allowed_nacks(request: PollRequest) -> int:
    """Return how many inferred NACKs in a row are neither reported nor backed off."""
    return PROMPT_RETURNS_ALLOWED if request.version_info is None and request.error_detail is None else 0


def answer_fetch(
    subscription: Subscription, snapshot: Snapshot | None, unanswered: Unanswered = nothing_unanswered
) -> Selection | Unavailable:
    """Answer a unary gRPC request, which leaves no record.

    Unavailable while the type or a named resource was never good, or an unanswering upstream may have it.
    """
    if snapshot is None:
        return NOTHING_LOADED
    if subscription.type_url in snapshot.withheld:
        return NOT_ANSWERED if unanswered(subscription.type_url, subscription.asked) else NOTHING_LOADED
    selection = select(snapshot, subscription)
    if selection.missing and subscription.type_url in snapshot.incomplete:
        return MAY_BE_DEFINED
    return NOT_ANSWERED if _is_awaited(selection, subscription, unanswered) else selection


def _is_awaited(selection: Selection, subscription: Subscription, unanswered: Unanswered) -> bool:
    if subscription.wildcard:
        return bool(unanswered(subscription.type_url, frozenset((WILDCARD,))))
    return bool(selection.missing) and bool(unanswered(subscription.type_url, frozenset(selection.missing)))


def _decide(
    request: PollRequest,
    snapshot: Snapshot | None,
    sent: PolledVersion | None,
    now_s: float,
    unanswered: Unanswered,
) -> Decision:
    subscription = request.subscription
    if snapshot is None or subscription.type_url in snapshot.withheld:
        is_awaited = snapshot is not None and bool(unanswered(subscription.type_url, subscription.asked))
        held = Wait(awaits_answers=is_awaited)
        return held if is_awaited or request.version_info is not None else NOTHING_LOADED
    selection = select(snapshot, subscription)
    is_awaited = _is_awaited(selection, subscription, unanswered)
    is_unknown = sent is None or sent.state is PollState.NACKED_BEFORE
    # Envoy rejects an empty response of some types (ENVOY.md E15).
    is_answer = bool(selection.resources) or (BY_TYPE_URL[selection.type_url].may_be_empty and not is_awaited)
    if not is_answer or (is_awaited and is_unknown and request.version_info is not None):
        return Wait(awaits_answers=is_awaited)
    if is_unknown and _may_lack_something(snapshot, subscription, selection):
        if request.version_info is not None:
            return Wait()
        if selection.missing:
            return MAY_BE_DEFINED
    return Send(selection) if sent is None else _decide_again(request, selection, sent, now_s)


def _decide_again(request: PollRequest, selection: Selection, sent: PolledVersion, now_s: float) -> Decision:
    if sent.version != selection.version:
        return Send(selection)
    if sent.state in {PollState.ACKED, PollState.SENT} and request.version_info == sent.version:
        # Also if it has since been sent to answer another held poll.
        return Wait()
    # Without a NACK, that is at once: this is an update for another held poll of the same client for the same names
    # (two clusters may share one `service_name`).
    retry_at_s = sent.retry_at_s(_allowed_nacks(request))
    return Send(selection) if now_s >= retry_at_s else Wait(retry_at_s)


def _may_lack_something(snapshot: Snapshot, subscription: Subscription, selection: Selection) -> bool:
    type_url = subscription.type_url
    if not subscription.wildcard:
        return bool(selection.missing or subscription.globs) and type_url in snapshot.incomplete
    return type_url in snapshot.incomplete or type_url in snapshot.undeclared
