"""The nodes of a YAML text with positions, to move parts verbatim (pure).

If the target of an alias stays behind, its content replaces the alias, with the anchor for later aliases. The caller
proves that the meaning is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yaml import YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from fsxds.envoy.bootstrap_text import quoted_text
from fsxds.formats.decoded import MAX_DEPTH, place_after
from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.formats.yaml_format import read_events
from fsxds.model.values import Fault, FieldPath

_BLOCK_SCALARS = frozenset({"|", ">"})


@dataclass(slots=True, eq=False)
class YamlNode:
    """A value: `text[start:end]`, with anchor and tag, without the rest of its last line.

    `column` counts from 0. `is_block`: the end depends on indentation.
    """

    start: int
    end: int
    column: int
    anchor: str | None = None
    tag: str | None = None
    is_block: bool = False


@dataclass(slots=True, eq=False)
class TextNode(YamlNode):
    """A scalar; `is_plain`: without quotes; `keeps_breaks`: blank lines at its end belong to it."""

    text: str = ""
    is_plain: bool = False
    keeps_breaks: bool = False


@dataclass(slots=True, eq=False)
class MappingNode(YamlNode):
    """Keys and values."""

    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)

    def value_of(self, *spellings: str) -> YamlNode | None:
        """Return the first value with one of the spellings."""
        return next((value for key, value in self.pairs if key_text(key) in spellings), None)


@dataclass(slots=True, eq=False)
class SequenceNode(YamlNode):
    """The members of a list."""

    members: list[YamlNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class AliasNode(YamlNode):
    """An alias `*name`."""

    name: str = ""
    target: YamlNode = field(default_factory=lambda: YamlNode(0, 0, 0))


Inner: TypeAlias = MappingNode | SequenceNode


def key_text(key: YamlNode) -> str | None:
    """Return a key's text; None if Envoy ignores it or it is no text."""
    return key.text if isinstance(key, TextNode) and key.tag != "!ignore" else None


def resolved(node: YamlNode) -> YamlNode:
    """Return an alias's target, else the node."""
    return node.target if isinstance(node, AliasNode) else node


def node_at(root: YamlNode, field_path: FieldPath) -> YamlNode | None:
    """Return the node at a path, through aliases, or None."""
    node: YamlNode | None = root
    for step in field_path:
        node = None if node is None else resolved(node)
        if isinstance(node, MappingNode):
            node = node.value_of(str(step))
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.members):
            node = node.members[step]
        else:
            return None
    return node


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """The first document: its root and its end."""

    root: YamlNode
    end: int


def read_nodes(text: str) -> DocumentNode | None:
    """Return the first document; None without one."""
    try:
        return _Reader(text).read()
    except (YAMLError, _TooDeepError, KeyError):
        return None


