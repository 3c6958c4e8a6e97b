from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from fsxds.model.errors import UsageError
from fsxds.settings.forms import TcpAddress, UnixAddress
from fsxds.tools.diff import sides
from fsxds.tools.diff.sides import fetch_served, is_running_address
from fsxds.transports.rest.http_server import listening

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(handler: Handler) -> web.Application:
    """Return a server that answers every request in one way."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    return application


async def by_type(request: web.Request) -> web.Response:
    """Answer for clusters, be unavailable for routes, and have nothing of the rest."""
    assert ("POST", "0") == (request.method, request.query["timeout"])
    if request.path.endswith("discovery:clusters"):
        return web.json_response({"resources": []})
    return web.Response(status=503 if request.path.endswith(":routes") else 304)


async def test_what_is_served() -> None:
    """Each type that is answered is a file, and types of which nothing good was loaded are named."""
    async with listening(answering(by_type), TcpAddress("127.0.0.1", 0), grace_s=0.1) as bound:
        served = await fetch_served(f"http://{bound}/")

    assert [("clusters.json", b'{"resources": []}')] == [(str(file.path), file.content) for file in served.tree.files]
    assert ["routes"] == [row.noun for row in served.unavailable]


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    """A server at a unix socket is asked the same."""
    async with listening(answering(by_type), UnixAddress(tmp_path / "s"), grace_s=0.1) as bound:
        served = await fetch_served(str(bound))

    assert ["clusters.json"] == [str(file.path) for file in served.tree.files]


async def _page(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _missing(_: web.Request) -> web.Response:
    return web.Response(status=404)


async def _strange(_: web.Request) -> web.Response:
    return web.json_response(["no such page"], status=404)


async def _no_view(_: web.Request) -> web.Response:
    return web.json_response({"code": 5, "message": "no view is for this node"}, status=404)


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        (_page, "is answered with text/plain, not with JSON; is this fsxds"),
        (_missing, "is answered with status 404; is"),
        (_strange, "is answered with status 404; is"),
        (_no_view, "no view is for this node; give the node by --node-id"),
    ],
)
async def test_other_servers(handler: Handler, complaint: str) -> None:
    """A server that is no fsxds is wrong use, and what it said is told."""
    async with listening(answering(handler), TcpAddress("127.0.0.1", 0), grace_s=0.1) as bound:
        with pytest.raises(UsageError, match=complaint):
            await fetch_served(f"http://{bound}")


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("http://127.0.0.1:1", "request failed: Connection refused; is fsxds running there"),
        ("unix:/no/such", "request failed: No such file or directory; is fsxds running there"),
        ("http://no-such-host.invalid", "request failed: "),
        ("http://", "is no URL; write http://HOST:PORT"),
        ("http://127.0.0.1:99999", "is no URL; write http://HOST:PORT"),
    ],
)
async def test_nobody_there(address: str, complaint: str) -> None:
    """Where nobody answers, that is said in one line."""
    with pytest.raises(UsageError, match=complaint) as raised:
        await fetch_served(address)

    assert 1 == len(str(raised.value).splitlines())


async def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the connection and says nothing is given up."""
    monkeypatch.setattr(sides, "READ_PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(UsageError, match="no response came in time"):
        await fetch_served(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("http://a:1", True), ("https://a", True), ("unix:/a", True), ("config/xds", False), ("http", False)],
)
def test_addresses(text: str, expected: bool) -> None:
    """An address begins with its scheme; anything else is a directory."""
    assert expected == is_running_address(text)
