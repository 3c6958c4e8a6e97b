"""The answers to GET: headers, and content, cached for all clients within limits.

One thread makes expensive content, item by item. Started work is finished and cached; work without waiting clients is
not started. So clients that request everything in every format, and leave, occupy one thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.model.memo import Lru
from fsxds.model.resource_names import query_of
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource
from fsxds.protocol.get import Absent, Found, FoundIndex, FoundList, FoundRedirect, FoundResource
from fsxds.protocol.poll import Unavailable
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import Authority, at_urls
from fsxds.transports.http_get.get_requests import GetRequest
from fsxds.transports.http_get.listings import (
    LIST_COLLECTION,
    Urls,
    collection_content,
    index_content,
    index_page,
    list_content,
)
from fsxds.transports.http_get.representations import (
    HTML_CONTENT,
    OF_INDEX,
    OF_LISTS,
    OF_RESOURCES,
    PROTOBUF_CONTENT,
    YAML_CONTENT,
    ContentFormat,
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
    """The settings for GET.

    Attributes:
        authority: of the server; empty for none.
        authorities: URLs of other authorities, and of ours if clients see it under another URL.
        cors_origins: pages of these origins may read answers; `*` is any.
    """

    authority: str = ""
    authorities: Mapping[str, Authority] = field(default_factory=lambda: MappingProxyType({}))
    cors_origins: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> GetRules:
        """Extract the settings for GET."""
        return cls(settings.authority, at_urls(settings.authorities), settings.cors_origin or ())

    @property
    def elsewhere(self) -> frozenset[str]:
        """Authorities with a URL in the settings."""
        return frozenset(name for name, authority in self.authorities.items() if authority.url)


@dataclass(frozen=True, slots=True)
class Selected:
    """The answer to a request, in the accepted representation.

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
    urls = Urls(get.base_url, rules.authority, rules.authorities, get.target.node)
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
    authorities = (f"{name} {each.url}" for name, each in urls.authorities.items())
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
        """Return the headers of content or of its 304."""
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
            takes_long = _size_of(found) > LARGE_LIST
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


def _size_of(found: Found) -> int:
    if isinstance(found, FoundIndex):
        return sum(map(len, found.snapshot.by_type.values()))
    return len(found.resources) if isinstance(found, FoundList) else 0


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
    has_ended: asyncio.Event
    work: Future[bytes] | None = None
    waiting: int = 0
    content: bytes = b""
    error: BaseException | None = None


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
            make: returns the content.
            takes_long: use the thread.

        Raises:
            Exception: of `make`, for all waiting requests.
        """
        content = self._kept.get(key)
        if content is not None:
            return content
        if not takes_long:
            self.made += 1
            return self._keep(key, make())
        making = self._making.get(key) or self._begin(key, make)
        making.waiting += 1
        try:
            await making.has_ended.wait()
        finally:
            making.waiting -= 1
            if not making.waiting and making.work is not None and making.work.cancel():
                # A new request may come before the thread reports the cancellation.
                self._making.pop(key, None)
        if making.error is not None:
            raise making.error
        return making.content

    def _keep(self, key: Key, content: bytes) -> bytes:
        self._kept.put(key, content)
        return content

    def _begin(self, key: Key, make: Make) -> _Making:
        loop = asyncio.get_running_loop()
        making = self._making[key] = _Making(asyncio.Event())
        self.made += 1

        def end(done: Future[bytes]) -> None:
            if self._making.get(key) is making:
                del self._making[key]
            making.error = CancelledError() if done.cancelled() else done.exception()
            if making.error is None:
                making.content = self._keep(key, done.result())
            making.has_ended.set()

        def receive(done: Future[bytes]) -> None:
            # The event loop may be closed already.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, done)

        making.work = self._executor.submit(make)
        making.work.add_done_callback(receive)
        return making
