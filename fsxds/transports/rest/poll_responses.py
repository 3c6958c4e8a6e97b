"""REST responses: proto JSON, with each resource rendered once; errors, and 304."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aiohttp import web

from fsxds.api.printing import Printer
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.poll import nonce_of
from fsxds.protocol.subscription import Selection

# The time that rendering may block other polls.
RENDER_SLICE_S = 0.005
# Takes longer than a slice, so is rendered in a thread.
LARGE_RESOURCE_BYTES = 128 * 1024
# Level 1 takes 1.6 ms per MB, level 6 takes 4; smaller bodies are not worth a thread.
GZIP_LEVEL = 1
SMALL_BODY_BYTES = 64 * 1024
_GZIP_FORMAT = zlib.MAX_WBITS | 16

# The socket copies written data for slow readers, hence slices. Below a megabyte its buffers take most, and one write
# is cheaper.
LARGE_BODY_BYTES = 1_000_000
SLICE_BYTES = 256 * 1024
# With TLS, asyncio keeps a buffer of the largest write.
TLS_SLICE_BYTES = 16 * 1024

JSON = {"Content-Type": "application/json"}
_GZIPPED = {"Content-Encoding": "gzip", **JSON}
# Per header; browsers send less than ten.
MOST_CHOICES = 100
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)


class Payload:
    """A response's body, plain and compressed."""

    __slots__ = ("_gzipped", "pieces", "size")

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))
        self._gzipped: Payload | None = None

    @property
    def body(self) -> bytes:
        """The body in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    async def gzipped(self) -> Payload:
        """Return the gzipped body, cached; large ones take a thread."""
        if self._gzipped is None:
            if self.size < SMALL_BODY_BYTES:
                self._gzipped = Payload(gzip(self.pieces))
            else:
                # Another request may compress it too: rare, and the bytes are equal.
                self._gzipped = Payload(await asyncio.to_thread(gzip, self.pieces))
        return self._gzipped


def gzip(pieces: Iterable[bytes], level: int = GZIP_LEVEL) -> bytes:
    """Compress a body, without a time: equal bodies, equal bytes."""
    compressor = zlib.compressobj(level, wbits=_GZIP_FORMAT)
    return b"".join((*map(compressor.compress, pieces), compressor.flush()))


@dataclass(slots=True)
class _TypeBodies:
    """One type's rendered resources.

    `whole`: the last body with all, with its key; `rendering`: set at the rendering's end.
    """

    fragments: dict[Version, bytes] = field(default_factory=dict)
    swept_at: int = 0
    rows: Rows | None = None
    whole: tuple[tuple[Version, Collection[Resource]], Payload] | None = None
    rendering: asyncio.Event | None = None


class ResponseBodies:
    """Makes bodies, equal ones of equal selections; `rendered` counts resources."""

    def __init__(self, printer: Printer) -> None:
        self.rendered = 0
        self._printer = printer
        self._types: dict[TypeUrl, _TypeBodies] = {}

    async def payload_of(self, selection: Selection, snapshot: Snapshot, *, is_whole: bool) -> Payload:
        """Return the body with `selection` from `snapshot`.

        Waits for another rendering of this type. Safe to cancel: finished fragments stay. `is_whole`: all resources of the
        type, the same bytes for other clients.
        """
        bodies = self._types.setdefault(selection.type_url, _TypeBodies())
        # Different resources may have equal authored versions.
        key = selection.version, selection.resources
        while True:
            if is_whole and bodies.whole is not None and bodies.whole[0] == key:
                return bodies.whole[1]
            if not any(resource.version not in bodies.fragments for resource in selection.resources):
                break
            if bodies.rendering is not None:
                await bodies.rendering.wait()
                continue
            bodies.rendering = asyncio.Event()
            try:
                _sweep(bodies, snapshot, selection.type_url)
                await self._render_fragments(bodies.fragments, selection.resources)
            finally:
                bodies.rendering.set()
                bodies.rendering = None
            # Only the next rendering drops fragments; it starts later.
            break
        head = f'{{"version_info":{json.dumps(selection.version)},"resources":['
        tail = f'],"type_url":{json.dumps(selection.type_url)},"nonce":{json.dumps(nonce_of(selection.version))}}}'
        resources = b",".join([bodies.fragments[resource.version] for resource in selection.resources])
        payload = Payload(b"".join((head.encode(), resources, tail.encode())))
        if is_whole:
            bodies.whole = (key, payload)
        return payload

    async def _render_fragments(self, fragments: dict[Version, bytes], resources: Collection[Resource]) -> None:
        slice_end_s = time.monotonic() + RENDER_SLICE_S
        for resource in resources:
            if resource.version in fragments:
                continue
            if len(resource.body) > LARGE_RESOURCE_BYTES:
                fragment = await asyncio.to_thread(self._printer.any_json, resource.type_url, resource.body)
            else:
                fragment = self._printer.any_json(resource.type_url, resource.body)
            fragments[resource.version] = fragment
            self.rendered += 1
            if time.monotonic() >= slice_end_s:
                await asyncio.sleep(0)
                slice_end_s = time.monotonic() + RENDER_SLICE_S


def _sweep(bodies: _TypeBodies, snapshot: Snapshot, type_url: TypeUrl) -> None:
    if snapshot.generation <= bodies.swept_at:
        return
    before, rows = bodies.rows, snapshot.resources(type_url)
    if before is not None:
        change = rows.changes_since(before)
        for name in (change.fresh | change.removed) & before.keys():
            bodies.fragments.pop(before[name].version, None)
    if len(bodies.fragments) > len(rows):
        # Some fragments are of an older snapshot, rendered after its sweep.
        current = {resource.version for resource in rows.values()}
        bodies.fragments = {version: text for version, text in bodies.fragments.items() if version in current}
    bodies.swept_at, bodies.rows, bodies.whole = snapshot.generation, rows, None


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as an answer: the gRPC `code` of a gateway; fact and remedy."""

    status: int
    code: int
    message: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def error_response(error: ErrorResponse) -> web.Response:
    """Build the error response, like gRPC-JSON gateways."""
    body = json.dumps({"code": error.code, "message": error.message, "details": []}).encode()
    return web.Response(status=error.status, body=body, headers={**JSON, **error.headers})


