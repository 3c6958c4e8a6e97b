from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import brotli
import pytest
import yaml
import zstandard
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from fsxds.api.printing import Printer
from fsxds.events.client_events import ResponseSent
from fsxds.protocol.messages import Node
from fsxds.runtime.access import Access
from fsxds.runtime.channels import Channel
from fsxds.settings.access_rules import AccessRule
from fsxds.settings.forms import TcpAddress
from fsxds.settings.options import Settings
from fsxds.transports.http_get.get_handler import documents
from fsxds.transports.http_get.get_responses import GetRules
from fsxds.transports.rest.poll_responses import LARGE_BODY_BYTES
from tests.support.polls import Answer, Server, named, running, snapshot_of

CLUSTER = "envoy.config.cluster.v3.Cluster"
WEB = f"/{CLUSTER}/web"
OLD, NEW = f"xdstp:///{CLUSTER}/old", f"xdstp:///{CLUSTER}/new"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that has nothing yet."""
    async with running() as server:
        yield server


async def get(server: Server, path: str = WEB, **headers: str) -> Answer:
    """Get a path; names of headers have underscores for hyphens."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.ask("GET", path, headers=sent, allow_redirects=False)


async def body_of(client: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> tuple[bytes, str]:
    """Get a URL; return the body as it was sent, and its tag."""
    async with client.get(url, headers=headers) as response:
        return await response.read(), response.headers["ETag"]


async def test_a_resource_is_got_by_its_name(server: Server) -> None:
    """Its content without its type, with its version as its tag."""
    web = named("cds", "web", alt_stat_name="x")
    server.publish(web)
    answer = await get(server)

    assert answer.status == 200
    assert answer.content == {"name": "web", "alt_stat_name": "x"}
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["ETag"] == f'"{web.version}"'
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"


async def test_each_format_is_served(server: Server) -> None:
    """By `Accept`, each with its own tag."""
    server.publish(named("cds", "web"))
    as_yaml = await get(server, accept="text/yaml")
    as_protobuf = await get(server, accept="application/x-protobuf")

    assert (as_yaml.headers["Content-Type"], yaml.safe_load(as_yaml.body)) == ("application/yaml", {"name": "web"})
    assert as_protobuf.headers["Content-Type"] == "application/x-protobuf"
    assert Cluster.FromString(as_protobuf.body).name == "web"
    assert len({each.headers["ETag"] for each in (as_yaml, as_protobuf, await get(server))}) == 3


async def test_what_the_client_has_is_not_sent(server: Server) -> None:
    """304 has the headers that the content would have."""
    server.publish(named("cds", "web"))
    whole = await get(server)
    again = await get(server, if_none_match=f'"other", W/{whole.headers["ETag"]}')

    assert (again.status, again.body) == (304, b"")
    for header in ("ETag", "Cache-Control", "Vary"):
        assert again.headers[header] == whole.headers[header]


async def test_a_client_waits_for_a_change(server: Server) -> None:
    """It is answered at the change of its resource, and not at that of another."""
    server.publish(named("cds", "web"), named("cds", "other"))
    tag = (await get(server)).headers["ETag"]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(get(server, if_none_match=tag, prefer="wait=50"))
        await server.until_held()
        server.publish(named("cds", "web"), named("cds", "other", alt_stat_name="x"))
        server.publish(named("cds", "web", alt_stat_name="y"))

    assert waiting.result().content == {"name": "web", "alt_stat_name": "y"}
    assert waiting.result().headers["Preference-Applied"] == "wait=50"


@pytest.mark.parametrize("size", [1, 2 * LARGE_BODY_BYTES])
async def test_head_is_get_without_content(size: int, server: Server) -> None:
    """All headers are the same, its length included."""
    server.publish(named("cds", "web", alt_stat_name="x" * size))
    head, whole = await server.ask("HEAD", WEB), await get(server)
    for answer in (head, whole):
        del answer.headers["Date"]

    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers


async def test_the_index_lists_what_there_is(server: Server) -> None:
    """Types with their resources, each with its URL, which can be got."""
    server.publish(named("cds", "web"), named("sds", "key"))
    index = (await get(server, "/")).content
    by_name = {each["short_name"]: each for each in index["types"]}

    assert list(by_name) == ["sds", "cds"]
    assert by_name["cds"]["count"] == 1
    assert (await server.ask("GET", by_name["cds"]["resources"][0]["url"])).content == {"name": "web"}
    assert by_name["sds"]["resources"] == [{"name": "key", "url": by_name["sds"]["url"] + "key"}]


@pytest.mark.parametrize("query", [{}, {"wait": "50"}, {"wait": "50s"}], ids=["prefer", "wait", "unit"])
async def test_a_client_waits_for_what_is_not_there(query: dict[str, str], server: Server) -> None:
    """Until it is; what was there and goes is answered at once."""
    server.publish(named("cds", "other"))
    path = f"{WEB}?wait={query['wait']}" if query else WEB
    preference = {} if query else {"prefer": "wait=50"}
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(get(server, path, **preference))
        await server.until_held()
        server.publish(named("cds", "web"))
    assert waiting.result().status == 200
    async with asyncio.TaskGroup() as tasks:
        tag = waiting.result().headers["ETag"]
        waiting = tasks.create_task(get(server, path, if_none_match=tag, **preference))
        await server.until_held()
        server.publish(named("cds", "other"))

    assert waiting.result().status == 404
    assert waiting.result().headers["Cache-Control"] == "no-cache"
    assert (await get(server, path, if_none_match=tag, **preference)).status == 404


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=0", "wait=0"),
        ('respond-async, WAIT = "0"; x=y', "wait=0"),
        ("wait=99999999", "wait=1"),
        ("wait=x", None),
        ("await=30", None),
        ("wait=-1", None),
    ],
)
async def test_preferences_are_wishes(prefer: str, applied: str | None) -> None:
    """One that can be read is applied, up to the longest hold; others are passed over."""
    async with running(max_hold_s=1.0) as server:
        server.publish(named("cds", "web"))
        tag = (await get(server)).headers["ETag"]
        answer = await get(server, if_none_match=tag, prefer=prefer)

        assert (answer.status, answer.headers.get("Preference-Applied")) == (304, applied)


