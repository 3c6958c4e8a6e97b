"""HTTP GET: reads a URL, and finds its resources in a snapshot. Pure.

| rule | source |
| --- | --- |
| `xdstp://authority` before a URL's path is its resource's name. | xRFC TP1, "HTTP transport" |
| The authority is the server's, none, or the request's `Host`; a plain name comes last. | fsxds |
| All parameters match exactly, or all but `xds.node....`, which describe the requesting node. | xRFC TP1, "Resource locators", "Context parameters" |
| A path that ends with `/*` lists a directory, and nothing deeper; without a name, a type. | xRFC TP1, "Glob" |
| Lists of secrets have only names. | fsxds |

Rules: how lists show secrets.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from urllib.parse import quote, unquote

from fsxds.model.errors import ProtocolError
from fsxds.model.memo import Lru
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import (
    GLOB,
    SCHEME,
    Locator,
    MalformedName,
    ResourceName,
    canonical,
    is_structured,
    parse_or_none,
)
from fsxds.model.resource_types import BY_MESSAGE_TYPE, ResourceType
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import Node, attributes_of_json, check_length
from fsxds.protocol.poll import MAY_BE_DEFINED, NOT_ANSWERED, NOTHING_LOADED, Unavailable
from fsxds.protocol.subscription import WILDCARD, Unanswered, nothing_unanswered

NODE_PREFIX = "xds.node."
_METADATA = f"{NODE_PREFIX}metadata."
_LOCALITY = {name: f"{NODE_PREFIX}locality.{name}" for name in ("region", "zone", "sub_zone")}

# Several labels, the last of which is not a number.
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*\.?")

LONGEST_TYPE = 80

# The maximum number of lists of one type that are cached until it changes.
MOST_LISTS = 256

# What of a path stays as it is.
_IN_PATH = "!$&'()*+,;=:@/"

Parameters = tuple[tuple[str, str], ...]
"""Decoded names and values, sorted."""


@dataclass(frozen=True, slots=True)
class GetTarget:
    """A URL's target.

    `row` is None for the index of types, `path` empty for all of a type, `wait` None for no wait. `directories` are
    prefixes and suffixes of a list's members. `authority` is the server's.
    """

    row: ResourceType | None
    path: str = ""
    names: tuple[str, ...] = ()
    directories: tuple[tuple[str, str], ...] = ()
    node: Parameters = ()
    wait: str | None = None
    authority: str = ""

    @property
    def is_list(self) -> bool:
        """Whether several resources may match."""
        return self.row is not None and (not self.path or bool(self.directories))

    @property
    def asked(self) -> frozenset[str]:
        """Names to ask upstreams for; `*` for a type."""
        if not self.path:
            return frozenset((WILDCARD,))
        return frozenset(name for name in self.names if not is_structured(name) or self._may_be_elsewhere(name))

    def _may_be_elsewhere(self, name: str) -> bool:
        """Whether a name has the server's authority or a domain; an address from a `Host` is neither."""
        authority = name.removeprefix(SCHEME).partition("/")[0]
        return (bool(authority) and authority == self.authority) or _DOMAIN.fullmatch(authority) is not None


@dataclass(frozen=True, slots=True)
class FoundResource:
    """One resource."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class FoundList:
    """Resources of one type, sorted by name, and a digest of names and versions; for secrets, of names."""

    row: ResourceType
    resources: Collection[Resource] = field(repr=False)
    version: Version


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """All types, and a digest of their contents."""

    snapshot: Snapshot = field(repr=False)
    version: Version


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing exists, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class FoundRedirect:
    """A redirect to a resource, or a collection's entry (empty: all)."""

    name: ResourceName
    entry: str = ""


Found = FoundResource | FoundRedirect | FoundList | FoundIndex | Absent | Unavailable


