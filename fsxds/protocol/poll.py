"""Polling clients: news, nothing new, or hold (and for how long).

A poll says which version its sender holds, and nothing about what became of the answer before it. So the server remembers,
per client and subscription, the version that it sent last, and one comparison tells all:

    the client holds …            and it should hold …     so
    what was sent last            the same                 hold
    what was sent last            something else           send
    something else, or nothing    not what was sent last   send (a rejected update may be applied in part: ENVOY.md A4)
    something else, or nothing    what was sent last       it was rejected or lost: send again, with back-off
    (nothing is remembered)       what it holds            hold: a restart of the server makes nobody fetch again

Source: xDS protocol, "REST-JSON polling subscriptions"; ENVOY.md A.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from fsxds.protocol.back_off import back_off_s
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Selection, Subscription, select
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Snapshot
from fsxds.values import Nonce, Version

# A client is forgotten when this many others polled after it; it then counts as one that was never seen.
MOST_REMEMBERED = 100_000

# An Envoy that asks without a version within this time after an answer did not restart in between: it takes no answer.
PROMPT_S = 1.0

# So many prompt returns without a version are answered at once: each cluster update opens a new subscription that has none.
PROMPT_RETURNS_ALLOWED = 5


@dataclass(frozen=True, slots=True)
class PollRequest:
    """One poll.

    `version_info` is None until the client accepted something. `error_detail` is the client's own word for a rejection;
    Envoy never sends it. `from_envoy` is true where the request bears Envoy's own deadline.
    """

    node: Node
    subscription: Subscription
    version_info: Version | None = None
    response_nonce: Nonce | None = None
    error_detail: str | None = None
    from_envoy: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Answer now, with this."""

    selection: Selection


@dataclass(frozen=True, slots=True)
class Hold:
    """Say nothing yet: look again when there is a newer snapshot, or at `until_s` (None: only then)."""

    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """There is nothing that could honestly be said; `reason` is for people."""

    reason: str


Decision = Send | Hold | Unavailable


@dataclass(slots=True)
class _Sent:
    """What is remembered of one client and subscription; times are readings of the caller's clock in seconds.

    `is_hearsay` marks a version that the client says it got from another life of the server.
    """

    version: Version
    sent_at_s: float
    answered_at_s: float
    confirmed: bool = False
    rejections: int = 0
    counted: bool = False
    is_hearsay: bool = False


_Key = bytes
"""A digest of who polls for what; names may be long, and a hundred thousand clients are remembered."""


def nonce_of(version: Version) -> Nonce:
    """Return the nonce of a polled answer: its version, so that equal answers have equal bytes."""
    return Nonce(version)


