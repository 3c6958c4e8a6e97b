"""The setting `access`: who may ask for which nodes, and who may ask the admin address."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from fsxds.settings.forms import SWITCH, Schema
from fsxds.settings.structured import SettingPart, object_schema, structured
from fsxds.settings.view_rules import PATTERNS, REGEX, no_such_view, read_patterns
from fsxds.values import FieldPath

TOKEN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""What a token may be called in the file of tokens."""

_WHO = ("token", "name", "dns")
_WHAT = ("nodes", "clusters", "views", "admin")
# A `*` in the trust domain would let another domain in: `spiffe://acme*` is spiffe://acme.evil too.
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^/*?]+(/.*)?")

# What a URI library may take for another path than the one that is written.
_AMBIGUOUS = re.compile(r"%2f|%5c|\\|/(?:\.|%2e){1,2}(?:[/?#]|\Z)", re.IGNORECASE)


def is_ambiguous(uri: str) -> bool:
    """Whether a URI has a dot segment or a percent-encoded slash: `spiffe://acme/edge/../batch/1` is no name below `edge`."""
    return _AMBIGUOUS.search(uri) is not None


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What those may do who show certain credentials: all of `token`, `name` and `dns` that are given.

    Attributes:
        token: the name of a token; empty where none is needed.
        name: patterns, of which one matches a URI of the client's certificate; empty where none is needed.
        dns: the same for its DNS names.
        nodes: patterns of the ids of the nodes that may be asked for; empty for any. The same is true of these:
        clusters: patterns of their clusters.
        views: the names of their views.
        admin: they may ask the admin address.
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
        """Whether any node may be asked for."""
        return not (self.nodes or self.clusters or self.views)


def unknown_access_views(rules: Iterable[AccessRule], names: Collection[str]) -> Iterator[tuple[FieldPath, str]]:
    """Yield the place and the fact for each view that there is none of."""
    for index, rule in enumerate(rules):
        for view in rule.views:
            if view not in names:
                yield (index, "views"), no_such_view(view, names)


def _read_access(part: SettingPart) -> tuple[AccessRule, ...]:
    return tuple(_read_rule(each) for each in part.list_members())


def _read_rule(part: SettingPart) -> AccessRule:
    members = part.members((*_WHO, *_WHAT))
    for key, value in part.written.items() if isinstance(part.written, dict) else ():
        if value is None:
            # Left out, it would mean any.
            SettingPart(value, (*part.path, str(key)), part.mistakes).reject("is empty; add something, or leave it out")
    if not members.keys() & set(_WHO) and isinstance(part.written, dict):
        part.reject("says nobody; add a token, a name or dns")
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
        views=_read_views(members["views"]) if "views" in members else (),
        admin="admin" in members and members["admin"].of_form(SWITCH) is True,
        **lists,
    )


def _read_token(part: SettingPart) -> str:
    name = part.text()
    if name and not TOKEN_NAME.fullmatch(name):
        # It may be the token itself.
        part.reject("is not the name of a token; write the name that stands before it in the file of --tokens")
    return name


def _read_views(part: SettingPart) -> tuple[str, ...]:
    parts = part.list_members() if isinstance(part.written, list) else (part,)
    return tuple(each.text() for each in parts)


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

ACCESS = structured(_read_access, {"type": "array", "items": _RULE, "minItems": 1})