INTERNAL = ErrorResponse(500, 13, "an internal error of fsxds; the server's log has its traceback")

# No client reads it; aiohttp expects a response.
CLIENT_GONE = ErrorResponse(499, 1, "the client went away")


def not_modified() -> web.Response:
    """Build the 304."""
    return web.Response(status=304)


async def send(request: web.Request, payload: Payload) -> tuple[web.StreamResponse, bool]:
    """Write a body, compressed if accepted; return whether a connected client got all of it, too."""
    headers = JSON
    accepted = request.headers.get("Accept-Encoding")
    if accepted is not None and takes_gzip(accepted):
        headers, payload = _GZIPPED, await payload.gzipped()
    try:
        response = await write_response(request, headers, payload)
    except ConnectionError:
        return error_response(CLIENT_GONE), False
    transport = request.transport
    return response, transport is not None and not transport.is_closing()


async def write_response(request: web.Request, headers: Mapping[str, str], payload: Payload) -> web.StreamResponse:
    """Write a response, HEAD's headers alone. Raises ConnectionError when the client goes."""
    largest_write, slice_bytes = (
        (TLS_SLICE_BYTES, TLS_SLICE_BYTES) if request.secure else (LARGE_BODY_BYTES, SLICE_BYTES)
    )
    if payload.size < largest_write:
        small = web.Response(body=payload.body, headers=headers)
        await small.prepare(request)
        await small.write_eof()
        return small
    response = web.StreamResponse(headers=headers)
    response.content_length = payload.size
    await response.prepare(request)
    for piece in payload.pieces if request.method != "HEAD" else ():
        view = memoryview(piece)
        for start in range(0, len(piece), slice_bytes):
            await response.write(view[start : start + slice_bytes])
    await response.write_eof()
    return response


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding allows gzip."""
    return any(coding in {"gzip", "x-gzip"} and quality for coding, quality in choices(accepted))


def choices(header: str) -> Iterator[tuple[str, float]]:
    """Yield the names in an `Accept` or `Accept-Encoding` with their qualities."""
    for choice in header.lower().split(",", MOST_CHOICES)[:MOST_CHOICES]:
        name, *parameters = (part.strip() for part in choice.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                quality = float(value) if _QUALITY.fullmatch(value := value.strip()) else 0.0
        if name:
            yield name, quality
