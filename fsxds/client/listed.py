"""Reads one type by HTTP GET: its list and changed members, or, without polls, single names.

| rule | source |
| --- | --- |
| A list is requested with its last tag, and not before its `max-age` is over. | RFC 9110, 13.1.2; RFC 9111, 4.2 |
| A server that can wait holds the response: `Prefer: wait`. | RFC 7240, 4.3 |
| Members are read at this server alone, whatever host their URLs have: the token is for it. | |
| A member whose version changed is read until its content has that version: a cache may have the old one. | RFC 9111, 4.2.4 |
| A member that cannot be read is a fault, and no sign of its removal. | |
| A missing list is an empty one if the server's index names other types. | `fsxds export` writes the index last |
| A single name stands in the path as it is written: any server of fsxds finds it there, whatever its own authority. | `protocol/get.py` |
| Of a single name the serialized message is asked for: JSON has URLs in place of locators. | xRFC TP1, "HTTP transport" |
| It is asked for with its last tag; the server may hold the answer to a client with one name. | RFC 9110, 13.1.2; RFC 7240, 4.3 |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast
from urllib.parse import quote

from fsxds.api.converter import Converter
from fsxds.client.updates import ELSEWHERE, TOO_LARGE_RESPONSE, ConnectionLostError, Update, UpdateContents, read_plain
from fsxds.model.resource_names import glob_of, is_glob, parse_or_none
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import Nonce, PlainValue, Version
from fsxds.protocol.get import url_of
from fsxds.protocol.subscription import WILDCARD

# In a bucket, the list and the index are files; a server with an index file serves them as folders.
FILES = ("index.json", "")
# The number of members read at once.
MOST_AT_ONCE = 8
# The longest time between requests of a list, whatever its max-age.
LONGEST_FRESH_S = 60.0
# A member that differs from the list is read in each round up to this number, then in each multiple of it.
MOST_TRIES = 30
OK, NOT_MODIFIED = 200, 304
# Buckets respond with 403 for a missing object.
MISSING = frozenset({403, 404, 410})
_IN_URL = re.compile(r"[!-~]+")
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?(\d{1,9})", re.IGNORECASE)

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response of any status; `headers` have keys in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Fetch = Callable[[str, Mapping[str, str]], Awaitable[Fetched]]
"""GETs a path below the server's address. Raises ConnectionLostError without a response."""


@dataclass(slots=True)
class _Member:
    """A list's member.

    Attributes:
        listed: its listed version, or empty.
        tag: of the last content.
        resource: the last good content, or None.
        fault: of the last response, or empty.
        rounds: with this listed version.
    """

    listed: str = ""
    tag: str = ""
    resource: Resource | None = None
    fault: str = ""
    size_bytes: int = 0
    rounds: int = 0

    def is_settled(self, listed: str) -> bool:
        """Whether it has its listed version."""
        return not self.fault and self.resource is not None and self.resource.version == listed

    def begin_round(self, listed: str) -> bool:
        """Count a round; return whether to read the member."""
        self.rounds, self.listed = self.rounds + 1 if self.listed == listed else 1, listed
        if self.is_settled(listed):
            return False
        return not listed or self.rounds <= MOST_TRIES or self.rounds % MOST_TRIES == 0


