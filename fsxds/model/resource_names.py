"""Structured resource names, `xdstp://authority/type/path?parameters`, and locators. Pure.

| rule | source |
| --- | --- |
| A name is authority, type, path and context parameters; equal ones are one name, in any spelling. | xRFC TP1, "Logical resource naming", "URI encoding" |
| `udpa:` is the former `xdstp:`; both are read, `xdstp:` is written. | xDS API, `xds.core.v3.ResourceName` |
| Parameters are sorted, and characters that a URI cannot hold percent-encoded; Envoy leaves spaces. | xRFC TP1, "URI encoding"; ENVOY.md E72, E74 |
| A path that ends with `/*` is a glob: all resources in this directory, none deeper. | xRFC TP1, "Glob"; ENVOY.md E73, E76, E77 |
| All parameters match exactly, without others. | xRFC TP1, "Resource locators" |
| Directives `#alt=` and `#entry=` belong to references, never to names. | xRFC TP1, "Resource locators"; ENVOY.md E75 |
| A value that begins with `constraint:` is reserved. | xRFC TP1, "Context parameters" |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from fsxds.model.values import TypeUrl

SCHEME = "xdstp://"
FILE_SCHEME = "file://"
GLOB = "/*"
# The maximum nesting of alternatives.
DEEPEST = 10

_TYPE_PREFIX = "type.googleapis.com/"
# All are read; the first is written.
SCHEMES = ("xdstp:", "udpa:")
# grpcio writes a name without an authority with one slash: `xdstp:/type/path` (ENVOY.md E78).
_URI = re.compile(r"(?:xdstp|udpa):(?://([^/?#]*))?/([^/?#]+)/([^?#]*)(?:\?([^#]*))?(?:#([^#]*))?")
_FILE_URI = re.compile(r"file://(?:localhost)?(/[^?#]*)(?:#([^#]*))?")
_TYPE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Most names are canonical as written: they have neither codes nor parameters.
_AS_WRITTEN = re.compile(r"xdstp://[\w.~-]+/([A-Za-z_][\w.]*)/[\w!$&'()*+,;=@.~-]+(?:/[\w!$&'()*+,;=@.~-]+)*", re.ASCII)
_DOTS = re.compile(r"/\.\.?(?:/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
ENTRY_NAME = re.compile(r"[a-zA-Z0-9_\-./]+")
"""The names of inline entries."""
# Characters that are not encoded, beside letters, digits and `_.-~`.
_IN_AUTHORITY, _IN_PATH, _IN_PARAMETER = "!$&'()*+,;=:@[]", "!$&'()*+,;=@/", "!$'()*,;:@/?"


class MalformedName(ValueError):  # noqa: N818 - as what int() raises, it is a ValueError
    """No structured name or locator; `fact` does not quote the text, which may contain a secret."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}; {remedy}")
        self.fact = fact
        self.remedy = remedy


_FORM = "write xdstp://<authority>/<type>/<path>, such as xdstp://example.com/envoy.config.cluster.v3.Cluster/foo"


def is_structured(text: str) -> bool:
    """Whether a text is meant as a structured name, if malformed."""
    return text.startswith(SCHEMES)


def names_no_authority(text: str) -> bool:
    """Whether a name begins like `xdstp:///...`, or `xdstp:/...`."""
    rest = text.partition(":")[2]
    return is_structured(text) and (rest.startswith("///") or not rest.startswith("//"))


