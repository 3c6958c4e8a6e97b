"""The setting `access`; files of tokens."""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from fsxds.model.errors import UsageError
from fsxds.model.values import FieldPath
from fsxds.settings.forms import SWITCH, Schema
from fsxds.settings.structured import SettingPart, object_schema, structured
from fsxds.settings.view_rules import PATTERNS, REGEX, no_such_view, read_patterns

TOKEN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""The allowed names of tokens."""

_IDENTITIES = ("token", "name", "dns")
_GRANTS = ("nodes", "clusters", "views", "admin")
# A `*` in the trust domain would let another domain in: `spiffe://acme*` matches spiffe://acme.evil, too.
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^/*?]+(/.*)?")

# Forms that a URI library may resolve to another path.
_AMBIGUOUS = re.compile(r"%2f|%5c|\\|/(?:\.|%2e){1,2}(?:[/?#]|\Z)", re.IGNORECASE)


def is_ambiguous(uri: str) -> bool:
    """Whether a URI has dot segments or encoded slashes: `spiffe://acme/edge/../batch/1` is not below `edge`."""
    return _AMBIGUOUS.search(uri) is not None


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The rights of clients with all of the given `token`, `name` and `dns`.

    Attributes:
        token: the name of a token.
        name: patterns for a URI in the certificate; one has to match.
        dns: the same for DNS names.
        nodes: patterns for node ids; empty for any.
        clusters: patterns; empty for any.
        views: empty for any.
    """

    token: str = ""
    name: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    admin: bool = False

    @property
    def is_for_all_nodes(self) -> bool:
        """Whether all nodes are allowed."""
        return not (self.nodes or self.clusters or self.views)


def unknown_access_views(rules: Iterable[AccessRule], names: Collection[str]) -> Iterator[tuple[FieldPath, str]]:
    """Yield the place and the fact."""
    for index, rule in enumerate(rules):
        for view in rule.views:
            if view not in names:
                yield (index, "views"), no_such_view(view, names)


def _read_rule(part: SettingPart) -> AccessRule:
    members = part.members((*_IDENTITIES, *_GRANTS))
    for key, value in part.written.items() if isinstance(part.written, dict) else ():
        if value is None:
            # If it were ignored, it would mean any.
            SettingPart(value, (*part.path, str(key)), part.mistakes).reject(
                "is empty; give a value, or remove the key"
            )
    if not members.keys() & set(_IDENTITIES) and isinstance(part.written, dict):
        part.reject("names no client; add a token, a name or dns")
    lists = {key: read_patterns(members[key]) for key in ("name", "dns", "nodes", "clusters") if key in members}
    for pattern in lists.get("name", ()):
        if pattern and not pattern.startswith(REGEX) and not _URI.fullmatch(pattern):
            fact = f"{pattern!r} is no URI, or has a wildcard before its path; write spiffe://acme/edge/*, or dns: NAME"
            members["name"].reject(fact)
        elif not pattern.startswith(REGEX) and is_ambiguous(pattern):
            fact = f"{pattern!r} has a dot segment or an encoded slash, with which no name counts; write the path that is meant"
            members["name"].reject(fact)
    return AccessRule(
        token=_read_token(members["token"]) if "token" in members else "",
        views=tuple(each.text() for each in members["views"].one_or_more()) if "views" in members else (),
        admin="admin" in members and members["admin"].of_form(SWITCH) is True,
        **lists,
    )


def _read_token(part: SettingPart) -> str:
    name = part.text()
    if name and not TOKEN_NAME.fullmatch(name):
        # It may be the token itself.
        part.reject("is not the name of a token; write the name that stands before it in the file of --tokens")
    return name


_NAMES: Schema = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]}
_RULE = object_schema(
    {
        "token": {
            "type": "string",
            "pattern": f"^{TOKEN_NAME.pattern}$",
            "description": "The name of a token of --tokens.",
        },
        "name": {**PATTERNS, "description": "A URI of the client's certificate, such as spiffe://acme/edge/*."},
        "dns": {**PATTERNS, "description": "A DNS name of the client's certificate, such as *.edge.acme."},
        "nodes": {**PATTERNS, "description": "The ids of the nodes that may be asked for; any without it."},
        "clusters": {**PATTERNS, "description": "Their clusters; any without it."},
        "views": {**_NAMES, "description": "Their views; any without it."},
        "admin": {**SWITCH.schema, "description": "May ask the admin address."},
    }
)

ACCESS = structured(
    lambda part: tuple(map(_read_rule, part.list_members())), {"type": "array", "items": _RULE, "minItems": 1}
)


# 16 random characters have more than 90 bits; a shorter text can be guessed, or is a password.
SHORTEST_TOKEN = 16
LARGEST_FILE_BYTES = 1024 * 1024
# `token68` of RFC 9110: the allowed text after `Bearer`.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MAKE_ONE = "make one with `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a file.

    Attributes:
        digests: each name (may be empty or repeated) and SHA-256.
        is_exposed: other users can read the file.
    """

    digests: tuple[tuple[str, bytes], ...] = field(repr=False)
    is_exposed: bool = field(default=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """The names of tokens."""
        return frozenset(name for name, _ in self.digests if name)

    def name_of(self, token: str) -> str | None:
        """Return a token's name, or None; tokens of equal length take the same time."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        found: str | None = None
        for name, each in self.digests:
            if compare_digest(each, digest):
                found = name
        return found


def read_tokens(path: Path) -> Tokens:
    """Read `TOKEN` or `NAME: TOKEN` per line, without empty and `#` lines.

    Raises:
        UsageError: it is unreadable, or has a mistake. No token is in its text.
    """
    content, mode = _read(path)
    named = tuple((name, sha256(token.encode()).digest()) for name, token in _named_tokens(path, content))
    if not named:
        raise UsageError(f"{path}: has no token; write one in a line, {_MAKE_ONE}")
    if len({digest for _, digest in named}) < len(named):
        raise UsageError(f"{path}: has a token twice; each line takes a token of its own, {_MAKE_ONE}")
    return Tokens(named, bool(mode & stat.S_IROTH))


def read_token(path: Path) -> str:
    """Return the first token, as `read_tokens` does."""
    for _, token in _named_tokens(path, _read(path)[0]):
        return token
    raise UsageError(f"{path}: has no token; write one in a line")


def _read(path: Path) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            content, mode = file.read(LARGEST_FILE_BYTES + 1), path.stat().st_mode
    except OSError as error:
        raise UsageError(
            f"{path}: the tokens cannot be read: {error.strerror}; name a file that fsxds may read"
        ) from error
    if len(content) > LARGEST_FILE_BYTES:
        raise UsageError(
            f"{path}: is over {LARGEST_FILE_BYTES} bytes, and no file of tokens; write one token in a line"
        )
    try:
        return content.decode(), mode
    except UnicodeDecodeError:
        # Without its cause, which has the content.
        raise UsageError(f"{path}: is not text; write one token in a line") from None


def _named_tokens(path: Path, content: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(content.split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, token = text.rpartition(":")
        name, token = name.strip(), token.strip()
        place = f"{path}:{number}"
        if colon and not TOKEN_NAME.fullmatch(name):
            raise UsageError(
                f"{place}: no name stands before the colon; write NAME: TOKEN, with letters, digits, `-`, `_`, `.`"
            )
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"{place}: has other characters than tokens have; {_MAKE_ONE}")
        if len(token) < SHORTEST_TOKEN:
            raise UsageError(f"{place}: the token is shorter than {SHORTEST_TOKEN} characters; {_MAKE_ONE}")
        yield name, token
