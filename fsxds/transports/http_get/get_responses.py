"""Answers to GET: headers, lists, and content, cached for all clients within limits.

One thread makes expensive content, item by item. Started work is finished and cached, work without waiting clients not
started: clients that request everything in every format, and leave, occupy one thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias, cast
from urllib.parse import quote

from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.model.memo import Lru
from fsxds.model.resource_names import FileName, ResourceName, parse_or_none, query_of
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import PlainValue, Version
from fsxds.protocol.get import Absent, Found, FoundIndex, FoundList, FoundRedirect, FoundResource, Parameters, url_of
from fsxds.protocol.poll import Unavailable
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import at_urls
from fsxds.transports.http_get.get_requests import (
    HTML_CONTENT,
    OF_INDEX,
    OF_LISTS,
    OF_RESOURCES,
    PROTOBUF_CONTENT,
    YAML_CONTENT,
    ContentFormat,
    GetRequest,
    Representation,
    chosen_coding,
    chosen_format,
    compressed,
    content_of,
    plain_content,
)
from fsxds.transports.rest.http_edge import HttpRejection
from fsxds.transports.rest.poll_responses import (
    LARGE_RESOURCE_BYTES,
    SMALL_BODY_BYTES,
    ErrorResponse,
    Payload,
    write_response,
)

# YAML takes twenty times as long as JSON.
LARGE_YAML_BYTES = 8 * 1024
# Takes longer than other requests should wait.
LARGE_LIST = 500

NO_STORE = "no-store"
_VARY = "Accept, Accept-Encoding"
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class GetRules:
    """Settings for GET.

    Attributes:
        authority: the server's, or empty.
        urls: of other authorities, and of ours if clients see it under another URL.
        cors_origins: pages of these may read answers; `*` is any.
    """

    authority: str = ""
    urls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cors_origins: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> GetRules:
        """Extract the settings for GET."""
        return cls(settings.authority, at_urls(settings.authorities), settings.cors_origin or ())


@dataclass(frozen=True, slots=True)
class Selected:
    """A request's answer, in the accepted representation.

    Without content, `representation` is None; `version` is the tag's basis.
    """

    found: Found
    urls: Urls
    representation: Representation | None = None
    version: str = ""

    @property
    def tag(self) -> str | None:
        """The entity tag; None without content."""
        return None if self.representation is None else self.representation.tag_of(self.version)


def select_representation(found: Found, get: GetRequest, rules: GetRules) -> Selected:
    """Select the accepted representation. Raises HttpRejection."""
    urls = Urls(get.base_url, rules.authority, rules.urls, get.target.node)
    match found:
        case Absent() | Unavailable() | FoundRedirect():
            return Selected(found, urls)
        case FoundResource(resource):
            version = _version_with(resource.version, urls) if _is_collection(resource) else resource.version
            return Selected(found, urls, _chosen(get, OF_RESOURCES), version)
        case FoundList(version=version):
            return Selected(found, urls, _chosen(get, OF_LISTS), _version_with(version, urls))
        case FoundIndex(version=version):
            return Selected(found, urls, _chosen(get, OF_INDEX), _version_with(version, urls))


def _chosen(get: GetRequest, offered: tuple[ContentFormat, ...]) -> Representation:
    content_format = chosen_format(get.accept, offered)
    if content_format is None:
        media_types = ", ".join(each.content_type for each in offered)
        fact = f"`accept` names no available format; ask for one of {media_types}"
        raise HttpRejection(ErrorResponse(406, 3, fact))
    return Representation(content_format, chosen_coding(get.accept_encoding))


def _is_collection(resource: Resource) -> bool:
    return resource.type_url.endswith(f"/{LIST_COLLECTION}")


def _version_with(version: str, urls: Urls) -> str:
    authorities = (f"{name} {url}" for name, url in urls.by_authority.items())
    texts = (version, urls.own, urls.authority, query_of(urls.node), *authorities)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


class GetResponses:
    """Makes responses; `is_private`: only for the client that asked."""

    def __init__(self, catalogue: Catalogue, is_private: Callable[[], bool]) -> None:
        self.contents = KeptContent()
        self._is_private = is_private
        self._printer = Printer(catalogue)

    async def send(self, request: web.Request, get: GetRequest, selected: Selected) -> web.StreamResponse:
        """Answer with content. Raises ConnectionError when the client goes."""
        representation = selected.representation
        if representation is None:
            raise ValueError("there is no content")
        content = await self._content_of(selected, representation)
        headers = {"Content-Type": representation.content_format.content_type, **self.headers(get, selected)}
        if representation.coding:
            headers["Content-Encoding"] = representation.coding
        if representation.content_format is HTML_CONTENT:
            headers["Content-Security-Policy"] = _PAGE_POLICY
        return await write_response(request, headers, Payload(content))

    def not_modified(self, get: GetRequest, selected: Selected) -> web.Response:
        """Answer a client that has this content."""
        return web.Response(status=304, headers=self.headers(get, selected))

    def redirection(self, get: GetRequest, selected: Selected, redirect: FoundRedirect) -> web.Response:
        """Answer with a redirect."""
        location = selected.urls.location_of(redirect, get.target.node)
        # aiohttp sends the length of empty content only for GET.
        headers = {**self.headers(get, selected), "Location": location, "Content-Length": "0"}
        return web.Response(status=302, headers=headers)

    def headers(self, get: GetRequest, selected: Selected) -> dict[str, str]:
        """Return content's or its 304's headers."""
        headers = {"Cache-Control": self._cache_control(selected.found), "Vary": _VARY}
        headers["X-Content-Type-Options"] = "nosniff"
        if selected.tag is not None:
            headers["ETag"] = selected.tag
        if get.preference:
            headers["Preference-Applied"] = get.preference
        return headers

    def _cache_control(self, found: Found) -> str:
        directive = "no-cache"
        if isinstance(found, FoundResource):
            if BY_TYPE_URL[found.resource.type_url].is_secret:
                return NO_STORE
            if found.resource.ttl_s is not None:
                directive = f"max-age={int(found.resource.ttl_s)}"
        return f"private, {directive}" if self._is_private() else directive

    async def _content_of(self, selected: Selected, representation: Representation) -> bytes:
        found, content_format = selected.found, representation.content_format
        if isinstance(found, FoundResource):
            resource = found.resource
            if content_format is PROTOBUF_CONTENT and not representation.coding:
                return resource.body
            key: Key = (resource.type_url, selected.version, content_format.suffix)
            most = LARGE_YAML_BYTES if content_format is YAML_CONTENT else LARGE_RESOURCE_BYTES
            takes_long = len(resource.body) > most
            make = partial(_resource_content, resource, content_format, self._printer, selected.urls)
        else:
            key = (type(found).__name__, selected.version, content_format.suffix)
            parts = found.snapshot.by_type.values() if isinstance(found, FoundIndex) else ()
            size = len(found.resources) if isinstance(found, FoundList) else sum(map(len, parts))
            takes_long = size > LARGE_LIST
            make = partial(_listed_content, found, selected.urls, content_format)
        content = await self.contents.find(key, make, takes_long=takes_long)
        if not representation.coding:
            return content
        is_large = len(content) > SMALL_BODY_BYTES
        coded = partial(compressed, content, representation.coding)
        return await self.contents.find((*key, representation.coding), coded, takes_long=is_large)


def _resource_content(resource: Resource, content_format: ContentFormat, printer: Printer, urls: Urls) -> bytes:
    if _is_collection(resource) and content_format is not PROTOBUF_CONTENT:
        plain = printer.resource_plain(resource.type_url, resource.body)
        return plain_content(collection_content(plain, urls), content_format)
    return content_of(resource, content_format, printer)


def _listed_content(found: Found, urls: Urls, content_format: ContentFormat) -> bytes:
    if isinstance(found, FoundList):
        return plain_content(list_content(found.row, found.resources, urls), content_format)
    if not isinstance(found, FoundIndex):
        raise TypeError(f"{type(found).__name__} has no content")
    content = index_content(found.snapshot, urls)
    return index_page(content) if content_format is HTML_CONTENT else plain_content(content, content_format)


# Some thousand resources; the largest one stays too, whatever its size.
MOST_KEPT_BYTES = 64 * 1024 * 1024
MOST_KEPT = 100_000
# Of an object beside its bytes.
_OBJECT_BYTES = 200

Key: TypeAlias = tuple[Hashable, ...]
Make: TypeAlias = Callable[[], bytes]


@dataclass(slots=True)
class _Making:
    work: Future[bytes]
    done: asyncio.Future[bytes]
    waiting: int = 0


class KeptContent:
    """Caches content. For the event loop; functions for `find` may run in a thread. `made` counts misses."""

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self.made = 0
        self._kept: Lru[Key, bytes] = Lru(MOST_KEPT, lambda content: len(content) + _OBJECT_BYTES, most_bytes)
        self._making: dict[Key, _Making] = {}
        self._executor = ThreadPoolExecutor(1, "fsxds-content")

    def close(self) -> None:
        """Cancel work that has not started."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def find(self, key: Key, make: Make, *, takes_long: bool) -> bytes:
        """Return cached content, or make it. Safe to cancel.

        Args:
            key: identifies all bytes.
            make: its exception is raised for all waiting requests.
            takes_long: use the thread.
        """
        content = self._kept.get(key)
        if content is not None:
            return content
        if not takes_long:
            self.made += 1
            content = make()
            self._kept.put(key, content)
            return content
        making = self._making.get(key) or self._begin(key, make)
        making.waiting += 1
        try:
            # Started work goes on without waiting clients.
            return await asyncio.shield(making.done)
        finally:
            making.waiting -= 1
            if not making.waiting and making.work.cancel():
                # A new request may come before the thread reports the cancellation.
                self._making.pop(key, None)

    def _begin(self, key: Key, make: Make) -> _Making:
        self.made += 1
        work = self._executor.submit(make)
        making = self._making[key] = _Making(work, asyncio.wrap_future(work))

        def end(done: asyncio.Future[bytes]) -> None:
            if self._making.get(key) is making:
                del self._making[key]
            if not done.cancelled() and done.exception() is None:
                self._kept.put(key, done.result())

        making.done.add_done_callback(end)
        return making


