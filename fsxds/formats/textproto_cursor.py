"""A place among the words of a text format file, and what is wrong with the words so far."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.formats.documents import MAX_FAULTS
from fsxds.formats.textproto_tokens import is_text, places_of, tokens_of
from fsxds.values import Fault

_OPENING, _CLOSING = frozenset("{<["), frozenset("}>]")

END = ""
"""Stands behind the last word."""


class StopError(Exception):
    """The text is no text format from here on; why is among the faults."""


@dataclass(frozen=True, slots=True)
class _Complaint:
    """What is wrong at the word of this number."""

    number: int
    rule: str
    message: str
    remedy: str


class Cursor:
    """Goes through the words of a text. `words` ends with `END`; `next` is the number of the word to be read."""

    __slots__ = ("_complaints", "_text", "next", "words")

    def __init__(self, text: str) -> None:
        self._text = text
        self._complaints: list[_Complaint] = []
        self.words = [*tokens_of(text), END]
        self.next = 0

    @property
    def word(self) -> str:
        """The word to be read."""
        return self.words[self.next]

    def skip(self, word: str) -> bool:
        """Get behind a word if it stands here, and tell whether it did."""
        if self.words[self.next] != word:
            return False
        self.next += 1
        return True

    def complain(self, rule: str, message: str, remedy: str, *, back: int = 0) -> None:
        """Note what is wrong with the word to be read, or `back` words before it.

        Raises:
            StopError: it is enough.
        """
        self._complaints.append(_Complaint(self.next - back, rule, message, remedy))
        if len(self._complaints) >= MAX_FAULTS:
            raise StopError

    def stop(self, message: str, remedy: str, rule: str = "bad-syntax") -> StopError:
        """Note why reading ends here, and return what to raise."""
        self._complaints.append(_Complaint(self.next, rule, message, remedy))
        return StopError()

    def skip_scalar(self) -> None:
        """Get behind a value that is no message and no list, whatever it is."""
        self.skip("-")
        self.next += self.word != END
        while is_text(self.word or " "):
            self.next += 1

    def skip_brackets(self) -> None:
        """Get behind the bracket that closes the one to be read, whatever is in between."""
        words, number, level = self.words, self.next, 0
        while word := words[number]:
            number += 1
            level += (word in _OPENING) - (word in _CLOSING)
            if level <= 0:
                break
        self.next = number

    def faults(self) -> tuple[Fault, ...]:
        """Return what is wrong, each with its place."""
        if not self._complaints:
            return ()
        places = places_of(self._text, {complaint.number for complaint in self._complaints})
        return tuple(
            Fault(complaint.rule, complaint.message, complaint.remedy, (), *places[complaint.number])
            for complaint in self._complaints
        )