@dataclass(frozen=True, slots=True)
class ResourceName:
    """A structured name, decoded; `str` is the canonical form.

    `message_type` is such as `envoy.config.cluster.v3.Cluster`, `path` ends with `/*` (or is `*`) for a glob, `context`
    is sorted.
    """

    authority: str
    message_type: str
    path: str
    context: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str, authority: str = "") -> ResourceName:
        """`authority` completes a name without one. Raises MalformedName."""
        name, fragment = _split(text, authority)
        if fragment is not None:
            raise MalformedName("has directives, which a name cannot have", "remove `#` and the rest")
        return name

    def __str__(self) -> str:
        return f"{SCHEME}{quote(self.authority, _IN_AUTHORITY)}{self.without_authority}"

    @property
    def without_authority(self) -> str:
        """`/type/path?parameters`."""
        query = query_of(self.context)
        return f"/{self.message_type}/{quote(self.path, _IN_PATH)}{'?' if query else ''}{query}"

    @property
    def type_url(self) -> TypeUrl:
        """The message's type URL."""
        return TypeUrl(_TYPE_PREFIX + self.message_type)

    @property
    def is_glob(self) -> bool:
        """Whether it stands for a directory's resources."""
        return self.path == "*" or self.path.endswith(GLOB)

    @property
    def glob(self) -> ResourceName:
        """Its directory's glob; a glob returns itself."""
        directory, slash, _ = self.path.rpartition("/")
        return replace(self, path=f"{directory}{slash}*")

    def with_context(self, context: Mapping[str, str]) -> ResourceName:
        """Existing parameters stay (xRFC TP1, "Context parameters")."""
        return replace(self, context=tuple(sorted({**context, **dict(self.context)}.items())))


def query_of(context: tuple[tuple[str, str], ...]) -> str:
    """Format parameters, without `?`."""
    return "&".join(f"{quote(key, _IN_PARAMETER)}={quote(value, _IN_PARAMETER)}" for key, value in context)


@dataclass(frozen=True, slots=True)
class FileName:
    """A file, or a directory's files if `path` ends with `/*`; `str` is its URI.

    `path` is absolute, decoded, without `.` and `..`.
    """

    path: str

    def __str__(self) -> str:
        return FILE_SCHEME + quote(self.path, _IN_PATH)

    @property
    def is_glob(self) -> bool:
        """Whether it stands for a directory's files."""
        return self.path.endswith(GLOB)


@dataclass(frozen=True, slots=True)
class Locator:
    """A reference to a resource; `str` is the canonical form.

    `entry` is in a list collection, or empty. `alternatives` are tried in order if the target is absent or out of
    reach.
    """

    target: ResourceName | FileName
    entry: str = ""
    alternatives: tuple[Locator, ...] = ()

    @classmethod
    def parse(cls, text: str, authority: str = "") -> Locator:
        """Read an `xdstp:`, `udpa:` or `file:` URI. Raises MalformedName."""
        return _locator(text, authority, DEEPEST)

    def __str__(self) -> str:
        """Within `alt=`, percent-encode `%#[],` as Envoy does."""
        directives = [f"alt={quote(str(alternative), safe=_IN_ALTERNATIVE)}" for alternative in self.alternatives]
        directives += [f"entry={self.entry}"] if self.entry else []
        return f"{self.target}{'#' if directives else ''}{','.join(directives)}"

    def choices(self) -> Iterator[Locator]:
        """Yield the locators to try, without alternatives."""
        yield replace(self, alternatives=())
        for alternative in self.alternatives:
            yield from alternative.choices()


_IN_ALTERNATIVE = "!$&'()*+;=:@/?"


def canonical(text: str, authority: str = "") -> str:
    """Plain names stay. Raises MalformedName."""
    return str(ResourceName.parse(text, authority)) if is_structured(text) else text


def is_glob(name: str) -> bool:
    """Called for every indirect name, so it is fast."""
    return name.startswith(SCHEME) and name.partition("?")[0].endswith(GLOB)


def glob_of(name: str) -> str:
    """A glob returns itself. Called for every member."""
    path, mark, context = name.partition("?")
    return f"{path.rpartition('/')[0]}{GLOB}{mark}{context}"


