"""Walk through text format, showing a visitor where things stand; no message type is known and no value is made.

Of a field that stands several times, the first is shown as the field itself and as its first item. What is packed in an
Any stands where the Any stands, and the value of a map's entry under its key, as in JSON.
"""

from __future__ import annotations

from collections import Counter

from fsxds.formats.json_text import Places
from fsxds.formats.textproto_tokens import BadEscapeError, is_name, is_text, positions_of, unquote
from fsxds.formats.visiting import Visitor
from fsxds.values import FieldPath

_OPENERS, _CLOSERS = frozenset("{<["), frozenset("}>]")
_END = ("", 0)


class TextprotoWalk:
    """One walk."""

    def __init__(self, text: str, visitor: Visitor) -> None:
        self._words = [*positions_of(text), _END]
        self._places = Places(text)
        self._visitor = visitor
        self._next = 0

    def walk(self) -> None:
        """Walk from the top, as far as the text goes on."""
        self._visitor.meet((), *self._places.place(self._words[0][1]))
        inside = self._visitor.enter((), "{")
        if inside is not None:
            self._fields(inside)

    def _fields(self, path: FieldPath) -> None:
        counts: Counter[str] = Counter()
        while (word := self._word) and word not in _CLOSERS:
            if word[0] == "[" and len(word) > 1:
                self._visitor.meet((*path, "@type"), *self._places.place(self._words[self._next][1]))
                self._next += 1
                self._skip(":")
                self._message(path)
            elif is_name(word):
                self._field((*path, word), counts[word])
                counts[word] += 1
            else:
                self._next += 1

    def _field(self, path: FieldPath, count: int) -> None:
        self._meet(path, count)
        self._next += 1
        self._skip(":")
        if self._word != "[":
            self._value(path, count)
            return
        self._next += 1
        while self._word not in ("]", ""):
            self._meet(path, count)
            self._value(path, count)
            self._skip(",")
            count += 1
        self._skip("]")

    def _meet(self, path: FieldPath, count: int) -> None:
        place = self._places.place(self._words[self._next][1])
        if count == 0:
            self._visitor.meet(path, *place)
        self._visitor.meet((*path, count), *place)

    def _value(self, path: FieldPath, count: int) -> None:
        if self._word not in ("{", "<"):
            self._next += bool(self._word)
            while is_text(self._word or " "):
                self._next += 1
            return
        key = self._key()
        if key is not None and self._visitor.enter((*path, key), "{") is not None:
            self._visitor.meet((*path, key), *self._places.place(self._words[self._next][1]))
            self._next += 4
            self._skip(",")
            self._skip("value")
            self._skip(":")
            self._message((*path, key))
            self._skip_to_closer(1)
            return
        inside = self._visitor.enter((*path, count), "{")
        if inside is None and count == 0:
            inside = self._visitor.enter(path, "{")
        self._message(inside)

    def _key(self) -> str | None:
        """Return the key of a map's entry where one begins here: `{ key: "a"`."""
        words = [word for word, _ in self._words[self._next + 1 : self._next + 4]]
        if words[:2] != ["key", ":"] or len(words) < 3 or not is_text(words[2]):
            return None
        try:
            return unquote(words[2]).decode(errors="replace")
        except BadEscapeError:
            return None

    def _message(self, path: FieldPath | None) -> None:
        """Walk through what is in braces, or skip it; anything else is passed by."""
        if self._word not in ("{", "<"):
            return
        self._next += 1
        if path is not None:
            self._fields(path)
        self._skip_to_closer(1)

    def _skip_to_closer(self, level: int) -> None:
        while level and self._word:
            level += (self._word in _OPENERS) - (self._word in _CLOSERS)
            self._next += 1

    def _skip(self, word: str) -> None:
        self._next += self._word == word

    @property
    def _word(self) -> str:
        return self._words[self._next][0]
