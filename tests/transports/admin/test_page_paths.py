from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.resources import files

import aiohttp
import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.events.client_events import RequestRejected
from fsxds.events.file_events import TreeReturned
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.transports.admin import page_paths as page_paths_module
from fsxds.transports.admin.admin_api import AdminApi
from fsxds.transports.admin.page_paths import POLICY, ChangeFeed, PageApi, page_paths
from fsxds.transports.rest.http_server import ListenerOptions, listening
from tests.support.admin import COMMON, EDGE, LOCALHOST
from tests.support.errors import Recorder
from tests.support.snapshots import snapshot

ASSETS = sorted(each.name for each in files("fsxds.transports.admin").joinpath("page").iterdir())


@dataclass
class KeptSnapshots:
    """Snapshots that are served, and those of the history."""

    by_layers: dict[Layers, Snapshot] = field(
        default_factory=lambda: {COMMON: snapshot({"CDS": {"a": "1"}}), EDGE: snapshot({"CDS": {"b": "1", "c": "1"}})}
    )

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return two views."""
        return [("everyone", COMMON), ("edge", EDGE)]

    def served(self, layers: Layers) -> Snapshot | None:
        """Return what is served."""
        return self.by_layers.get(layers)

    def wanted(self, layers: Layers) -> Snapshot | None:
        """Return what the tree asks for: another version of the cluster `a`."""
        return snapshot({"CDS": {"a": "2"}}) if layers == COMMON else self.served(layers)

    async def kept(self, number: int) -> tuple[Layers, Snapshot]:
        """Return one of three snapshots: of the last one, no node has the layers."""
        if number > 3:
            raise ProtocolError(f"@{number}: the history has no such snapshot", "NOT_FOUND")
        return {1: COMMON, 2: EDGE, 3: ("gone",)}[number], snapshot({})


@dataclass
class Page:
    """A running admin address with the page alone."""

    client: aiohttp.ClientSession
    changes: ChangeFeed
    kept: KeptSnapshots
    stack: AsyncExitStack

    async def ask(self, path: str) -> tuple[int, dict[str, object]]:
        """Return the status and the JSON of an answer."""
        async with self.client.get(path) as response:
            return response.status, await response.json()


@pytest.fixture
async def page(catalogue: Catalogue) -> AsyncIterator[Page]:
    """Run the page."""
    kept, generations = KeptSnapshots(), iter(range(7, 10_000))
    changes = ChangeFeed(lambda: next(generations))
    api = PageApi(kept, catalogue, lambda _: False)
    application = AdminApi(page_paths(api, changes), LOCALHOST, Recorder()).application()
    application.on_shutdown.append(changes.close)
    async with AsyncExitStack() as stack:
        bound = await stack.enter_async_context(
            listening(application, LOCALHOST, grace_s=30.0, options=ListenerOptions("admin"))
        )
        async with aiohttp.ClientSession(f"http://{bound}") as client:
            yield Page(client, changes, kept, stack)


async def test_every_file_is_served_with_the_policy(page: Page) -> None:
    """Nothing but these files may run or be shown, and no page of others may have it in a frame."""
    for path in ["/", *(f"/assets/{name}" for name in ASSETS if name != "index.html")]:
        async with page.client.get(path) as response:
            assert (response.status, len(await response.read()) > 100) == (200, True)
            assert response.headers["Content-Security-Policy"] == POLICY
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")


def test_the_page_has_nothing_inline_and_nothing_of_others() -> None:
    """No script or style in the HTML, no address of another host, and no way to put text in as HTML."""
    folder = files("fsxds.transports.admin").joinpath("page")
    html = folder.joinpath("index.html").read_text(encoding="utf-8")
    scripts = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ASSETS if name.endswith(".js"))

    assert "style=" not in html
    assert html.count("<script") == html.count('<script type="module" src="/assets/')
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in scripts
    assert "://" not in html
    assert "://" not in scripts.replace("http://www.w3.org/2000/svg", "")


async def test_a_file_that_the_browser_has_is_not_sent_again(page: Page) -> None:
    """304, as long as it is the same."""
    async with page.client.get("/") as response:
        etag = response.headers["ETag"]
    for known in (etag, f'"other", W/{etag}'):
        async with page.client.get("/", headers={"If-None-Match": known}) as response:
            assert (response.status, await response.read()) == (304, b"")


async def test_a_link_of_another_page_leads_to_the_page(page: Page) -> None:
    """A runbook may have one. Nothing but the page as a document is given to other sites, and no fact is in it."""
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path, headers, expected in (
        ("/", link, 200),
        ("/", link | {"Sec-Fetch-Dest": "iframe"}, 403),
        ("/", link | {"Host": "evil.example"}, 403),
        ("/api/graph", link, 403),
    ):
        async with page.client.get(path, headers=headers) as response:
            assert response.status == expected


@pytest.mark.parametrize("path", ["/assets/", "/assets/index.html", "/assets/..%2fpage_paths.py", "/assets/%00", "/x"])
async def test_nothing_of_a_request_leads_to_a_file(page: Page, path: str) -> None:
    """There are these paths and no others."""
    assert (await page.ask(path))[0] == 404


async def test_graph_of_a_view(page: Page) -> None:
    """By its name or its layers; of the first one where none is named."""
    for words, names in (("", ["a"]), ("?view=edge", ["b", "c"]), ("?view=common%2Bedge", ["b", "c"])):
        status, graph = await page.ask(f"/api/graph{words}")
        assert (status, [node["name"] for node in graph["nodes"]]) == (200, names)  # type: ignore[attr-defined]
    assert graph["view"] == "edge"


async def test_graph_follows_what_is_served(page: Page) -> None:
    """What is worked out of a snapshot is not shown of the next one."""
    assert (await page.ask("/api/graph"))[1]["total"] == 1
    page.kept.by_layers[COMMON] = snapshot({"CDS": {"a": "1", "z": "1"}})
    assert (await page.ask("/api/graph"))[1]["total"] == 2
    del page.kept.by_layers[COMMON]
    assert (await page.ask("/api/graph"))[1]["total"] == 0


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("view=nope", 404, "view: there is no 'nope'"),
        ("limit=0", 400, "limit: '0' is no number from 1 to 400"),
        ("limit=401", 400, "limit: '401'"),
        ("limit=%D9%A3", 400, "limit: '٣'"),
        ("limit=1e2", 400, "limit: '1e2'"),
        ("around=web", 400, "around: 'web' is no type and name"),
        ("nope=1", 400, "'nope': is no parameter"),
    ],
)
async def test_graph_says_what_is_wrong(page: Page, words: str, status: int, reason: str) -> None:
    """With the remedy."""
    answered, content = await page.ask(f"/api/graph?{words}")

    assert (answered, str(content["message"])[: len(reason)]) == (status, reason)


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("", 400, "number: ''"),
        ("from=9", 404, "@9: the history has no such snapshot"),
        ("from=1&to=2", 400, "to: is of other layers"),
        ("from=3", 404, "@3 is of layers that no node has now"),
    ],
)
async def test_diff_says_what_is_wrong(page: Page, words: str, status: int, reason: str) -> None:
    """With the remedy."""
    answered, content = await page.ask(f"/api/diff?{words}")

    assert (answered, str(content["message"])[: len(reason)]) == (status, reason)


async def test_diff_between_snapshots(page: Page) -> None:
    """Two of the same nodes; the later one is what is served where none is named."""
    assert await page.ask("/api/diff?from=1&to=1") == (200, {"resources": [], "total": 0})
    assert (await page.ask("/api/diff?from=1"))[1]["total"] == 1


async def test_content_of_a_resource(page: Page) -> None:
    """What is served, and the difference to the version of the files, if there is one."""
    status, changed = await page.ask("/api/resource?id=cds%2Fa")
    same = await page.ask("/api/resource?view=edge&id=cds%2Fb")

    assert status == 200
    assert changed["file"]["action"] == "changed"  # type: ignore[index]
    assert (same[0], same[1]["file"]) == (200, None)


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("", 400, "id: '' is no type and name; send one such as cds/web"),
        ("id=cds%2Fnope", 404, "id: there is no 'cds/nope' here; GET /api/graph lists names"),
    ],
)
async def test_content_says_what_is_wrong(page: Page, words: str, status: int, reason: str) -> None:
    """With the remedy."""
    answered, content = await page.ask(f"/api/resource?{words}")

    assert (answered, content["message"]) == (status, reason)


async def read_event(response: aiohttp.ClientResponse) -> str:
    """Return the next event or comment."""
    return (await asyncio.wait_for(response.content.readuntil(b"\n\n"), 60)).decode()


async def test_events_come_with_each_change(page: Page) -> None:
    """One when the page begins to listen, and one after what happens; not for requests that are rejected."""
    async with page.client.get("/api/events") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert await read_event(response) == 'event: changed\ndata: {"generation": 7}\n\n'
        page.changes.receive(RequestRejected("peer", 400, "no"))
        for _ in range(1000):
            page.changes.receive(TreeReturned())
        assert await read_event(response) == 'event: changed\ndata: {"generation": 8}\n\n'
        page.changes.receive(TreeReturned())
        assert await read_event(response) == 'event: changed\ndata: {"generation": 9}\n\n'


async def test_silence_has_heartbeats(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page knows by them that the connection is there."""
    monkeypatch.setattr(page_paths_module, "HEARTBEAT_S", 0.01)
    async with page.client.get("/api/events") as response:
        await read_event(response)
        assert await read_event(response) == ": nothing new\n\n"