def read_target(url: str, host: str, authority: str) -> GetTarget:
    """Read a URL as sent.

    Raises:
        ProtocolError: it is malformed, or, with code `NOT_FOUND`, begins with no type.
    """
    if "#" in url:
        raise ProtocolError("the path has a #, which a URL has for browsers alone; write %23 for the character")
    raw_path, _, query = url.partition("?")
    parameters = _parameters(query)
    wait = parameters.pop("wait", None)
    context = tuple(sorted(parameters.items()))
    node = tuple(pair for pair in context if pair[0].startswith(NODE_PREFIX))
    if raw_path == "/":
        if len(node) < len(context):
            raise ProtocolError("the index takes no parameters but wait and xds.node.…; leave others out")
        return GetTarget(None, node=node, wait=wait, authority=authority)
    message_type, slash, path = _decoded(raw_path.removeprefix("/"), "the path").partition("/")
    row = BY_MESSAGE_TYPE.get(message_type)
    if row is None or not slash:
        raise ProtocolError(_unknown_path(message_type), "NOT_FOUND")
    check_length("the path", path)
    authorities = _authorities(host, authority)
    contexts = (context,) if not node else (context, tuple(pair for pair in context if pair not in node))
    structured = _structured_names(row, path, authorities, contexts) if path and not path.startswith("#") else ()
    names = (*structured, *_plain_names(path, contexts[-1]))
    directories = tuple(_directories(row, path, authorities, contexts)) if (path == "*" or path.endswith(GLOB)) else ()
    return GetTarget(row, path, tuple(dict.fromkeys(names)), directories, node, wait, authority)


def url_of(message_type: str, name: str, authority: str = "") -> str:
    """Return a resource's path and parameters: `/envoy.config.cluster.v3.Cluster/foo?tier=gold`.

    A name of another authority, or a plain one that looks so, is a single part of the path.
    """
    structured = parse_or_none(name)
    if structured is not None and structured.message_type == message_type:
        if structured.authority in {"", authority}:
            path, mark, query = structured.without_authority.partition("?")
            return f"{_without_empty_parts(path)}{mark}{query}"
        return f"/{message_type}/{quote(name, '')}"
    return _without_empty_parts(f"/{message_type}/{quote(name, _IN_PATH)}")


def _without_empty_parts(path: str) -> str:
    """Proxies would make one slash of several."""
    return re.sub("(?<=/)/", "%2F", path)


def _unknown_path(message_type: str) -> str:
    fact = "there is nothing at this path"
    if message_type in BY_MESSAGE_TYPE:
        return f"{fact}; GET /{message_type}/ lists the resources of this type, and /{message_type}/NAME is one of them"
    # Comparing long texts takes long.
    near = get_close_matches(message_type, BY_MESSAGE_TYPE, 1) if len(message_type) < LONGEST_TYPE else []
    hint = f", such as /{near[0]}/" if near else ""
    return f"{fact}; GET / lists the types{hint}, and POST to /v3/discovery:… is for polls"


def _parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for part in query.split("&"):
        written, _, value = part.partition("=")
        if not part:
            continue
        key = _decoded(written, "the query")
        if not key or key in parameters:
            raise ProtocolError(
                f"the query has {'the parameter ' + repr(key[:80]) + ' twice' if key else 'a parameter without a name'}; write ?name=value&other=value"
            )
        parameters[key] = check_length("the query", _decoded(value, "the query"))
        if parameters[key].startswith("constraint:"):
            raise ProtocolError(
                "the query has a value that begins with `constraint:`, which is reserved; write another one"
            )
    return parameters


def _decoded(text: str, place: str) -> str:
    for part in text.split("%")[1:]:
        if len(part) < 2 or not all(digit in "0123456789abcdefABCDEF" for digit in part[:2]):
            raise ProtocolError(f"{place} has a % that begins no code; write %25 for the character")
    try:
        decoded = unquote(text, errors="strict")
        decoded.encode()
    except UnicodeError as error:
        raise ProtocolError(f"{place} is no UTF-8; encode characters as UTF-8, and percent-encode them") from error
    return decoded