class _TooDeepError(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self._next_event = read_events(text)
        self._anchors: dict[str, YamlNode] = {}

    def read(self) -> DocumentNode | None:
        self._next_event()  # the stream's start
        if not isinstance(self._next_event(), DocumentStartEvent):
            return None
        root = self._node(self._next_event(), 1)
        return DocumentNode(root, self._next_event().start_mark.index)

    def _node(self, event: Any, depth: int) -> YamlNode:
        if depth > MAX_DEPTH:
            raise _TooDeepError
        node = self._scalar_or_alias(event) or self._inner(event, depth)
        if node.anchor is not None:
            self._anchors[node.anchor] = node
        return node

    def _scalar_or_alias(self, event: Any) -> YamlNode | None:
        place = (event.start_mark.index, event.end_mark.index, event.start_mark.column)
        if type(event) is AliasEvent:
            name = str(event.anchor)
            return AliasNode(*place, name=name, target=self._anchors[name])
        if type(event) is not ScalarEvent:
            return None
        is_block, is_plain = event.style in _BLOCK_SCALARS, event.style in {None, ""} and event.implicit[0]
        keeps_breaks = is_block and event.value.endswith("\n\n")
        return TextNode(*place, event.anchor, event.tag, is_block, event.value, is_plain, keeps_breaks)

    def _inner(self, event: Any, depth: int) -> YamlNode:
        place = (event.start_mark.index, event.end_mark.index, event.start_mark.column)
        properties = (event.anchor, event.tag, not event.flow_style)
        node: Inner
        end: Any
        if type(event) is MappingStartEvent:
            node = MappingNode(*place, *properties)
            while type(end := self._next_event()) is not MappingEndEvent:
                key = self._node(end, depth + 1)
                node.pairs.append((key, self._node(self._next_event(), depth + 1)))
            last = node.pairs[-1][1] if node.pairs else None
        else:
            node = SequenceNode(*place, *properties)
            while type(end := self._next_event()) is not SequenceEndEvent:
                node.members.append(self._node(end, depth + 1))
            last = node.members[-1] if node.members else None
        # The end mark of a block is at the next token, after comments that belong to the next node.
        node.end = last.end if node.is_block and last is not None else end.end_mark.index
        return node


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """A node; `is_in_flow`: within brackets; `indent` is that of block lines in its place."""

    node: YamlNode
    is_in_flow: bool = False
    indent: int = 0


def nodes_in(node: YamlNode, *, is_in_flow: bool = False, indent: int = 0) -> Iterator[WrittenNode]:
    """Yield a node and all within it, in order, without targets of aliases."""
    yield WrittenNode(node, is_in_flow, indent)
    inside = is_in_flow or not node.is_block
    if isinstance(node, MappingNode):
        for key, value in node.pairs:
            yield from nodes_in(key, is_in_flow=inside, indent=key.column)
            yield from nodes_in(value, is_in_flow=inside, indent=key.column + 2)
    elif isinstance(node, SequenceNode):
        for member in node.members:
            yield from nodes_in(member, is_in_flow=inside, indent=member.column)


def last_leaf(node: YamlNode) -> YamlNode:
    """Return the last scalar, alias or empty collection."""
    while isinstance(node, MappingNode | SequenceNode):
        if isinstance(node, MappingNode) and node.pairs:
            node = node.pairs[-1][1]
        elif isinstance(node, SequenceNode) and node.members:
            node = node.members[-1]
        else:
            break
    return node


def has_merge_key(node: YamlNode) -> bool:
    """Return whether a node, or its aliases' targets, have a merge key (`<<`)."""
    waiting, seen = [node], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for written in nodes_in(current):
            inner = written.node
            if isinstance(inner, AliasNode):
                waiting.append(inner.target)
            elif isinstance(inner, MappingNode) and inner.value_of("<<") is not None:
                return True
    return False


# Of envsubst and shells, Go and Jinja, ERB. Not `${1}`: substitutions of regular expressions have it.
_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-=?+][^{}\n]*)?\}|\{\{.*?\}\}|\{%.*?%\}|<%.*?%>")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_MOST_REPORTED = 20


def placeholder_faults(text: str, file: str) -> list[Fault]:
    """Return the template placeholders; `file` is the text's name.

    A value with words around a placeholder may be intended and is not reported.
    """
    document = read_nodes(text)
    if document is None:
        places = _in_lines(text)
    else:
        found = (written.node for written in nodes_in(document.root) if _is_placeholder(written.node))
        places = (place_after(text[: node.start]) for node in found)
    remedy = f"render the template first: envsubst < {file} | fsxds import - DIR"
    fact = "this is a placeholder of a template, which Envoy takes as it is written"
    faults = [Fault("bad-syntax", fact, remedy, (), line, column) for line, column in places]
    return faults[:_MOST_REPORTED]


def _in_lines(text: str) -> Iterator[tuple[int, int]]:
    """For text that placeholders keep from being YAML."""
    for number, line in enumerate(text.split("\n"), 1):
        found = _PLACEHOLDER.search(_COMMENT.sub("", line))
        if found is not None:
            yield number, found.start() + 1


def _is_placeholder(node: YamlNode) -> bool:
    if isinstance(node, MappingNode):
        # YAML reads an unquoted `{{ name }}` so.
        return any(isinstance(key, MappingNode) for key, _ in node.pairs)
    if not isinstance(node, TextNode) or not _PLACEHOLDER.search(node.text):
        return False
    return not re.search(r"\s", _PLACEHOLDER.sub("", node.text))


Known = dict[str, YamlNode]
"""The anchors in one output so far, and their nodes."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A member of a list, or a key with its value.

    Attributes:
        lead: the start of the comments above.
        start: of its dash or key.
        stop: the start of the following text.
        is_member: there is a dash at `start`.
    """

    node: YamlNode
    lead: int
    start: int
    stop: int
    is_member: bool


