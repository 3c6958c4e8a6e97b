"""Edits that carry out remedies, if they replace a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsxds.editor.diagnostics import problem_positions, span_of_problem
from fsxds.editor.outline import Form, OutlineNode, TextOutline, Trail
from fsxds.editor.text_positions import Span
from fsxds.model.values import Problem

_MEANT = re.compile(r'did you mean "([^"\\]+)"\?')
_PERHAPS = re.compile(r"perhaps ([\w.]+) is meant")
_QUOTED = re.compile(r'"([^"\\]+)"')
_FIRST_WORD = re.compile(r"([\w.]+) ")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy as an edit."""

    title: str
    problem: Problem
    span: Span
    text: str


def remedy_of(problem: Problem, text: str, outline: TextOutline) -> Remedy | None:
    """Return the edit; None if it replaces no word, or is uncertain."""
    meant = _MEANT.search(problem.remedy) or _PERHAPS.search(problem.remedy)
    if meant is None:
        return None
    start, _ = span_of_problem(problem, problem_positions(problem.path, text))
    trail = outline.trail_to(start)
    quoted = (*_QUOTED.findall(problem.message), *_FIRST_WORD.findall(problem.message)[:1])
    for wrong in quoted if trail is not None else ():
        for span, written in _words_at(trail, start) if trail is not None else ():
            inner = _inner(text, span, written)
            # For a type, the problem names the part after the slash.
            if inner is not None and (written == wrong or written.endswith(f"/{wrong}")):
                place = (inner[1] - len(wrong), inner[1])
                return Remedy(f'Write "{meant[1]}"', problem, place, meant[1])
    return None


def _words_at(trail: Trail, index: int) -> Iterator[tuple[Span, str]]:
    """Yield the key, its value, or the type in its value."""
    last = trail.steps[-1] if trail.steps else None
    if last is not None and last.member is not None and last.member.span[0] <= index:
        yield last.member.span, last.member.key
    node = trail.value
    if node is not None:
        yield from _scalar(node)
        packed = node.member("@type")
        if packed is not None and packed.value is not None:
            yield from _scalar(packed.value)


def _scalar(node: OutlineNode) -> Iterator[tuple[Span, str]]:
    if node.form is Form.SCALAR and node.quote not in ("|", ">"):
        yield (node.start, node.end), node.text


def _inner(text: str, span: Span, written: str) -> Span | None:
    """Return None if the word has escapes."""
    start, end = span
    if text[start : start + 1] in ("'", '"'):
        start, end = start + 1, end - 1
    return (start, end) if text[start:end] == written else None
