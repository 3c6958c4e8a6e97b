"""Parses a GET: preconditions, wait time, and the accepted representations: formats and codings.

| rule | source |
| --- | --- |
| `If-None-Match` compares weakly, `If-Match` strongly; `*` is any tag. | RFC 9110, 8.8.3.2, 13.1 |
| Dates make no difference: no answer has `Last-Modified`. | RFC 9110, 13.1.3, 13.1.4 |
| `Prefer: wait=N` is a wish, ignored if malformed; `?wait=N` is a demand. | RFC 7240 |
| `Accept`'s most specific range that names a format decides about it; of equal ones our first is sent. | RFC 9110, 12.5.1 |
| A coding is sent only if `Accept-Encoding` names it or `*`. | RFC 9110, 12.5.3 |
| Different bytes have different strong tags: all but plain JSON have a suffix. | RFC 9110, 8.8.3 |
| The type is in the URL, not in the content. | xRFC TP1, "HTTP transport" |

No I/O, but `content_of` and `compressed` may take long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from aiohttp import web

from fsxds.api.printing import Printer, dump
from fsxds.formats.yaml_format import encode_plain
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue
from fsxds.protocol.get import GetTarget, node_of, read_target
from fsxds.protocol.messages import Node
from fsxds.runtime.access import Peer
from fsxds.transports.exchange import ON_DEMAND_WAIT_S, peer_of_request
from fsxds.transports.rest.poll_requests import DEADLINE_HEADER, patience_of
from fsxds.transports.rest.poll_responses import choices, gzip

# Tags have quotes; xRFC TP1 writes `if-none-match: v1`.
_TAG = re.compile(r'(W/)?("[^"]*"|[^\s,"]+)')
_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=$|[,;])', re.IGNORECASE | re.ASCII)
_ANY = "*"
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*", re.ASCII)

# Longer lists are cut: no client has more tags.
MOST_HEADER_CHARACTERS = 8190


@dataclass(frozen=True, slots=True)
class Preconditions:
    """A request's preconditions.

    `if_none_match` are the client's tags, `if_match` those that it demands; None without.
    """

    if_none_match: frozenset[str] | None = None
    if_match: frozenset[str] | None = None

    def has(self, tag: str | None) -> bool:
        """Whether the client has this content (None: none exists)."""
        return tag is not None and self.if_none_match is not None and bool(self.if_none_match & {tag, _ANY})

    def fails(self, tag: str | None) -> bool:
        """Whether the client demands other content (None: none exists)."""
        return self.if_match is not None and (tag is None or not self.if_match & {tag, _ANY})


@dataclass(frozen=True, slots=True)
class GetRequest:
    """One GET or HEAD.

    Attributes:
        accept: accepted formats, as written.
        accept_encoding: accepted codings, as written.
        patience_s: the wait for a change.
        on_demand_patience_s: the wait for upstreams to answer whether they have the resource.
        preference: the applied `Prefer`, such as `wait=30`, or empty.
        base_url: the server's URL as the client has it, without a final slash.
    """

    target: GetTarget
    node: Node
    peer: Peer
    preconditions: Preconditions
    accept: str
    accept_encoding: str
    patience_s: float
    on_demand_patience_s: float
    preference: str
    base_url: str


def read_get(request: web.Request, authority: str, max_hold_s: float) -> GetRequest:
    """Parse a GET or HEAD, by the server's authority and hold limit.

    Raises:
        ProtocolError: malformed, or, with the code `NOT_FOUND`, without a type in its path.
    """
    peer = peer_of_request(request)
    hosts = request.headers.getall("Host", [""])
    if len(hosts) > 1 or not _HOST.fullmatch(hosts[0]):
        raise ProtocolError("`host` is no host with or without a port; send one, such as example.com:18001")
    host = hosts[0]
    target = read_target(_path_of(request.raw_path), host, authority)
    preference = ""
    deadline = request.headers.get(DEADLINE_HEADER)
    wait = target.wait
    if wait is None and (found := _WAIT.search(_listed(request, "Prefer"))) is not None:
        wait = found[1]
        preference = f"wait={min(int(wait), int(max_hold_s))}"
    patience_s, on_demand_patience_s = 0.0, min(ON_DEMAND_WAIT_S, max_hold_s)
    if wait is not None:
        patience_s = on_demand_patience_s = patience_of(None, wait, max_hold_s, "wait")
    if deadline is not None:
        # A proxy gives up then.
        longest_s = patience_of(deadline, None, max_hold_s)
        patience_s, on_demand_patience_s = min(patience_s, longest_s), min(on_demand_patience_s, longest_s)
    return GetRequest(
        target=target,
        node=node_of(target.node, peer.address),
        peer=peer,
        preconditions=Preconditions(tags_of(request, "If-None-Match", is_weak=True), tags_of(request, "If-Match")),
        accept=_listed(request, "Accept"),
        accept_encoding=_listed(request, "Accept-Encoding"),
        patience_s=patience_s,
        on_demand_patience_s=on_demand_patience_s,
        preference=preference,
        base_url=f"{'https' if request.secure else 'http'}://{host or 'localhost'}",
    )


def _path_of(target: str) -> str:
    if target.startswith("/"):
        return target
    scheme, mark, rest = target.partition("://")
    return f"/{rest.partition('/')[2]}" if mark and scheme.lower() in {"http", "https"} else "/" + target


def _listed(request: web.Request, name: str) -> str:
    return ",".join(request.headers.getall(name, ()))[:MOST_HEADER_CHARACTERS]


def tags_of(request: web.Request, name: str, *, is_weak: bool = False) -> frozenset[str] | None:
    """Return a header's tags, quoted; None without it. `is_weak` allows weak ones."""
    if name not in request.headers:
        return None
    found = _TAG.findall(_listed(request, name))
    return frozenset(
        tag if tag == _ANY or tag.startswith('"') else f'"{tag}"' for weak, tag in found if is_weak or not weak
    )


