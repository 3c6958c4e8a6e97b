"""Bytes of DiscoveryResponses in proto JSON: each resource is written once, a response joins what exists."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fsxds.api.printing import Printer
from fsxds.protocol.poll import nonce_of
from fsxds.protocol.subscription import Selection
from fsxds.resources import Resource, Snapshot
from fsxds.values import TypeUrl, Version

# The event loop is lent to rendering for so long at a time: polls that need none wait no longer.
RENDER_SLICE_S = 0.005
# A resource of more bytes than this takes longer than a slice, and is written in a thread.
LARGE_RESOURCE_BYTES = 128 * 1024
# Level 1 takes 1.6 ms per MB, level 6 takes 4; smaller bodies are not worth a thread.
GZIP_LEVEL = 1
SMALL_BODY_BYTES = 64 * 1024
_GZIP_FORMAT = zlib.MAX_WBITS | 16


class Payload:
    """The body of a response in one or more pieces, as it is and compressed."""

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
        """Return the body compressed with gzip; it is compressed once, in a thread where it is large."""
        if self._gzipped is None:
            if self.size < SMALL_BODY_BYTES:
                self._gzipped = Payload(_gzip(self.pieces))
            else:
                # Who asks meanwhile compresses too: rarer than it is worth a lock, and the bytes are equal.
                self._gzipped = Payload(await asyncio.to_thread(_gzip, self.pieces))
        return self._gzipped


def _gzip(pieces: Iterable[bytes]) -> bytes:
    # Its head has no time, so that equal bodies stay equal.
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_FORMAT)
    return b"".join((*map(compressor.compress, pieces), compressor.flush()))


@dataclass(slots=True)
class _TypeBodies:
    """What was written of one type.

    Attributes:
        fragments: the JSON of resources by their version.
        swept_at: the newest generation whose snapshot the fragments were swept for.
        whole: the last body with all resources of the type, and what it is of.
        rendering: set when the rendering that goes on now ends; None while there is none.
    """

    fragments: dict[Version, bytes] = field(default_factory=dict)
    swept_at: int = 0
    whole: tuple[tuple[Version, Version | None], Payload] | None = None
    rendering: asyncio.Event | None = None


class ResponseBodies:
    """Makes response bodies; equal selections give equal bytes.

    `rendered` counts the resources that were written as JSON.
    """

    def __init__(self, printer: Printer) -> None:
        self.rendered = 0
        self._printer = printer
        self._types: dict[TypeUrl, _TypeBodies] = {}

    async def payload_of(self, selection: Selection, snapshot: Snapshot, *, is_whole: bool) -> Payload:
        """Return the body that tells `selection`.

        Who asks for what is being written already waits for it. Safe to cancel: what was written so far is kept.

        Args:
            selection: what to tell.
            snapshot: where it was selected; what is kept of older ones is dropped.
            is_whole: it holds all resources of its type, so that others will want the same bytes.
        """
        bodies = self._types.setdefault(selection.type_url, _TypeBodies())
        # Authors' versions do not tell contents apart; the digest of the content does.
        content = snapshot.versions.get(selection.type_url)
        key = (selection.version, content)
        while True:
            if is_whole and bodies.whole is not None and bodies.whole[0] == key:
                return bodies.whole[1]
            if not _missing(bodies, selection.resources):
                break
            if bodies.rendering is not None:
                await bodies.rendering.wait()
                continue
            await self._render(bodies, selection, snapshot)
        payload = Payload(_join(selection, bodies.fragments))
        if is_whole:
            bodies.whole = (key, payload)
        return payload

    async def _render(self, bodies: _TypeBodies, selection: Selection, snapshot: Snapshot) -> None:
        bodies.rendering = asyncio.Event()
        try:
            _sweep(bodies, snapshot, selection.type_url)
            await self._render_fragments(bodies.fragments, selection.resources)
        finally:
            bodies.rendering.set()
            bodies.rendering = None

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


def _missing(bodies: _TypeBodies, resources: Collection[Resource]) -> bool:
    return any(resource.version not in bodies.fragments for resource in resources)


def _sweep(bodies: _TypeBodies, snapshot: Snapshot, type_url: TypeUrl) -> None:
    """Drop what is not in the snapshot any more, once per generation."""
    if snapshot.generation <= bodies.swept_at:
        return
    current = {resource.version for resource in snapshot.resources(type_url).values()}
    for version in bodies.fragments.keys() - current:
        del bodies.fragments[version]
    bodies.swept_at = snapshot.generation
    bodies.whole = None


def _join(selection: Selection, fragments: dict[Version, bytes]) -> bytes:
    head = f'{{"version_info":{json.dumps(selection.version)},"resources":['
    tail = f'],"type_url":{json.dumps(selection.type_url)},"nonce":{json.dumps(nonce_of(selection.version))}}}'
    resources = b",".join([fragments[resource.version] for resource in selection.resources])
    return b"".join((head.encode(), resources, tail.encode()))
