"""Takes resources out of a YAML bootstrap, verbatim (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fsxds.api.fields import camel_case
from fsxds.envoy.bootstrap_text import as_yaml, quoted_text
from fsxds.model.values import PlainValue
from fsxds.tools.importing.pieces import FIELDS, LeftOver, StaticResource
from fsxds.tools.importing.yaml_nodes import (
    AliasNode,
    Cutter,
    Known,
    MappingNode,
    SequenceNode,
    TextPart,
    YamlNode,
    has_merge_key,
    key_text,
    node_at,
    read_nodes,
    reindented,
    resolved,
)

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
        for (key, value), stop in zip(root.pairs, self._stops(root), strict=True):
            if key_text(key) in _STATIC and isinstance(static := resolved(value), MappingNode):
                is_here = static is value and static.is_block and root.is_block
                parts = tuple(self._cutter.parts(static, key.end, stop)) if is_here else (None,) * len(static.pairs)
                for (name, members), part in zip(static.pairs, parts, strict=True):
                    field = key_text(name)
                    if field in FIELDS:
                        yield field, self._list_of(name, members, part)

    def _stops(self, root: MappingNode) -> Collection[int]:
        return [part.stop for part in self._parts] or [0] * len(root.pairs)

    def _list_of(self, key: YamlNode, value: YamlNode, part: TextPart | None) -> _List:
        members = resolved(value)
        comments = self._text[part.lead : part.start].rstrip(" ") if part is not None else ""
        if not isinstance(members, SequenceNode):
            return _List((self._cutter.part_of(members),), comments)
        if part is not None and members is value and members.is_block:
            return _List(tuple(self._cutter.parts(members, key.end, part.stop)), comments)
        return _List(tuple(map(self._cutter.part_of, members.members)), comments)

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
                yield extended or lead + self._generated(name, section, left)
            elif has_merge_key(value):
                # Envoy takes a merge key for an ordinary key.
                raise MergeKeyError
            else:
                yield self._cutter.cut(part, known)
        for name, section in waiting.items():
            if name == "static_resources":
                yield self._static_resources("", left, known)
            else:
                yield self._generated(name, section, left)

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

    def _generated(self, name: str, section: PlainValue, left: LeftOver) -> str:
        return as_yaml({name: section}, left.comments, _SHARED)

    def _static_resources(self, lead: str, left: LeftOver, known: Known) -> str | None:
        body = "".join(self._static_fields(left, known))
        return f"{lead}static_resources:\n{body}" if body else lead.strip() or None

    def _static_fields(self, left: LeftOver, known: Known) -> Iterator[str]:
        for field in dict.fromkeys((*self._lists, *FIELDS)):
            found = self._lists.get(field)
            comments = reindented(found.comments, 2) if found else ""
            kept = [found.parts[index] for index in left.kept[field]] if found else []
            own = as_yaml({"clusters": left.clusters}, left.comments) if field == "clusters" and left.clusters else ""
            if own:
                yield f"{comments}{reindented(own, 2)}"
            elif kept:
                yield f"{comments}  {field}:\n"
            elif comments.strip():
                yield comments
            for part in kept:
                yield self._member(part, known)

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


def _target_of(part: TextPart) -> TextPart:
    if not isinstance(part.node, AliasNode):
        return part
    target = part.node.target
    return TextPart(target, target.start, target.start, target.end, is_member=False)


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
