"""The structure of a YAML or JSON text, also of an incomplete one.

libyaml, which counts for serving, stops at the first mistake. This reader treats missing ends as present, and never
fails. It does not follow aliases and merge keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from fsxds.editor.text_positions import Span
from fsxds.model.values import FieldPath

MOST_CHARACTERS = 2_000_000
"""A longer text has no outline: reading this many takes a second."""

_DEEPEST = 100


class Form(Enum):
    """The form of a value."""

    MAPPING = "mapping"
    SEQUENCE = "sequence"
    SCALAR = "scalar"


@dataclass(slots=True)
class OutlineMember:
    """A key; `span` includes its quotes, `value` may be None.

    Without `has_colon`, a word may become a key.
    """

    key: str
    span: Span
    value: OutlineNode | None = None
    has_colon: bool = True


@dataclass(slots=True)
class OutlineNode:
    """A mapping, a sequence, or a scalar.

    `column` is that of a block's keys or dashes, from 0, and -1 in brackets. `is_open`: brackets are unclosed. `quote`
    may be `|` or `>`, or empty.
    """

    form: Form
    start: int
    end: int
    column: int = -1
    members: list[OutlineMember] = field(default_factory=list)
    elements: list[OutlineNode | None] = field(default_factory=list)
    text: str = ""
    quote: str = ""
    is_open: bool = False

    def member(self, *spellings: str) -> OutlineMember | None:
        """Return the first member with one of these keys."""
        return next((one for one in self.members if one.key in spellings), None)

    def text_of(self, *spellings: str) -> str | None:
        """Return a scalar member's text, or None."""
        found = self.member(*spellings)
        is_scalar = found is not None and found.value is not None and found.value.form is Form.SCALAR
        return found.value.text if is_scalar and found is not None and found.value is not None else None


@dataclass(frozen=True, slots=True)
class OutlineStep:
    """One step: a member, or an index and its element."""

    holder: OutlineNode
    key: str | int
    value: OutlineNode | None
    member: OutlineMember | None = None


@dataclass(frozen=True, slots=True)
class Trail:
    """The path to a position.

    `is_key`: the position is in the last key; `document` counts from 0.
    """

    document: int
    root: OutlineNode | None
    steps: tuple[OutlineStep, ...]
    is_key: bool = False

    @property
    def path(self) -> FieldPath:
        """The keys and indexes."""
        return tuple(step.key for step in self.steps)

    @property
    def value(self) -> OutlineNode | None:
        """The value at the end."""
        return self.steps[-1].value if self.steps else self.root


@dataclass(frozen=True, slots=True)
class TextOutline:
    """The documents of a text; None is an empty one."""

    documents: tuple[OutlineNode | None, ...]

    def trail_to(self, index: int) -> Trail | None:
        """Return an index's trail, None outside of all documents."""
        for number, root in enumerate(self.documents):
            if root is not None and root.start <= index <= root.end:
                return _trail(number, root, index)
        return None

    def follow(self, document: int, path: FieldPath) -> Trail | None:
        """Return a path's trail, or None. A value may be a list of one."""
        if document >= len(self.documents):
            return None
        root = node = self.documents[document]
        steps: list[OutlineStep] = []
        for key in path:
            if node is None:
                return None
            if isinstance(key, int) and node.form is not Form.SEQUENCE:
                continue
            step = _step(node, key)
            if step is None:
                return None
            steps.append(step)
            node = step.value
        return Trail(document, root, tuple(steps))


def _step(node: OutlineNode, key: str | int) -> OutlineStep | None:
    if isinstance(key, int):
        return OutlineStep(node, key, node.elements[key]) if key < len(node.elements) else None
    member = node.member(key)
    return None if member is None else OutlineStep(node, key, member.value, member)


def _trail(document: int, root: OutlineNode, index: int) -> Trail:
    steps: list[OutlineStep] = []
    node: OutlineNode | None = root
    while node is not None:
        inner = next((step for step in _inner(node) if _covers(step, index)), None)
        if inner is None:
            break
        steps.append(inner)
        if inner.member is not None and inner.member.span[0] <= index <= inner.member.span[1]:
            return Trail(document, root, tuple(steps), is_key=True)
        node = inner.value
    return Trail(document, root, tuple(steps))


def _inner(node: OutlineNode) -> Iterator[OutlineStep]:
    yield from (OutlineStep(node, one.key, one.value, one) for one in node.members)
    yield from (OutlineStep(node, number, element) for number, element in enumerate(node.elements))


