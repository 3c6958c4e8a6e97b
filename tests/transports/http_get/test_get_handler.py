from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import yaml
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.support.polls import Answer, Server, named, running

CLUSTER = "envoy.config.cluster.v3.Cluster"
WEB = f"/{CLUSTER}/web"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server that has nothing yet."""
    async with running() as server:
        yield server


async def get(server: Server, path: str = WEB, **headers: str) -> Answer:
    """Get a path; names of headers have underscores for hyphens."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.ask("GET", path, headers=sent, allow_redirects=False)


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


async def test_head_is_get_without_content(server: Server) -> None:
    """All headers are the same, its length included."""
    server.publish(named("cds", "web"))
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
