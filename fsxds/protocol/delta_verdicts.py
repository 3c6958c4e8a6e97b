"""What a Delta client was sent of one type, and what it made of it."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.protocol.acks import MOST_PARTS, MOST_UNANSWERED, Rejections
from fsxds.protocol.delta_names import NOTHING
from fsxds.protocol.messages import Acknowledgement
from fsxds.values import Nonce, Version


@dataclass(frozen=True, slots=True)
class _Sent:
    """A response that awaits its verdict: all its names, and those of unknown hosts among them.

    `is_offer`: it bears something that was rejected before.
    """

    version: Version
    names: frozenset[str]
    unpopulated: frozenset[str]
    is_offer: bool


class Verdicts:
    """Remembers the responses that await their verdict, and what is owed after rejections.

    `sent`, `accepted` and `refused` are the versions of the last responses of that kind; `reason` says why the last was
    refused. What is sent without being asked for is owed to nobody.
    """

    __slots__ = ("_owed_hosts", "_unanswered", "acked", "nacked", "reason", "rejections", "sent")

    def __init__(self, *, is_whole: bool) -> None:
        self.rejections = Rejections(is_whole=is_whole)
        self.sent: Version | None = None
        self.acked: Version | None = None
        self.nacked: Version | None = None
        self.reason: str | None = None
        # Of what is owed, hosts that were told as unknown.
        self._owed_hosts = NOTHING
        self._unanswered: dict[Nonce, _Sent] = {}

    def expect(self, nonce: Nonce, version: Version, names: frozenset[str], unpopulated: frozenset[str]) -> None:
        """Note a response that is sent now."""
        self.sent = version
        is_offer = not self.rejections.names.isdisjoint(names)
        self._unanswered[nonce] = _Sent(version, names, unpopulated, is_offer)
        if len(self._unanswered) > MOST_UNANSWERED:
            self.rejections.accept(self._unanswered.pop(next(iter(self._unanswered))).names)

    @property
    def retry_at_s(self) -> float | None:
        """When something that was rejected is offered again; None while enough of it awaits its verdict."""
        return self.rejections.retry_at_s if self._room else None

    @property
    def _room(self) -> int:
        """How many more responses may offer what was rejected."""
        return max(MOST_PARTS - sum(sent.is_offer for sent in self._unanswered.values()), 0)

    def due(self, now_s: float) -> tuple[frozenset[str], ...]:
        """Return the names that are offered again now, one response each."""
        return self.rejections.due(now_s, self._room) if self.rejections.names else ()

    def judge(
        self, nonce: Nonce | None, error_detail: str | None, now_s: float, unasked: frozenset[str]
    ) -> Acknowledgement | None:
        """Take what a request says of a response; None where it says nothing, or said it before."""
        if nonce is None or nonce not in self._unanswered:
            return None
        while (oldest := next(iter(self._unanswered))) != nonce:
            self.rejections.accept(self._unanswered.pop(oldest).names)
        sent = self._unanswered.pop(nonce)
        if error_detail is None:
            self._accept(sent)
            return Acknowledgement(sent.version, accepted=True)
        # What a later response says again has its verdict still to come.
        not_owed = self.under_way() | unasked
        if names := sent.names - not_owed if not_owed else sent.names:
            self.rejections.reject(names, now_s)
            self._owed_hosts = (self._owed_hosts | (sent.unpopulated & names)) - (names - sent.unpopulated)
        self.nacked, self.reason = sent.version, error_detail
        return Acknowledgement(sent.version, accepted=False, reason=error_detail or None)

    def _accept(self, sent: _Sent) -> None:
        self.rejections.accept(sent.names)
        self.acked = sent.version
        if not self.rejections.names:
            self.nacked = self.reason = None

    def under_way(self) -> frozenset[str]:
        """Return the names that are on their way to the client, as far as it told."""
        return NOTHING.union(*(response.names for response in self._unanswered.values()))

    def held_back(self) -> frozenset[str]:
        """Return the names that were rejected, and wait until they are offered again."""
        owed = self.rejections.names
        return owed - self.under_way() if owed else owed

    def must_be_dropped(self, name: str) -> bool:
        """Whether a client may hold what is owed to it by this name, so that it has to be told of its removal."""
        return name in self.rejections.names and name not in self._owed_hosts