class ListReader:
    """Reads one type at one server, repeatedly. `read` may be cancelled.

    Attributes:
        names: empty for everything.
        most_bytes: for all members together, or None.
    """

    def __init__(self, row: ResourceType, converter: Converter, fetch: Fetch) -> None:
        """Resources of `row` must have their name in their content."""
        self.names: frozenset[str] = frozenset()
        self.most_bytes: int | None = None
        self._row = row
        self._converter = converter
        self._fetch = fetch
        self._files: tuple[str, ...] = FILES
        # The tags of the list and the index by path, and their content.
        self._pages: dict[str, tuple[str, object]] = {}
        # The versions of all members by path.
        self._listed: Mapping[str, str] = {}
        self._members: dict[str, _Member] = {}
        self._fresh_until_s = 0.0
        self._size_bytes = 0
        # The digests of the last returned, and of the last seen content.
        self._returned = self._seen = ""

    async def read(self, hold_s: float) -> tuple[Update, UpdateContents] | None:
        """Return all resources, or None if nothing changed.

        A fault counts at its second occurrence: the list may be replaced meanwhile. The server may hold the response for
        `hold_s`. Raises ConnectionLostError without a response, or without list and index.
        """
        is_settled = all(
            url in self._members and self._members[url].is_settled(self._listed[url]) for url in self._wanted()
        )
        await self._read_list(hold_s if is_settled and len(self._files) == 1 else 0.0)
        self._members = {url: self._members.get(url) or _Member() for url in self._wanted()}
        await self._read_members([url for url, each in self._members.items() if each.begin_round(self._listed[url])])
        contents = self._contents()
        digest = hashlib.sha256("\0".join((*sorted(self.names), "", *contents.faults)).encode())
        for name, resource in sorted(contents.resources.items()):
            digest.update(f"\0{name}\0{resource.version}".encode())
        version = digest.hexdigest()[:32]
        seen, self._seen = self._seen, version
        if version == self._returned or (contents.faults and version != seen):
            return None
        self._returned = version
        absent = {name for name in self.names if not is_glob(name)} - contents.resources.keys()
        update = Update(
            self._row.type_url,
            Version(version),
            Nonce(version),
            contents.frozen(),
            is_full=True,
            unpopulated=() if contents.faults else tuple(sorted(absent)),
        )
        return update, contents

    def _wanted(self) -> Collection[str]:
        if not self.names:
            return self._listed
        paths = {
            url_of(self._row.message_type, name, authority)
            for name in self.names
            for authority in ("", getattr(parse_or_none(name), "authority", ""))
        }
        return [path for path in self._listed if path in paths or glob_of(path) in paths]

    def _contents(self) -> UpdateContents:
        contents = UpdateContents(self._row.type_url)
        for url, member in sorted(self._members.items()):
            name = member.resource.name if member.resource is not None else ""
            if self.names and name and not {name, glob_of(name)} & self.names:
                continue
            if member.fault:
                contents.reject(name, f"{url}: {member.fault}")
            elif member.resource is not None:
                contents.add(member.resource)
        return contents

    # -- the list

    async def _read_list(self, hold_s: float) -> None:
        if asyncio.get_running_loop().time() < self._fresh_until_s:
            return
        for file in self._files:
            listed = await self._page(f"/{self._row.message_type}/{file}", self._versions_in, hold_s)
            if listed is not None:
                self._listed, self._files = listed, (file,)
                return
        for file in FILES:
            types = await self._page(f"/{file}", _types_in, 0.0)
            if types is not None and self._row.message_type not in types:
                self._listed = {}
                return
        fact = f"there is no list at /{self._row.message_type}/, and no index of types without it"
        raise ConnectionLostError(fact, "404")

    async def _page(self, path: str, read: Callable[[PlainValue], Read | None], hold_s: float) -> Read | None:
        """None: missing, or of another kind."""
        tag, before = self._pages.get(path, ("", None))
        headers = {"If-None-Match": tag} if tag else {}
        if hold_s:
            headers["Prefer"] = f"wait={hold_s:g}"
        fetched = await self._fetch(path, headers)
        if fetched.status == NOT_MODIFIED and tag:
            self._note_age(fetched)
            # Each path is read by one function.
            return cast("Read", before)
        if fetched.status in MISSING:
            return None
        if fetched.status != OK:
            raise ConnectionLostError(f"{path}: the server responds with status {fetched.status}", str(fetched.status))
        found = read(_plain_of(fetched.body))
        if found is not None:
            self._note_age(fetched)
            self._pages[path] = fetched.headers.get("etag", ""), found
        return found

    def _note_age(self, fetched: Fetched) -> None:
        cache_control, age = fetched.headers.get("cache-control", ""), fetched.headers.get("age", "")
        found = _MAX_AGE.search(cache_control)
        fresh_s = int(found[1]) - (int(age) if age.isdecimal() and len(age) < 10 else 0) if found else 0
        self._fresh_until_s = asyncio.get_running_loop().time() + min(max(fresh_s, 0), LONGEST_FRESH_S)

    def _versions_in(self, plain: PlainValue) -> Mapping[str, str] | None:
        """By path; None for no list."""
        if not isinstance(plain, list):
            return None
        versions = {}
        for entry in plain:
            name, version = (entry.get("name"), entry.get("version", "")) if isinstance(entry, dict) else (None, "")
            path = name.partition(f"/{self._row.message_type}/")[2] if isinstance(name, str) else ""
            if not _IN_URL.fullmatch(path) or not isinstance(version, str):
                return None
            versions[f"/{self._row.message_type}/{path}"] = version
        return versions

    # -- its members

    async def _read_members(self, urls: Iterable[str]) -> None:
        waiting, self._size_bytes = iter(urls), sum(each.size_bytes for each in self._members.values())

        async def read_some() -> None:
            for url in waiting:
                await self._read_member(url)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MOST_AT_ONCE):
                    tasks.create_task(read_some())
        except* ConnectionLostError as lost:
            raise lost.exceptions[0] from None

    async def _read_member(self, url: str) -> None:
        member = self._members[url]
        fetched = await self._fetch(url, {"If-None-Match": member.tag} if member.tag else {})
        if fetched.status == NOT_MODIFIED and member.tag:
            member.fault = ""
            return
        if fetched.status != OK:
            member.fault = f"the server responds with status {fetched.status}"
            return
        contents, plain = UpdateContents(self._row.type_url), _plain_of(fetched.body)
        if not isinstance(plain, dict):
            member.fault = "it is no resource in JSON"
            return
        read_plain({**plain, "@type": self._row.type_url}, self._row, self._converter, contents)
        if contents.faults:
            member.fault = contents.faults[0]
            return
        (member.resource,) = contents.resources.values()
        self._size_bytes += len(fetched.body) - member.size_bytes
        member.tag, member.fault, member.size_bytes = fetched.headers.get("etag", ""), "", len(fetched.body)
        if self.most_bytes is not None and self._size_bytes > self.most_bytes:
            fact = f"its {self._row.noun} are larger than {self.most_bytes} bytes, which is all that is taken"
            raise ConnectionLostError(fact, TOO_LARGE_RESPONSE)


