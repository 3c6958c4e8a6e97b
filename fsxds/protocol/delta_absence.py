"""Which names a Delta client is told as removed, and which are left unsaid."""

from __future__ import annotations

from fsxds.protocol.delta_names import NOTHING
from fsxds.protocol.delta_news import Draft
from fsxds.protocol.lookup import Lookup
from fsxds.resources import Snapshot
from fsxds.values import TypeUrl


class Absence:
    """Remembers what was not said to be absent although it is, and says it when it is certain.

    That is what a file may define that was never good, and what the client brought of a type that no file ever spoke of.
    Where telling it would hang the client (`is_hidden`), it is never said.
    """

    __slots__ = ("_brought", "_is_hidden", "_type_url", "unsaid")

    def __init__(self, type_url: TypeUrl, *, is_hidden: bool) -> None:
        self.unsaid = NOTHING
        self._type_url, self._is_hidden = type_url, is_hidden
        # What the client got before this process began, and did not exist since.
        self._brought = NOTHING

    def bring(self, gone: frozenset[str]) -> None:
        """Note which names a client brings that do not exist."""
        self._brought = gone

    def reconsider(self, draft: Draft, names: frozenset[str], after: Lookup) -> None:
        """Consider again what was not said, as far as the client still wants it."""
        if self.unsaid or self._brought:
            absent = self.unsaid | self._brought
            absent -= after.existing(absent)
            self._brought &= absent
            draft.absent |= self.unsaid & absent & (names | self._brought)
            self.unsaid = NOTHING

    def withhold(self, draft: Draft, snapshot: Snapshot) -> None:
        """Take out of a draft what is not to be said now.

        What this process saw removed is said in any case: the client got it from here.
        """
        if self._is_hidden:
            draft.absent, draft.gone = set(), set()
        elif self._type_url in snapshot.incomplete:
            self.unsaid = frozenset(draft.absent | (draft.gone & self._brought))
        elif self._type_url in snapshot.undeclared:
            self.unsaid = self._brought & (draft.absent | draft.gone)
        else:
            self._brought = NOTHING
        draft.absent -= self.unsaid
        draft.gone -= self.unsaid

    def sayable(self, gone: frozenset[str]) -> frozenset[str]:
        """Return those of these names, which the client was told of, that may be told as removed."""
        return NOTHING if self._is_hidden else gone