class Cutter:
    """Cuts parts out of one text."""

    def __init__(self, text: str, insertions: Mapping[int, str] | None = None) -> None:
        """`insertions`, by index, apply to cut parts."""
        self._text = text
        self._insertions = dict(insertions or {})

    def parts(self, node: Inner, begin: int, stop: int) -> Iterator[TextPart]:
        """Yield the parts of a block, which are all of its text.

        From `begin` on, comments may belong to the first part; `stop` is the start of the following text.
        """
        is_list = isinstance(node, SequenceNode)
        members = node.members if isinstance(node, SequenceNode) else [value for _, value in node.pairs]
        if is_list:
            starts = [self._dash_of(member, node.column) for member in members]
        else:
            starts = [key.start for key, _ in node.pairs] if isinstance(node, MappingNode) else []
        ends = [begin, *(member.end for member in members)]
        leads = [self._lead(end, start) for end, start in zip(ends, starts, strict=False)]
        for member, lead, start, following in zip(members, leads, starts, [*leads[1:], stop], strict=True):
            yield TextPart(member, lead, start, following, is_list)

    def part_of(self, node: YamlNode) -> TextPart:
        """Return a node as a part, without its surroundings."""
        return TextPart(node, node.start, node.start, node.end, is_member=False)

    def cut(self, part: TextPart, known: Known) -> str:
        """Return a part without its dash, from the first column."""
        text = self._text_between(part.lead, part.stop, WrittenNode(part.node), known)
        if part.is_member:
            dash = part.start - part.lead
            text = f"{text[:dash]} {text[dash + 1 :]}"
        # Text before the part on its first line counts for the indentation only.
        text = " " * (part.lead - self._line_of(part.lead)) + text
        leaf = last_leaf(part.node)
        ends_open = isinstance(leaf, TextNode) and leaf.keeps_breaks
        return reindented(text if ends_open else f"{text.rstrip()}\n", 0)

    def _lead(self, end: int, start: int) -> int:
        """Comments indented more than this part belong to the previous one, which ends at `end`."""
        line = self._line_of(start)
        if line <= end and self._text[line:start].strip():
            return start
        column = start - line
        position = end if self._line_of(end) == end else self._text.find("\n", end) + 1
        while position < line:
            following = self._text.find("\n", position) + 1
            content = self._text[position:following]
            if content.lstrip(" ").startswith("#") and _indentation(content) <= column:
                return position
            position = following
        return line

    def _dash_of(self, member: YamlNode, column: int) -> int:
        line = self._line_of(member.start)
        while line > 0 and not (self._text.startswith("-", line + column) and line + column < member.start):
            line = self._line_of(line - 1)
        return line + column

    def _line_of(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _text_between(self, start: int, stop: int, written: WrittenNode, known: Known) -> str:
        """Aliases that lose their target get its content."""
        edits = [(at, at, text) for at, text in self._insertions.items() if start <= at < stop]
        for inner in nodes_in(written.node, is_in_flow=written.is_in_flow, indent=written.indent):
            node = inner.node
            if isinstance(node, AliasNode):
                if known.get(node.name) is not node.target:
                    edits.append((node.start, node.end, self._content(node, inner, known)))
            elif node.anchor is not None:
                known[node.anchor] = node
        return _edited(self._text, start, stop, edits)

    def _content(self, alias: AliasNode, written: WrittenNode, known: Known) -> str:
        target = alias.target
        if target.is_block and written.is_in_flow:
            known[alias.name] = target
            return f"&{alias.name} {in_flow(target)}"
        inner = WrittenNode(target, written.is_in_flow, target.column)
        text = self._text_between(target.start, target.end, inner, known).rstrip("\n")
        first, *others = text.split("\n")
        return "\n".join((first, *reindented("\n".join(others), written.indent).split("\n"))) if others else first


def _edited(text: str, start: int, stop: int, edits: Iterable[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    position = start
    for begin, end, replacement in sorted(edits):
        pieces += (text[position:begin], replacement)
        position = end
    return "".join((*pieces, text[position:stop]))


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Replace ranges, which must not overlap."""
    return _edited(text, 0, len(text), edits)


def reindented(text: str, indent: int) -> str:
    """Replace the least indentation; comments further left move to it."""
    lines = text.split("\n")
    written = [line for line in lines if line.strip()]
    contents = [line for line in written if not line.lstrip().startswith("#")]
    least = min(map(_indentation, contents or written), default=0)
    return "\n".join(_moved(line, least, indent) for line in lines)


def _moved(line: str, least: int, indent: int) -> str:
    content = line[min(least, _indentation(line)) :]
    return " " * indent + content if content else ""


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def in_flow(node: YamlNode) -> str:
    """Write a node on one line, aliases resolved."""
    if isinstance(node, AliasNode):
        return in_flow(node.target)
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{in_flow(key)}: {in_flow(value)}" for key, value in node.pairs) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(map(in_flow, node.members)) + "]"
    if not isinstance(node, TextNode):
        return "null"
    if node.is_plain and not isinstance(resolve_plain(node.text) if node.text else None, str):
        return node.text or "null"
    return quoted_text(node.text)
