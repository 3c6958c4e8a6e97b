"""Who may ask at the admin address: nobody without a token where there is one, the open paths excepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256

import aiohttp
import pytest
from aiohttp import web

from fsxds.runtime.access import Access, AccessInUse
from fsxds.settings.access_rules import Tokens
from fsxds.settings.forms import TcpAddress
from fsxds.transports.admin.admin_api import AdminApi, AdminPath, RequestParameters
from fsxds.transports.rest.http_server import listening
from tests.support.errors import Recorder

ACCESS = Access(admin_tokens=Tokens((("", sha256(b"operator-token").digest()),)))
BEARER = {"authorization": "Bearer operator-token"}


async def answer(_: web.Request, _words: RequestParameters) -> object:
    return {"answered": True}


async def stream(request: web.Request, _: RequestParameters) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun\n")
    await asyncio.Event().wait()
    return response


PATHS = {
    ("GET", "/healthz"): AdminPath(answer, is_open=True),
    ("GET", "/api/facts"): AdminPath(answer),
    ("POST", "/api/decide"): AdminPath(answer),
    ("GET", "/api/stream"): AdminPath(stream),
}


@pytest.fixture
def in_use() -> AccessInUse:
    return AccessInUse(ACCESS)


@pytest.fixture
async def client(in_use: AccessInUse) -> AsyncIterator[aiohttp.ClientSession]:
    address = TcpAddress("127.0.0.1", 0)
    application = AdminApi(PATHS, address, Recorder(), in_use).application()
    async with listening(application, address, grace_s=1) as bound, aiohttp.ClientSession(f"http://{bound}") as session:
        yield session
    assert not in_use.listeners


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/facts"), ("POST", "/api/decide"), ("GET", "/api/nothing")])
async def test_paths_want_the_token(client: aiohttp.ClientSession, method: str, path: str) -> None:
    """Also those that do not exist, so that nobody learns which do."""
    for headers in ({}, {"authorization": "Bearer x"}, {"authorization": "operator-token"}):
        async with client.request(method, path, json={}, headers=headers) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    async with client.request(method, path, json={}, headers=BEARER) as response:
        assert response.status == (404 if path == "/api/nothing" else 200)


async def test_open_paths_want_none(client: aiohttp.ClientSession) -> None:
    """They have no facts."""
    for headers in ({}, {"authorization": "Bearer x"}):
        async with client.get("/healthz", headers=headers) as response:
            assert response.status == 200


async def test_a_connection_that_lasts_ends_with_its_token(client: aiohttp.ClientSession, in_use: AccessInUse) -> None:
    """It is closed as soon as the token is not valid any more, and not before."""
    async with client.get("/api/stream", headers=BEARER) as response:
        assert await response.content.readline() == b"begun\n"
        in_use.replace(Access(admin_tokens=ACCESS.admin_tokens, has_insecure_secrets=True))
        async with client.get("/api/facts", headers=BEARER) as other:
            assert other.status == 200
        assert not response.content.at_eof()
        in_use.replace(Access(admin_tokens=Tokens((("", sha256(b"another").digest()),))))
        with pytest.raises(aiohttp.ClientPayloadError):
            async with asyncio.timeout(60):
                await response.content.read()