async def test_the_end_of_a_wait_is_304(server: Server) -> None:
    """And 404 for what did not come; who has nothing is answered at once."""
    server.publish(named("cds", "web"))
    tag = (await get(server)).headers["ETag"]

    assert (await get(server, f"{WEB}?wait=20ms", if_none_match=tag)).status == 304
    assert (await get(server, f"{WEB}2?wait=20ms")).status == 404
    assert (await get(server, f"{WEB}?wait=50")).status == 200
    assert (await get(server, f"{WEB}?wait=soon")).status == 400


async def test_a_star_is_any_tag(server: Server) -> None:
    """Only its removal is another state than the one that the client has."""
    server.publish(named("cds", "web"))
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(get(server, if_none_match="*", prefer="wait=50"))
        await server.until_held()
        server.publish(named("cds", "web", alt_stat_name="x"))
        server.publish()

    assert waiting.result().status == 404


async def test_a_proxy_that_gives_up_is_answered_before() -> None:
    """Envoy says how long it waits itself (ENVOY.md E2)."""
    async with running(max_hold_s=600.0) as server:
        server.publish(named("cds", "web"))
        tag = (await get(server)).headers["ETag"]
        headers = {"if-none-match": tag, "prefer": "wait=600", "x-envoy-expected-rq-timeout-ms": "400"}
        # A tenth of what it would be held for without that.
        async with asyncio.timeout(60):
            answer = await server.ask("GET", WEB, headers=headers)

    assert answer.status == 304


async def test_if_match_demands_a_tag(server: Server) -> None:
    """412 where there is another, or nothing; weak tags are none of it."""
    server.publish(named("cds", "web"))
    tag = (await get(server)).headers["ETag"]
    statuses = [
        (await get(server, path, if_match=demanded)).status
        for path, demanded in (
            (WEB, tag),
            (WEB, "*"),
            (WEB, f'"x", {tag}'),
            (WEB, '"x"'),
            (WEB, f"W/{tag}"),
            (f"{WEB}2", "*"),
        )
    ]

    assert statuses == [200, 200, 200, 412, 412, 412]


