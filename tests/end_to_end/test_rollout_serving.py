"""Rollouts over real sockets: the order in which clients get a change, clients that say nothing, and rejections."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fsxds.settings.forms import parse_address
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings
from fsxds.settings.rollout_forms import NackLimit
from fsxds.testing import serve
from fsxds.testing.server import SETTLE_S, Server
from tests.support.grpc_clients import DiscoveryClient, channel_to, method_path
from tests.support.polls import until
from tests.support.snapshots import type_url

TYPES = ("CDS", "RDS")
STEP_TIMEOUT_S = 0.5


def tree(cluster: str) -> dict[str, str]:
    """Return a tree of one file, with one cluster, and a route to it."""
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]}]
    resources = [
        {"@type": type_url("CDS"), "name": cluster, "connect_timeout": "1s"},
        {"@type": type_url("RDS"), "name": "web", "virtual_hosts": hosts},
    ]
    return {"all.yaml": "resources:\n" + "".join(f"- {json.dumps(each)}\n" for each in resources)}


def settings(**more: Any) -> Settings:
    """Return settings in which nothing lingers."""
    return replace(read_settings({}), settle_s=SETTLE_S, linger_s=0.0, step_timeout_s=STEP_TIMEOUT_S, **more)


@dataclass
class Follower:
    """A client of an aggregated stream that takes what it is sent, as long as a test does not say otherwise."""

    stream: DiscoveryClient
    got: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    rejects: str = ""
    is_silent: bool = False

    async def follow(self, node: str) -> None:
        """Subscribe to all types, and answer until the stream ends."""
        for short_name in TYPES:
            wanted = {"resource_names": ["web"]} if short_name == "RDS" else {}
            if self.stream.is_delta:
                wanted = {"resource_names_subscribe": ["web"] if short_name == "RDS" else ["*"]}
            await self.stream.ask(short_name, node=node, **wanted)
        while True:
            await self._answer(await self.stream.call.read())

    async def _answer(self, response: Any) -> None:
        short_name = next(name for name in TYPES if type_url(name) == response.type_url)
        bodies = [str(getattr(each, "resource", each).value) for each in response.resources]
        removed = tuple(getattr(response, "removed_resources", ()))
        self.got.append(
            (short_name, tuple(name for name in "abc" if any(f"cluster-{name}" in body for body in bodies)), removed)
        )
        if self.is_silent:
            return
        more: dict[str, Any] = {"resource_names": ["web"]} if short_name == "RDS" and not self.stream.is_delta else {}
        is_rejected = bool(self.rejects) and any(self.rejects in body for body in bodies)
        await self.stream.take(response, **more, **({"nack": f"{self.rejects}: no"} if is_rejected else {}))


@asynccontextmanager
async def following(server: Server, word: str, *nodes: str) -> AsyncIterator[list[Follower]]:
    """Let nodes follow a server."""
    async with channel_to(parse_address(server.grpc)) as channel, asyncio.TaskGroup() as tasks:
        followers = [Follower(DiscoveryClient(channel, method_path("", word))) for _ in nodes]
        running = [tasks.create_task(one.follow(node)) for one, node in zip(followers, nodes, strict=True)]
        await until(lambda: all({"CDS", "RDS"} <= {name for name, *_ in one.got} for one in followers))
        # Both were taken when the last one of them came.
        await asyncio.sleep(0)
        yield followers
        for each in running:
            each.cancel()
        for one in followers:
            one.stream.call.cancel()


async def change(server: Server, cluster: str) -> None:
    """Write the tree with another cluster."""
    [(path, content)] = tree(f"cluster-{cluster}").items()
    await asyncio.to_thread(server.write, path, content)


@pytest.mark.parametrize("word", ["Stream", "Delta"])
async def test_the_order_of_steps(word: str) -> None:
    """The new cluster comes first, then the route to it, and the old one goes last; another client is waited for between."""
    with serve(tree("cluster-a"), settings=settings(), rollout=True) as server:
        async with following(server, word, "n1", "n2") as (first, second):
            for one in (first, second):
                one.got.clear()
            await change(server, "b")
            steps = 3
            await until(lambda: len(first.got) >= steps and len(second.got) >= steps)

    expected: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
    if word == "Stream":
        expected = [("CDS", ("a", "b"), ()), ("RDS", ("b",), ()), ("CDS", ("b",), ())]
    else:
        expected = [("CDS", ("b",), ()), ("RDS", ("b",), ()), ("CDS", (), ("cluster-a",))]
    assert first.got == second.got == expected


@pytest.mark.parametrize("word", ["Stream", "Delta"])
async def test_a_client_that_says_nothing_delays_others_once(word: str) -> None:
    """The first step waits for it until its time is over, and the next change does not wait for it."""
    with serve(tree("cluster-a"), settings=settings(), rollout=True) as server:
        async with following(server, word, "n1", "dead") as (first, dead):
            dead.is_silent = True
            await change(server, "b")
            await until(lambda: ("RDS", ("b",), ()) in first.got)
            await change(server, "c")
            await until(lambda: ("RDS", ("c",), ()) in first.got)
        late = [line for line in server.log if "did not ACK it in time" in line]

        assert len(late) == 1
        assert "dead" in late[0]


@pytest.mark.parametrize("word", ["Stream", "Delta"])
async def test_a_rejected_change_comes_to_nobody_else(word: str) -> None:
    """The route never changes, the old state is served again, and the rejection is a problem until the tree changes."""
    with serve(tree("cluster-a"), settings=settings(nack_limit=NackLimit(0.3)), rollout=True) as server:
        async with following(server, word, "n1", "n2") as (first, second):
            first.rejects = "cluster-b"
            await change(server, "b")
            await asyncio.to_thread(server.wait_log, "because n1 rejected them")
            await asyncio.to_thread(server.wait_log, "n1 rejects cluster cluster-b")
            await change(server, "c")
            await until(lambda: ("RDS", ("c",), ()) in first.got and ("RDS", ("c",), ()) in second.got)
            await asyncio.to_thread(server.wait_log, "fixed: all.yaml")

        assert not any(name == "RDS" and "b" in clusters for one in (first, second) for name, clusters, _ in one.got)


def test_polls_see_the_route_after_the_cluster() -> None:
    """A node's poll for routes is held until its poll for clusters came back with the new one."""
    with serve(tree("cluster-a"), settings=settings(max_hold_s=5.0), rollout=True) as server:
        clusters, routes = poll(server, "clusters"), poll(server, "routes", names=["web"])
        for _ in range(2):
            # Both hold what is served, and wait for more.
            poll(server, "clusters", clusters, timeout=0)
            poll(server, "routes", routes, timeout=0, names=["web"])
        server.write(*next(iter(tree("cluster-b").items())))

        assert b"cluster-a" in poll_bytes(server, "routes", None, names=["web"])
        grown = poll(server, "clusters", clusters)
        assert [one["name"] for one in grown["resources"]] == ["cluster-a", "cluster-b"]
        poll(server, "clusters", grown, timeout=0)
        switched = poll(server, "routes", routes, names=["web"])
        assert "cluster-b" in json.dumps(switched)
        poll(server, "routes", switched, timeout=0, names=["web"])
        shrunk = poll(server, "clusters", grown)
        assert [one["name"] for one in shrunk["resources"]] == ["cluster-b"]


def poll(server: Server, path: str, before: Any = None, timeout: float = 5.0, names: list[str] | None = None) -> Any:
    """Poll with the version of an answer before, and return the answer; None where there is no update."""
    body = poll_bytes(server, path, before, timeout, names)
    return json.loads(body) if body else None


def poll_bytes(server: Server, path: str, before: Any, timeout: float = 5.0, names: list[str] | None = None) -> bytes:
    """Poll, and return the body."""
    version = before["version_info"] if before else ""
    fields = {"node": {"id": "n1"}, "version_info": version, "resource_names": names or []}
    headers = {"content-type": "application/json"}
    url = f"{server.http}/v3/discovery:{path}?timeout={timeout}"
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=60) as response:
        body: bytes = response.read()
        return body
    return b""