def _authorities(host: str, authority: str) -> tuple[str, ...]:
    host = host.lower()
    name, colon, port = host.rpartition(":")
    without_port = name if colon and port.isdigit() else host
    return tuple(dict.fromkeys((authority, "", host, without_port)))


def _structured_names(
    row: ResourceType, path: str, authorities: tuple[str, ...], contexts: tuple[Parameters, ...]
) -> Iterator[str]:
    for context in contexts:
        for authority in authorities:
            yield str(ResourceName(authority, row.message_type, path, context))


def _plain_names(path: str, context: Parameters) -> Iterator[str]:
    if not path or context:
        return
    yield path
    if is_structured(path):
        try:
            yield canonical(path)
        except MalformedName as error:
            raise ProtocolError(f"the name in the path {error}") from error


def _directories(
    row: ResourceType, path: str, authorities: tuple[str, ...], contexts: tuple[Parameters, ...]
) -> Iterator[tuple[str, str]]:
    directory = path.removesuffix("*")
    for structured in _structured_names(row, directory, authorities, contexts):
        name, mark, query = structured.partition("?")
        yield name, mark + query
    if not contexts[-1]:
        yield directory, ""


def node_of(parameters: Parameters, peer: str) -> Node:
    """Return the node of the parameters that Envoy adds. Raises ProtocolError if one is too long.

    Envoy writes metadata as JSON; other text stands for itself.
    """
    named = dict(parameters)
    metadata = {
        key.removeprefix(_METADATA): _metadata_value(value) for key, value in parameters if key.startswith(_METADATA)
    }
    locality = {name: named.get(parameter) for name, parameter in _LOCALITY.items()}
    return Node(
        named.get(f"{NODE_PREFIX}id", ""),
        named.get(f"{NODE_PREFIX}cluster", ""),
        peer,
        agent=named.get(f"{NODE_PREFIX}user_agent_name", ""),
        attributes=attributes_of_json(named.get(f"{NODE_PREFIX}user_agent_version", ""), locality, metadata),
    )


def _metadata_value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def find(
    target: GetTarget,
    snapshot: Snapshot | None,
    elsewhere: Collection[str] = (),
    unanswered: Unanswered = nothing_unanswered,
) -> Found:
    """Find a URL's resource or list.

    `snapshot` is None before the first; `elsewhere` authorities have their own URLs; `unanswered` names may exist on an
    upstream.
    """
    if snapshot is None:
        return NOTHING_LOADED
    if target.row is None:
        return FoundIndex(snapshot, _version_of_index(snapshot))
    type_url = target.row.type_url
    found = NOTHING_LOADED if type_url in snapshot.withheld else _find_in(snapshot, target, target.row)
    is_missing = isinstance(found, Absent | Unavailable) or (isinstance(found, FoundList) and not found.resources)
    # While the wildcard of the type is unanswered, an answered name may wait with it.
    asked = target.asked | {WILDCARD} if isinstance(found, Unavailable) else target.asked
    if is_missing and unanswered(type_url, asked):
        return NOT_ANSWERED
    if isinstance(found, FoundResource) and found.resource.redirect:
        return _redirect_of(found.resource, snapshot, target, elsewhere)
    return found


def _redirect_of(resource: Resource, snapshot: Snapshot, target: GetTarget, elsewhere: Collection[str]) -> Found:
    locator = Locator.parse(resource.redirect)
    for choice in locator.choices():
        name = choice.target
        if isinstance(name, ResourceName):
            key = name.type_url, str(name)
            is_here = key[1] in snapshot.resources(name.type_url) or key in snapshot.unresolved
            if is_here or (name.authority not in {"", target.authority} and name.authority in elsewhere):
                return FoundRedirect(name, choice.entry)
    if resource.body:
        return FoundResource(resource)
    if not isinstance(locator.target, ResourceName):
        # Clients must not learn where the files of the server are.
        return Absent("this is a redirect to a file of the server that has no such resource; `fsxds check` says why")
    return Absent(
        f"this is a redirect to {str(locator.target)[:200]}, which is not served here; ask the server of that resource"
    )


