"""Envoy's leniency in JSON: trailing commas, single quotes and bare keys become strict JSON, line for line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Whole words and numbers are taken at once, so that nothing is looked at twice.
_TOKENS: Final = re.compile(
    r"""
      (?P<text>"(?:[^"\\\n]|\\.)*+")
    | '(?P<single>(?:[^'\\\n]|\\.)*+)'
    | (?P<comment>//|/\*|\#)
    | (?P<word>[^\W\d][\w$]*+) (?P<colon>[ \t\r\n]*+:)?
    | (?P<number>[-+.\d][\w.+-]*+)
    | (?P<comma>,) (?=[ \t\r\n]*+[\]}])
    | (?P<mark>[\[\]{},:])
    """,
    re.VERBOSE,
)
_IN_SINGLE_QUOTES: Final = re.compile(r"\\.|\"")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Strict JSON as far as liberties go, and where the first comment stands, None if nowhere."""

    text: str
    comment_at: int | None


def make_strict(text: str) -> Rewritten:
    """Return the text with Envoy's liberties written as strict JSON.

    What is no liberty of Envoy's stays as it is, for json to complain about. Lines stay the same, columns may move.
    """
    rewriter = _Rewriter()
    return Rewritten(_TOKENS.sub(rewriter.rewrite, text), rewriter.comment_at)


class _Rewriter:
    """Rewrites one token after the other; a comma is a trailing one only after a value."""

    def __init__(self) -> None:
        self.comment_at: int | None = None
        self._follows_value = False

    def rewrite(self, token: re.Match[str]) -> str:
        """Return what stands for a token in strict JSON."""
        group = token.lastgroup
        followed_value = self._follows_value
        self._follows_value = group not in ("colon", "comma") and (group != "mark" or token[0] in "]}")
        if group == "comma" and followed_value:
            return " "
        if group == "colon":
            return f'"{token["word"]}"{token["colon"]}'
        if group == "single":
            return '"' + _IN_SINGLE_QUOTES.sub(_in_double_quotes, token["single"]) + '"'
        if group == "comment" and self.comment_at is None:
            self.comment_at = token.start()
        return token[0]


def _in_double_quotes(part: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(part[0], part[0])