async def test_events_end_with_the_server(page: Page) -> None:
    """They do not delay its end, which would wait for half a minute."""
    async with page.client.get("/api/events") as response:
        await read_event(response)
        await asyncio.wait_for(page.stack.aclose(), 20)
        assert await response.content.read() == b""


async def test_too_many_pages_are_rejected(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503; the one that leaves makes room."""
    monkeypatch.setattr(page_paths_module, "MOST_READERS", 1)
    async with page.client.get("/api/events") as response:
        await read_event(response)
        status, content = await page.ask("/api/events")
        assert (status, content["message"]) == (503, "1 pages listen to events already; close some")
    async with asyncio.timeout(60):
        while True:
            async with page.client.get("/api/events") as response:
                if response.status == 200:
                    break
            await asyncio.sleep(0.01)


async def test_head_of_events_ends(page: Page) -> None:
    """It has the headers of what never ends."""
    async with page.client.head("/api/events") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_a_slow_page_gets_the_newest_alone(page: Page) -> None:
    """Nothing is queued for it."""
    async with page.client.get("/api/events") as response:
        await read_event(response)
        for _ in range(100_000):
            page.changes.receive(TreeReturned())
        first = await read_event(response)
        assert first == 'event: changed\ndata: {"generation": 8}\n\n'
