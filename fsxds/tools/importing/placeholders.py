"""Find what a template engine was to replace: Envoy would take `${PORT}` and `{{ host }}` as they are, or as something else (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsxds.formats.decoded import place_after
from fsxds.tools.importing.yaml_nodes import MappingNode, TextNode, YamlNode, nodes_in, read_nodes
from fsxds.values import Fault

# Of envsubst and shells, of Go and Jinja, of ERB. Not `${1}`: substitutions of regular expressions have these.
_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_]\w*(?::?[-=?+][^{}\n]*)?\}|\{\{.*?\}\}|\{%.*?%\}|<%.*?%>")
_COMMENT = re.compile(r"(?:^|\s)#.*")
# People need the first ones only.
_MOST_REPORTED = 20


def placeholder_faults(text: str, file: str) -> list[Fault]:
    """Return where a YAML or JSON text has placeholders of a template, with their lines.

    A value with words around a placeholder, such as a format string or code, is none: it may be meant so.

    Args:
        text: the text.
        file: how the user calls it, for the remedy.
    """
    document = read_nodes(text)
    places = _in_lines(text) if document is None else _in_values(text, document.root)
    remedy = f"render the template first: envsubst < {file} | fsxds import - DIR"
    fact = "this is a placeholder of a template, which Envoy takes as it is written"
    faults = [Fault("bad-syntax", fact, remedy, (), line, column) for line, column in places]
    return faults[:_MOST_REPORTED]


def _in_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first placeholder of each line, where the text is not YAML because of them."""
    for number, line in enumerate(text.split("\n"), 1):
        found = _PLACEHOLDER.search(_COMMENT.sub("", line))
        if found is not None:
            yield number, found.start() + 1


def _in_values(text: str, root: YamlNode) -> Iterator[tuple[int, int]]:
    for written in nodes_in(root):
        node = written.node
        if _is_placeholder(node):
            yield place_after(text[: node.start])


def _is_placeholder(node: YamlNode) -> bool:
    if isinstance(node, MappingNode):
        # What YAML makes of `{{ name }}` without quotes.
        return any(isinstance(key, MappingNode) for key, _ in node.pairs)
    if not isinstance(node, TextNode) or not _PLACEHOLDER.search(node.text):
        return False
    return not re.search(r"\s", _PLACEHOLDER.sub("", node.text))
