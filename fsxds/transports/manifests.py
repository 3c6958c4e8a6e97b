"""Offers signed manifests of the served resources to relays.

A manifest has digests of secrets: it needs a connection that secrets may use, and a peer that may ask for all nodes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterable

import grpc
from aiohttp import web

from fsxds.model.values import OfferedManifest, TypeUrl
from fsxds.runtime.access import SECRET, AccessInUse, Peer
from fsxds.transports.exchange import ExtraServices, ServiceContext, peer_of_call, peer_of_request
from fsxds.transports.rest.poll_responses import Payload, write_response

SERVICE = "fsxds.v1.Manifests"
METHOD = f"/{SERVICE}/StreamManifests"
PATH = "/fsxds/v1/manifest"

FORM = "fsxds-manifests-1"

# The maximum per server, for its own tree and its upstreams.
MOST_OFFERED = 20


def services(context: ServiceContext) -> ExtraServices:
    """Return manifests' handlers: a row of `app.SERVICES`."""
    access, offered = context.access, context.offered

    async def stream(_: bytes, call: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        while True:
            _check(access, peer_of_call(call))
            manifests = offered.current
            yield write_offers(manifests)
            await offered.other_than(manifests)

    async def answer(request: web.Request) -> web.StreamResponse:
        _check(access, peer_of_request(request))
        headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
        return await write_response(request, headers, Payload(write_offers(offered.current)))

    methods = {"StreamManifests": grpc.unary_stream_rpc_method_handler(stream)}
    calls = (grpc.method_handlers_generic_handler(SERVICE, methods),)
    return ExtraServices(documents={PATH: answer}, calls=calls)


def write_offers(offers: Iterable[OfferedManifest]) -> bytes:
    """Write JSON with manifest and signature in base64."""
    written = [
        {"manifest": base64.b64encode(one.manifest).decode(), "signature": base64.b64encode(one.signature).decode()}
        for one in dict.fromkeys(offers)
    ]
    return json.dumps({"form": FORM, "manifests": written[:MOST_OFFERED]}).encode()


def _check(access: AccessInUse, peer: Peer) -> None:
    access.current.check_all_nodes(peer)
    access.current.check_type(peer, TypeUrl(SECRET))