def canonical_of_type(text: str, type_url: TypeUrl, authority: str = "") -> str:
    """Return a structured name's canonical form; plain names stay.

    Raises MalformedName, also for another type.
    """
    if not is_structured(text) or is_as_written(text, type_url):
        return text
    name = ResourceName.parse(text, authority)
    if name.type_url != type_url:
        message_type = type_url.removeprefix(_TYPE_PREFIX)
        fact = f"is a name of {name.message_type}, and the resource is of {message_type}"
        raise MalformedName(fact, f"write xdstp://<authority>/{message_type}/<path>")
    return str(name)


def is_as_written(text: str, type_url: TypeUrl) -> bool:
    """Whether a text is certainly canonical, of this type, with an authority, without codes and parameters."""
    found = _AS_WRITTEN.fullmatch(text)
    return found is not None and _TYPE_PREFIX + found[1] == type_url and not _DOTS.search(text)


def is_locator(text: str) -> bool:
    """Whether a text begins like a locator."""
    return is_structured(text) or text.startswith(FILE_SCHEME)


def parse_or_none(text: str) -> ResourceName | None:
    """Return None if a name is malformed or plain."""
    if not is_structured(text):
        return None
    try:
        return ResourceName.parse(text)
    except MalformedName:
        return None


def _locator(text: str, authority: str, depth: int) -> Locator:
    if not depth:
        raise MalformedName(f"has alternatives that are nested more than {DEEPEST} deep", "list them beside each other")
    target: ResourceName | FileName
    if text.startswith(FILE_SCHEME):
        found = _FILE_URI.fullmatch(text)
        if found is None:
            raise MalformedName("is no file of this machine", "write file:///<absolute path>")
        target, fragment = FileName(_path(found[1])), found[2]
    else:
        target, fragment = _split(text, authority)
    entry, alternatives = "", list[Locator]()
    for directive in (fragment or "").split(",") if fragment is not None else ():
        key, _, value = directive.partition("=")
        if key == "alt":
            alternatives.append(_locator(_decoded(value), authority, depth - 1))
        elif key == "entry" and not entry and ENTRY_NAME.fullmatch(_decoded(value)):
            entry = _decoded(value)
        else:
            fact = "has two entries" if key == "entry" and entry else "has an unknown directive"
            raise MalformedName(fact, "write #entry=NAME, of letters, digits and _-./, or #alt=LOCATOR")
    return Locator(target, entry, tuple(alternatives))


def _split(text: str, authority: str) -> tuple[ResourceName, str | None]:
    """Return a name, and the part after `#` or None."""
    found = _URI.fullmatch(text)
    if found is None:
        raise MalformedName("is no structured name", _FORM)
    own_authority, message_type, path, query, fragment = found.groups()
    if not _TYPE.fullmatch(message_type) or message_type == _TYPE_PREFIX[:-1]:
        raise MalformedName("has no type after the authority", _FORM)
    decoded = _path(path)
    if not decoded:
        raise MalformedName("has no path after its type", _FORM)
    context = _context(query or "")
    return ResourceName(_decoded(own_authority or "") or authority, message_type, decoded, context), fragment


def _path(text: str) -> str:
    path = _decoded(text)
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise MalformedName("has a part that is . or ..", "write the path without it")
    return path


def _context(query: str) -> tuple[tuple[str, str], ...]:
    context: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        written, _, value = part.partition("=")
        key = _decoded(written)
        if not key:
            raise MalformedName("has a parameter without a name", "write ?name=value&other=value")
        if key in context:
            raise MalformedName("has a parameter twice", "write it once")
        context[key] = _decoded(value)
        if context[key].startswith("constraint:"):
            raise MalformedName("has a value that begins with `constraint:`, which is reserved", "write another one")
    return tuple(sorted(context.items()))


def _decoded(text: str) -> str:
    if _BROKEN_PERCENT.search(text):
        raise MalformedName("has a % that begins no code", "write %25 for the character")
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedName("has codes that are no UTF-8", "encode characters as UTF-8") from error
    if _CONTROL.search(decoded):
        raise MalformedName("has a control character", "leave it out")
    return decoded