# The type of list resources.
LIST_COLLECTION = "envoy.config.listener.v3.ListenerCollection"

# Of one type in the index; its list has all.
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Urls:
    """URLs of resources.

    Attributes:
        base_url: of this server as the client has it, without a final slash.
        authority: this server's, or empty.
        by_authority: URLs of the settings.
        node: parameters that name the node; this server's URLs repeat them, to lead into the node's view.
    """

    base_url: str
    authority: str = ""
    by_authority: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    node: Parameters = ()

    def of(self, message_type: str, name: str) -> str:
        """Return a resource's absolute URL, its authority's if known."""
        structured = parse_or_none(name)
        authority = self.authority if structured is None else structured.authority
        if authority != self.authority and (url := self.by_authority.get(authority)):
            return url + url_of(message_type, name, authority)
        return self.own + self._for_node(url_of(message_type, name, self.authority), structured)

    def of_type(self, message_type: str) -> str:
        """Return the URL of a type's list."""
        return self.own + self._for_node(f"/{message_type}/")

    def _for_node(self, url: str, name: ResourceName | None = None) -> str:
        own = {key for key, _ in name.context} if name is not None else set()
        query = query_of(tuple(pair for pair in self.node if pair[0] not in own))
        return f"{url}{'&' if '?' in url else '?'}{query}" if query else url

    @property
    def own(self) -> str:
        """This server's base URL, preferably of the settings."""
        return self.by_authority.get(self.authority, self.base_url)

    def of_locator(self, locator: Mapping[str, PlainValue]) -> str:
        """Return a locator's URL; unknown authorities are hosts."""
        path, authority = str(locator.get("id", "")), str(locator.get("authority", ""))
        if locator.get("scheme") == "FILE":
            return str(FileName(f"/{path.lstrip('/')}"))
        context = cast("Mapping[str, Mapping[str, str]]", locator.get("exact_context", {}))
        parameters = tuple(sorted(context.get("params", {}).items()))
        name = ResourceName(authority or self.authority, str(locator.get("resource_type", "")), path, parameters)
        directives = cast("list[dict[str, PlainValue]]", locator.get("directives", []))
        entry = "".join(f"#entry={each['entry']}" for each in directives if "entry" in each)
        if name.authority == self.authority or name.authority in self.by_authority:
            return f"{self.of(name.message_type, str(name))}{entry}"
        scheme = self.own.partition("://")[0]
        return (
            f"{scheme}://{quote(name.authority, ':[]@')}{url_of(name.message_type, str(name), name.authority)}{entry}"
        )

    def location_of(self, redirect: FoundRedirect, node: Parameters) -> str:
        """Return a redirect's URL for a node; relative if it leads here."""
        name = redirect.name
        entry = f"#entry={redirect.entry}" if redirect.entry else ""
        if name.authority != self.authority and (url := self.by_authority.get(name.authority)):
            return f"{url}{url_of(name.message_type, str(name), name.authority)}{entry}"
        return f"{url_of(name.message_type, str(name.with_context(dict(node))), self.authority)}{entry}"