async def test_what_no_client_takes_is_not_sent(server: Server) -> None:
    """406, with what there is."""
    server.publish(named("cds", "web"))
    answer = await get(server, accept="image/png")
    of_list = await get(server, f"/{CLUSTER}/", accept="application/x-protobuf")

    assert (answer.status, of_list.status) == (406, 406)
    assert "application/yaml, application/x-protobuf" in answer.content["message"]


async def test_codings_are_made_once_per_version(server: Server) -> None:
    """For a hundred clients, each as it asks, with a tag of its own."""
    server.publish(named("cds", "web", alt_stat_name="x" * 200_000))
    read = {"gzip": gzip.decompress, "br": brotli.decompress, "zstd": zstandard.decompress, "identity": bytes}
    contents = server.get.responses.contents
    tags = set()
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        for coding, decompress in read.items():
            path = f"http://{server.address}{WEB}"
            async with asyncio.TaskGroup() as tasks:
                headers = {"accept-encoding": coding}
                asked = [tasks.create_task(body_of(client, path, headers)) for _ in range(25)]
            for each in asked:
                body, tag = each.result()
                assert json.loads(decompress(body))["alt_stat_name"] == "x" * 200_000
                tags.add(tag)

    assert (len(tags), contents.made) == (4, 4)


async def test_redirects_lead_to_urls() -> None:
    """Relative ones here, with the parameters that say which node asks; elsewhere, those of the authority."""
    rules = GetRules("own", {"known": "https://known.example/xds"})
    web, other = f"xdstp://own/{CLUSTER}/web?a=b", f"xdstp://known/{CLUSTER}/web"
    moved = replace(named("cds", f"xdstp://own/{CLUSTER}/moved"), redirect=f"{web}#entry=e")
    gone = replace(named("cds", f"xdstp://own/{CLUSTER}/gone"), redirect=other, body=b"")
    dangling = replace(named("cds", f"xdstp://own/{CLUSTER}/dangling"), redirect=f"xdstp://x/{CLUSTER}/a", body=b"")
    of_file = replace(named("cds", f"xdstp://own/{CLUSTER}/of-file"), redirect="file:///srv/tree/a.yaml", body=b"")
    snapshot = snapshot_of(1, named("cds", web), moved)
    unresolved = {(each.type_url, each.name): each for each in (gone, dangling, of_file)}
    async with running(rules=rules) as server:
        server.store.publish(replace(snapshot, unresolved=unresolved))
        answers = {
            path: await get(server, f"/{CLUSTER}/{path}", prefer="wait=50")
            for path in ("moved?xds.node.id=n%201", "gone", "dangling?wait=0", "of-file?wait=0")
        }
        statuses = [answer.status for answer in answers.values()]
        locations = [answer.headers.get("Location") for answer in answers.values()]

        assert statuses == [302, 302, 404, 404]
        assert b"/srv" not in answers["of-file?wait=0"].body
        assert locations == [
            f"/{CLUSTER}/web?a=b&xds.node.id=n%201#entry=e",
            f"https://known.example/xds/{CLUSTER}/web",
            None,
            None,
        ]


async def test_a_ttl_is_how_long_caches_keep_it(server: Server) -> None:
    """`max-age` in whole seconds."""
    server.publish(replace(named("cds", "web"), ttl_s=90.5))

    assert (await get(server)).headers["Cache-Control"] == "max-age=90"


async def test_lists_name_urls(server: Server) -> None:
    """Each with its version; a list is waited for as a resource is."""
    a, b = named("cds", "team/a"), named("cds", "team/b")
    server.publish(a, b)
    path = f"/{CLUSTER}/team/*"
    whole = await get(server, path)
    base = f"http://{server.address}/{CLUSTER}/team"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(get(server, path, if_none_match=whole.headers["ETag"], prefer="wait=50"))
        await server.until_held()
        server.publish(a)

    assert json.loads(whole.body) == [{"name": f"{base}/{each.name[-1]}", "version": each.version} for each in (a, b)]
    assert json.loads(waiting.result().body) == [{"name": f"{base}/a", "version": a.version}]


async def test_the_url_of_the_authority_is_that_of_the_settings() -> None:
    """Behind a proxy, clients have another one than the server."""
    rules = GetRules("own", {"own": "https://cdn.example/xds"})
    async with running(rules=rules) as server:
        server.publish(named("cds", "a"), named("cds", f"xdstp://own/{CLUSTER}/b"))
        names = [each["name"] for each in json.loads((await get(server, f"/{CLUSTER}/")).body)]

        assert names == [f"https://cdn.example/xds/{CLUSTER}/{name}" for name in ("a", "b")]


