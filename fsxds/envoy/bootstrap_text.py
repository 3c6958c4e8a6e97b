"""Writes a bootstrap as commented YAML, which PyYAML cannot (pure)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from fsxds.envoy.envoy_bootstrap import Section
from fsxds.model.values import PlainValue

LINE_LENGTH = 120
_STEP = "  "

# Unquoted text for every YAML reader, except the words of YAML 1.1 for other values.
_WORD = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NOT_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_DURATION = re.compile(r"[0-9]+(?:\.[0-9]+)?s")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){3}")


def as_yaml(value: dict[str, PlainValue], comments: Mapping[str, str], shared: str = "shared") -> str:
    """Write a mapping, empty lines between top-level keys.

    A mapping that occurs twice, as the same object, is written once, with the anchor `shared`. A comment stands above its
    key's first occurrence.
    """
    writer = _Writer(value, comments, shared)
    blocks = ["\n".join(writer.mapping({key: content}, "")) for key, content in value.items()]
    return "\n\n".join(blocks) + "\n"


class _Writer:
    def __init__(self, value: PlainValue, comments: Mapping[str, str], anchor: str) -> None:
        self._comments = dict(comments)
        self._anchor = anchor
        self._shared = {number for number, count in Counter(_identities(value)).items() if count > 1}
        self._anchors: dict[int, str] = {}

    def mapping(self, value: dict[str, PlainValue], indent: str) -> Iterator[str]:
        for key, content in value.items():
            yield from (f"{indent}# {line}" for line in self._comments.pop(key, "").splitlines())
            yield from self._pair(f"{indent}{quoted_text(key)}:", content, indent)

    def _pair(self, head: str, content: PlainValue, indent: str) -> Iterator[str]:
        if isinstance(content, dict) and id(content) in self._anchors:
            yield f"{head} *{self._anchors[id(content)]}"
            return
        in_flow = self._flow(content)
        if self._is_anchored_here(content):
            name = self._anchor + (str(len(self._anchors) + 1) if self._anchors else "")
            self._anchors[id(content)] = name
            head = f"{head} &{name}"
        in_line = f"{head} {in_flow}"
        if not self._needs_lines(content) and len(in_line) <= LINE_LENGTH:
            yield in_line
        elif isinstance(content, dict):
            yield head
            yield from self.mapping(content, indent + _STEP)
        elif isinstance(content, list):
            yield head
            for element in content:
                yield from self._element(element, indent)
        else:
            yield in_line

    def _element(self, element: PlainValue, indent: str) -> Iterator[str]:
        in_line = f"{indent}- {self._flow(element)}"
        if not isinstance(element, dict) or (len(in_line) <= LINE_LENGTH and not self._needs_lines(element)):
            yield in_line
            return
        yield from (f"{indent}# {line}" for line in self._comments.pop(next(iter(element)), "").splitlines())
        for number, line in enumerate(self.mapping(element, indent + _STEP)):
            yield f"{indent}- {line.removeprefix(indent + _STEP)}" if number == 0 else line

    def _flow(self, value: PlainValue) -> str:
        if isinstance(value, dict):
            if id(value) in self._anchors:
                return f"*{self._anchors[id(value)]}"
            return "{" + ", ".join(f"{quoted_text(key)}: {self._flow(content)}" for key, content in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self._flow, value)) + "]"
        return quoted_text(value) if isinstance(value, str) else json.dumps(value)

    def _needs_lines(self, value: PlainValue) -> bool:
        if isinstance(value, list):
            return any(map(self._needs_lines, value))
        if not isinstance(value, dict):
            return False
        return any(
            key in self._comments or self._is_anchored_here(content) or self._needs_lines(content)
            for key, content in value.items()
        )

    def _is_anchored_here(self, value: PlainValue) -> bool:
        return id(value) in self._shared and id(value) not in self._anchors


def _identities(value: PlainValue) -> Iterator[int]:
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, list):
            waiting.extend(current)
        elif isinstance(current, dict):
            yield id(current)
            if id(current) not in seen:
                waiting.extend(current.values())
            seen.add(id(current))


def quoted_text(text: str) -> str:
    """Write text, in quotes if ambiguous."""
    is_word = _WORD.fullmatch(text) and text.lower() not in _NOT_TEXT
    if is_word or _DURATION.fullmatch(text) or _IPV4.fullmatch(text):
        return text
    escaped = (_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text)
    return f'"{"".join(escaped)}"'


_TITLES: Mapping[str, str] = MappingProxyType({
    "rest": "An Envoy that gets all resources from fsxds by REST long polling.",
    "ads": "An Envoy that gets all resources by one gRPC stream: state-of-the-world ADS.",
    "delta": "An Envoy that gets all resources by one gRPC stream: delta ADS.",
    "files": "An Envoy that reads files which fsxds rewrites.",
})  # fmt: skip

# By key; each stands above the first such key.
_COMMENTS: Mapping[str, str] = MappingProxyType({
    "node": "fsxds identifies clients by the id: give each Envoy its own.",
    "admin": "For this machine only: any client of this page can change settings and stop Envoy.",
    "clusters": "fsxds. It has to be static: Envoy cannot get its configuration from a cluster of CDS.",
    "dns_lookup_family": "Without it, Envoy looks for an IPv6 address first.",
    "trusted_ca":
        "Envoy reads the files of this section when it starts, and not again.",
    "circuit_breakers":
        "Each subscription (one for each EDS cluster, route table, secret …) holds a poll, and each poll a connection.\n"
        "Envoy's default limit of 1024 makes a start with more of them slow.",
    "connection_keepalive":
        "Not more often: gRPC servers close connections that ping more than once in five minutes.",
    "upstream_connection_options": "Detects within a minute that the server's machine is gone.",
    "set_node_on_first_message_only": "Otherwise each request carries 61 kB of this Envoy's capabilities.",
    "initial_fetch_timeout": "The longest wait for the first response at the start; 0 would wait for ever.",
    "refresh_delay": "The pause between two polls. Below one millisecond it makes Envoy 1.40 crash.",
    "request_timeout":
        "fsxds holds a poll this long, less a margin, while nothing changes. Envoy's own default is 1s.",
    "layers":
        "A later layer goes before an earlier one. Values that are set by hand on the admin page go first; without\n"
        "the layer `admin` they cannot be set.",
})  # fmt: skip

_STREAM_COMMENTS: Mapping[str, str] = MappingProxyType({
    "circuit_breakers": "For resources whose sources are not `ads: {}`: each has a stream or a held poll of its own.",
})  # fmt: skip

_FILES_COMMENTS: Mapping[str, str] = MappingProxyType({
    "dynamic_resources":
        "The files must exist before Envoy starts: wait for fsxds's --ready-file. Paths are relative to where Envoy is\n"
        "started. No watched_directory is needed: fsxds moves each file over the one before, which Envoy notices. Files\n"
        "that come by a Kubernetes ConfigMap need one: `watched_directory: {path: the directory that is mounted}`.",
})  # fmt: skip


def comments_of(transport: str) -> dict[str, str]:
    """Return comments by key."""
    if transport == "rest":
        return dict(_COMMENTS)
    return {**_COMMENTS, **(_FILES_COMMENTS if transport == "files" else _STREAM_COMMENTS)}


def bootstrap_text(bootstrap: Section, transport: str, usage: tuple[str, ...]) -> str:
    """Write commented YAML, headed by the `usage` commands.

    `transport` is `rest`, `ads`, `delta` or `files`.
    """
    head = "\n".join((f"# {_TITLES[transport]}", "#", *(f"#   {line}" for line in usage)))
    return f"{head}\n\n{as_yaml(bootstrap, comments_of(transport), 'source')}"