def collection_content(collection: Mapping[str, PlainValue], urls: Urls) -> list[PlainValue]:
    """Return a list collection's entries: URLs, or inline content (xRFC TP1, "HTTP transport")."""
    entries = cast("list[dict[str, dict[str, PlainValue]]]", collection.get("entries", []))
    return [
        {"name": urls.of_locator(each["locator"])} if "locator" in each else {"value": _inlined(each["inline_entry"])}
        for each in entries
        if each
    ]


def _inlined(entry: Mapping[str, PlainValue]) -> dict[str, PlainValue]:
    contents = cast("dict[str, PlainValue]", entry.get("resource", {}))
    named = {name: entry[name] for name in ("name", "version") if name in entry}
    return {**named, "contents": {name: value for name, value in contents.items() if name != "@type"}}


def list_content(row: ResourceType, resources: Iterable[Resource], urls: Urls) -> list[PlainValue]:
    """Return a list's URLs, with non-secrets' versions."""
    return [{"name": urls.of(row.message_type, each.name), **_shown(row, each.version)} for each in resources]


def _shown(row: ResourceType, version: Version) -> dict[str, PlainValue]:
    return {} if row.is_secret else {"version": version}


def index_content(snapshot: Snapshot, urls: Urls) -> dict[str, PlainValue]:
    """Return types with versions and first names."""
    types = [_type_content(row, snapshot.resources(row.type_url), urls) for row in RESOURCE_TYPES]
    return {"authority": urls.authority, "types": [each for each in types if each["count"]]}


