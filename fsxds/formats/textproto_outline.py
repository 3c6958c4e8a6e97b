"""The outline of a text format file: its top-level fields and their lines, without knowing any message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsxds.formats.documents import MAX_DEPTH
from fsxds.formats.json_text import Places

_TOKENS: Final = re.compile(
    r"""
      "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' | \#[^\n]*+
    | (?P<open>[{<\[]) | (?P<close>[}>\]])
    | (?P<name>[A-Za-z_]\w*+)(?=(?:\s|\#[^\n]*+)*+[:{<])
    | [\w.+-]++
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """The top-level fields in their order, with the line of each; where nesting goes too deep, None if nowhere."""

    fields: tuple[tuple[str, int], ...]
    too_deep_at: tuple[int, int] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(name for name, _ in self.fields)

    @property
    def first_line(self) -> int:
        """The line of the first field, 1 where there is none."""
        return self.fields[0][1] if self.fields else 1

    def lines_of(self, name: str) -> tuple[int, ...]:
        """Return the lines of all fields of a name."""
        return tuple(line for field, line in self.fields if field == name)


def outline_of(text: str) -> Outline:
    """Return the outline of a text, however broken the text is."""
    places = Places(text)
    fields: list[tuple[str, int]] = []
    level = 0
    for token in _TOKENS.finditer(text):
        if token["open"]:
            level += 1
            if level > MAX_DEPTH:
                return Outline(tuple(fields), places.place(token.start()))
        elif token["close"]:
            level = max(level - 1, 0)
        elif token["name"] and level == 0:
            fields.append((token["name"], places.place(token.start())[0]))
    return Outline(tuple(fields))
