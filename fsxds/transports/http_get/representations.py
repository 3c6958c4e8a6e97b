"""Representations of resources over HTTP: formats, codings, negotiation and entity tags.

No I/O, but `content_of` and `compressed` may take long.

| rule | source |
| --- | --- |
| The most specific range of `Accept` that names a format decides about it; of equal ones the first in our order is sent. | RFC 9110, 12.5.1 |
| A coding is sent only if `Accept-Encoding` names it or `*`. | RFC 9110, 12.5.3 |
| Different bytes have different strong tags: all but plain JSON have a suffix. | RFC 9110, 8.8.3 |
| The type is in the URL, and not in the content. | xRFC TP1, "HTTP transport" |
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from fsxds.api.printing import Printer, dump
from fsxds.formats.yaml_format import encode_plain
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue

# Per header; browsers send less than ten.
MOST_CHOICES = 100
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)

# Higher than for polls: this content is made once per version.
GZIP_LEVEL, BROTLI_QUALITY, ZSTANDARD_LEVEL = 6, 5, 6
_GZIP_FORMAT = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class ContentFormat:
    """A format, with the `suffix` of tags and file names; the first type is sent."""

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


def _gzip(content: bytes) -> bytes:
    # Without a time, so that equal content stays equal.
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_FORMAT)
    return compressor.compress(content) + compressor.flush()


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
_CODERS["gzip"] = _gzip

CODINGS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(_CODERS)
"""Compressors by coding; the first of equally accepted ones is used."""


def compressed(content: bytes, coding: str) -> bytes:
    """Compress content (not for an empty coding); equal content, equal bytes."""
    return CODINGS[coding](content) if coding else content


# Clients of one kind send equal headers.
@lru_cache(maxsize=256)
def chosen_format(accept: str, offered: tuple[ContentFormat, ...]) -> ContentFormat | None:
    """Return the format that an `Accept` prefers (empty: all), or None."""
    if not accept.strip():
        return offered[0]
    ranges = tuple(_choices(accept))
    best = max(offered, key=lambda each: _rank(each, ranges))
    return best if _rank(best, ranges)[0] > 0 else None


@lru_cache(maxsize=256)
def chosen_coding(accept_encoding: str) -> str:
    """Return the coding that an `Accept-Encoding` prefers, or ""."""
    qualities = dict(_choices(accept_encoding))
    if "x-gzip" in qualities:
        qualities.setdefault("gzip", qualities["x-gzip"])
    others = qualities.get("*", 0.0)
    # At least as preferred as `identity`, which is accepted by default.
    least = qualities.get("identity", 0.0)
    found = max(CODINGS, key=lambda coding: qualities.get(coding, others))
    quality = qualities.get(found, others)
    return found if quality > 0 and quality >= least else ""


def _choices(header: str) -> Iterator[tuple[str, float]]:
    for choice in header.lower().split(",", MOST_CHOICES)[:MOST_CHOICES]:
        name, *parameters = (part.strip() for part in choice.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                quality = float(value) if _QUALITY.fullmatch(value := value.strip()) else 0.0
        if name:
            yield name, quality


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
        ApiError: JSON cannot express it; impossible for resources loaded with the printer's catalogue.
    """
    if content_format is PROTOBUF_CONTENT:
        return resource.body
    return plain_content(printer.resource_plain(resource.type_url, resource.body), content_format)


def plain_content(plain: PlainValue, content_format: ContentFormat) -> bytes:
    """Encode plain values as JSON or YAML."""
    return encode_plain((plain,)) if content_format is YAML_CONTENT else dump(plain)
