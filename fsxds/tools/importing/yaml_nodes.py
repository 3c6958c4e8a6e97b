"""Takes resources out of a YAML bootstrap verbatim, by the positions of its nodes (pure).

If the target of an alias stays behind, its content replaces the alias, with the anchor for later aliases. The caller
proves that the meaning is unchanged.
"""

from __future__ import annotations

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

from fsxds.api.fields import camel_case
from fsxds.envoy.bootstrap_text import as_yaml, quoted_text
from fsxds.formats.decoded import MAX_DEPTH
from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.formats.yaml_format import read_events
from fsxds.model.values import FieldPath, PlainValue
from fsxds.tools.importing.pieces import FIELDS, LeftOver, StaticResource

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

    def value_of(self, text: str) -> YamlNode | None:
        """Return the first value of a key."""
        return next((value for key, value in self.pairs if key_text(key) == text), None)


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
    except (YAMLError, RecursionError, KeyError):
        return None


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
            raise RecursionError
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
        if isinstance(node, SequenceNode):
            members = node.members
            starts = [self._dash_of(member, node.column) for member in members]
        else:
            members = [value for _, value in node.pairs]
            starts = [key.start for key, _ in node.pairs]
        ends = [begin, *(member.end for member in members)]
        leads = [self._lead(end, start) for end, start in zip(ends, starts, strict=False)]
        for member, lead, start, following in zip(members, leads, starts, [*leads[1:], stop], strict=True):
            yield TextPart(member, lead, start, following, is_list)

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
        return edited(self._text, edits, start, stop)

    def _content(self, alias: AliasNode, written: WrittenNode, known: Known) -> str:
        target = alias.target
        if target.is_block and written.is_in_flow:
            known[alias.name] = target
            return f"&{alias.name} {in_flow(target)}"
        inner = WrittenNode(target, written.is_in_flow, target.column)
        text = self._text_between(target.start, target.end, inner, known).rstrip("\n")
        first, *others = text.split("\n")
        return "\n".join((first, *reindented("\n".join(others), written.indent).split("\n"))) if others else first


def edited(text: str, edits: Iterable[tuple[int, int, str]], start: int = 0, stop: int | None = None) -> str:
    """Return `text[start:stop]` with replaced ranges, which must not overlap."""
    pieces: list[str] = []
    position = start
    for begin, end, replacement in sorted(edits):
        pieces += (text[position:begin], replacement)
        position = end
    return "".join((*pieces, text[position:stop]))


def reindented(text: str, indent: int) -> str:
    """Replace the least indentation; comments further left move to it."""
    lines = text.split("\n")
    written = [line for line in lines if line.strip()]
    contents = [line for line in written if not line.lstrip().startswith("#")]
    least = min(map(_indentation, contents or written), default=0)
    moved = (line[min(least, _indentation(line)) :] for line in lines)
    return "\n".join(" " * indent + line if line else "" for line in moved)


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


_STATIC = ("static_resources", "staticResources")
_SHARED = "fsxds"


@dataclass(frozen=True, slots=True)
class _List:
    parts: tuple[TextPart, ...]
    comments: str