async def test_the_index_is_a_page_for_browsers(server: Server) -> None:
    """Names are texts in it, and nothing in it runs."""
    server.publish(*(named("cds", f"<b>{number:04}") for number in range(1001)))
    page = await get(server, "/", accept="text/html,*/*;q=0.8")

    assert page.headers["Content-Type"].startswith("text/html")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"&lt;b&gt;0999" in page.body
    assert b"<b>" not in page.body
    assert b"The first 1000 of 1001" in page.body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v3/discovery:clusters", 405),
        ("PUT", WEB, 405),
        ("DELETE", "/", 405),
        ("PUT", "/openapi.json", 405),
        ("PUT", "/nowhere", 404),
        ("POST", WEB, 405),
        ("POST", "/nowhere", 404),
        ("OPTIONS", WEB, 204),
        ("OPTIONS", "/nowhere", 204),
    ],
)
async def test_other_methods_read_nothing(method: str, path: str, status: int, server: Server) -> None:
    """And say what can be asked."""
    server.get.documents.update(documents())
    answer = await server.ask(method, path)

    assert answer.status == status
    if status in {405, 204}:
        assert answer.headers["Allow"] == ("POST" if "/v3/" in path else "GET, HEAD, OPTIONS")


async def test_the_server_as_a_whole_has_options(server: Server) -> None:
    """`OPTIONS *` is at no path (RFC 9110, 9.3.7); it is answered by fsxds, as all else."""
    assert isinstance(server.address, TcpAddress)
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = (await reader.read()).decode().splitlines()
    writer.close()
    await writer.wait_closed()

    assert answer[0] == "HTTP/1.1 204 No Content"
    assert "Allow: GET, HEAD, OPTIONS" in answer


async def test_a_wait_that_cannot_be_read_is_named(server: Server) -> None:
    """By the name of its parameter."""
    answer = await get(server, f"{WEB}?wait=soon")

    assert (answer.status, answer.content["message"].partition(" ")[0]) == (400, "wait:")


@pytest.mark.parametrize(
    ("path", "status"),
    [(WEB, 200), (f"/{CLUSTER}/", 200), ("/", 200), ("/openapi.json", 200), (f"{WEB}2", 404), (f"/{CLUSTER}/old", 302)],
)
@pytest.mark.parametrize("headers", [{}, {"accept": "application/yaml", "accept-encoding": "br"}, {"prefer": "wait=1"}])
async def test_head_and_304_have_the_headers_of_get(path: str, status: int, headers: dict[str, str]) -> None:
    """All of them in HEAD; in 304 all but those of the content that is not sent (RFC 9110, 9.3.2, 15.4.5)."""
    async with running(max_hold_s=1.0) as server:
        server.get.documents.update(documents())
        server.publish(named("cds", "web"), replace(named("cds", OLD), redirect=NEW), named("cds", NEW))
        got = await server.ask("GET", path, headers=headers, allow_redirects=False)
        head = await server.ask("HEAD", path, headers=headers, allow_redirects=False)
        assert (got.status, head.status, head.body) == (status, status, b"")
        assert {**got.headers, "Date": ""} == {**head.headers, "Date": ""}

        if status == 200:
            had = {**headers, "if-none-match": got.headers["ETag"]}
            for method in ("GET", "HEAD"):
                same = await server.ask(method, path, headers=had)
                assert (same.status, same.body) == (304, b"")
                of_content = {name for name in got.headers if name.startswith("Content-")}
                assert got.headers.keys() - of_content == same.headers.keys() - of_content
                assert all(got.headers[name] == same.headers[name] for name in same.headers if name != "Date")


@pytest.mark.parametrize("path", ["/nowhere", f"{WEB}2", f"/{CLUSTER}/%zz", f"{WEB}?wait=x", "/v3/discovery:clusters"])
async def test_head_of_what_fails_is_get_without_content(path: str, server: Server) -> None:
    """The status and the headers are the same."""
    server.publish(named("cds", "web"))
    head, whole = await server.ask("HEAD", path), await get(server, path)
    for answer in (head, whole):
        del answer.headers["Date"]

    assert (head.status, head.headers, head.body) == (whole.status, whole.headers, b"")
    assert whole.content["message"]


