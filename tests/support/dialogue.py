"""A written dialogue: statements, each followed by what must come of it; `#` begins a comment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

OUTPUTS = ("server", "ack", "nack")

# Says that nothing else must come of a statement.
SILENCE = "server silent"


class Ends(Protocol):
    """Both ends of a dialogue."""

    def expect(self, lines: list[str]) -> None:
        """Take what is expected of the next statement, so that what is new gets the symbols that stand there."""

    def say(self, line: str) -> list[str]:
        """Play one statement; return what comes of it."""


@dataclass(frozen=True, slots=True)
class Played:
    """A dialogue as it went: `text` marks each line that differs, `agrees` is true where none does."""

    text: str
    agrees: bool


def play(script: str, ends: Ends) -> Played:
    """Play a script to its end, whatever differs on the way."""
    agrees, text = True, []
    for statement, written in turns(script):
        expected = [line for line in written if line != SILENCE]
        ends.expect(expected)
        seen = ends.say(statement)
        text.append(f"    {statement}")
        text += _compared(expected, seen)
        agrees = agrees and expected == seen
    return Played("\n".join(text), agrees)


def turns(script: str) -> list[tuple[str, list[str]]]:
    """Cut a script into what is put in and what must come of it."""
    found: list[tuple[str, list[str]]] = []
    for raw in script.splitlines():
        line = " ".join(raw.partition("#")[0].split())
        if not line:
            continue
        if line.split()[0] in OUTPUTS:
            found[-1][1].append(line)
        else:
            found.append((line, []))
    return found


def _compared(expected: list[str], seen: list[str]) -> list[str]:
    if expected == seen:
        return [f"    {line}" for line in seen]
    return [f"  - {line}    (expected)" for line in expected] + [f"  + {line}    (seen)" for line in seen]
