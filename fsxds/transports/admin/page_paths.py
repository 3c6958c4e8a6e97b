"""The status page: its files, events, graph and differences; the interface of rollouts that it shows.

The page loads only these files, connects only to its origin, cannot be embedded, and inserts data as text.
On each server-sent event, pages request the facts. Slow readers skip events.

Rules: a status page loads only its own files.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from importlib.resources import files
from itertools import islice
from typing import Final, Protocol

import yaml
from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker
from fsxds.events.client_events import RequestRejected
from fsxds.events.event import Event
from fsxds.model.errors import ApiError, ProtocolError
from fsxds.model.memo import Lru
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Key, Resource, Snapshot
from fsxds.model.values import NO_LAYERS, Layers
from fsxds.runtime.channels import Latest
from fsxds.transports.admin.admin_api import AdminPath, AdminPaths, RequestParameters
from fsxds.transports.admin.admin_reports import RolloutControl, snapshot_number
from fsxds.transports.admin.graph import MOST_NODES, Graph, GraphRequest, IsStatic, SnapshotUses, graph_of, key_of_id
from fsxds.transports.admin.status_paths import Outlined, is_called, number_in

DEFAULT_NODES = 200
# Views with cached uses of resources.
MOST_VIEWS = 8
_NOTHING = Snapshot(0, {})

# Trusted types: a script that inserts text as HTML fails.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Revalidated each time, mostly with 304.
    "Cache-Control": "no-cache",
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_PAGE = "index.html"


class ShownSnapshots(Protocol):
    """The page's snapshots; for the event loop."""

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return views' names and layers."""

    def served(self, layers: Layers) -> Snapshot | None:
        """Return the snapshot of most nodes with these layers."""

    def wanted(self, layers: Layers) -> Snapshot | None:
        """Return the tree's snapshot; None before the first."""

    async def kept(self, number: int) -> tuple[Layers, Snapshot]:
        """Return a snapshot of the history. Raises ProtocolError."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page."""

    content: bytes
    content_type: str
    etag: str

    @classmethod
    def read(cls, name: str) -> PageFile:
        """Read a file of the package."""
        content = files(__package__).joinpath("page", name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(content, _TYPES[name.rpartition(".")[2]], digest)

    async def answer(self, request: web.Request, _: RequestParameters) -> web.StreamResponse:
        """Send the file, or 304."""
        known = request.if_none_match or ()
        is_known = any(each.value == self.etag for each in known)
        headers = _HEADERS | {"ETag": f'"{self.etag}"', "Content-Type": self.content_type}
        return (
            web.Response(status=304, headers=headers) if is_known else web.Response(body=self.content, headers=headers)
        )


class PageApi:
    """Answers requests of the page alone."""

    def __init__(self, shown: ShownSnapshots, catalogue: Catalogue, is_static: IsStatic) -> None:
        self._shown = shown
        self._catalogue = catalogue
        self._is_static = is_static
        # Many requests of a client keep only one thread busy.
        self._uses: Lru[Layers, SnapshotUses] = Lru(MOST_VIEWS)
        self._lock = asyncio.Lock()

    async def graph(self, _: web.Request, words: RequestParameters) -> Graph:
        """Return a view's graph, in part; default: the first view."""
        name, layers = self._view(words.get("view"))
        limit = number_in(words, "limit", DEFAULT_NODES)
        if not 0 < limit <= MOST_NODES:
            raise ProtocolError(f"limit: '{limit}' is no number from 1 to {MOST_NODES}")
        around = _key_in(words, "around") if "around" in words else None
        request = GraphRequest(words.get("search", ""), around, limit)
        snapshot = self._shown.served(layers) or _NOTHING
        async with self._lock:
            graph = await asyncio.to_thread(self._graph, layers, snapshot, request)
        return replace(graph, view=name)

    def _graph(self, layers: Layers, snapshot: Snapshot, request: GraphRequest) -> Graph:
        uses = self._uses.get(layers)
        if uses is None or uses.snapshot is not snapshot:
            uses = SnapshotUses(snapshot, self._is_static)
            self._uses.put(layers, uses)
        return graph_of(uses, request)

    async def difference(self, _: web.Request, words: RequestParameters) -> object:
        """Return changes between two snapshots of the history, or to the present one."""
        first = snapshot_number(words.get("from", ""))
        layers, before = await self._shown.kept(first)
        if (last := words.get("to")) is not None:
            other_layers, after = await self._shown.kept(snapshot_number(last))
            if other_layers != layers:
                raise ProtocolError("to: is of other layers; compare snapshots of the same nodes")
        elif (served := self._shown.served(layers)) is not None:
            after = served
        else:
            raise ProtocolError(f"@{first} is of layers that no node has now; send `to` as well", "NOT_FOUND")
        async with self._lock:
            return await asyncio.to_thread(diff_of, before, after, self._catalogue)

    async def content(self, _: web.Request, words: RequestParameters) -> object:
        """Return a served resource, and how the files' one differs."""
        layers = self._view(words.get("view"))[1]
        key = _key_in(words, "id")
        snapshots = self._shown.served(layers), self._shown.wanted(layers)
        served, wanted = (None if one is None else one.resources(key[0]).get(key[1]) for one in snapshots)
        if served is None and wanted is None:
            raise ProtocolError(f"id: there is no {words['id'][:80]!r} here; GET /api/graph lists names", "NOT_FOUND")
        async with self._lock:
            return await asyncio.to_thread(content_of, BY_TYPE_URL[key[0]], served, wanted, Masker(self._catalogue))

    def _view(self, wanted: str | None) -> tuple[str, Layers]:
        views = self._shown.views()
        for name, layers in views:
            if wanted is None or is_called(wanted, name, layers):
                return name, layers
        if wanted is None:
            return "", NO_LAYERS
        raise ProtocolError(f"view: there is no {wanted[:80]!r}; GET /api/status lists the views", "NOT_FOUND")


def page_paths(api: PageApi, changes: ChangeFeed) -> AdminPaths:
    """Return the page's handlers."""

    async def listen(request: web.Request, _: RequestParameters) -> web.StreamResponse:
        return await changes.answer(request)

    names = [each.name for each in files(__package__).joinpath("page").iterdir() if each.name != _PAGE]
    return {
        ("GET", "/"): AdminPath(PageFile.read(_PAGE).answer, is_open=True),
        **{("GET", f"/assets/{name}"): AdminPath(PageFile.read(name).answer, is_open=True) for name in sorted(names)},
        ("GET", "/api/events"): AdminPath(listen),
        ("GET", "/api/graph"): AdminPath(api.graph, frozenset({"view", "search", "around", "limit"})),
        ("GET", "/api/resource"): AdminPath(api.content, frozenset({"view", "id"})),
        ("GET", "/api/diff"): AdminPath(api.difference, frozenset({"from", "to"})),
    }


def _key_in(words: RequestParameters, name: str) -> Key:
    written = words.get(name, "")
    if (key := key_of_id(written)) is None:
        raise ProtocolError(f"{name}: {written[:80]!r} is no type and name; send one such as cds/web")
    return key


# More than a person reads. Comparing a resource of 400 lines takes some 50 ms.
MOST_RESOURCES = 100
MOST_LINES = 400
LONGEST_TEXT = 4000
LONGEST_BODY_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class ResourceDiff:
    """One resource's difference between snapshots.

    `action` is `added`, `removed` or `changed`; `lines` are a unified diff; `omitted`: why lines are missing.
    """

    type: str
    name: str
    action: str
    place: str
    lines: tuple[str, ...]
    omitted: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """Snapshots' first changes, and their number."""

    resources: tuple[ResourceDiff, ...]
    total: int


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """A served resource.

    Attributes:
        lines: its masked YAML; empty if not served.
        omitted: why lines are missing, or empty.
        file: how the files' version differs; None if that is served.
    """

    lines: tuple[str, ...]
    omitted: str
    file: ResourceDiff | None


def content_of(row: ResourceType, served: Resource | None, wanted: Resource | None, masker: Masker) -> ResourceContent:
    """Return a served resource, and how the files' version differs."""
    is_same = served is not None and wanted is not None and served.version == wanted.version
    # Compared with nothing, each line is added.
    lines, omitted = ((), "it is not served") if served is None else _lines(None, served, masker)
    change = None if is_same else _diff(row, served, wanted, masker)
    return ResourceContent(tuple(line[1:] for line in lines if line[0] == "+"), omitted, change)


def diff_of(before: Snapshot, after: Snapshot, catalogue: Catalogue) -> SnapshotDiff:
    """Return the changes, in push order and by name."""
    masker = Masker(catalogue)
    changes = list(_changes(before, after))
    return SnapshotDiff(
        tuple(_diff(row, old, new, masker) for row, old, new in islice(changes, MOST_RESOURCES)), len(changes)
    )


def _changes(before: Snapshot, after: Snapshot) -> Iterator[tuple[ResourceType, Resource | None, Resource | None]]:
    for row in RESOURCE_TYPES:
        was, now = before.resources(row.type_url), after.resources(row.type_url)
        change = now.changes_since(was)
        # A change relative to empty rows lists all names and nothing else.
        for name in sorted(change.fresh | change.renewed | change.removed | (was.keys() - now.keys())):
            yield row, was.get(name), now.get(name)


def _diff(row: ResourceType, before: Resource | None, after: Resource | None, masker: Masker) -> ResourceDiff:
    shown = after or before
    if shown is None:
        raise RuntimeError("what changed was there before, or is there now")
    action = "added" if before is None else "removed" if after is None else "changed"
    lines, omitted = _lines(before, after, masker)
    return ResourceDiff(row.short_name, shown.name, action, str(shown.origin), lines, omitted)


def _lines(before: Resource | None, after: Resource | None, masker: Masker) -> tuple[tuple[str, ...], str]:
    if any(one is not None and len(one.body) > LONGEST_BODY_BYTES for one in (before, after)):
        return (), "it is too large for this page; fsxds show and fsxds diff have it"
    try:
        old, new = (_text(one, masker) for one in (before, after))
    except ApiError:
        return (), "it is of a message that this fsxds does not know"
    # The head names files.
    found = [line[:LONGEST_TEXT] for line in islice(unified_diff(old, new, lineterm=""), 2, MOST_LINES + 3)]
    if not found:
        return (), "only hidden fields, the aliases or the time to live differ"
    more = "more lines follow; fsxds show and fsxds diff have all" if len(found) > MOST_LINES else ""
    return tuple(found[:MOST_LINES]), more


def _text(resource: Resource | None, masker: Masker) -> list[str]:
    if resource is None:
        return []
    shown = masker.shown(resource.type_url, resource.body)
    text: str = yaml.dump(shown, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=LONGEST_TEXT)
    return text.splitlines()


# In seconds.
PAUSE_S: Final = 0.2
# Proxies end idle connections, mostly after a minute.
HEARTBEAT_S: Final = 15.0
# Each holds a connection.
MOST_READERS: Final = 64

_EVENT_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ChangeFeed:
    """Counts events, and notifies readers."""

    def __init__(self, generation: Callable[[], int]) -> None:
        self._generation = generation
        self._count = Latest(0)
        self._readers = 0
        # Changes when the server stops, which ends the answers.
        self._round = 0

    def receive(self, happened: Event) -> None:
        """Record an event, except rejected requests, which are not shown."""
        if not isinstance(happened, RequestRejected):
            self._count.replace(self._count.current + 1)

    async def close(self, _: web.Application) -> None:
        """End all answers: the server stops."""
        self._round += 1
        self._count.replace(self._count.current + 1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send events until the page disconnects. Raises ProtocolError (`UNAVAILABLE`) for too many readers."""
        if self._readers >= MOST_READERS:
            raise ProtocolError(f"{MOST_READERS} pages listen to events already; close some", "UNAVAILABLE")
        response = web.StreamResponse(headers=_EVENT_HEADERS)
        self._readers += 1
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                await self._send(response)
        finally:
            self._readers -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        known, our_round = -1, self._round
        while our_round == self._round:
            if known != self._count.current:
                known = self._count.current
                await response.write(
                    f"event: changed\ndata: {json.dumps({'generation': self._generation()})}\n\n".encode()
                )
            await asyncio.sleep(PAUSE_S)
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._count.other_than(known)
            except TimeoutError:
                await response.write(b": nothing new\n\n")


class AdminControl(RolloutControl, ShownSnapshots, Outlined, Protocol):
    """Shows and controls rollouts, and shows snapshots."""


class OperatorControl(AdminControl, Protocol):
    """Controls one publisher."""

    def roll_back(self, snapshots: Mapping[Layers, Snapshot]) -> int:
        """Serve these snapshots; return how many channels are affected."""