async def test_too_many_wait() -> None:
    """The limit is that of polls, with which they are counted."""
    async with running(settings=Settings(max_held_polls=1)) as server:
        server.publish(named("cds", "web"))
        version = (await server.poll()).content["version_info"]
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(server.poll(version_info=version))
            await server.until_held()
            answer = await get(server, f"{WEB}2?wait=50")
            server.publish(named("cds", "web", alt_stat_name="x"))
            await poll

        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


async def test_access_that_changes_while_a_view_is_loaded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GET that was held is denied then, too: its node may have another view by now."""
    server.publish(named("cds", "web"))
    waiting = asyncio.ensure_future(get(server, if_none_match=(await get(server)).headers["ETag"], prefer="wait=50"))
    await server.until_held()
    is_loading, is_loaded = asyncio.Event(), asyncio.Event()

    async def channel_of(_: Node, **holds: object) -> Channel:
        assert holds["holds"] is None
        is_loading.set()
        await is_loaded.wait()
        return server.channels.channel

    monkeypatch.setattr(server.channels, "channel_of", channel_of)
    server.publish(named("cds", "web", alt_stat_name="x"))
    await is_loading.wait()
    server.rest.exchange.access.replace(Access((AccessRule("other", nodes=("other-*",)),)))
    is_loaded.set()

    assert (await waiting).status == 401


async def test_nothing_loaded_is_503(server: Server) -> None:
    """A client that has something waits, and is not told that it is gone."""
    assert (await get(server)).status == 503
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(get(server, if_none_match='"1"', prefer="wait=50"))
        await server.until_held()
        server.publish(named("cds", "web"))

    assert waiting.result().status == 200


async def test_the_end_of_the_server_ends_a_wait() -> None:
    """With 304, and the connection is closed."""
    async with running() as server:
        server.publish(named("cds", "web"))
        tag = (await get(server)).headers["ETag"]
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(get(server, if_none_match=tag, prefer="wait=50"))
            await server.until_held()
            server.rest.exchange.drain()

    assert waiting.result().status == 304


async def test_an_error_of_ours_ends_one_request(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """With 500; it is reported, whether it comes in a thread or not, and others are served."""

    def fail(*_: object) -> bytes:
        raise ZeroDivisionError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(Printer, "resource_plain", fail)
        server.publish(named("cds", "web"), named("cds", "large", alt_stat_name="x" * 200_000))
        for path in (WEB, f"/{CLUSTER}/large"):
            answer = await get(server, path)
            assert (answer.status, answer.content["code"]) == (500, 13)
            assert b"secret" not in answer.body
        assert [type(error) for _, error in server.recorder.errors] == [ZeroDivisionError] * 2

    assert [(await get(server, path)).status for path in (WEB, f"/{CLUSTER}/large")] == [200, 200]


async def test_what_is_sent_is_reported(server: Server) -> None:
    """As that of polls is: who was sent which version, and for a change since when it was known; 304 is nothing."""
    server.publish(named("cds", "web"))
    server.channels.channel.detected_s = 7.0
    tag = (await get(server, f"{WEB}?xds.node.id=n")).headers["ETag"]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(get(server, f"{WEB}?xds.node.id=n&wait=50", if_none_match=tag))
        await server.until_held()
        server.publish(named("cds", "web", alt_stat_name="x"))
    await get(server, f"/{CLUSTER}/")
    await get(server, f"{WEB}2")
    sent = [(each.node.id, each.subscription.names, each.detected_s) for each in server.recorder.of(ResponseSent)]

    assert sent == [("n", {"web"}, None), ("n", {"web"}, 7.0), ("", frozenset(), None)]
    assert not server.channels.channel.readers


@pytest.mark.parametrize("host", ['a"<b>', "a b", "ÿ"])
async def test_a_host_is_a_host(host: str) -> None:
    """It is in URLs of answers."""
    async with running(settings=Settings(allowed_hosts=("*",))) as server:
        server.publish(named("cds", "web"))

        assert (await get(server, host=host)).status == 400
