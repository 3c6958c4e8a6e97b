"""Views over real sockets: each node is served its layers, on each transport, and follows what happens to them."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2

from fsxds.settings.forms import parse_address
from fsxds.settings.options import BY_NAME
from fsxds.settings.reading import read_settings
from fsxds.testing import serve
from fsxds.testing.server import SETTLE_S, Server
from tests.support.grpc_clients import DiscoveryClient, channel_to, method_path

VIEWS = [
    {"name": "edge", "match": {"cluster": "edge"}, "layers": ["common", "edge", "nodes/{node.id}"]},
    {"name": "inner", "match": {"cluster": "inner"}, "layers": ["common"]},
]
TREE = {
    "common/cds.yaml": "[{name: common, connect_timeout: 1s}]",
    "edge/cds.yaml": "[{name: edge, connect_timeout: 1s}]",
}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of two views."""
    settings = replace(read_settings({}), settle_s=SETTLE_S, views=BY_NAME["views"].form.read(VIEWS))
    with serve(TREE, settings=settings) as running:
        yield running


def poll(server: Server, cluster: str, node: str = "n1", version: str = "") -> tuple[int, Any]:
    """Poll for clusters."""
    body = json.dumps({"node": {"id": node, "cluster": cluster}, "version_info": version}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{server.http}/v3/discovery:clusters?timeout=10", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def names(answer: tuple[int, Any]) -> list[str]:
    """Return the names of the clusters in an answer."""
    return [resource["name"] for resource in answer[1]["resources"]]


def test_polls_see_their_layers(server: Server) -> None:
    """Each cluster of nodes sees its own, and a node that no rule matches is refused with the reason."""
    assert names(poll(server, "edge")) == ["common", "edge"]
    assert names(poll(server, "inner")) == ["common"]
    status, error = poll(server, "other")
    assert (status, error["code"]) == (404, 5)
    assert "no rule of `views`" in error["message"]
    assert any("404" in line for line in server.log)


def test_a_poll_gets_the_change_of_its_view(server: Server) -> None:
    """One that is held for a view is not answered by a change of another view."""
    first = poll(server, "inner")
    server.write("edge/cds.yaml", "[{name: edge2, connect_timeout: 1s}]")
    assert names(poll(server, "edge")) == ["common", "edge2"]
    server.write("common/cds.yaml", "[{name: common2, connect_timeout: 1s}]")

    assert names(poll(server, "inner", version=first[1]["version_info"])) == ["common2"]


@pytest.mark.parametrize("word", ["Stream", "Delta"])
async def test_streams_follow_their_node(server: Server, word: str) -> None:
    """A stream sees its layers, is not woken for others, and gets the layer that appears for its node."""
    async with channel_to(parse_address(server.grpc)) as channel:
        edge, inner = (DiscoveryClient(channel, method_path("", word)) for _ in range(2))
        for stream, cluster in ((edge, "edge"), (inner, "inner")):
            await stream.ask("CDS", node=base_pb2.Node(id="n1", cluster=cluster))
        first = await edge.answer()
        await edge.take(first)
        await inner.take(await inner.answer())
        assert len(first.resources) == 2
        await asyncio.to_thread(server.write, "nodes/n1/cds.yaml", "[{name: own, connect_timeout: 1s}]")
        second = await edge.answer()

        assert len(second.resources) == (3 if word == "Stream" else 1)
        assert await inner.is_silent()