class PollMemory:
    """Decides what each poll is told, from the snapshot and from what the client was told before.

    Clients that do not name themselves (`node.id` is empty) are not remembered: each of their polls stands for itself.
    """

    def __init__(self, most_remembered: int = MOST_REMEMBERED) -> None:
        self._sent: OrderedDict[_Key, _Sent] = OrderedDict()
        self._most_remembered = most_remembered

    def receive_request(
        self, request: PollRequest, snapshot: Snapshot | None, now_s: float
    ) -> tuple[Decision, Acknowledgement | None]:
        """Take a poll as it arrives; tell what to do, and what it says of the answer before it.

        Args:
            request: the poll.
            snapshot: what is current, None before anything was loaded.
            now_s: a reading of any clock that only goes forward, in seconds.
        """
        verdict = self._hear(request, now_s)
        return self.reconsider(request, snapshot, now_s), verdict

    def reconsider(self, request: PollRequest, snapshot: Snapshot | None, now_s: float) -> Decision:
        """Decide again for a poll that is held: there is a newer snapshot, or `Hold.until_s` was reached."""
        decision = self._decide(request, snapshot, now_s)
        if isinstance(decision, Send):
            self._remember_sent(request, decision.selection.version, now_s)
        return decision

    def receive_deadline(self, request: PollRequest, now_s: float) -> None:
        """Note that a held poll ends now with nothing new."""
        sent = self._sent.get(_key(request))
        if sent is not None:
            sent.answered_at_s = now_s

    def receive_lost(self, request: PollRequest) -> None:
        """Note that an answer did not get to its client: what it holds next says nothing of what it thinks of it."""
        sent = self._sent.get(_key(request))
        if sent is not None:
            sent.rejections, sent.counted = 0, True

    def _hear(self, request: PollRequest, now_s: float) -> Acknowledgement | None:
        """Learn from a poll what became of the version that was sent last."""
        sent = self._recall(request, now_s)
        if sent is None:
            return None
        if request.error_detail is None and request.version_info == sent.version:
            is_news, sent.confirmed, sent.rejections = not sent.confirmed, True, 0
            return Acknowledgement(sent.version, accepted=True) if is_news else None
        if request.version_info is None and request.error_detail is None and not _is_returning(request, sent, now_s):
            # A client that starts, or a new subscription: nothing is known of what it makes of our answers.
            sent.rejections, sent.counted = 0, True
            return None
        return self._count_rejection(request, sent)

    def _recall(self, request: PollRequest, now_s: float) -> _Sent | None:
        key = _key(request)
        sent = self._sent.get(key)
        if sent is not None:
            self._sent.move_to_end(key)
        elif request.error_detail is not None and request.response_nonce:
            # Said to a server that restarted since, or to another replica: the nonce tells which version it was.
            sent = _Sent(Version(request.response_nonce), now_s, now_s, is_hearsay=True)
            self._keep(request, sent)
        return sent

    def _count_rejection(self, request: PollRequest, sent: _Sent) -> Acknowledgement | None:
        if sent.counted:
            return None
        sent.counted, sent.confirmed = True, False
        sent.rejections += 1
        told_at = 1 if request.version_info is not None or request.error_detail is not None else PROMPT_RETURNS_ALLOWED
        if sent.rejections != told_at:
            return None
        return Acknowledgement(sent.version, accepted=False, reason=request.error_detail)

    def _decide(self, request: PollRequest, snapshot: Snapshot | None, now_s: float) -> Decision:
        if snapshot is None or request.subscription.type_url in snapshot.withheld:
            return _without_content(request, "nothing good was loaded yet; see the server's log, or run `fsxds check`")
        selection = select(snapshot, request.subscription)
        if not selection.resources and not BY_TYPE_URL[selection.type_url].may_be_empty:
            # Envoy rejects an empty answer of these types (ENVOY.md B3).
            return Hold()
        sent = self._sent.get(_key(request))
        if sent is not None and not sent.is_hearsay:
            return _answer_again(request, selection, sent, now_s)
        return self._meet(request, selection, snapshot, now_s)

    def _meet(self, request: PollRequest, selection: Selection, snapshot: Snapshot, now_s: float) -> Decision:
        """Decide for a client that this process never answered: it may hold what another life of the server gave it."""
        sent = self._sent.get(_key(request))
        if sent is None and request.version_info == selection.version:
            self._keep(request, _Sent(selection.version, now_s, now_s, confirmed=True))
            return Hold()
        if _may_lack_something(snapshot, request.subscription, selection):
            if request.version_info is not None:
                return Hold()
            if selection.missing:
                return Unavailable("a file that may define this resource was never good")
        return Send(selection) if sent is None else _answer_again(request, selection, sent, now_s)

    def _remember_sent(self, request: PollRequest, version: Version, now_s: float) -> None:
        before = self._sent.get(_key(request))
        rejections = before.rejections if before is not None and before.version == version else 0
        self._keep(request, _Sent(version, now_s, now_s, rejections=rejections))

    def _keep(self, request: PollRequest, sent: _Sent) -> None:
        if not request.node.id:
            return
        key = _key(request)
        self._sent[key] = sent
        self._sent.move_to_end(key)
        if len(self._sent) > self._most_remembered:
            self._sent.popitem(last=False)


def _key(request: PollRequest) -> _Key:
    node, subscription = request.node, request.subscription
    names = "\0".join(sorted(subscription.names))
    parts = (node.id, node.cluster, node.peer, subscription.type_url, str(subscription.wildcard), names)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).digest()


def _without_content(request: PollRequest, reason: str) -> Decision:
    # Who holds something keeps it, and is not bothered; who starts is told to come again.
    return Unavailable(reason) if request.version_info is None else Hold()


def _answer_again(request: PollRequest, selection: Selection, sent: _Sent, now_s: float) -> Decision:
    if sent.version != selection.version:
        return Send(selection)
    if sent.confirmed and request.version_info == sent.version:
        return Hold()
    retry_at_s = _retry_at_s(request, sent)
    return Send(selection) if now_s >= retry_at_s else Hold(retry_at_s)


def _is_returning(request: PollRequest, sent: _Sent, now_s: float) -> bool:
    return request.from_envoy and now_s - sent.answered_at_s < PROMPT_S


def _retry_at_s(request: PollRequest, sent: _Sent) -> float:
    """Return when the version that was sent last may be sent again.

    That is at once where nobody rejected it: then it is news to another held poll of the same client for the same names
    (two clusters may share one `service_name`).
    """
    says_nothing = request.error_detail is None and request.version_info is None
    rejections = sent.rejections - (PROMPT_RETURNS_ALLOWED if says_nothing else 0)
    return sent.sent_at_s + (back_off_s(rejections) if rejections > 0 else 0.0)


def _may_lack_something(snapshot: Snapshot, subscription: Subscription, selection: Selection) -> bool:
    """Whether an answer might take away what the client got before this process began."""
    type_url = subscription.type_url
    if not subscription.wildcard:
        return bool(selection.missing) and type_url in snapshot.incomplete
    return type_url in snapshot.incomplete or type_url in snapshot.undeclared
