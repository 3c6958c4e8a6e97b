from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from fsxds.access import Access, AccessInUse, Peer
from fsxds.errors import ProtocolError
from fsxds.settings.access_rules import AccessRule
from fsxds.transports.manifests import ManifestOffers

HERE, ELSEWHERE = Peer("127.0.0.1", is_private=True), Peer("10.0.0.1", is_private=False)


def code_of(access: Access, peer: Peer) -> str:
    """Return with which status a peer is rejected; empty where it is not."""
    try:
        ManifestOffers(AccessInUse(access)).check(peer)
    except ProtocolError as error:
        return error.code
    return ""


def test_who_is_offered_manifests() -> None:
    """They have digests of secrets: those get them who may ask for all nodes, where secrets may be sent."""
    assert code_of(Access(), HERE) == ""
    assert code_of(Access(), ELSEWHERE) == "PERMISSION_DENIED"
    assert code_of(Access(has_insecure_secrets=True), ELSEWHERE) == ""
    assert code_of(Access(rules=(AccessRule(token="team", nodes=("a",)),)), HERE) == "UNAUTHENTICATED"


async def test_a_stream_has_each_manifest() -> None:
    """A relay is sent what there is, and what follows; the newest, where it is slow."""
    offers = ManifestOffers(AccessInUse(Access()))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(offers.handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(60), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream("/fsxds.v1.Manifests/StreamManifests")(b"")
        first = await call.read()
        offers.content.replace(b"second")
        second = await call.read()
        call.cancel()
    await server.stop(None)

    assert (first, second) == (b'{"form": "fsxds-manifests-1", "manifests": []}', b"second")
    with pytest.raises(asyncio.CancelledError):
        await call.read()