def _covers(step: OutlineStep, index: int) -> bool:
    start = step.member.span[0] if step.member else step.value.start if step.value else index + 1
    end = step.value.end if step.value else step.member.span[1] if step.member else index
    return start <= index <= end


def read_outline(text: str) -> TextOutline:
    """Read a text. Never raises; one over `MOST_CHARACTERS` is empty."""
    if len(text) > MOST_CHARACTERS:
        return TextOutline(())
    reader = _OutlineReader(text)
    reader.read()
    return TextOutline(tuple(reader.documents))


_BLANK = re.compile(r"[ \t\ufeff]*")
_REST_IS_COMMENT = re.compile(r"[ \t]*(#|\r|\n|$)")
_DASH = re.compile(r"-(?=[ \t\r\n]|$)")
_MARKER = re.compile(r"(---|\.\.\.)(?=\s|$)")
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]+)+")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^']|'')*'")
_OPEN_QUOTE = re.compile(r"[^\r\n]*")
_QUOTED_KEY = re.compile(r"""("(?:[^"\\\r\n]|\\.)*"|'(?:[^'\r\n]|'')*')[ \t]*:(?=[ \t\r\n]|$)""")
_PLAIN_KEY = re.compile(r"""([^\s{}\[\],&*!|>'"%#](?:(?![ \t]#|:[ \t\r\n]|:$)[^\r\n])*?)[ \t]*:(?=[ \t\r\n]|$)""")
_PLAIN = re.compile(r"(?:(?![ \t]+#)[^\r\n])*")
_BLOCK_TEXT = re.compile(r"[|>][-+0-9]*[ \t]*(?:#[^\r\n]*)?(?=\r|\n|$)")
_FLOW_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|#[^\r\n]*)+")
_FLOW_PLAIN = re.compile(r"(?:(?!:[ \t\r\n,{}\[\]]|:$|[ \t]+#)[^,{}\[\]\r\n])+")
_FLOW_COLON = re.compile(r"[ \t]*:")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


