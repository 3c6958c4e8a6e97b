"""What a client made of the responses for one type on one state-of-the-world stream."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.protocol.acks import MOST_UNANSWERED, Rejections
from fsxds.protocol.messages import Acknowledgement, SotwRequest
from fsxds.protocol.subscription import WILDCARD
from fsxds.resources import ResourceList
from fsxds.values import Nonce, Version

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """A response that awaits its verdict, and the names in it that the client may not have held as they were.

    `is_offer`: it bears something that was rejected before.
    """

    version: Version
    resources: ResourceList
    fresh: frozenset[str]
    is_offer: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names in it. There may be ten thousand, of which nobody asks unless something is rejected."""
        return self.resources.names


@dataclass(frozen=True, slots=True)
class Heard:
    """What a request said: `verdict` of an earlier response, whether it is void, and whether it repeats an answer.

    `overtaken` are the names that were news in a rejected full state that a later one, on its way already, says again.
    """

    verdict: Acknowledgement | None = None
    is_stale: bool = False
    is_repeat: bool = False
    overtaken: frozenset[str] = NOTHING


class SotwVerdicts:
    """Matches requests with responses by their nonces, and keeps what was rejected until it is mended.

    `is_full`: a response has everything, so that the last one alone counts.
    """

    __slots__ = (
        "_is_full",
        "_judged",
        "_unanswered",
        "acked",
        "last_nonce",
        "nacked",
        "reason",
        "rejections",
        "sent",
        "suspects",
    )

    def __init__(self, *, is_full: bool) -> None:
        self.last_nonce: Nonce | None = None
        # Versions: what was sent, accepted and rejected last, and the client's words for that.
        self.sent: Version | None = None
        self.acked: Version | None = None
        self.nacked: Version | None = None
        self.reason: str | None = None
        self.rejections = Rejections(is_whole=is_full)
        # The names that were news in a full state that was rejected: they are again when it is offered again.
        self.suspects = NOTHING
        self._is_full = is_full
        self._unanswered: dict[Nonce, Sent] = {}
        self._judged: Nonce | None = None

    @property
    def unseen(self) -> frozenset[str]:
        """The names that are on their way to the client, as far as it told."""
        return NOTHING.union(*(sent.names for sent in self._unanswered.values()))

    @property
    def retry_at_s(self) -> float | None:
        """When something that was rejected is offered again; None while an offer awaits its verdict.

        One at a time: a version stands for what the client holds, which the verdict of the offer before decides.
        """
        if any(sent.is_offer for sent in self._unanswered.values()):
            return None
        return self.rejections.retry_at_s

    def due(self, now_s: float) -> frozenset[str]:
        """Return the names that may be offered again now."""
        if not self.rejections.names or self.retry_at_s is None:
            return NOTHING
        return next(iter(self.rejections.due(now_s, 1)), NOTHING)

    def expect(self, nonce: Nonce, sent: Sent) -> None:
        """Take note of a response."""
        self.last_nonce, self.sent = nonce, sent.version
        self._unanswered[nonce] = sent
        if len(self._unanswered) > MOST_UNANSWERED:
            self._accept(self._unanswered.pop(next(iter(self._unanswered))))

    def hear(self, request: SotwRequest, now_s: float) -> Heard:
        """Take what a request says of the responses before it.

        A request that bears another nonce than that of the last response was written before the client saw that one. One
        without a nonce was written before it saw any.
        """
        if request.nonce is None or self.last_nonce is None:
            return Heard()
        is_stale = request.nonce != self.last_nonce
        if request.nonce not in self._unanswered:
            is_repeat = request.nonce in (self.last_nonce, self._judged) and request.error_detail is None
            return Heard(None, is_stale, is_repeat)
        sent = self._unanswered[request.nonce]
        verdict = self._judge(request.nonce, request.error_detail, now_s)
        is_overtaken = self._is_full and is_stale and not verdict.accepted
        return Heard(verdict, is_stale, overtaken=sent.fresh if is_overtaken else NOTHING)

    def _judge(self, nonce: Nonce, error_detail: str | None, now_s: float) -> Acknowledgement:
        while (oldest := next(iter(self._unanswered))) != nonce:
            self._accept(self._unanswered.pop(oldest))
        sent, self._judged = self._unanswered.pop(nonce), nonce
        if error_detail is None:
            self._accept(sent)
            self.acked = sent.version
            if nonce == self.last_nonce:
                self.nacked = self.reason = None
            return Acknowledgement(sent.version, accepted=True)
        self._reject(sent, now_s)
        self.nacked, self.reason = sent.version, error_detail
        return Acknowledgement(sent.version, accepted=False, reason=error_detail or None)

    def _accept(self, sent: Sent) -> None:
        if self.rejections.names:
            self.rejections.accept(self.rejections.names if self._is_full else sent.names)
        self.suspects = NOTHING

    def _reject(self, sent: Sent, now_s: float) -> None:
        if not self._is_full:
            # What a later response says again is judged with that one.
            if names := sent.names - self.unseen:
                self.rejections.reject(names, now_s)
        elif not self._unanswered:
            self.suspects |= sent.fresh
            # Also a list without names can be rejected.
            self.rejections.reject(sent.names or (WILDCARD,), now_s)