def _find_in(snapshot: Snapshot, target: GetTarget, row: ResourceType) -> Found:
    rows = snapshot.resources(row.type_url)
    for name in target.names:
        resource = rows.get(name) or snapshot.unresolved.get((row.type_url, name))
        if resource is not None:
            return FoundResource(resource)
    if not target.path:
        return FoundList(row, rows.everything, _version_of_list(row, rows))
    if target.directories:
        return rows.derive(_Lists, _Lists).find(row, rows, target.directories)
    return MAY_BE_DEFINED if row.type_url in snapshot.incomplete else Absent(_absence(row, target.path, rows))


def _absence(row: ResourceType, path: str, rows: Rows) -> str:
    """Omit existing names, which may be for other clients."""
    parent = path.rpartition("/")[0]
    siblings, existing = f"{parent}/* lists its siblings", " lists the existing ones"
    lists = f"GET /{row.message_type}/{siblings if parent else existing}"
    return f"there is no resource of this name and these parameters among {len(rows)} {row.noun}; {lists}"


_Directory = tuple[str, str]
"""Prefix and suffix of the members' names."""

_Directories = Mapping[_Directory, tuple[bytes, tuple[Resource, ...]]]
"""The members of each directory, with a digest."""


class _Lists:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Lru[tuple[_Directory, ...], FoundList] = Lru(MOST_LISTS)

    def find(self, row: ResourceType, rows: Rows, directories: tuple[_Directory, ...]) -> FoundList:
        return self._known.find(directories, lambda: _list_of(row, rows, directories))


def _list_of(row: ResourceType, rows: Rows, directories: tuple[_Directory, ...]) -> FoundList:
    members: list[tuple[bytes, tuple[Resource, ...]]] = []
    for directory in directories:
        parts = (
            chunk.once(_names_by_directory if row.is_secret else _by_directory)
            for chunk in rows.chunks_with(directory[0])
        )
        members = [part[directory] for part in parts if directory in part]
        if members:
            break
    version = Version(hashlib.sha256(b"".join(digest for digest, _ in members)).hexdigest()[:32])
    return FoundList(row, tuple(chain.from_iterable(resources for _, resources in members)), version)


# Chunks are shared with later rows, so a change in a directory of any size only costs the changed chunks.
def _by_directory(chunk: Chunk[Resource]) -> _Directories:
    return _members_of(chunk, lambda resource: f"{resource.name}\0{resource.version}\0")


def _names_by_directory(chunk: Chunk[Resource]) -> _Directories:
    # A digest of secrets would let clients verify guesses.
    return _members_of(chunk, lambda resource: f"{resource.name}\0")


def _members_of(chunk: Chunk[Resource], text_of: Callable[[Resource], str]) -> _Directories:
    members: defaultdict[_Directory, list[Resource]] = defaultdict(list)
    for resource in chunk.values:
        path, mark, query = resource.name.partition("?") if is_structured(resource.name) else (resource.name, "", "")
        members[(path[: path.rfind("/") + 1], mark + query)].append(resource)
    return {
        directory: (hashlib.sha256("".join(map(text_of, resources)).encode()).digest(), tuple(resources))
        for directory, resources in members.items()
    }


class _NamesDigest:
    __slots__ = ("version",)

    def __init__(self, rows: Rows) -> None:
        names = "".join(f"{name}\0" for name in sorted(rows))
        self.version = Version(hashlib.sha256(names.encode()).hexdigest()[:32])


def _version_of_list(row: ResourceType, rows: Rows) -> Version:
    return rows.derive(_NamesDigest, lambda: _NamesDigest(rows)).version if row.is_secret else rows.version


def _version_of_index(snapshot: Snapshot) -> Version:
    digest = hashlib.sha256()
    for type_url, rows in snapshot.by_type.items():
        row = BY_MESSAGE_TYPE.get(type_url.rpartition("/")[2])
        if row is not None and rows:
            digest.update(f"{type_url}\0{_version_of_list(row, rows)}\0".encode())
    return Version(digest.hexdigest()[:32])