class _OutlineReader:
    """`_at` is the next token's index, `_line` its line's start.

    `_blocks` are the open blocks, outermost first.
    """

    def __init__(self, text: str) -> None:
        self.documents: list[OutlineNode | None] = []
        self._text = text
        self._at = 0
        self._line = 0
        # Within brackets: the start of the next token's line, -1 if the token is not the first on its line.
        self._line_in_flow = -1
        self._blocks: list[OutlineNode] = []
        self._root: OutlineNode | None = None
        self._has_content = False

    def read(self) -> None:
        while self._at < len(self._text):
            self._read_line()
        self._end_document(is_last=True)

    def _end_document(self, *, is_last: bool = False) -> None:
        if self._has_content or (is_last and not self.documents):
            self.documents.append(self._root)
        for block in reversed(self._blocks):
            _close(block)
        self._blocks, self._root, self._has_content = [], None, False

    def _read_line(self) -> None:
        self._line = self._at
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        marker = _MARKER.match(self._text, self._at) if self._at == self._line else None
        if marker:
            self._end_document()
            self._at = marker.end()
            # `---` begins a document even if nothing follows.
            self._has_content = marker[1] == "---"
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
        if not _REST_IS_COMMENT.match(self._text, self._at) and self._text[self._at] != "%":
            self._has_content = True
            self._read_content()
        line = _LINE.match(self._text, self._at)
        self._at = line.end() if line else len(self._text)

    def _read_content(self) -> None:
        while _DASH.match(self._text, self._at):
            self._add_element(self._at - self._line)
            self._at += 1
            self._skip_blank()
            if _REST_IS_COMMENT.match(self._text, self._at):
                return
        column = self._at - self._line
        self._skip_properties()
        key = _QUOTED_KEY.match(self._text, self._at) or _PLAIN_KEY.match(self._text, self._at)
        if key:
            self._add_member(column, OutlineMember(unquoted(key[1]), key.span(1)))
            self._at = key.end()
            self._skip_blank()
            self._skip_properties()
            if not _REST_IS_COMMENT.match(self._text, self._at):
                self._fill(self._value(column))
        else:
            if self._at >= len(self._text):
                return
            self._close_deeper(column, is_dash=False)
            top = self._blocks[-1] if self._blocks else None
            value = self._value(column - 1)
            if top is not None and top.column == column and top.form is Form.MAPPING:
                word = OutlineMember(value.text, (value.start, value.end), has_colon=False)
                top.members.append(word)
            else:
                self._fill(value)

    def _skip_blank(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at

    def _skip_properties(self) -> None:
        properties = _PROPERTIES.match(self._text, self._at)
        self._at = properties.end() if properties else self._at

    def _close_deeper(self, column: int, *, is_dash: bool) -> None:
        while self._blocks:
            top = self._blocks[-1]
            # The dashes of a list may be at the column of the list's key.
            ends_list = top.form is Form.SEQUENCE and top.column == column and not is_dash
            if top.column <= column and not ends_list:
                return
            _close(self._blocks.pop())

    def _add_element(self, column: int) -> None:
        self._close_deeper(column, is_dash=True)
        top = self._blocks[-1] if self._blocks else None
        if top is None or top.form is not Form.SEQUENCE or top.column != column:
            top = self._open(Form.SEQUENCE, column)
        top.elements.append(None)

    def _add_member(self, column: int, member: OutlineMember) -> None:
        self._close_deeper(column, is_dash=False)
        top = self._blocks[-1] if self._blocks else None
        if top is None or top.form is not Form.MAPPING or top.column != column:
            top = self._open(Form.MAPPING, column)
        top.members.append(member)

    def _open(self, form: Form, column: int) -> OutlineNode:
        node = OutlineNode(form, self._line + column, self._line + column, column)
        self._fill(node)
        self._blocks.append(node)
        return node

    def _fill(self, value: OutlineNode) -> None:
        top = self._blocks[-1] if self._blocks else None
        if top is None:
            self._root = value
        elif top.form is Form.SEQUENCE:
            word = top.elements[-1]
            top.elements[-1] = value if word is None or word.quote else self._of_word(word, value)
        else:
            top.members[-1].value = value

    def _of_word(self, word: OutlineNode, value: OutlineNode) -> OutlineNode:
        """A word after a dash may become a key."""
        if word.form is not Form.SCALAR or word.text[:1] in ("&", "!", "*"):
            return value
        column = word.start - 1 - max(self._text.rfind(mark, 0, word.start) for mark in "\r\n")
        member = OutlineMember(word.text, (word.start, word.end), value, has_colon=False)
        mapping = OutlineNode(Form.MAPPING, word.start, word.end, column, [member])
        self._blocks.append(mapping)
        return mapping

    def _value(self, column: int) -> OutlineNode:
        """Continuations are indented further than `column`."""
        start = self._at
        first = self._text[start]
        if first in "{[":
            return self._flow(column, 0)
        if first in "\"'":
            return self._quoted(column)
        block = _BLOCK_TEXT.match(self._text, start)
        if block:
            self._at = block.end()
            self._skip_deeper(column)
            return OutlineNode(Form.SCALAR, start, self._at, text=self._text[block.end() : self._at], quote=first)
        return self._plain(column)

    def _plain(self, column: int) -> OutlineNode:
        plain = _PLAIN.match(self._text, self._at)
        start, end = plain.span() if plain else (self._at, self._at)
        text = self._text[start:end].rstrip()
        self._at = end
        end = start + len(text)
        while continued := self._continuation(column):
            text, end = f"{text} {continued[0]}", continued[1]
        return OutlineNode(Form.SCALAR, start, end, text=text)

    def _continuation(self, column: int) -> tuple[str, int] | None:
        line = _LINE.match(self._text, self._at)
        begin = line.end() if line else len(self._text)
        blank = _BLANK.match(self._text, begin)
        at = blank.end() if blank else begin
        is_content = at - begin > column and not _REST_IS_COMMENT.match(self._text, at)
        others = (_DASH, _QUOTED_KEY, _PLAIN_KEY, _MARKER)
        if not is_content or any(other.match(self._text, at) for other in others):
            return None
        plain = _PLAIN.match(self._text, at)
        text = plain[0].rstrip() if plain else ""
        self._at = plain.end() if plain else at
        return text, at + len(text)

    def _skip_deeper(self, column: int) -> None:
        end = at = self._at
        while at < len(self._text):
            line = _LINE.match(self._text, at)
            begin = line.end() if line else len(self._text)
            blank = _BLANK.match(self._text, begin)
            content = blank.end() if blank else begin
            is_empty = content >= len(self._text) or self._text[content] in "\r\n"
            if not is_empty and content - begin <= column:
                break
            after = _LINE.match(self._text, content)
            if not is_empty and after:
                end = content + len(after[0].rstrip("\r\n"))
            if begin == at or begin >= len(self._text):
                break
            at = begin
        self._at = end

    def _quoted(self, column: int) -> OutlineNode:
        start, quote = self._at, self._text[self._at]
        found = (_DOUBLE if quote == '"' else _SINGLE).match(self._text, start)
        if found is None or self._leaves_block(start, found.end(), column):
            # The quote is open: the value is the rest of the line.
            found = _OPEN_QUOTE.match(self._text, start)
        end = found.end() if found else len(self._text)
        self._at = end
        return OutlineNode(Form.SCALAR, start, end, text=unquoted(self._text[start:end]), quote=quote)

    def _leaves_block(self, start: int, end: int, column: int) -> bool:
        lines = re.finditer(r"[\r\n]([ \t]*)(?=[^\s])", self._text[start:end])
        return any(len(line[1]) <= column for line in lines)

    def _flow(self, column: int, depth: int) -> OutlineNode:
        """Brackets end without a closing one if this column's block continues."""
        opener = self._text[self._at]
        node = OutlineNode(Form.MAPPING if opener == "{" else Form.SEQUENCE, self._at, self._at, is_open=True)
        self._at += 1
        while True:
            self._skip_flow_space()
            if self._at >= len(self._text):
                break
            if self._is_block_again(column):
                # Before the line on which the block continues.
                self._at = self._line_in_flow - 1
                break
            letter = self._text[self._at]
            if letter in "}]":
                node.is_open = False
                self._at += 1
                break
            if letter == ",":
                self._at += 1
            elif node.form is Form.MAPPING:
                self._flow_member(node, column, depth)
            else:
                node.elements.append(self._flow_element(column, depth))
        node.end = self._at
        return node

    def _skip_flow_space(self) -> None:
        space = _FLOW_SPACE.match(self._text, self._at)
        self._line_in_flow = -1
        if space is not None:
            self._at = space.end()
            last = max(space[0].rfind("\n"), space[0].rfind("\r"))
            self._line_in_flow = space.start() + last + 1 if last >= 0 else -1

    def _is_block_again(self, column: int) -> bool:
        """Whether a line cannot be in this block's brackets."""
        is_first = self._line_in_flow >= 0 and self._at < len(self._text)
        return is_first and self._at - self._line_in_flow <= column and self._text[self._at] not in "}]"

    def _flow_member(self, node: OutlineNode, column: int, depth: int) -> None:
        key = self._flow_value(column, depth)
        member = OutlineMember(key.text, (key.start, key.end), has_colon=False)
        node.members.append(member)
        colon = _FLOW_COLON.match(self._text, self._at)
        if colon is None or key.form is not Form.SCALAR:
            return
        member.has_colon = True
        self._at = colon.end()
        self._skip_flow_space()
        if self._is_block_again(column):
            self._at = self._line_in_flow - 1
        elif self._at < len(self._text) and self._text[self._at] not in ",}]":
            member.value = self._flow_value(column, depth)

    def _flow_element(self, column: int, depth: int) -> OutlineNode:
        """`[a: b]` is a list of a mapping."""
        value = self._flow_value(column, depth)
        colon = _FLOW_COLON.match(self._text, self._at)
        if colon is None or value.form is not Form.SCALAR:
            return value
        self._at = colon.end()
        member = OutlineMember(value.text, (value.start, value.end))
        self._skip_flow_space()
        if self._at < len(self._text) and self._text[self._at] not in ",}]":
            member.value = self._flow_value(column, depth)
        return OutlineNode(Form.MAPPING, value.start, self._at, members=[member])

    def _flow_value(self, column: int, depth: int) -> OutlineNode:
        letter = self._text[self._at]
        if letter in "{[" and depth < _DEEPEST:
            return self._flow(column, depth + 1)
        if letter in "\"'":
            return self._quoted(column)
        plain = _FLOW_PLAIN.match(self._text, self._at)
        start, end = self._at, plain.end() if plain else self._at + 1
        self._at = end
        text = self._text[start:end].rstrip()
        return OutlineNode(Form.SCALAR, start, start + len(text), text=text)


def _close(block: OutlineNode) -> None:
    if block.members:
        last = block.members[-1]
        block.end = max(block.end, last.span[1], last.value.end if last.value else 0)
    if block.elements:
        element = block.elements[-1]
        block.end = max(block.end, block.start + 1, element.end if element else 0)


_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/"}


def unquoted(written: str) -> str:
    """Return a one-line scalar's text, as far as valid."""
    if written[:1] == "'":
        return written[1:].removesuffix("'").replace("''", "'")
    if written[:1] != '"':
        return written
    inner = written[1:-1] if len(written) > 1 and written.endswith('"') else written[1:]
    if "\\" not in inner:
        return inner
    try:
        decoded = json.loads(f'"{inner}"', strict=False)
    except ValueError:
        return re.sub(r"\\(.)", lambda match: _SIMPLE_ESCAPES.get(match[1], match[1]), inner)
    return str(decoded)
