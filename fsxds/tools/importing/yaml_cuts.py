"""Cuts parts out of a YAML text verbatim (pure).

If the target of an alias stays behind, its content replaces the alias, with the anchor for later aliases. The caller
proves that the meaning is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fsxds.envoy.bootstrap_text import quoted_text
from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.tools.importing.yaml_nodes import (
    AliasNode,
    Inner,
    MappingNode,
    SequenceNode,
    TextNode,
    WrittenNode,
    YamlNode,
    last_leaf,
    nodes_in,
)

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
        """Yield the parts of a block, which together are all of its text.

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
        text = " " * self._column(part.lead) + text
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

    def _column(self, index: int) -> int:
        return index - self._line_of(index)

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
    """Replace ranges of a text, which must not overlap."""
    return _edited(text, 0, len(text), edits)


def reindented(text: str, indent: int) -> str:
    """Replace the least indentation of lines; comments further left move to it."""
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
    """Write a node on one line, with the content of its aliases."""
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
