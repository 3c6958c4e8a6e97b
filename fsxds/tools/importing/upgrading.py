"""Rewrites API v2 in a YAML bootstrap, and finds placeholders of templates (pure).

Each round rewrites the outermost v2 fields: a `config` is readable only as a `typed_config`. Changes that need a
decision are left for the parser to report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from google.protobuf.descriptor import Descriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, SPECIAL_JSON, fields_by_name, is_map, map_parts, type_of_url
from fsxds.api.v2_spellings import CONFIG, HOSTS, PATTERNS, TLS_CONTEXT, TLS_CONTEXTS, VALUE, successor_of
from fsxds.formats.decoded import place_after
from fsxds.model.resource_types import PREFIX
from fsxds.model.values import Fault
from fsxds.tools.doctor.facts import BOOTSTRAP
from fsxds.tools.importing.yaml_nodes import (
    AliasNode,
    MappingNode,
    SequenceNode,
    TextNode,
    YamlNode,
    edited,
    in_flow,
    key_text,
    nodes_in,
    read_nodes,
    reindented,
    resolved,
)

# Configurations nest v2 fields less deeply.
_MOST_ROUNDS = 30

# The category of the extensions that a message names.
_CATEGORIES: Mapping[str, str] = MappingProxyType({
    "envoy.config.accesslog.v3.AccessLog": "envoy.access_loggers",
    "envoy.config.listener.v3.Filter": "envoy.filters.network",
    "envoy.config.listener.v3.ListenerFilter": "envoy.filters.listener",
    "envoy.config.metrics.v3.StatsSink": "envoy.stats_sinks",
    "envoy.config.overload.v3.ResourceMonitor": "envoy.resource_monitors",
    "envoy.config.trace.v3.Tracing.Http": "envoy.tracers",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": "envoy.filters.http",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftFilter": "envoy.thrift_proxy.filters",
})  # fmt: skip

# Names of v2 whose last word has changed.
_RENAMED: Mapping[str, str] = MappingProxyType({
    "envoy.file_access_log": "file",
    "envoy.http_grpc_access_log": "http_grpc",
    "envoy.tcp_grpc_access_log": "tcp_grpc",
    "envoy.wasm_access_log": "wasm",
    "envoy.http_dynamo_filter": "dynamo",
    "envoy.rate_limit": "ratelimit",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A rewritten spelling; `line` is the original."""

    line: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class UpgradedText:
    """A rewritten text; `lines` are the original numbers of its lines, from 1."""

    text: str
    changes: tuple[Change, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str
    change: Change


def upgraded(text: str, catalogue: Catalogue) -> UpgradedText:
    """Rewrite a bootstrap to v3 as far as possible; comments stay."""
    changes: list[Change] = []
    lines = list(range(1, text.count("\n") + 2))
    for _ in range(_MOST_ROUNDS):
        document = read_nodes(text)
        if document is None:
            break
        edits = sorted(_Round(text, catalogue).edits(document.root), key=lambda edit: edit.start)
        if not edits:
            break
        made = dict.fromkeys(edit.change for edit in edits)
        changes += (replace(change, line=lines[change.line - 1]) for change in made)
        lines = _lines_after(text, edits, lines)
        text = edited(text, ((edit.start, edit.end, edit.text) for edit in edits))
    return UpgradedText(text, tuple(sorted(changes, key=lambda change: change.line)), tuple(lines))


def _lines_after(text: str, edits: list[_Edit], lines: list[int]) -> list[int]:
    """Inserted lines get the edit's original line."""
    after, line, position = [lines[0]], 0, 0
    for edit in edits:
        kept = text.count("\n", position, edit.start)
        after += lines[line + 1 : line + 1 + kept]
        line += kept
        written, before = edit.text.count("\n"), text.count("\n", edit.start, edit.end)
        # Moving text inwards adds lines before it.
        moved = before if before <= written else 0
        after += [lines[line]] * (written - moved) + lines[line + 1 : line + 1 + moved]
        line += before
        position = edit.end
    return after + lines[line + 1 :]


@dataclass(slots=True)
class _Owner:
    node: MappingNode
    descriptor: Descriptor
    values: dict[str, YamlNode] = field(default_factory=dict)


class _Round:
    def __init__(self, text: str, catalogue: Catalogue) -> None:
        self._text = text
        self._catalogue = catalogue
        self._edits: list[_Edit] = []
        self._seen: set[int] = set()

    def edits(self, root: YamlNode) -> list[_Edit]:
        descriptor = self._catalogue.descriptor(BOOTSTRAP)
        if descriptor is not None:
            self._walk(root, descriptor)
        return self._edits

    def _walk(self, node: YamlNode, descriptor: Descriptor) -> None:
        node = resolved(node)
        if id(node) in self._seen or not isinstance(node, MappingNode):
            return
        self._seen.add(id(node))
        if descriptor.full_name == ANY:
            self._walk_packed(node)
        elif descriptor.full_name not in SPECIAL_JSON:
            self._walk_fields(node, descriptor)

    def _walk_packed(self, node: MappingNode) -> None:
        url = node.value_of("@type")
        message_type = type_of_url(url.text) if isinstance(url, TextNode) else None
        if url is None or message_type is None:
            return
        successor = successor_of(self._catalogue, message_type)
        if successor is not None and not self._catalogue.knows(message_type):
            change = Change(self._line(url), message_type, successor)
            self._edits.append(_Edit(url.start, url.end, f'"{PREFIX}{successor}"', change))
        descriptor = self._catalogue.descriptor(successor or message_type)
        if descriptor is not None and descriptor.full_name not in SPECIAL_JSON:
            self._walk_fields(node, descriptor)

    def _walk_fields(self, node: MappingNode, descriptor: Descriptor) -> None:
        owner = _Owner(node, descriptor, {key_text(key) or "": value for key, value in node.pairs})
        self._add_type(owner)
        known = fields_by_name(descriptor)
        for key, value in node.pairs:
            name = key_text(key)
            found = known.get(name or "")
            if name is None or name == "@type":
                continue
            if found is None:
                self._rewrite(owner, key, value)
            elif is_map(found):
                inner = map_parts(found)[1].message_type
                values = resolved(value)
                if inner is not None and isinstance(values, MappingNode):
                    for _, each in values.pairs:
                        self._walk(each, inner)
            elif found.message_type is not None:
                for each in _members(value):
                    self._walk(each, found.message_type)

    def _add_type(self, owner: _Owner) -> None:
        """V3 needs a type even without configuration."""
        name = owner.values.get("name")
        if not isinstance(name, TextNode) or owner.values.keys() & {"typed_config", CONFIG, "config_discovery"}:
            return
        found = self._type_of(owner.descriptor.full_name, name.text)
        first = owner.node.pairs[0][0]
        if found is not None:
            end = f"\n{' ' * first.column}" if owner.node.is_block else ", "
            text = f'typed_config: {{"@type": {PREFIX}{found}}}{end}'
            change = Change(self._line(name), f'the bare name "{name.text}"', f"a {found}")
            self._edits.append(_Edit(first.start, first.start, text, change))

    def _rewrite(self, owner: _Owner, key: YamlNode, value: YamlNode) -> None:
        name = key_text(key) or ""
        message_type = owner.descriptor.full_name
        new, _, rest = PATTERNS.get((message_type, name), "").partition(": ")
        after: str | None = None
        if new and new not in owner.values:
            if rest == VALUE:
                after = f"{new}: {self._text[value.start : value.end]}"
            elif not isinstance(value, AliasNode):
                after = f"{new}: {rest.replace(VALUE, in_flow(value))}"
        elif name == HOSTS and message_type in TLS_CONTEXTS and "load_assignment" not in owner.values:
            after = _load_assignment(owner, value)
        elif name == TLS_CONTEXT and message_type in TLS_CONTEXTS and "transport_socket" not in owner.values:
            after = self._transport_socket(key, value, TLS_CONTEXTS[message_type])
        elif name == CONFIG and "typed_config" in owner.descriptor.fields_by_name:
            self._type_config(owner, key, value)
        if after is not None:
            change = Change(self._line(key), name, after.partition(":")[0])
            self._edits.append(_Edit(key.start, value.end, after, change))

    def _transport_socket(self, key: YamlNode, value: YamlNode, context: str) -> str | None:
        name = "envoy.transport_sockets.tls"
        if not value.is_block:
            typed = _typed(self._text, value, context)
            return None if typed is None else f"transport_socket: {{name: {name}, typed_config: {typed}}}"
        if not isinstance(value, MappingNode) or value.anchor is not None:
            return None
        indent = " " * key.column
        first = self._text.index("\n", key.end) + 1
        body = reindented(self._text[first : value.end], key.column + 4)
        type_field = f'{indent}    "@type": {PREFIX}{context}'
        head = f"transport_socket{self._text[key.end : first]}{indent}  name: {name}\n{indent}  typed_config:\n"
        return f"{head}{type_field}\n{body}"

    def _type_config(self, owner: _Owner, key: YamlNode, value: YamlNode) -> None:
        name = owner.values.get("name")
        found = self._type_of(owner.descriptor.full_name, name.text) if isinstance(name, TextNode) else None
        if found is None or value.anchor is not None:
            return
        change = Change(self._line(key), CONFIG, f"typed_config of a {found}")
        if isinstance(value, MappingNode) and value.is_block:
            text = f'"@type": {PREFIX}{found}\n{" " * value.column}'
            self._edits.append(_Edit(value.start, value.start, text, change))
        elif (typed := _typed(self._text, value, found)) is not None:
            self._edits.append(_Edit(value.start, value.end, typed if value.start < value.end else f" {typed}", change))
        else:
            return
        self._edits.append(_Edit(key.start, key.end, "typed_config", change))

    def _type_of(self, holder: str, name: str) -> str | None:
        category, features = _CATEGORIES.get(holder), self._catalogue.features
        if category is None or features is None:
            return None
        extensions = features.extensions.get(category, {})
        word = _RENAMED.get(name, name.rpartition(".")[2])
        candidates = [name, *(one for one in sorted(extensions) if one.rpartition(".")[2] == word)]
        return next((types[0] for one in candidates if (types := extensions.get(one))), None)

    def _line(self, node: YamlNode) -> int:
        return self._text.count("\n", 0, node.start) + 1


def _typed(text: str, value: YamlNode, message_type: str) -> str | None:
    """None unless it is a flow mapping or empty."""
    type_field = f'"@type": {PREFIX}{message_type}'
    if isinstance(value, TextNode):
        return f"{{{type_field}}}" if value.is_plain and value.text in {"", "~", "null"} else None
    if not isinstance(value, MappingNode) or value.anchor is not None:
        return None
    return f"{{{type_field}{', ' if value.pairs else ''}{text[value.start + 1 : value.end]}"


def _members(node: YamlNode) -> Iterator[YamlNode]:
    """Envoy takes one for a list of one."""
    node = resolved(node)
    yield from node.members if isinstance(node, SequenceNode) else (node,)


def _load_assignment(owner: _Owner, hosts: YamlNode) -> str | None:
    name = owner.values.get("name")
    if not isinstance(name, TextNode):
        return None
    endpoints = ", ".join(f"{{endpoint: {{address: {in_flow(host)}}}}}" for host in _members(hosts))
    return f"load_assignment: {{cluster_name: {in_flow(name)}, endpoints: [{{lb_endpoints: [{endpoints}]}}]}}"


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
        # Placeholders keep the text from being YAML.
        found = (
            (number, _PLACEHOLDER.search(_COMMENT.sub("", line))) for number, line in enumerate(text.split("\n"), 1)
        )
        places = [(number, match.start() + 1) for number, match in found if match is not None]
    else:
        nodes = (written.node for written in nodes_in(document.root) if _is_placeholder(written.node))
        places = [place_after(text[: node.start]) for node in nodes]
    remedy = f"render the template first: envsubst < {file} | fsxds import - DIR"
    fact = "this is a placeholder of a template, which Envoy takes as it is written"
    return [Fault("bad-syntax", fact, remedy, (), line, column) for line, column in places[:_MOST_REPORTED]]


def _is_placeholder(node: YamlNode) -> bool:
    if isinstance(node, MappingNode):
        # YAML reads an unquoted `{{ name }}` so.
        return any(isinstance(key, MappingNode) for key, _ in node.pairs)
    if not isinstance(node, TextNode) or not _PLACEHOLDER.search(node.text):
        return False
    return not re.search(r"\s", _PLACEHOLDER.sub("", node.text))