def _plain_of(body: bytes) -> PlainValue:
    """None: no JSON."""
    try:
        plain: PlainValue = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return plain


def _types_in(plain: PlainValue) -> frozenset[str] | None:
    """None for no index."""
    types = plain.get("types") if isinstance(plain, dict) else None
    if not isinstance(types, list):
        return None
    return frozenset(str(each.get("type")) for each in types if isinstance(each, dict))


PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class _LastRead:
    """A name's last resource, or why it is none; empty if absent."""

    tag: str = ""
    resource: Resource | None = None
    fault: str = ""


class NamedReader:
    """Reads one type at one server, repeatedly. `read` may be cancelled.

    Attributes:
        names: `*` among them is not answered: no list has these.
    """

    def __init__(self, row: ResourceType, fetch: Fetch) -> None:
        """Read nothing yet."""
        self.names: frozenset[str] = frozenset()
        self._row = row
        self._fetch = fetch
        self._read: dict[str, _LastRead] = {}
        # The digest of what was returned last.
        self._returned = ""

    async def read(self, hold_s: float) -> tuple[Update, UpdateContents] | None:
        """Return all resources of the names; None if nothing changed, and without names.

        The server may hold the response for `hold_s`. Raises ConnectionLostError without resources or a response.
        """
        self._read = {name: self._read.get(name, _LastRead()) for name in sorted(self.names - {WILDCARD})}
        if not self._read:
            return None
        may_wait = bool(self._returned) and len(self._read) == 1
        for name in self._read:
            self._read[name] = await self._fetched(name, hold_s if may_wait else 0.0)
        contents = UpdateContents(self._row.type_url)
        for name, found in self._read.items():
            if found.fault:
                contents.reject(name, f"{name}: {found.fault}")
            elif found.resource is not None:
                contents.add(found.resource)
        texts = (
            f"{name}\0{each.tag}\0{each.resource and each.resource.version}\0{each.fault}"
            for name, each in self._read.items()
        )
        version = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
        if version == self._returned:
            return None
        self._returned = version
        update = Update(
            self._row.type_url,
            Version(version),
            Nonce(version),
            contents.frozen(),
            is_full=WILDCARD not in self.names,
            unpopulated=tuple(name for name, each in self._read.items() if not each.fault and each.resource is None),
        )
        return update, contents

    async def _fetched(self, name: str, hold_s: float) -> _LastRead:
        before, path = self._read[name], f"/{self._row.message_type}/{quote(name, '')}"
        headers = {"Accept": PROTOBUF} | ({"If-None-Match": before.tag} if before.tag else {})
        fetched = await self._fetch(path, headers | ({"Prefer": f"wait={hold_s:g}"} if hold_s else {}))
        if fetched.status == NOT_MODIFIED and before.tag:
            return before
        if fetched.status in MISSING:
            return _LastRead()
        if fetched.status != OK:
            raise ConnectionLostError(f"{path}: the server responds with status {fetched.status}", str(fetched.status))
        if fetched.headers.get("content-type", "").partition(";")[0] != PROTOBUF:
            return _LastRead(fault="the server has it in another form than protobuf")
        version = version_of_body(self._row.type_url, fetched.body)
        return _LastRead(
            fetched.headers.get("etag", ""), Resource(self._row.type_url, name, fetched.body, version, ELSEWHERE)
        )