class YamlBootstrap:
    """The text of a bootstrap."""

    def __init__(self, text: str) -> None:
        """Read text without byte order mark, with line feeds alone."""
        self._text = text
        self._cutter = Cutter(text)
        document = read_nodes(text)
        root = document.root if document else None
        self._root = root if isinstance(root, MappingNode) else None
        self._parts: tuple[TextPart, ...] = ()
        self._lists: dict[str, _List] = {}
        if self._root is not None and document is not None:
            if self._root.is_block:
                self._parts = tuple(self._cutter.parts(self._root, 0, document.end))
            self._lists = dict(self._find_lists(self._root))

    def piece(self, resource: StaticResource) -> bytes | None:
        """Return a resource's text, or None."""
        found = self._lists.get(resource.field)
        if found is None or resource.index >= len(found.parts):
            return None
        part = found.parts[resource.index]
        insertions = dict(_insertions(part.node, resource))
        return Cutter(self._text, insertions).cut(_target_of(part), {}).encode()

    def left_over(self, left: LeftOver) -> bytes | None:
        """Return the remaining bootstrap; None if the author's text cannot be kept."""
        if self._root is None or not self._parts:
            return None
        known: Known = {}
        blocks = [text for text in self._blocks(self._root, left, known) if text]
        return "\n".join(blocks).encode()

    def _find_lists(self, root: MappingNode) -> Iterator[tuple[str, _List]]:
        stops = [part.stop for part in self._parts] or [0] * len(root.pairs)
        for (key, value), stop in zip(root.pairs, stops, strict=True):
            if key_text(key) in _STATIC and isinstance(static := resolved(value), MappingNode):
                is_here = static is value and static.is_block and root.is_block
                parts = tuple(self._cutter.parts(static, key.end, stop)) if is_here else (None,) * len(static.pairs)
                for (name, members), part in zip(static.pairs, parts, strict=True):
                    written = key_text(name)
                    if written in FIELDS:
                        yield written, self._list_of(name, members, part)

    def _list_of(self, key: YamlNode, value: YamlNode, part: TextPart | None) -> _List:
        members = resolved(value)
        comments = self._text[part.lead : part.start].rstrip(" ") if part is not None else ""
        if not isinstance(members, SequenceNode):
            return _List((_part_of(members),), comments)
        if part is not None and members is value and members.is_block:
            return _List(tuple(self._cutter.parts(members, key.end, part.stop)), comments)
        return _List(tuple(map(_part_of, members.members)), comments)

    def _blocks(self, root: MappingNode, left: LeftOver, known: Known) -> Iterator[str | None]:
        waiting = dict(left.replaced)
        spellings = {camel_case(name): name for name in waiting}
        for (key, value), part in zip(root.pairs, self._parts, strict=True):
            written = key_text(key)
            name = None if written is None else spellings.get(written, written)
            lead = self._text[part.lead : part.start]
            if name is None:
                # Envoy ignores it; comments at the top of a file are often about the whole of it.
                yield lead.strip() and lead
            elif name in _STATIC:
                waiting.pop("static_resources", None)
                yield self._static_resources(lead, left, known)
            elif name in waiting:
                section = waiting.pop(name)
                extended = self._extended(part, section, known) if name == "node" else None
                yield extended or lead + as_yaml({name: section}, left.comments, _SHARED)
            elif has_merge_key(value):
                # Envoy takes a merge key for an ordinary key.
                raise MergeKeyError
            else:
                yield self._cutter.cut(part, known)
        for name, section in waiting.items():
            if name == "static_resources":
                yield self._static_resources("", left, known)
            else:
                yield as_yaml({name: section}, left.comments, _SHARED)

    def _extended(self, part: TextPart, section: PlainValue, known: Known) -> str | None:
        """None if the section differs otherwise."""
        node = part.node
        if not isinstance(node, MappingNode) or not node.is_block or not node.pairs or not isinstance(section, dict):
            return None
        own = {key_text(key) for key, _ in node.pairs}
        new = {key: value for key, value in section.items() if key not in own}
        if own - section.keys() or has_merge_key(node) or not new:
            return None
        lines = reindented(as_yaml(new, {}), node.pairs[0][0].column)
        return f"{self._cutter.cut(part, known)}{lines.rstrip()}\n"

    def _static_resources(self, lead: str, left: LeftOver, known: Known) -> str | None:
        lines: list[str] = []
        for name in dict.fromkeys((*self._lists, *FIELDS)):
            found = self._lists.get(name)
            comments = reindented(found.comments, 2) if found else ""
            kept = [found.parts[index] for index in left.kept[name]] if found else []
            own = as_yaml({"clusters": left.clusters}, left.comments) if name == "clusters" and left.clusters else ""
            if own:
                lines.append(f"{comments}{reindented(own, 2)}")
            elif kept:
                lines.append(f"{comments}  {name}:\n")
            elif comments.strip():
                lines.append(comments)
            lines += (self._member(part, known) for part in kept)
        return f"{lead}static_resources:\n{''.join(lines)}" if lines else lead.strip() or None

    def _member(self, part: TextPart, known: Known) -> str:
        """Comments come before the dash."""
        if has_merge_key(part.node):
            raise MergeKeyError
        lines = self._cutter.cut(_target_of(part), known).rstrip("\n").split("\n")
        first = next(index for index, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
        comments = "".join(f"  {line}\n" for line in lines[:first])
        rest = "".join(f"    {line}\n" if line else "\n" for line in lines[first + 1 :])
        return f"{comments}  - {lines[first]}\n{rest}"


class MergeKeyError(Exception):
    """The rest has a merge key, which Envoy does not know."""


def _part_of(node: YamlNode) -> TextPart:
    """Without its surroundings."""
    return TextPart(node, node.start, node.start, node.end, is_member=False)


def _target_of(part: TextPart) -> TextPart:
    return _part_of(part.node.target) if isinstance(part.node, AliasNode) else part


def _insertions(node: YamlNode, resource: StaticResource) -> Iterator[tuple[int, str]]:
    """Additions come before the first key of a mapping."""
    for addition in resource.additions:
        owner = node_at(node, addition.field_path)
        owner = None if owner is None else resolved(owner)
        if isinstance(owner, MappingNode) and owner.pairs:
            first = owner.pairs[0][0]
            end = f"\n{' ' * first.column}" if owner.is_block else ", "
            yield first.start, f"{addition.key}: {_in_line(addition.value)}{end}"


def _in_line(value: PlainValue) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted_text(key)}: {_in_line(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_in_line, value)) + "]"
    return quoted_text(value) if isinstance(value, str) else str(value).lower()
