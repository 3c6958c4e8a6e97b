"""What the readers of text formats share: bytes to text, lines and columns, and what a walk through a text shows."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from itertools import accumulate
from typing import Protocol

from fsxds.formats.decoded import UnreadableError
from fsxds.values import Fault, FieldPath

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_text(content: bytes, *, allow_mark: bool = True) -> str:
    """Return the text of a file without its byte order mark.

    Args:
        content: the bytes of the file.
        allow_mark: whether a byte order mark may be at the start. Envoy accepts one in YAML and rejects it in JSON.

    Raises:
        UnreadableError: for bytes that are no UTF-8, for NUL characters, and for a mark that may not be there.
    """
    for mark, encoding in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise UnreadableError(
                Fault("bad-encoding", f"the file is {encoding}, not UTF-8", "save it as UTF-8", (), 1, 1)
            )
    if b"\0" in content:
        before = content[: content.index(b"\0")]
        raise UnreadableError(_fault_after(before, "the file holds a NUL character", "remove it; is this a text file?"))
    if content.startswith(codecs.BOM_UTF8):
        if not allow_mark:
            fact = "the file begins with a byte order mark, which Envoy rejects in JSON"
            raise UnreadableError(Fault("bad-encoding", fact, "save it without the mark, or name it .yaml", (), 1, 1))
        content = content[len(codecs.BOM_UTF8) :]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        raise UnreadableError(_fault_after(before, "the bytes here are not UTF-8", "save the file as UTF-8")) from None


def place_after(before: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows this beginning of a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _fault_after(before: bytes, message: str, remedy: str) -> Fault:
    line, column = place_after(before.decode(errors="replace"))
    return Fault("bad-encoding", message, remedy, (), line, column)


class LineIndex:
    """Lines and columns of the indexes of a text."""

    def __init__(self, text: str) -> None:
        self._starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))

    def place(self, index: int) -> tuple[int, int]:
        """Return line and column, from 1, of an index."""
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1


class AllFoundError(Exception):
    """A visitor has found all that it looks for: the rest of the text need not be walked."""


class Visitor(Protocol):
    """Is called with the places of a text in their order."""

    def note_place(self, path: FieldPath, line: int, column: int) -> None:
        """Receive the place of the key or the list item of a path, from 1; the empty path is the top.

        Raises:
            AllFoundError: to end the walk; who began it has to catch it.
        """

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Return the path to report of what is inside the container at `path`, None to have it skipped.

        `opener` is `{` or `[`. The path is mostly the same one; a visitor may take an object for a list of one.
        """
