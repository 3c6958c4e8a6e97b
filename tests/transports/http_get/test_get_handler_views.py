"""GET of a whole server with views: who asks is said by parameters, and what waits follows its node."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fsxds.settings.options import BY_NAME
from fsxds.settings.reading import read_settings
from fsxds.testing import serve
from fsxds.testing.server import SETTLE_S, Server

VIEWS = [
    {"name": "gold", "match": {"metadata": {"tier": "gold"}}, "layers": ["common", "gold", "nodes/{node.id}"]},
    {"name": "edge", "match": {"cluster": "edge"}, "layers": ["common"]},
]
TREE = {
    "common/cds.yaml": "[{name: web, connect_timeout: 1s}]",
    "gold/cds.yaml": "[{name: web, connect_timeout: 2s}]",
}
WEB = "/envoy.config.cluster.v3.Cluster/web"
GOLD = "xds.node.id=n1&xds.node.metadata.tier=%22gold%22"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of two views."""
    settings = replace(read_settings({}), settle_s=SETTLE_S, max_hold_s=600.0, views=BY_NAME["views"].form.read(VIEWS))
    with serve(TREE, settings=settings) as running:
        yield running


def get(server: Server, query: str, tag: str = "") -> tuple[int, Any, str]:
    """Get the cluster; return the status, the content, and the tag."""
    request = urllib.request.Request(f"{server.http}{WEB}?{query}", headers={"if-none-match": tag} if tag else {})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response), response.headers["ETag"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}"), ""


def test_each_node_gets_what_its_view_has(server: Server) -> None:
    """Metadata as Envoy writes it, or plainly; who is in no view gets nothing, and the reason."""
    assert get(server, GOLD)[1]["connect_timeout"] == "2s"
    assert get(server, "xds.node.metadata.tier=gold")[1]["connect_timeout"] == "2s"
    assert get(server, "xds.node.cluster=edge")[1]["connect_timeout"] == "1s"
    status, content, _ = get(server, "")
    assert (status, "no view is for this node" in content["message"]) == (404, True)


def test_what_waits_follows_its_node(server: Server) -> None:
    """A folder of its own is there: other layers are those of the node now, and what it waited for changed in them."""
    tag = get(server, GOLD)[2]
    answers: list[tuple[int, Any, str]] = []
    waiting = threading.Thread(target=lambda: answers.append(get(server, f"{GOLD}&wait=600", tag)))
    waiting.start()
    server.write("common/cds.yaml", TREE["common/cds.yaml"].replace("1s", "3s"))
    server.write("nodes/n1/cds.yaml", "[{name: web, connect_timeout: 4s}]")
    waiting.join(120)

    [(status, content, _)] = answers
    assert (status, content["connect_timeout"]) == (200, "4s")


def test_urls_lead_into_the_view_of_who_asks(server: Server) -> None:
    """The index and the lists name what they lead to as the node asks for it; the tags of two nodes differ."""

    def read(url: str) -> tuple[Any, str]:
        with urllib.request.urlopen(url, timeout=120) as response:
            return json.load(response), response.headers["ETag"]

    (of_type,) = read(f"{server.http}/?{GOLD}")[0]["types"]
    assert read(of_type["resources"][0]["url"])[0]["connect_timeout"] == "2s"
    (member,), tag = read(of_type["url"])
    assert read(member["name"])[0]["connect_timeout"] == "2s"
    assert read(of_type["url"].replace("n1", "n2"))[1] != tag