# Higher than for polls: this content is made once per version.
GZIP_LEVEL, BROTLI_QUALITY, ZSTANDARD_LEVEL = 6, 5, 6


@dataclass(frozen=True, slots=True)
class ContentFormat:
    """A format, with tags' and file names' `suffix`; the first type is sent."""

    media_types: tuple[str, ...]
    suffix: str

    @property
    def content_type(self) -> str:
        """The `Content-Type`."""
        return self.media_types[0]


JSON_CONTENT = ContentFormat(("application/json", "text/json"), ".json")
YAML_CONTENT = ContentFormat(("application/yaml", "text/yaml", "application/x-yaml"), ".yaml")
PROTOBUF_CONTENT = ContentFormat(("application/x-protobuf", "application/octet-stream", "application/protobuf"), ".pb")
HTML_CONTENT = ContentFormat(("text/html;charset=utf-8", "text/html"), ".html")

# The first is the default.
OF_RESOURCES = (JSON_CONTENT, YAML_CONTENT, PROTOBUF_CONTENT)
OF_LISTS = (JSON_CONTENT, YAML_CONTENT)
OF_INDEX = (JSON_CONTENT, YAML_CONTENT, HTML_CONTENT)


@dataclass(frozen=True, slots=True)
class Representation:
    """A format and a coding or ""."""

    content_format: ContentFormat
    coding: str = ""

    def tag_of(self, version: str) -> str:
        """Return a version's strong entity tag, quoted."""
        suffix = "" if self.content_format is JSON_CONTENT else self.content_format.suffix
        return f'"{version}{suffix}{"." if self.coding else ""}{self.coding}"'


_CODERS: dict[str, Callable[[bytes], bytes]] = {}
try:
    import zstandard
except ImportError:  # the extra "compression" is not installed
    pass
else:
    # Compressors are not thread-safe.
    _CODERS["zstd"] = lambda content: zstandard.ZstdCompressor(level=ZSTANDARD_LEVEL).compress(content)
try:
    import brotli
except ImportError:  # as above
    pass
else:
    _CODERS["br"] = lambda content: bytes(brotli.compress(content, quality=BROTLI_QUALITY))
_CODERS["gzip"] = lambda content: gzip((content,), GZIP_LEVEL)

CODINGS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(_CODERS)
"""Compressors by coding; the first of equally accepted ones is used."""


def compressed(content: bytes, coding: str) -> bytes:
    """Compress content by a coding; equal content, equal bytes."""
    return CODINGS[coding](content) if coding else content


# Clients of one kind send equal headers.
@lru_cache(maxsize=256)
def chosen_format(accept: str, offered: tuple[ContentFormat, ...]) -> ContentFormat | None:
    """Return the format that an `Accept` prefers (empty: all)."""
    if not accept.strip():
        return offered[0]
    ranges = tuple(choices(accept))
    best = max(offered, key=lambda each: _rank(each, ranges))
    return best if _rank(best, ranges)[0] > 0 else None


@lru_cache(maxsize=256)
def chosen_coding(accept_encoding: str) -> str:
    """Return the coding that an `Accept-Encoding` prefers, or ""."""
    qualities = dict(choices(accept_encoding))
    if "x-gzip" in qualities:
        qualities.setdefault("gzip", qualities["x-gzip"])
    others = qualities.get("*", 0.0)
    # At least as preferred as `identity`, which is accepted by default.
    least = qualities.get("identity", 0.0)
    found = max(CODINGS, key=lambda coding: qualities.get(coding, others))
    quality = qualities.get(found, others)
    return found if quality > 0 and quality >= least else ""


def _rank(offered: ContentFormat, ranges: tuple[tuple[str, float], ...]) -> tuple[float, int]:
    best: tuple[int, float] = (0, 0.0)
    for name, quality in ranges:
        if name in {media_type.partition(";")[0] for media_type in offered.media_types}:
            best = max(best, (3, quality))
        elif name == f"{offered.content_type.partition('/')[0]}/*":
            best = max(best, (2, quality))
        elif name == "*/*":
            best = max(best, (1, quality))
    return best[1], best[0]


def content_of(resource: Resource, content_format: ContentFormat, printer: Printer) -> bytes:
    """Return a resource as JSON without `@type`, the same as YAML, or serialized.

    Raises:
        ApiError: JSON cannot express it; impossible with its own catalogue's printer.
    """
    if content_format is PROTOBUF_CONTENT:
        return resource.body
    return plain_content(printer.resource_plain(resource.type_url, resource.body), content_format)


def plain_content(plain: PlainValue, content_format: ContentFormat) -> bytes:
    """Encode plain values as JSON or YAML."""
    return encode_plain((plain,)) if content_format is YAML_CONTENT else dump(plain)
