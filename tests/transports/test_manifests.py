from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import ProtocolError
from fsxds.model.values import OfferedManifest
from fsxds.runtime.access import Access, AccessInUse, Peer
from fsxds.runtime.channels import Latest
from fsxds.settings.access_rules import AccessRule
from fsxds.transports.exchange import Clients, ExtraServices, ServiceContext
from fsxds.transports.manifests import PATH, _check, services
from fsxds.upstream.trusted import read_offers

ONE, TWO = OfferedManifest(b"one", b"signature"), OfferedManifest(b"two", b"signature")
HERE, ELSEWHERE = Peer("127.0.0.1", is_private=True), Peer("10.0.0.1", is_private=False)
CODES = {"PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401}


def offering(catalogue: Catalogue, offered: Latest[tuple[OfferedManifest, ...]], access: Access) -> ExtraServices:
    """Return what offers manifests to those who have access."""
    return services(ServiceContext(Clients(), catalogue, AccessInUse(access), tuple, offered))


def code_of(access: Access, peer: Peer) -> str:
    """Return with which status a peer is rejected; empty where it is not."""
    try:
        _check(AccessInUse(access), peer)
    except ProtocolError as error:
        return error.code
    return ""


def test_who_is_offered_manifests() -> None:
    """They have digests of secrets: those get them who may ask for all nodes, where secrets may be sent."""
    assert code_of(Access(), HERE) == ""
    assert code_of(Access(), ELSEWHERE) == "PERMISSION_DENIED"
    assert code_of(Access(has_insecure_secrets=True), ELSEWHERE) == ""
    assert code_of(Access(rules=(AccessRule(token="team", nodes=("a",)),)), HERE) == "UNAUTHENTICATED"


@asynccontextmanager
async def over_http(catalogue: Catalogue, access: Access) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    """Offer manifests by GET, to peers of this machine."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await offering(catalogue, Latest((ONE,)), access).documents[PATH](request)
        except ProtocolError as error:
            return web.Response(status=CODES[error.code])

    application = web.Application()
    application.router.add_get(PATH, answer)
    async with TestClient(TestServer(application)) as client:
        yield client


@pytest.mark.parametrize(
    ("access", "expected"), [(Access(), 200), (Access(rules=(AccessRule(token="team", nodes=("a",)),)), 401)]
)
async def test_who_gets_manifests_over_http(catalogue: Catalogue, access: Access, expected: int) -> None:
    """The same peers get them."""
    async with over_http(catalogue, access) as client, client.get(PATH) as response:
        assert response.status == expected
        assert expected != 200 or read_offers(await response.read()) == (ONE,)


async def test_a_stream_has_each_manifest(catalogue: Catalogue) -> None:
    """A relay is sent what there is, and what follows; the newest, where it is slow."""
    offered = Latest[tuple[OfferedManifest, ...]](())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(offering(catalogue, offered, Access()).calls)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(60), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream("/fsxds.v1.Manifests/StreamManifests")(b"")
        first = await call.read()
        offered.replace((ONE,))
        offered.replace((TWO, ONE))
        second = await call.read()
        call.cancel()
    await server.stop(None)

    assert first == b'{"form": "fsxds-manifests-1", "manifests": []}'
    assert read_offers(second) == (TWO, ONE)
    with pytest.raises(asyncio.CancelledError):
        await call.read()
