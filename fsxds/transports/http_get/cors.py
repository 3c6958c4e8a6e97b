"""What pages of other origins may read: CORS, off unless origins are given, and never for secrets.

Source: Fetch, "HTTP-network-or-cache fetch", "CORS protocol".
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from fsxds.settings.origins import ANY_ORIGIN
from fsxds.transports.http_get.get_responses import NO_STORE

READING = frozenset({"GET", "HEAD", "OPTIONS"})
# What a page may send, and read, beside what any page may.
_REQUEST_HEADERS = "Accept, Authorization, If-Match, If-None-Match, Prefer"
_RESPONSE_HEADERS = "ETag, Location, Preference-Applied, Retry-After"
# How long a browser need not ask again; most keep it for two hours at most.
_MAX_AGE_S = "7200"


class Cors:
    """Adds headers to responses to reads; `origins` returns those whose pages may read."""

    def __init__(self, origins: Callable[[], tuple[str, ...]]) -> None:
        self._origins = origins

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let the page that asks read a response, where its origin may; to be called before a response is sent."""
        headers = response.headers
        if request.method not in READING or headers.get("Cache-Control") == NO_STORE:
            return
        if response.status >= 400:
            # A mistake that was mended is not to last in a cache.
            headers.setdefault("Cache-Control", "no-cache")
        origins = self._origins()
        if not origins:
            return
        is_any = ANY_ORIGIN in origins
        if not is_any:
            headers["Vary"] = f"{headers['Vary']}, Origin" if "Vary" in headers else "Origin"
        origin = request.headers.get("Origin")
        if origin is None or not (is_any or origin in origins):
            return
        headers["Access-Control-Allow-Origin"] = ANY_ORIGIN if is_any else origin
        headers["Access-Control-Expose-Headers"] = _RESPONSE_HEADERS
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            headers["Access-Control-Allow-Methods"] = "GET, HEAD"
            headers["Access-Control-Allow-Headers"] = _REQUEST_HEADERS
            headers["Access-Control-Max-Age"] = _MAX_AGE_S