def _type_content(row: ResourceType, rows: Rows, urls: Urls) -> dict[str, PlainValue]:
    return {
        "type": row.message_type,
        "short_name": row.short_name,
        **_shown(row, rows.version),
        "count": len(rows),
        "url": urls.of_type(row.message_type),
        "resources": [
            {"name": each.name, **_shown(row, each.version), "url": urls.of(row.message_type, each.name)}
            for each in islice(rows.values(), MOST_NAMES)
        ],
    }


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fsxds{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem}}td{{padding-right:2rem}}code{{color:#555}}</style>
</head><body><h1>Resources{title}</h1>
{types}
</body></html>
"""


def index_page(content: Mapping[str, PlainValue]) -> bytes:
    """Return the index as HTML."""
    title = f" of {escape(str(content['authority']))}" if content["authority"] else ""
    types = cast("list[dict[str, PlainValue]]", content["types"])
    shown = "\n".join(map(_section, types)) or "<p>No resources.</p>"
    return _PAGE.format(title=title, types=shown).encode()


def _section(content: Mapping[str, PlainValue]) -> str:
    resources = cast("list[dict[str, str]]", content["resources"])
    rows = "".join(
        f'<tr><td><a href="{escape(each["url"])}">{escape(each["name"])}</a></td>'
        f"<td><code>{escape(each.get('version', ''))}</code></td></tr>\n"
        for each in resources
    )
    count = cast("int", content["count"])
    more = f"<p>The first {len(resources)} of {count}.</p>" if len(resources) < count else ""
    url, message_type = escape(str(content["url"])), escape(str(content["type"]))
    return f'<h2><a href="{url}">{message_type}</a></h2>\n{more}<table>\n{rows}</table>'
